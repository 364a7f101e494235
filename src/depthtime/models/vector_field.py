"""Vector fields made of one transformer block, each changed in one respect from the source's `Block(y)`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthtime.models.block import PostNormBlock
from depthtime.models.cache import KeyValues

OCTAVES = 4  # of depth time: sin and cos of pi t, 2 pi t, 4 pi t, 8 pi t


class PostNormField(PostNormBlock):
    """Block(y), the source's field: it carries its own residuals and ends in a norm."""


class DifferenceField(PostNormBlock):
    """Block(y) - y: one Euler step of length 1 is then one layer of the discrete stack."""

    def forward(self, y: Tensor, past: KeyValues | None = None) -> Tensor:
        """State (B, N, D) -> dy/dt (B, N, D)."""
        return super().forward(y, past) - y


class PreNormField(nn.Module):
    """Attention(LN1(y)) + FFN(LN2(y + Attention(LN1(y)))): what a pre-norm layer adds to its input.

    Source: Xiong et al. (2020), On Layer Normalization in the Transformer Architecture, figure 1b; sizes, biases and
    initialisation are those of the post-norm block, so both have the same parameters.
    """

    def __init__(self, width: int, heads: int, ff_width: int) -> None:
        super().__init__()
        self.block = PostNormBlock(width, heads, ff_width)  # the same six layers, joined in another order

    def forward(self, y: Tensor, past: KeyValues | None = None) -> Tensor:
        """State (B, N, D) -> dy/dt (B, N, D)."""
        layers = self.block
        mixed = layers.attention(layers.norm1(y), past)
        hidden = functional.gelu(layers.ff_in(layers.norm2(y + mixed)), approximate="tanh")
        return mixed + layers.ff_out(hidden)

    def flops_per_token(self, positions: int) -> int:
        return self.block.flops_per_token(positions)


class TimeShift(nn.Module):
    """A learned shift of the field's input that depends on depth time: features of t (8) -> (D), zero at the start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * OCTAVES, width))

    def forward(self, t: float) -> Tensor:
        """Depth time -> shift (D)."""
        angles = [math.pi * 2**octave * t for octave in range(OCTAVES)]
        features = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        return torch.tensor(features, dtype=self.weight.dtype, device=self.weight.device) @ self.weight


FIELDS: dict[str, type[PostNormField | DifferenceField | PreNormField]] = {
    "postnorm": PostNormField,
    "difference": DifferenceField,
    "prenorm": PreNormField,
}
