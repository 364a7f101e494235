"""An algebraically reversible solver: exact gradients in memory that does not depend on the steps.

Two states, both of the order of the scheme whose increment is Psi_h(t, y):
    y_next = lambda y + (1 - lambda) z + Psi_h(t, z)        z_next = z - Psi_{-h}(t + h, y_next)
The backward pass solves these two lines for z and then y, and pulls the gradient back through each on the way.

Stability: where the field contracts, dy/dt = -k y, the difference y - z grows about exp(k h) lambda a step, and the
rounding of the way back about exp(k h) / lambda. A smaller lambda makes the first better and the second worse.
Reversible Heun (Kidger et al. 2021) and asynchronous leapfrog (Zhuang et al. 2021) are left out: they have order 2
only, and without damping both amplify dy/dt = mu y by x - sqrt(x^2 + 1) and x + sqrt(x^2 + 1), x = mu h, so that every
mu with a real part makes one of their modes grow.

Source: McCallum and Foster (2024), Efficient, accurate and stable gradients for neural ODEs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from depthtime.integrate.counting import Cost
from depthtime.integrate.custom_gradient import refuse_captured, vector_jacobian, with_pull_back
from depthtime.integrate.fixed import Solution, VectorField, advance, require_steps, stage_slopes
from depthtime.integrate.tableaus import Tableau

COUPLING = 0.99  # amplifies rounding on the way back by 1.9 in 64 steps; 0.9 by 850


def solve_reversible(
    f: VectorField,
    y0: Tensor,
    *,
    tableau: Tableau,
    num_steps: int,
    parameters: Sequence[Tensor] = (),
    coupling: float = COUPLING,
    t0: float = 0.0,
    t1: float = 1.0,
    cost: Cost | None = None,
) -> Solution:
    """Integrate the coupled pair (y, z) from y0, z0 = y0; the backward pass finds every state again, step by step.

    Args:     parameters: every trainable tensor that f reads.  coupling: lambda of the source, in (0, 1].
    Returns:  Solution; nfe == 2 * num_stages * num_steps, and as many again in the backward pass, added to `cost`.
    Raises:   SolveError when num_steps < 1 or f reads a trainable tensor that is not passed.
    """
    require_steps(num_steps)
    h = (t1 - t0) / num_steps
    checked = refuse_captured(f, parameters)

    def run(y: Tensor) -> tuple[Tensor, Tensor]:
        return coupled_steps(checked, y, tableau=tableau, num_steps=num_steps, coupling=coupling, t0=t0, t1=t1)

    def pull_back(
        states: tuple[Tensor, ...], parameters: tuple[Tensor, ...], y_bar: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        (y, z), z_bar = states, torch.zeros_like(y_bar)
        totals = [torch.zeros_like(p) for p in parameters]

        def pull(output: Tensor, source: Tensor, cotangent: Tensor) -> Tensor:
            source_bar, *parts = vector_jacobian(output, (source, *parameters), cotangent)
            for total, part in zip(totals, parts, strict=True):
                total.add_(part)
            return source_bar

        for step in range(num_steps - 1, -1, -1):
            t = t0 + step * h
            with torch.enable_grad():
                leaf = y.detach().requires_grad_()
                z_before = undo_z(f, leaf, z, tableau, t, h)
            y_bar = y_bar + pull(z_before, leaf, -z_bar)
            with torch.enable_grad():
                leaf = z_before.detach().requires_grad_()
                y_before = undo_y(f, y, leaf, tableau, coupling, t, h)
            y_bar = coupling * y_bar
            z_bar = z_bar + pull(y_before, leaf, -y_bar)
            y, z = y_before.detach(), z_before.detach()
        if cost is not None:
            cost.nfe_backward += 2 * tableau.num_stages * num_steps
        return y_bar + z_bar, totals

    y1 = with_pull_back(run, pull_back, y0, parameters)
    return Solution(y1, nfe=2 * tableau.num_stages * num_steps, num_steps=num_steps)


def coupled_steps(
    f: VectorField, y0: Tensor, *, tableau: Tableau, num_steps: int, coupling: float, t0: float, t1: float
) -> tuple[Tensor, Tensor]:
    """The forward pass alone, (y, z) at t1; autograd through it gives what `solve_reversible` computes."""
    h = (t1 - t0) / num_steps
    y = z = y0
    for step in range(num_steps):
        t = t0 + step * h
        slopes = stage_slopes(f, z, tableau, t, h)
        y = advance(coupling * y + (1 - coupling) * z, slopes, tableau.b, h)
        z = advance(z, stage_slopes(f, y, tableau, t + h, -h), tableau.b, h)
    return y, z


def undo_z(f: VectorField, y_next: Tensor, z_next: Tensor, tableau: Tableau, t: float, h: float) -> Tensor:
    """z at t from y and z at t + h: z_next + Psi_{-h}(t + h, y_next)."""
    return advance(z_next, stage_slopes(f, y_next, tableau, t + h, -h), tableau.b, -h)


def undo_y(f: VectorField, y_next: Tensor, z: Tensor, tableau: Tableau, coupling: float, t: float, h: float) -> Tensor:
    """y at t from y at t + h and z at t: (y_next - (1 - lambda) z - Psi_h(t, z)) / lambda."""
    base = y_next - (1 - coupling) * z
    return advance(base, stage_slopes(f, z, tableau, t, h), tableau.b, -h) / coupling
