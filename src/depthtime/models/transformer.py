"""Discrete pre-norm transformers, gpt or llama, and what a DiffEqFormer changes in them, one at a time.

`wiring: parallel` lets both branches read the same state, `step_scale: inverse_depth` multiplies each update by 1/L,
`shares_weights` applies one layer L times. All three together are explicit Euler on an autonomous field.
"""

from __future__ import annotations

import re

from torch import Tensor, nn

from depthtime.config import FormSizes, TransformerRun
from depthtime.integrate.fixed import Solution
from depthtime.models.cache import DepthCache, KeyValues, slots
from depthtime.models.layer_weights import Affine, BlockWeights, LayerWeights, Scale, matrices_at
from depthtime.models.pre_norm import EPS, INIT_STD, flops_per_token, parallel_update, sequential_layer
from depthtime.models.transformer_lm import TransformerLM


class TransformerBlock(nn.Module):
    """The weights of one layer: matrices N(0, 0.02^2), biases 0, gains 1.

    Source: the defaults of Levanter and Haliax, with which the baselines of DiffEqFormer were trained; GPT-2's smaller
    start of the output matrices is not among them.
    """

    def __init__(self, sizes: FormSizes) -> None:
        super().__init__()
        width, ff_width, is_gpt = sizes.width, sizes.ff_width, sizes.form == "gpt"

        def norm() -> nn.LayerNorm | nn.RMSNorm:
            return nn.LayerNorm(width, eps=EPS) if is_gpt else nn.RMSNorm(width, eps=EPS)

        self.norm1 = norm()
        self.qkv = _linear(width, 3 * width, is_gpt)
        self.attention_out = _linear(width, width, is_gpt)
        self.norm2 = norm()
        self.ff_in = _linear(width, ff_width, is_gpt)
        self.ff_gate = None if is_gpt else _linear(width, ff_width, has_bias=False)
        self.ff_out = _linear(ff_width, width, is_gpt)

    def weights(self) -> BlockWeights:
        """The parameters, as the layer's function takes them."""
        return BlockWeights(
            norm1=_scale(self.norm1),
            qkv=_affine(self.qkv),
            attention_out=_affine(self.attention_out),
            norm2=_scale(self.norm2),
            ff_in=_affine(self.ff_in),
            ff_gate=None if self.ff_gate is None else _affine(self.ff_gate),
            ff_out=_affine(self.ff_out),
        )


class TransformerStack(nn.Module):
    """L layers in sequence, y -> y + step * update, with step 1 or 1/L and weights of their own or one set for all."""

    decayed: re.Pattern[str] | None = re.compile(
        r"embedding\.weight|position_table|core\..*\.(qkv|attention_out|ff_in|ff_gate|ff_out)\.weight"
    )

    def __init__(self, run: TransformerRun, sizes: FormSizes) -> None:
        super().__init__()
        self.run, self.sizes = run, sizes
        self.blocks = nn.ModuleList(TransformerBlock(sizes) for _ in range(1 if run.shares_weights else run.layers))

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) -> Solution after all layers; nfe counts their applications."""
        layers = self.run.layers
        for weights, past in zip(self._weights(), slots(cache), strict=False):
            y = self._layer(weights, y, past)
        return Solution(y, nfe=layers, num_steps=layers)

    def _layer(self, weights: BlockWeights, y: Tensor, past: KeyValues | None) -> Tensor:
        step = 1.0 if self.run.step_scale == "one" else 1 / self.run.layers
        dropout = self.sizes.dropout if self.training else 0.0
        if self.run.wiring == "sequential":
            return sequential_layer(self.sizes, weights, y, past, step=step, dropout=dropout)
        return y + step * parallel_update(self.sizes, weights, y, past, dropout=dropout)

    def layer_weights(self) -> list[LayerWeights]:
        """The matrices of layers k = 1 ... L, at depth times k/L."""
        return [matrices_at(k / self.run.layers, weights) for k, weights in enumerate(self._weights(), start=1)]

    def flops_per_token(self, positions: int) -> int:
        return self.run.layers * flops_per_token(self.sizes, positions)

    def _weights(self) -> list[BlockWeights]:
        """The weights of layers 1 ... L."""
        own: list[BlockWeights] = [block.weights() for block in self.blocks]  # type: ignore[operator,misc]
        return own * self.run.layers if self.run.shares_weights else own


def build_model(run: TransformerRun, sizes: FormSizes, *, num_classes: int, max_positions: int) -> TransformerLM:
    """The model that a row `model: transformer` asks for."""
    model = TransformerLM(sizes, num_classes=num_classes, max_positions=max_positions)
    model.core = TransformerStack(run, sizes)
    return model


def _linear(in_width: int, out_width: int, has_bias: bool) -> nn.Linear:
    layer = nn.Linear(in_width, out_width, bias=has_bias)
    nn.init.normal_(layer.weight, std=INIT_STD)
    if has_bias:
        nn.init.zeros_(layer.bias)
    return layer


def _affine(layer: nn.Linear) -> Affine:
    return Affine(layer.weight.t(), layer.bias)


def _scale(norm: nn.LayerNorm | nn.RMSNorm) -> Scale:
    return Scale(norm.weight, norm.bias if isinstance(norm, nn.LayerNorm) else None)
