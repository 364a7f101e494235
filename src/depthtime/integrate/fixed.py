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
    if num_steps < 1:
        raise SolveError(f"num_steps = {num_steps}, expected at least 1")
    h = (t1 - t0) / num_steps
    y = y0
    for step in range(num_steps):
        t = t0 + step * h
        slopes: list[Tensor] = []
        for node, row in zip(tableau.c, tableau.a, strict=True):
            slopes.append(f(t + node * h, _advance(y, slopes, row, h)))
        if step == 0 and (slopes[0].shape != y.shape or slopes[0].dtype != y.dtype):
            raise SolveError(
                f"the vector field returned {tuple(slopes[0].shape)} {slopes[0].dtype} for a state "
                f"{tuple(y.shape)} {y.dtype}; they must agree"
            )
        y = _advance(y, slopes, tableau.b, h)
    return Solution(y, nfe=tableau.num_stages * num_steps, num_steps=num_steps)


def _advance(y: Tensor, slopes: Sequence[Tensor], weights: Sequence[float], h: float) -> Tensor:
    """y + h * sum of weights times slopes; zero weights cost nothing."""
    for slope, weight in zip(slopes, weights, strict=True):
        if weight:
            y = torch.add(y, slope, alpha=h * weight)
    return y
