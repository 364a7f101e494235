"""One door to all solvers and gradients, which refuses combinations that make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from depthtime.errors import SolveError
from depthtime.integrate.adaptive import MAX_NFE, solve_adaptive
from depthtime.integrate.adjoint import solve_adjoint, solve_adjoint_adaptive
from depthtime.integrate.checkpointed import solve_checkpointed
from depthtime.integrate.counting import Cost
from depthtime.integrate.fixed import Solution, VectorField, solve_fixed
from depthtime.integrate.reversible import solve_reversible
from depthtime.integrate.tableaus import ADAPTIVE, TABLEAUS

GRADIENTS = ("direct", "checkpointed", "adjoint", "reversible")


def solve(
    f: VectorField,
    y0: Tensor,
    *,
    solver: str,
    num_steps: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    gradient: str = "direct",
    parameters: Sequence[Tensor] = (),
    t0: float = 0.0,
    t1: float = 1.0,
    max_nfe: int = MAX_NFE,
    cost: Cost | None = None,
) -> Solution:
    """Integrate dy/dt = f(t, y) from t0 to t1.

    Args:     y0: state (B, N, D) at t0.  solver: a name of TABLEAUS, with num_steps, or of ADAPTIVE, with rtol and
              atol.  gradient: one of GRADIENTS; reversible integrates another, coupled system, so y differs.
              parameters: every trainable tensor f reads, for adjoint and reversible.  max_nfe: bounds adaptive
              solvers.  cost: gets the calls of the backward pass.
    Returns:  Solution with y at t1 and the calls of the forward pass.
    Raises:   SolveError naming the key, its value and the fix; or when an adaptive solver fails.
    """
    _require_known(solver, gradient, y0, t0, t1)
    if solver in ADAPTIVE:
        rtol, atol = _tolerances(solver, num_steps, rtol, atol)
        adaptive: dict[str, Any] = {
            "solver": solver,
            "rtol": rtol,
            "atol": atol,
            "t0": t0,
            "t1": t1,
            "max_nfe": max_nfe,
        }
        if gradient == "adjoint":
            return solve_adjoint_adaptive(f, y0, parameters=parameters, cost=cost, **adaptive)
        if gradient == "direct":
            return solve_adaptive(f, y0, **adaptive)
        raise SolveError(
            f'gradient = "{gradient}" needs fixed steps, but solver = "{solver}" is adaptive; '
            f'take gradient = "direct" or "adjoint", or a solver of {", ".join(TABLEAUS)}'
        )
    num_steps = _steps(solver, num_steps, rtol, atol)
    fixed: dict[str, Any] = {"tableau": TABLEAUS[solver], "num_steps": num_steps, "t0": t0, "t1": t1}
    if gradient == "direct":
        return solve_fixed(f, y0, **fixed)
    if gradient == "checkpointed":
        return solve_checkpointed(f, y0, cost=cost, **fixed)
    solve_by_hand = solve_adjoint if gradient == "adjoint" else solve_reversible
    return solve_by_hand(f, y0, parameters=parameters, cost=cost, **fixed)


def _require_known(solver: str, gradient: str, y0: Tensor, t0: float, t1: float) -> None:
    if solver not in TABLEAUS and solver not in ADAPTIVE:
        raise SolveError(
            f"solver = {solver!r}, expected one of {', '.join(TABLEAUS)} (fixed steps) or "
            f"{', '.join(ADAPTIVE)} (adaptive)"
        )
    if gradient not in GRADIENTS:
        raise SolveError(f"gradient = {gradient!r}, expected one of {', '.join(GRADIENTS)}")
    if t0 == t1:
        raise SolveError(f"t1 = {t1!r} is t0, expected an interval; move one of them")
    if not y0.is_floating_point():
        raise SolveError(f"y0 is {y0.dtype}, expected floating point numbers; convert it with y0.float()")


def _steps(solver: str, num_steps: int | None, rtol: float | None, atol: float | None) -> int:
    """The number of steps, for a solver that reads no tolerance."""
    for key, value in (("rtol", rtol), ("atol", atol)):
        if value is not None:
            raise SolveError(f'{key} = {value!r}, but solver = "{solver}" takes fixed steps; give num_steps alone')
    if num_steps is None:
        raise SolveError(f'num_steps is missing, expected at least 1; solver = "{solver}" takes fixed steps')
    return num_steps


def _tolerances(solver: str, num_steps: int | None, rtol: float | None, atol: float | None) -> tuple[float, float]:
    """The tolerances, for a solver that chooses its steps."""
    if num_steps is not None:
        raise SolveError(
            f'num_steps = {num_steps!r}, but solver = "{solver}" chooses its steps; give rtol and atol alone'
        )
    if rtol is None or atol is None:
        raise SolveError(
            f'rtol = {rtol!r}, atol = {atol!r}, expected numbers > 0 for the adaptive solver "{solver}"; '
            "1e-5 is a usual value"
        )
    return rtol, atol
