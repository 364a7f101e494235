import math

import pytest
import torch

from depthtime.errors import SolveError
from depthtime.integrate.adaptive import solve_adaptive
from depthtime.integrate.tableaus import ADAPTIVE
from known_odes import bend, forced_growth, forced_growth_at_1, linear_system, small_field

SOLVERS = pytest.mark.parametrize("solver", ADAPTIVE)


def _one():
    return torch.ones(1, dtype=torch.float64)


@SOLVERS
def test_error_falls_with_the_tolerance(solver):
    """At 1e-3 the methods of high order cross the interval in a step or two and are better than asked."""
    a, y0, y1 = linear_system()
    tight = 1e-5 if ADAPTIVE[solver] < 5 else 1e-9
    errors = [
        (solve_adaptive(lambda t, y: a @ y, y0, solver=solver, rtol=tol, atol=tol).y - y1).norm().item()
        for tol in (1e-3, tight)
    ]
    assert errors[0] < 1e-1
    assert errors[1] < min(100 * tight, errors[0] / 10)


@SOLVERS
@pytest.mark.parametrize(("t0", "t1"), [(0.0, 1.0), (1.0, 0.0)])
def test_evaluations_are_the_calls_and_none_is_outside_of_the_interval(solver, t0, t1):
    times = []

    def f(t, y):
        times.append(t)
        return forced_growth(t, y)

    solution = solve_adaptive(f, _one(), solver=solver, rtol=1e-4, atol=1e-4, t0=t0, t1=t1)
    assert solution.nfe == len(times)
    assert all(type(t) is float and 0 <= t <= 1 for t in times)
    stages = {"adaptive_heun": 1, "bosh3": 3, "dopri5": 6, "tsit5": 6, "dopri8": 13}[solver]
    first = 2 if solver == "tsit5" else 3
    assert solution.nfe == first + stages * (solution.num_steps + solution.num_rejected)
    assert solution.status == "completed"


@SOLVERS
def test_there_and_back_again(solver):
    y1 = torch.tensor([forced_growth_at_1()], dtype=torch.float64)
    y0 = solve_adaptive(forced_growth, y1, solver=solver, rtol=1e-5, atol=1e-5, t0=1.0, t1=0.0).y
    assert y0.item() == pytest.approx(1, abs=1e-4)


@SOLVERS
def test_a_jump_costs_rejected_steps(solver):
    solution = solve_adaptive(
        lambda t, y: torch.full_like(y, 50.0 if t > 0.43 else 0.0), _one(), solver=solver, rtol=1e-3, atol=1e-3
    )
    assert solution.num_rejected > 0
    assert solution.y.item() == pytest.approx(1 + 50 * 0.57, rel=0.1)


@SOLVERS
def test_gradients_are_those_of_the_equation(solver):
    y0, weight, bias = small_field()

    def gradients(tol):
        y = solve_adaptive(lambda t, s: bend(t, s, weight, bias), y0, solver=solver, rtol=tol, atol=tol).y
        return torch.cat([g.flatten() for g in torch.autograd.grad(y.square().sum(), (y0, weight, bias))])

    exact = _fine_gradients()
    assert ((gradients(1e-5) - exact).norm() / exact.norm()).item() < 1e-3


def _fine_gradients():
    y0, weight, bias = small_field()
    y = solve_adaptive(lambda t, s: bend(t, s, weight, bias), y0, solver="dopri8", rtol=1e-11, atol=1e-11).y
    return torch.cat([g.flatten() for g in torch.autograd.grad(y.square().sum(), (y0, weight, bias))])


@SOLVERS
def test_too_many_evaluations_name_solver_tolerance_time_and_fix(solver):
    calls = []

    def f(t, y):
        calls.append(t)
        return torch.sin(200 * y + 300 * t)

    with pytest.raises(SolveError, match=rf"{solver} .rtol = 1e-09.*max_nfe = 40.*reached t = .*raise rtol"):
        solve_adaptive(f, _one(), solver=solver, rtol=1e-9, atol=1e-9, max_nfe=40)
    assert len(calls) == 40


@SOLVERS
def test_nan_from_the_start_or_on_the_way_is_an_error(solver):
    with pytest.raises(SolveError, match="not finite"):
        solve_adaptive(lambda t, y: y * math.nan, _one(), solver=solver, rtol=1e-4, atol=1e-4)
    with pytest.raises(SolveError, match="not finite"):
        solve_adaptive(lambda t, y: y * (math.nan if t > 0.5 else 1.0), _one(), solver=solver, rtol=1e-4, atol=1e-4)


@SOLVERS
def test_a_solution_that_blows_up_is_an_error(solver):
    """y = 1 / (0.5 - t) has a pole in the interval."""
    with pytest.raises(SolveError, match=r"underflow in dt|not finite|max_nfe"):
        solve_adaptive(lambda t, y: y * y, 2 * _one(), solver=solver, rtol=1e-4, atol=1e-4, max_nfe=300)


def test_unknown_solvers_and_tolerances_are_refused():
    with pytest.raises(SolveError, match=r"'rk45', expected one of .*bosh3, dopri5, tsit5"):
        solve_adaptive(forced_growth, _one(), solver="rk45", rtol=1e-4, atol=1e-4)
    with pytest.raises(SolveError, match="atol = 0"):
        solve_adaptive(forced_growth, _one(), solver="tsit5", rtol=1e-4, atol=0)
    with pytest.raises(SolveError, match="must agree"):
        solve_adaptive(lambda t, y: y.float(), _one(), solver="bosh3", rtol=1e-4, atol=1e-4)
