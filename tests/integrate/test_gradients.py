"""The four gradients, through the one door `solve`."""

import math

import pytest
import torch

from depthtime.errors import SolveError
from depthtime.integrate.counting import Cost
from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.reversible import COUPLING, coupled_steps, solve_reversible, undo_y, undo_z
from depthtime.integrate.solve import GRADIENTS, solve
from depthtime.integrate.tableaus import RK4, TABLEAUS
from known_odes import bend, forced_growth, forced_growth_at_1, small_field
from tolerances import ROUNDING

FIXED = pytest.mark.parametrize("solver", TABLEAUS)


def _solve(y0, weight, bias, **keywords):
    keywords = {"solver": "rk4", "num_steps": 4, "parameters": (weight, bias)} | keywords
    return solve(lambda t, y: bend(t, y, weight, bias), y0, **keywords)


def _gradients(**keywords):
    inputs = small_field()
    y = _solve(*inputs, **keywords).y
    return torch.cat([g.flatten() for g in torch.autograd.grad(y.square().sum(), inputs)])


def _gap(first, second):
    return ((first - second).norm() / second.norm()).item()


@pytest.mark.parametrize("gradient", ["direct", "checkpointed", "reversible"])
def test_exact_gradients_pass_gradcheck(gradient):
    assert torch.autograd.gradcheck(lambda *inputs: _solve(*inputs, gradient=gradient).y, small_field())


@FIXED
def test_checkpointed_is_direct_bit_for_bit(solver):
    inputs = small_field()
    ours = [_solve(*inputs, solver=solver, gradient=name).y for name in ("checkpointed", "direct")]
    assert torch.equal(*ours)
    assert torch.equal(_gradients(solver=solver, gradient="checkpointed"), _gradients(solver=solver))


@FIXED
def test_reversible_gradients_are_autograd_through_the_same_steps(solver):
    y0, weight, bias = inputs = small_field()
    y, _ = coupled_steps(
        lambda t, s: bend(t, s, weight, bias),
        y0,
        tableau=TABLEAUS[solver],
        num_steps=16,
        coupling=COUPLING,
        t0=0.0,
        t1=1.0,
    )
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(y.square().sum(), inputs)])
    assert torch.equal(_solve(*inputs, solver=solver, num_steps=16, gradient="reversible").y, y)
    assert _gap(_gradients(solver=solver, num_steps=16, gradient="reversible"), expected) < 1e-10


@FIXED
def test_reversible_keeps_the_order_of_its_scheme(solver):
    """With the default coupling, order 1 shows only from 1 / (1 - coupling) = 100 steps on, when y and z have met."""
    tableau, y0 = TABLEAUS[solver], torch.ones(1, dtype=torch.float64)
    for coupling in (0.5, COUPLING) if tableau.order > 1 else (0.5,):
        errors = [
            solve_reversible(forced_growth, y0, tableau=tableau, num_steps=n, coupling=coupling).y.item()
            - forced_growth_at_1()
            for n in (64, 128)
        ]
        assert math.log2(errors[0] / errors[1]) == pytest.approx(tableau.order, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_reversible_finds_its_initial_state_again(dtype):
    y0, weight, bias = small_field(dtype)

    def f(t, y):
        return bend(t, y, weight, bias)

    steps, h = 32, 1 / 32
    y, z = coupled_steps(f, y0, tableau=RK4, num_steps=steps, coupling=COUPLING, t0=0.0, t1=1.0)
    for step in range(steps - 1, -1, -1):
        z = undo_z(f, y, z, RK4, step * h, h)
        y = undo_y(f, y, z, RK4, COUPLING, step * h, h)
    assert _gap(y, y0) < ROUNDING[dtype]
    assert _gap(z, y0) < ROUNDING[dtype]


def _saved_bytes(gradient, num_steps):
    saved = 0

    def pack(x):
        nonlocal saved
        saved += x.numel() * x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        _solve(*small_field(), num_steps=num_steps, gradient=gradient)
    return saved


@pytest.mark.parametrize("gradient", ["reversible", "adjoint"])
def test_memory_does_not_depend_on_the_steps(gradient):
    assert _saved_bytes(gradient, 32) == _saved_bytes(gradient, 2) > 0
    assert _saved_bytes("direct", 32) == 16 * _saved_bytes("direct", 2)


def test_checkpointed_keeps_one_state_a_step():
    y0 = small_field()[0]
    assert _saved_bytes("checkpointed", 8) == 8 * y0.numel() * y0.element_size() < _saved_bytes("direct", 8) / 4


@FIXED
def test_adjoint_gap_to_direct_falls_with_the_order_of_the_scheme(solver):
    """euler_right: its forward and backward slopes are at opposite ends of a step, still of order 1."""
    gaps = [
        _gap(_gradients(solver=solver, num_steps=n, gradient="adjoint"), _gradients(solver=solver, num_steps=n))
        for n in (8, 16)
    ]
    assert gaps[0] > gaps[1] > 1e-14
    assert math.log2(gaps[0] / gaps[1]) > TABLEAUS[solver].order - 0.5


@pytest.mark.parametrize("solver", ["adaptive_heun", "bosh3", "dopri5", "dopri8"])
def test_adaptive_adjoint_nears_the_direct_gradient(solver):
    adaptive = {"solver": solver, "num_steps": None, "rtol": 1e-5, "atol": 1e-5}
    cost, calls = Cost(), []
    y0, weight, bias = inputs = small_field()

    def f(t, y):
        calls.append(t)
        return bend(t, y, weight, bias)

    solution = solve(
        f, y0, solver=solver, rtol=1e-5, atol=1e-5, gradient="adjoint", parameters=(weight, bias), cost=cost
    )
    assert solution.nfe == len(calls)
    gradients = torch.autograd.grad(solution.y.square().sum(), inputs)
    assert cost.nfe_backward == len(calls) - solution.nfe > 0
    assert _gap(torch.cat([g.flatten() for g in gradients]), _gradients(**adaptive)) < 1e-3


@pytest.mark.parametrize(
    ("gradient", "forward", "backward"),
    [("direct", 12, 0), ("checkpointed", 12, 12), ("adjoint", 12, 12), ("reversible", 24, 24)],
)
def test_calls_are_counted_forward_and_backward(gradient, forward, backward):
    y0, weight, bias = small_field()
    cost, calls = Cost(), []

    def f(t, y):
        calls.append(t)
        return bend(t, y, weight, bias)

    solution = solve(f, y0, solver="rk4", num_steps=3, gradient=gradient, parameters=(weight, bias), cost=cost)
    assert solution.nfe == len(calls) == forward
    solution.y.sum().backward()
    assert cost.nfe_backward == len(calls) - forward == backward


def test_gradients_need_not_reach_everything():
    """A frozen parameter, a state without gradient, and a field that ignores the state."""
    y0, weight, bias = (tensor.detach() for tensor in small_field())
    bias.requires_grad_()
    for gradient in GRADIENTS:
        (ours,) = torch.autograd.grad(_solve(y0, weight, bias, gradient=gradient).y.sum(), bias)
        assert ours.abs().sum() > 0
        y = solve(lambda t, y: torch.ones_like(y), bias, solver="rk4", num_steps=2, gradient=gradient).y
        assert torch.equal(torch.autograd.grad(y.sum(), bias)[0], torch.ones_like(bias))


@pytest.mark.parametrize(
    "keywords",
    [
        {"gradient": "adjoint"},
        {"gradient": "reversible"},
        {"gradient": "adjoint", "solver": "dopri5", "num_steps": None, "rtol": 1e-3, "atol": 1e-3},
    ],
)
def test_a_trainable_tensor_that_is_not_passed_is_an_error(keywords):
    y0, weight, bias = small_field()
    with pytest.raises(SolveError, match=r"1 trainable tensor.*\(3,\).*pass them"):
        _solve(y0, weight, bias, parameters=(weight,), **keywords)
    with torch.no_grad():
        _solve(y0, weight, bias, parameters=(), **keywords)
    scaled = weight * 2  # a tensor that is computed from others may be passed itself
    y = _solve(y0, scaled, bias, **keywords).y
    assert torch.autograd.grad(y.sum(), weight)[0].abs().sum() > 0


def test_euler_is_the_tied_residual_stack():
    y0, weight, bias = small_field()
    layers = 5
    y = solve(lambda t, y: layers * bend(0.3, y, weight, bias), y0, solver="euler", num_steps=layers).y
    stack = y0
    for _ in range(layers):
        stack = stack + bend(0.3, stack, weight, bias)
    assert _gap(y, stack) < ROUNDING[torch.float64]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"solver": "rk5"}, r"solver = 'rk5', expected one of euler, euler_right, .*\(fixed steps\) or .*tsit5"),
        ({"gradient": "exact"}, "gradient = 'exact', expected one of direct, checkpointed, adjoint, reversible"),
        ({"num_steps": None}, "num_steps is missing"),
        ({"num_steps": 0}, "num_steps = 0"),
        ({"num_steps": 0, "gradient": "reversible"}, "num_steps = 0"),
        ({"num_steps": 0, "gradient": "adjoint"}, "num_steps = 0"),
        ({"rtol": 1e-3}, 'rtol = 0.001, but solver = "rk4" takes fixed steps'),
        ({"t1": 0.0}, "t1 = 0.0 is t0"),
        ({"solver": "dopri5"}, 'num_steps = 4, but solver = "dopri5" chooses its steps'),
        ({"solver": "dopri5", "num_steps": None}, "rtol = None, atol = None, expected numbers > 0"),
        (
            {"solver": "tsit5", "num_steps": None, "rtol": 1e-3, "atol": 1e-3, "gradient": "reversible"},
            'gradient = "reversible" needs fixed steps, but solver = "tsit5" is adaptive',
        ),
        (
            {"solver": "tsit5", "num_steps": None, "rtol": 1e-3, "atol": 1e-3, "gradient": "adjoint"},
            "has no adjoint gradient; take adaptive_heun",
        ),
    ],
)
def test_combinations_without_sense_are_refused_with_the_fix(keywords, message):
    with pytest.raises(SolveError, match=message):
        _solve(*small_field(), **keywords)


def test_a_whole_number_state_is_refused():
    with pytest.raises(SolveError, match="floating point"):
        solve(lambda t, y: y, torch.ones(2, dtype=torch.int64), solver="euler", num_steps=1)


def test_direct_fixed_steps_are_solve_fixed():
    inputs = small_field()
    y0, weight, bias = inputs
    twin = solve_fixed(lambda t, y: bend(t, y, weight, bias), y0, tableau=RK4, num_steps=4)
    assert torch.equal(_solve(*inputs).y, twin.y)
