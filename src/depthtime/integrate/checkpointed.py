"""Direct gradients with one saved state a step: each step is computed again in the backward pass."""

from __future__ import annotations

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from depthtime.integrate.counting import Cost
from depthtime.integrate.fixed import Solution, VectorField, require_steps, take_step
from depthtime.integrate.tableaus import Tableau


def solve_checkpointed(
    f: VectorField,
    y0: Tensor,
    *,
    tableau: Tableau,
    num_steps: int,
    t0: float = 0.0,
    t1: float = 1.0,
    cost: Cost | None = None,
) -> Solution:
    """As `solve_fixed`, with the same numbers, in memory of num_steps states plus the insides of one step.

    Returns:  Solution; the backward pass calls the field num_stages * num_steps times more, added to `cost`.
    Source:   Chen et al. (2016), Training deep nets with sublinear memory cost; one segment is one step.
    """
    require_steps(num_steps)
    is_recomputing = False

    def counted(t: float, y: Tensor) -> Tensor:
        if is_recomputing and cost is not None:
            cost.nfe_backward += 1
        return f(t, y)

    h = (t1 - t0) / num_steps
    y = y0
    for step in range(num_steps):
        y = checkpoint(take_step, counted, y, tableau, t0 + step * h, h, use_reentrant=False)
    is_recomputing = True
    return Solution(y, nfe=tableau.num_stages * num_steps, num_steps=num_steps)
