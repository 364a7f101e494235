"""A continuous model with the choices of the source undone one by one: field, depth time as input, final norm.

y(t1) = y(t0) + integral of f(t, y(t)) dt, then an optional LayerNorm before the head. With `field: postnorm`,
`reads_time: false` and `final_norm: false` it is the model of `continuous`.
"""

from __future__ import annotations

from torch import Tensor, nn

from depthtime.config import ContinuousVariantRun, ModelSizes
from depthtime.integrate.fixed import Solution, solve_fixed
from depthtime.integrate.tableaus import TABLEAUS
from depthtime.models.cache import DepthCache, KeyValues, slots
from depthtime.models.vector_field import FIELDS, TimeShift


class ContinuousVariant(nn.Module):
    """A field of FIELDS integrated from t0 to t1 in equal steps; gradients go through the solver."""

    def __init__(self, run: ContinuousVariantRun, sizes: ModelSizes) -> None:
        super().__init__()
        self.run = run
        self.field = FIELDS[run.field](sizes.width, sizes.heads, sizes.ff_width)
        self.time = TimeShift(sizes.width) if run.reads_time else None
        self.norm = nn.LayerNorm(sizes.width, eps=1e-5) if run.final_norm else nn.Identity()

    def vector_field(self, t: float, y: Tensor, past: KeyValues | None = None) -> Tensor:
        """dy/dt at depth time t for a state (B, N, D)."""
        return self.field(y if self.time is None else y + self.time(t), past)

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) at t0 -> Solution at t1, normalised where the row asks for it."""
        run, past = self.run, slots(cache)
        solution = solve_fixed(
            lambda t, state: self.vector_field(t, state, next(past)),
            y,
            tableau=TABLEAUS[run.solver],
            num_steps=run.num_steps,
            t0=run.t0,
            t1=run.t1,
        )
        return Solution(self.norm(solution.y), nfe=solution.nfe, num_steps=solution.num_steps)

    def flops_per_token(self, positions: int) -> int:
        run = self.run
        return TABLEAUS[run.solver].num_stages * run.num_steps * self.field.flops_per_token(positions)


def build_core(run: ContinuousVariantRun, sizes: ModelSizes) -> ContinuousVariant:
    """The core that a row `model: continuous_variant` asks for."""
    return ContinuousVariant(run, sizes)
