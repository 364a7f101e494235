"""The continuous adjoint: gradients from a second ODE, solved backward in time together with the state.

Approximate: the backward solve meets its own discretisation error, and the state it finds on its way back is not the
one of the way there. The gap to the direct gradient is to be reported. Memory does not depend on the steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchdiffeq import odeint_adjoint

from depthtime.errors import SolveError
from depthtime.integrate.adaptive import MAX_NFE, call_torchdiffeq, counted_field, initial_step
from depthtime.integrate.counting import Cost
from depthtime.integrate.custom_gradient import refuse_captured, vector_jacobian, with_pull_back
from depthtime.integrate.fixed import Solution, VectorField, advance, solve_fixed
from depthtime.integrate.tableaus import ADAPTIVE, Tableau


def solve_adjoint(
    f: VectorField,
    y0: Tensor,
    *,
    tableau: Tableau,
    num_steps: int,
    parameters: Sequence[Tensor] = (),
    t0: float = 0.0,
    t1: float = 1.0,
    cost: Cost | None = None,
) -> Solution:
    """As `solve_fixed`; the gradient comes from the same scheme and steps run from t1 back to t0.

    The backward system is dy/dt = f, da/dt = -a df/dy, dg/dt = -a df/dp, from a(t1) = dL/dy(t1) and g(t1) = 0.
    Ours rather than torchdiffeq's, whose rk4 is the 3/8 rule: the forward pass must be the one of direct gradients.

    Args:     parameters: every trainable tensor that f reads.
    Returns:  Solution; the backward pass adds num_stages * num_steps calls to `cost`.
    Raises:   SolveError when f reads a trainable tensor that is not passed.
    Source:   Chen et al. (2018), Neural ordinary differential equations, algorithm 1.
    """
    h = (t1 - t0) / max(num_steps, 1)  # solve_fixed refuses num_steps < 1
    checked = refuse_captured(f, parameters)

    def run(y: Tensor) -> tuple[Tensor]:
        return (solve_fixed(checked, y, tableau=tableau, num_steps=num_steps, t0=t0, t1=t1).y,)

    def pull_back(
        states: tuple[Tensor, ...], parameters: tuple[Tensor, ...], a: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        (y,) = states
        g = [torch.zeros_like(p) for p in parameters]
        for step in range(num_steps, 0, -1):
            y, a = _step_back(f, y, a, g, parameters, tableau, t0 + step * h, h)
        if cost is not None:
            cost.nfe_backward += tableau.num_stages * num_steps
        return a, g

    y1 = with_pull_back(run, pull_back, y0, parameters)
    return Solution(y1, nfe=tableau.num_stages * num_steps, num_steps=num_steps)


def _step_back(
    f: VectorField,
    y: Tensor,
    a: Tensor,
    g: list[Tensor],
    parameters: tuple[Tensor, ...],
    tableau: Tableau,
    t: float,
    h: float,
) -> tuple[Tensor, Tensor]:
    """State and adjoint at t - h from those at t; adds to g, which nothing else reads, so it needs no stages."""
    y_slopes: list[Tensor] = []
    a_slopes: list[Tensor] = []
    for node, row, weight in zip(tableau.c, tableau.a, tableau.b, strict=True):
        y_stage = advance(y, y_slopes, row, -h).detach().requires_grad_()
        a_stage = advance(a, a_slopes, row, -h)
        with torch.enable_grad():
            slope = f(t - node * h, y_stage)
        y_bar, *parameter_bars = vector_jacobian(slope, (y_stage, *parameters), a_stage)
        y_slopes.append(slope.detach())
        a_slopes.append(-y_bar)
        for total, part in zip(g, parameter_bars, strict=True):
            total.add_(part, alpha=h * weight)
    return advance(y, y_slopes, tableau.b, -h), advance(a, a_slopes, tableau.b, -h)


def solve_adjoint_adaptive(
    f: VectorField,
    y0: Tensor,
    *,
    solver: str,
    rtol: float,
    atol: float,
    parameters: Sequence[Tensor] = (),
    t0: float = 0.0,
    t1: float = 1.0,
    max_nfe: int = MAX_NFE,
    cost: Cost | None = None,
) -> Solution:
    """As `solve_adaptive`, with torchdiffeq's adjoint gradient at the same tolerances.

    Its error norm backward is the largest root mean square over state, adjoint and parameter gradients.

    Args:     solver: one of torchdiffeq's (not tsit5).  max_nfe: bound on the calls of each pass.
    Raises:   SolveError as `solve_adaptive` does, and when f reads a trainable tensor that is not passed.
    Source:   torchdiffeq 0.2.5, odeint_adjoint.
    """
    if solver == "tsit5":
        others = ", ".join(name for name in ADAPTIVE if name != "tsit5")
        raise SolveError(f'solver = "tsit5" has no adjoint gradient; take {others}, or gradient = "direct"')
    checked = refuse_captured(f, parameters)
    field = counted_field(checked, solver=solver, rtol=rtol, atol=atol, t0=t0, t1=t1, max_nfe=max_nfe)
    field.cost = cost
    with torch.no_grad():
        h = initial_step(field, y0, field(t0, y0), ADAPTIVE[solver], rtol, atol, t0, t1)
    end, start = (torch.tensor([t], dtype=torch.float64, device=y0.device) for t in (t1, t0))
    y = call_torchdiffeq(
        field,
        odeint_adjoint,
        y0,
        t0,
        t1,
        method=solver,
        rtol=rtol,
        atol=atol,
        options={"first_step": h, "step_t": end},
        adjoint_options={"step_t": start},
        adjoint_params=tuple(p for p in parameters if p.requires_grad),
    )
    solution = Solution(y, nfe=field.nfe, num_steps=field.num_accepted, num_rejected=field.num_rejected)
    field.is_backward = True
    return solution
