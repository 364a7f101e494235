"""Adaptive solvers: tsit5 with our stepper, the others through torchdiffeq.

The step size comes from an error norm over the whole state, so over the batch and over later positions: an adaptive
language model is causal only up to its tolerance. Steps are differentiated, step sizes are constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torchdiffeq import odeint

from depthtime.errors import SolveError
from depthtime.integrate.counting import CountedField
from depthtime.integrate.fixed import Solution, VectorField, advance, stage_slopes
from depthtime.integrate.tableaus import ADAPTIVE, TSIT5

MAX_NFE = 10_000
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0  # Hairer et al. (1993), the appendix's code DOPRI5: safe, fac1, fac2
PI_BETA = 0.04  # the same code: weight of the previous error
MIN_STEP = 1e-14  # of the interval: less cannot be told from rounding of t


def solve_adaptive(
    f: VectorField,
    y0: Tensor,
    *,
    solver: str,
    rtol: float,
    atol: float,
    t0: float = 0.0,
    t1: float = 1.0,
    max_nfe: int = MAX_NFE,
) -> Solution:
    """Integrate dy/dt = f(t, y) from t0 to t1 with a local error of about atol + rtol |y| a step (root mean square).

    Args:     solver: a name of ADAPTIVE.  max_nfe: bound on calls of the field.  f gets t as a Python float.
    Returns:  Solution; nfe counts every call: two more for the first step size (three with torchdiffeq, which
              evaluates f(t0, y0) again), num_steps the accepted steps.
    Raises:   SolveError for an unknown solver, a tolerance <= 0, NaN or infinity, a vanishing step, or max_nfe.
    Source:   Tsitouras (2011); Hairer, Norsett, Wanner (1993), section II.4; torchdiffeq 0.2.5 for the others,
              made to end a step at t1, where by itself it oversteps and interpolates.
    """
    field = counted_field(f, solver=solver, rtol=rtol, atol=atol, t0=t0, t1=t1, max_nfe=max_nfe)
    if solver == "tsit5":
        y = _solve_tsit5(field, y0, rtol, atol, t0, t1)
    else:
        with torch.no_grad():
            h = initial_step(field, y0, field(t0, y0), ADAPTIVE[solver], rtol, atol, t0, t1)
        options = {"first_step": h, "step_t": torch.tensor([t1], dtype=torch.float64, device=y0.device)}
        y = call_torchdiffeq(field, odeint, y0, t0, t1, method=solver, rtol=rtol, atol=atol, options=options)
    return Solution(y, nfe=field.nfe, num_steps=field.num_accepted, num_rejected=field.num_rejected)


def counted_field(
    f: VectorField, *, solver: str, rtol: float, atol: float, t0: float, t1: float, max_nfe: int
) -> CountedField:
    """The field with its counters, once the solver's name and tolerances are known to make sense."""
    if solver not in ADAPTIVE:
        raise SolveError(f"solver = {solver!r}, expected one of the adaptive solvers {', '.join(ADAPTIVE)}")
    for key, value in (("rtol", rtol), ("atol", atol)):
        if not 0 < value < math.inf:
            raise SolveError(f"{key} = {value!r}, expected a number > 0; 1e-5 is a usual value")
    name = f"{solver} (rtol = {rtol:g}, atol = {atol:g})"
    return CountedField(f, name=name, t0=t0, t1=t1, max_nfe=max_nfe)


def call_torchdiffeq(
    field: CountedField, odeint: Callable[..., Tensor], y0: Tensor, t0: float, t1: float, **keywords: object
) -> Tensor:
    """The state at t1 from odeint or odeint_adjoint, whose failed assertions become SolveErrors."""
    t = torch.tensor([t0, t1], dtype=torch.float64, device=y0.device)
    try:
        return odeint(field, y0, t, **keywords)[1]
    except AssertionError as error:
        if str(error).startswith(("underflow in dt", "non-finite values")):
            raise field.underflow() from error
        raise


def initial_step(
    field: CountedField, y0: Tensor, slope: Tensor, order: int, rtol: float, atol: float, t0: float, t1: float
) -> float:
    """Length of the first step, one more call of the field. Source: Hairer et al. (1993), section II.4, page 169."""
    scale = atol + rtol * y0.abs()
    d0, d1 = _rms(y0 / scale), _rms(slope / scale)
    h0 = 1e-6 if min(d0, d1) < 1e-5 else 0.01 * d0 / d1
    h0 = math.copysign(min(h0, abs(t1 - t0)), t1 - t0)
    d2 = _rms((field(t0 + h0, torch.add(y0, slope, alpha=h0)) - slope) / scale) / abs(h0)
    if not math.isfinite(d0 + d1 + d2):
        raise field.error("met a state or slope that is not finite (NaN or infinity)")
    h1 = max(1e-6, abs(h0) * 1e-3) if max(d1, d2) <= 1e-15 else (0.01 / max(d1, d2)) ** (1 / order)
    return min(100 * abs(h0), h1, abs(t1 - t0))


def _solve_tsit5(field: CountedField, y: Tensor, rtol: float, atol: float, t0: float, t1: float) -> Tensor:
    """Steps of TSIT5 with a PI controller: six calls a step, as the last slope is the next step's first."""
    t, previous, slope = t0, 1e-4, field(t0, y)  # 1e-4: facold of DOPRI5
    with torch.no_grad():
        h = math.copysign(initial_step(field, y, slope, TSIT5.order, rtol, atol, t0, t1), t1 - t0)
    grow = GROW
    while t != t1:
        if abs(h) < MIN_STEP * abs(t1 - t0):
            raise field.underflow()
        is_last = abs(t1 - t) <= 1.01 * abs(h)  # stretch by 1 % rather than leave a sliver
        h = t1 - t if is_last else h
        slopes = stage_slopes(field, y, TSIT5, t, h, first=slope)
        y_next = advance(y, slopes, TSIT5.b, h)
        ratio = _error_ratio(y, y_next, slopes, h, rtol, atol)
        factor = SAFETY * max(ratio, 1e-10) ** (0.75 * PI_BETA - 1 / TSIT5.order) if math.isfinite(ratio) else SHRINK
        if ratio <= 1:
            field.callback_accept_step()
            t, y, slope = (t1 if is_last else t + h), y_next, slopes[-1]
            h *= min(grow, max(SHRINK, factor * previous**PI_BETA))
            previous, grow = max(ratio, 1e-4), GROW
        else:
            field.callback_reject_step()
            h *= max(SHRINK, factor)
            grow = 1.0  # no growth straight after a rejection
    return y


@torch.no_grad()
def _error_ratio(y: Tensor, y_next: Tensor, slopes: list[Tensor], h: float, rtol: float, atol: float) -> float:
    """Estimated error of a step over its tolerance; at most 1 is accepted."""
    error = advance(torch.zeros_like(y), slopes, TSIT5.error_weights, h)
    return _rms(error / (atol + rtol * torch.maximum(y.abs(), y_next.abs())))


def _rms(x: Tensor) -> float:
    return x.detach().square().mean().sqrt().item()
