"""The discrete baseline: L blocks with weights of their own, applied in sequence."""

from __future__ import annotations

from torch import Tensor, nn

from depthtime.config import DiscreteRun, ModelSizes
from depthtime.integrate.fixed import Solution
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import DepthCache, slots


class DiscreteStack(nn.Module):
    """y -> block_L(... block_1(y)); no residual around a block beyond those inside it."""

    def __init__(self, layers: int, width: int, heads: int, ff_width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PostNormBlock(width, heads, ff_width) for _ in range(layers))

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) -> Solution after all blocks; nfe counts block applications."""
        for block, past in zip(self.blocks, slots(cache), strict=False):
            y = block(y, past)
        return Solution(y, nfe=len(self.blocks), num_steps=len(self.blocks))

    def flops_per_token(self, positions: int) -> int:
        return sum(block.flops_per_token(positions) for block in self.blocks)  # type: ignore[operator,misc]


def build_core(run: DiscreteRun, sizes: ModelSizes) -> DiscreteStack:
    """The core that a row `model: discrete` asks for."""
    return DiscreteStack(run.layers, sizes.width, sizes.heads, sizes.ff_width)
