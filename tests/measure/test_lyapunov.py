"""Exponents of systems whose exponents are known, and of small models against products and finite differences."""

import math

import pytest
import torch

from depthtime.measure.lyapunov import (
    Flow,
    Step,
    flow_jacobian,
    log_largest,
    log_mean,
    orthonormal,
    pair_exponents,
    tangent_flow,
    trajectory,
)
from tolerances import HALF_DIGITS, ROUNDING

EXACT = ROUNDING[torch.float64]


def linear(matrix, h, count):
    """`count` steps of dy/dt = A y, alike for each token (N, D)."""
    return [Step(h, lambda y: y @ matrix.T)] * count


def matrix(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def coupled(tokens=4, width=3, count=5, seed=0):
    """A causal, curved system: tanh of mixed earlier tokens; with steps that differ, as weights over depth do."""
    draw = torch.Generator().manual_seed(seed)
    mixing = torch.rand(count, tokens, tokens, generator=draw, dtype=torch.float64).tril()
    weights = torch.randn(count, width, width, generator=draw, dtype=torch.float64)
    steps = [Step(0.3, lambda y, m=m, w=w: m @ torch.tanh(y @ w)) for m, w in zip(mixing, weights, strict=True)]
    return steps, torch.randn(tokens, width, generator=draw, dtype=torch.float64)


def flow_of(steps, y, *, token=0, output=0, directions=None):
    """The flow of one token, without the axis of tokens."""
    width = y.shape[1]
    seeds = orthonormal(width, directions or width)
    flow = tangent_flow(steps, trajectory(steps, y)[:-1], seeds, tokens=[token], output=output)
    return Flow(flow.exponents[0], flow.at_output[0])


def pairs_of(steps, y, output=0):
    return pair_exponents(steps, trajectory(steps, y)[:-1], output)


def test_a_diagonal_system_has_the_exponents_of_its_rates():
    """Each step multiplies by 1 + h a; with more steps that tends to the rates themselves over a time of 1."""
    rates = torch.tensor([0.7, -0.4, 0.1], dtype=torch.float64)
    y = torch.ones(1, 3, dtype=torch.float64)
    for count in (4, 200):
        steps = linear(torch.diag(rates), 1 / count, count)
        expected = count * (1 + rates / count).log()
        assert torch.allclose(pairs_of(steps, y)[0], expected, atol=EXACT, rtol=0)
        assert log_largest(flow_of(steps, y).at_output) == pytest.approx(float(expected.max()), abs=EXACT)
        assert float(flow_of(steps, y).exponents.sum()) == pytest.approx(float(expected.sum()), abs=1e-10)
    assert (expected - rates).abs().max() < 2e-3


def test_a_rotation_grows_by_the_length_of_its_steps_in_all_directions():
    """1 + h w J turns and stretches by sqrt(1 + h^2 w^2), which tends to a turn: exponents 0."""
    turn = matrix([0, -2], [2, 0])
    y = torch.ones(1, 2, dtype=torch.float64)
    for count in (5, 200):
        steps = linear(turn, 1 / count, count)
        each = count * math.log(math.hypot(1, 2 / count))
        assert torch.allclose(pairs_of(steps, y)[0], torch.full((2,), each, dtype=torch.float64), atol=1e-10, rtol=0)
        flow = flow_of(steps, y)
        assert flow.exponents.tolist() == pytest.approx([each, each], abs=1e-10)
        assert log_mean(flow.at_output) == pytest.approx(each, abs=1e-10)
    assert each < 1.1e-2


def test_a_shear_grows_at_once_though_its_exponents_are_0():
    """A triangular product has the diagonal as its QR exponents, but perturbations grow like its singular values."""
    shear = matrix([0, 3], [0, 0])
    steps, y = linear(shear, 0.25, 4), torch.ones(1, 2, dtype=torch.float64)
    assert torch.allclose(pairs_of(steps, y), torch.zeros(1, 2, dtype=torch.float64), atol=EXACT)
    product = matrix([1, 3], [0, 1])
    largest = math.log(float(torch.linalg.svdvals(product)[0]))
    assert log_largest(flow_of(steps, y).at_output) == pytest.approx(largest, abs=EXACT)
    assert largest > 1


def test_a_triangular_system_has_the_exponents_of_its_diagonal():
    upper = matrix([0.5, 2, -1], [0, -0.3, 4], [0, 0, 0.2])
    steps, y = linear(upper, 0.1, 10), torch.ones(1, 3, dtype=torch.float64)
    expected = 10 * (1 + 0.1 * upper.diagonal()).log()
    assert torch.allclose(pairs_of(steps, y)[0], expected, atol=EXACT, rtol=0)


def test_a_rate_that_depends_on_time_gives_its_integral():
    """dy/dt = cos(3 t) y: the sum of log(1 + h cos 3 t), which tends to sin(3) / 3 over a time of 1."""
    y = torch.ones(1, 1, dtype=torch.float64)
    for count in (6, 400):
        rates = [math.cos(3 * (k + 1) / count) for k in range(count)]
        steps = [Step(1 / count, lambda y, a=a: a * y) for a in rates]
        expected = sum(math.log1p(a / count) for a in rates)
        assert pairs_of(steps, y).item() == pytest.approx(expected, abs=1e-11)
        assert flow_of(steps, y).exponents.item() == pytest.approx(expected, abs=1e-11)
    assert expected == pytest.approx(math.sin(3) / 3, abs=5e-3)


def test_the_flow_is_the_product_of_the_linearised_steps():
    """Against (I + h J) of the whole sequence, multiplied step by step."""
    steps, y = coupled()
    states, (n, d) = trajectory(steps, y), y.shape
    product = torch.eye(n * d, dtype=torch.float64)
    for step, state in zip(steps, states, strict=False):
        jacobian = torch.autograd.functional.jacobian(step.field, state).reshape(n * d, n * d)
        product = (torch.eye(n * d, dtype=torch.float64) + step.h * jacobian) @ product
    seeds = orthonormal(d, d)
    for token in range(n):
        flow = flow_of(steps, y, token=token, output=n - 1)
        columns = product[:, token * d : (token + 1) * d] @ seeds
        assert torch.allclose(flow.at_output, columns[-d:], atol=EXACT)
        assert torch.allclose(flow.exponents, torch.linalg.qr(columns).R.diagonal().abs().log(), atol=1e-10)


def test_the_flow_is_the_jacobian_of_the_whole_solve():
    steps, y = coupled(seed=1)
    reference = flow_jacobian(steps, y, 3)
    for token in range(4):
        flow = flow_of(steps, y, token=token, output=3)
        assert torch.allclose(flow.at_output, reference[token] @ orthonormal(3, 3), atol=EXACT)


def test_the_flow_is_what_a_small_change_of_the_token_does():
    steps, y = coupled(seed=2)
    seeds, eps = orthonormal(3, 2), 1e-6
    flow = flow_of(steps, y, token=1, output=3, directions=2)
    for number in range(2):
        change = torch.zeros_like(y)
        change[1] = eps * seeds[:, number]
        moved = (trajectory(steps, y + change)[-1] - trajectory(steps, y - change)[-1])[3] / (2 * eps)
        assert torch.allclose(flow.at_output[:, number], moved, atol=HALF_DIGITS[torch.float64])


def test_tokens_carried_together_are_those_carried_alone():
    steps, y = coupled(seed=6)
    together = tangent_flow(steps, trajectory(steps, y)[:-1], orthonormal(3, 2), tokens=[2, 0, 3], output=3)
    for place, token in enumerate((2, 0, 3)):
        alone = flow_of(steps, y, token=token, output=3, directions=2)
        assert torch.allclose(together.at_output[place], alone.at_output, atol=EXACT)
        assert torch.allclose(together.exponents[place], alone.exponents, atol=EXACT)


def test_fewer_directions_are_the_first_of_all_and_see_no_more_growth():
    steps, y = coupled(seed=3)
    few, every = (flow_of(steps, y, token=1, output=3, directions=r) for r in (2, 3))
    assert torch.allclose(few.at_output, every.at_output[:, :2], atol=EXACT)
    assert torch.allclose(few.exponents, every.exponents[:2], atol=EXACT)
    assert log_largest(few.at_output) <= log_largest(every.at_output)


def test_with_one_token_both_definitions_have_the_volume_of_the_exact_product():
    """The sum of exponents, log |det|, does not depend on the directions; each one does at a finite time."""
    steps, y = coupled(tokens=1, seed=4)
    product = flow_jacobian(steps, y, 0)[0]
    pairs = pairs_of(steps, y)[0]
    assert torch.allclose(pairs, torch.linalg.qr(product).R.diagonal().abs().log(), atol=1e-10)
    assert float(pairs.sum()) == pytest.approx(float(torch.linalg.slogdet(product).logabsdet), abs=1e-10)
    assert float(flow_of(steps, y).exponents.sum()) == pytest.approx(float(pairs.sum()), abs=1e-10)


def test_a_later_token_has_no_influence_on_an_earlier_output():
    """Nothing arrives, so the growth is -inf; the released definition cannot say so, its exponents are 0."""
    steps, y = coupled(seed=5)
    for token in (2, 3):
        assert log_largest(flow_jacobian(steps, y, 1)[token]) == -math.inf
        assert log_largest(flow_of(steps, y, token=token, output=1).at_output) == -math.inf
    pairs = pairs_of(steps, y, output=1)
    assert torch.equal(pairs[2:], torch.zeros(2, 3, dtype=torch.float64))
    assert pairs[:2].abs().min() > 0


def test_pairs_of_different_tokens_are_not_the_flow():
    """Two tokens that only stand still and are copied: the flow carries one unit, the released matrix grows."""
    copies = matrix([0, 0], [1, 0])
    steps, y = [Step(0.5, lambda y: copies @ y)] * 4, torch.ones(2, 1, dtype=torch.float64)
    assert flow_of(steps, y, token=0, output=1).at_output.item() == pytest.approx(4 * 0.5)
    assert pairs_of(steps, y, output=1)[0].item() == pytest.approx(4 * math.log(1.5))


def test_random_directions_are_orthonormal_and_nested():
    few, every = orthonormal(6, 2), orthonormal(6, 6)
    assert torch.allclose(every.T @ every, torch.eye(6, dtype=torch.float64), atol=EXACT)
    assert torch.equal(few, every[:, :2])
    assert not torch.equal(every, orthonormal(6, 6, seed=1))
