"""Causal multi-head self-attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthtime.models.cache import KeyValues


class CausalSelfAttention(nn.Module):
    """Attention with H contiguous heads of D/H channels, biases, no dropout.

    The three input projections are one matrix (3D, D), initialised as three Glorot-uniform matrices with zero bias.
    Source: ContinuumLM, model section. It deals channels to heads in a strided way, which differs from contiguous heads
    only by a fixed permutation that the output projection absorbs.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        with torch.no_grad():
            for matrix in (*self.qkv.weight.chunk(3), self.out.weight):
                nn.init.xavier_uniform_(matrix)
            self.qkv.bias.zero_()
            self.out.bias.zero_()

    def forward(self, y: Tensor, past: KeyValues | None = None) -> Tensor:
        """State (B, N, D) -> update (B, N, D); position i reads positions up to i, and all of `past`, which grows."""
        batch, positions, width = y.shape
        qkv = self.qkv(y).view(batch, positions, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, N, D/H)
        if past is not None:
            k, v = past.extend(k, v)
        mixed = attend(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, positions, width))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of the last positions (B, H, N, D/H) over all (B, H, M, D/H), M >= N."""
    new, total = q.shape[2], k.shape[2]
    if new == total:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    if new == 1:  # the last position sees all of them
        return functional.scaled_dot_product_attention(q, k, v)
    sees = torch.ones(new, total, dtype=torch.bool, device=q.device).tril(total - new)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=sees)
