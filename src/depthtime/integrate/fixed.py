"""Fixed-step explicit Runge-Kutta: one stepper for every tableau."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from depthtime.errors import SolveError
from depthtime.integrate.tableaus import Tableau

VectorField = Callable[[float, Tensor], Tensor]


@dataclass(frozen=True)
class Solution:
    """The state at the end of the interval and what it cost.

    nfe: calls of the vector field.  num_rejected: steps an adaptive solver threw away (0 with fixed steps).
    """

    y: Tensor
    nfe: int
    num_steps: int
    num_rejected: int = 0
    status: str = "completed"


def solve_fixed(
    f: VectorField, y0: Tensor, *, tableau: Tableau, num_steps: int, t0: float = 0.0, t1: float = 1.0
) -> Solution:
    """Integrate dy/dt = f(t, y) from t0 to t1 in equal steps; gradients flow through every operation (direct).

    Args:     y0: state at t0, any shape (B, N, D); its dtype is kept throughout, time stays a Python float.
    Returns:  Solution with y at t1 and nfe == tableau.num_stages * num_steps.
    Raises:   SolveError when num_steps < 1 or the field changes shape or dtype of the state.
    Source:   Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, section II.1.
    """
    require_steps(num_steps)
    h = (t1 - t0) / num_steps
    y = y0
    for step in range(num_steps):
        y = take_step(f, y, tableau, t0 + step * h, h)
    return Solution(y, nfe=tableau.num_stages * num_steps, num_steps=num_steps)


def take_step(f: VectorField, y: Tensor, tableau: Tableau, t: float, h: float) -> Tensor:
    """The state at t + h from the state y at t; h may be negative."""
    return advance(y, stage_slopes(f, y, tableau, t, h), tableau.b, h)


def stage_slopes(
    f: VectorField, y: Tensor, tableau: Tableau, t: float, h: float, first: Tensor | None = None
) -> list[Tensor]:
    """The slopes k_i = f(t + c_i h, y + h sum_j a_ij k_j) of one step; `first` is k_1 where it is known already."""
    slopes: list[Tensor] = [] if first is None else [first]
    for node, row in list(zip(tableau.c, tableau.a, strict=True))[len(slopes) :]:
        slopes.append(f(t + node * h, advance(y, slopes, row, h)))
    require_same_kind(slopes[0], y)
    return slopes


def advance(y: Tensor, slopes: Sequence[Tensor], weights: Sequence[float], h: float) -> Tensor:
    """y + h * sum of weights times slopes; zero weights cost nothing."""
    for slope, weight in zip(slopes, weights, strict=True):
        if weight:
            y = torch.add(y, slope, alpha=h * weight)
    return y


def require_steps(num_steps: int) -> None:
    if num_steps < 1:
        raise SolveError(f"num_steps = {num_steps}, expected at least 1")


def require_same_kind(slope: Tensor, y: Tensor) -> None:
    """Refuse a slope of another shape or dtype than the state: it would be broadcast or promoted in silence."""
    if slope.shape != y.shape or slope.dtype != y.dtype:
        raise SolveError(
            f"the vector field returned {tuple(slope.shape)} {slope.dtype} for a state "
            f"{tuple(y.shape)} {y.dtype}; they must agree"
        )
