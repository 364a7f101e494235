"""A weight-shared stack: one block applied L times (Universal Transformer without its halting).

The control with the parameters and the block evaluations of a continuous model, and no integration: y -> Block(y), L
times. Source: Dehghani et al. (2019), Universal Transformers, section 2.1; here without a step embedding.
"""

from __future__ import annotations

from torch import Tensor, nn

from depthtime.config import ModelSizes, SharedRun
from depthtime.integrate.fixed import Solution
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import DepthCache, slots


class SharedStack(nn.Module):
    """y -> Block(Block(... y)), with the same weights each time."""

    def __init__(self, block: PostNormBlock, layers: int) -> None:
        super().__init__()
        self.block, self.layers = block, layers

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) -> Solution after all applications; nfe counts them."""
        past = slots(cache)
        for _ in range(self.layers):
            y = self.block(y, next(past))
        return Solution(y, nfe=self.layers, num_steps=self.layers)

    def flops_per_token(self, positions: int) -> int:
        return self.layers * self.block.flops_per_token(positions)


def build_core(run: SharedRun, sizes: ModelSizes) -> SharedStack:
    """The core that a row `model: shared` asks for."""
    return SharedStack(PostNormBlock(sizes.width, sizes.heads, sizes.ff_width), run.layers)
