import math

import pytest
import torch

from depthtime.errors import SolveError
from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.tableaus import EULER, EULER_RIGHT, RK4, TABLEAUS
from known_odes import forced_growth, forced_growth_at_1, linear_system

SCHEMES = pytest.mark.parametrize("tableau", TABLEAUS.values(), ids=lambda s: s.name)


def _error(tableau, num_steps):
    a, y0, y1 = linear_system()
    return (solve_fixed(lambda t, y: a @ y, y0, tableau=tableau, num_steps=num_steps).y - y1).norm().item()


@SCHEMES
def test_error_falls_with_the_order_of_the_scheme(tableau):
    steps = [32, 64, 128]
    errors = [_error(tableau, n) for n in steps]
    slopes = [math.log2(errors[k] / errors[k + 1]) for k in range(2)]
    assert slopes[-1] == pytest.approx(tableau.order, abs=0.1)


@SCHEMES
def test_time_reaches_the_field_at_the_nodes(tableau):
    y0 = torch.tensor([1.0], dtype=torch.float64)
    errors = [
        abs(solve_fixed(forced_growth, y0, tableau=tableau, num_steps=n).y.item() - forced_growth_at_1())
        for n in (32, 64)
    ]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(tableau.order, abs=0.1)


def test_euler_right_reads_layer_k_of_l_at_k_over_l():
    times = []

    def f(t, y):
        times.append(t)
        return -y

    y = solve_fixed(f, torch.ones(2, dtype=torch.float64), tableau=EULER_RIGHT, num_steps=4).y
    assert times == [0.25, 0.5, 0.75, 1.0]
    assert torch.equal(y, solve_fixed(f, torch.ones(2, dtype=torch.float64), tableau=EULER, num_steps=4).y)


@SCHEMES
def test_reported_evaluations_are_the_calls_of_the_field(tableau):
    calls = []

    def f(t, y):
        calls.append(t)
        return -y

    solution = solve_fixed(f, torch.ones(2), tableau=tableau, num_steps=5)
    assert solution.nfe == len(calls) == tableau.num_stages * 5
    assert (solution.num_steps, solution.num_rejected, solution.status) == (5, 0, "completed")


def test_rk4_is_the_classical_scheme_and_not_the_three_eighths_rule():
    """One step on dy/dt = t^3 y: the two schemes of order 4 differ in the fifth-order term."""

    def f(t, y):
        return t**3 * y + math.sin(3 * t)

    y = 1.0
    k1 = f(0.0, y)
    k2 = f(0.5, y + 0.5 * k1)
    k3 = f(0.5, y + 0.5 * k2)
    k4 = f(1.0, y + k3)
    by_hand = y + (k1 + 2 * k2 + 2 * k3 + k4) / 6
    ours = solve_fixed(f, torch.tensor([1.0], dtype=torch.float64), tableau=RK4, num_steps=1).y.item()
    assert ours == pytest.approx(by_hand, rel=1e-14)


def test_the_interval_may_be_any():
    solution = solve_fixed(
        lambda t, y: y, torch.ones(1, dtype=torch.float64), tableau=RK4, num_steps=64, t0=0.5, t1=2.0
    )
    assert solution.y.item() == pytest.approx(math.exp(1.5), rel=1e-7)


def test_direct_gradients_are_exact():
    torch.manual_seed(0)
    weight = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    y0 = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def solve(y, w):
        return solve_fixed(lambda t, s: torch.tanh(s @ w) + t, y, tableau=RK4, num_steps=3).y

    assert torch.autograd.gradcheck(solve, (y0, weight))


def test_the_state_keeps_its_dtype():
    for dtype in (torch.float32, torch.float64):
        assert solve_fixed(lambda t, y: -y, torch.ones(3, dtype=dtype), tableau=RK4, num_steps=2).y.dtype is dtype


def test_a_field_of_another_shape_or_no_steps_is_refused():
    with pytest.raises(SolveError, match="must agree"):
        solve_fixed(lambda t, y: y.double(), torch.ones(3), tableau=EULER, num_steps=1)
    with pytest.raises(SolveError, match="num_steps = 0"):
        solve_fixed(lambda t, y: y, torch.ones(3), tableau=EULER, num_steps=0)
