"""The neural-ODE model: one block as an autonomous vector field, integrated over depth time.

y(t1) = y(t0) + integral of Block(y(t)) dt. The field is the block's whole output, not Block(y) - y, and ends in a
norm, so its length is about sqrt(D) everywhere. Source: ContinuumLM, model section.
"""

from __future__ import annotations

from torch import Tensor, nn

from depthtime.config import ContinuousRun, ModelSizes
from depthtime.integrate.fixed import Solution, solve_fixed
from depthtime.integrate.tableaus import TABLEAUS, Tableau
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import DepthCache, KeyValues, slots


class ContinuousDepth(nn.Module):
    """A block integrated from t0 to t1 in equal steps; gradients go through the solver."""

    def __init__(self, block: PostNormBlock, tableau: Tableau, num_steps: int, t0: float, t1: float) -> None:
        super().__init__()
        self.block = block
        self.tableau, self.num_steps, self.t0, self.t1 = tableau, num_steps, t0, t1

    def vector_field(self, t: float, y: Tensor, past: KeyValues | None = None) -> Tensor:
        """dy/dt at depth time t for a state (B, N, D); t is not read."""
        return self.block(y, past)

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) at t0 -> Solution at t1; `cache` holds earlier positions, a slot for each step and stage."""
        past = slots(cache)
        return solve_fixed(
            lambda t, state: self.vector_field(t, state, next(past)),
            y,
            tableau=self.tableau,
            num_steps=self.num_steps,
            t0=self.t0,
            t1=self.t1,
        )

    def flops_per_token(self, positions: int) -> int:
        return self.tableau.num_stages * self.num_steps * self.block.flops_per_token(positions)


def build_core(run: ContinuousRun, sizes: ModelSizes) -> ContinuousDepth:
    """The core that a row `model: continuous` asks for."""
    block = PostNormBlock(sizes.width, sizes.heads, sizes.ff_width)
    return ContinuousDepth(block, TABLEAUS[run.solver], run.num_steps, run.t0, run.t1)
