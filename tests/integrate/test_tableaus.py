import math

import pytest
import torch

from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.tableaus import EULER_RIGHT, RK4_38, TABLEAUS, TSIT5
from known_odes import linear_system
from tolerances import ROUNDING

EXACT = ROUNDING[torch.float64]
SCHEMES = pytest.mark.parametrize("tableau", [*TABLEAUS.values(), TSIT5], ids=lambda s: s.name)


def _sum(*rows):
    return sum(math.prod(entries) for entries in zip(*rows, strict=True))


def _inner(tableau, row):
    """sum_j a_ij row_j for each stage i."""
    return [sum(x * y for x, y in zip(a, row, strict=False)) for a in tableau.a]


@SCHEMES
def test_nodes_are_row_sums_but_for_euler_right(tableau):
    """euler_right takes the field at t + h with the state at t: that is its point."""
    shift = 1 if tableau is EULER_RIGHT else 0
    for node, row in zip(tableau.c, tableau.a, strict=True):
        assert sum(row) + shift == pytest.approx(node, abs=EXACT)


@SCHEMES
def test_order_conditions_hold(tableau):
    """All of them up to order 4, and of order 5 the quadrature (Hairer et al. 1993, section II.2, table 2.1)."""
    b, c = tableau.b, tableau.c
    for k in range(1, tableau.order + 1):
        assert _sum(b, [node ** (k - 1) for node in c]) == pytest.approx(1 / k, abs=EXACT)
    ac = _inner(tableau, c)
    if tableau.order >= 3:
        assert _sum(b, ac) == pytest.approx(1 / 6, abs=EXACT)
    if tableau.order >= 4:
        assert _sum(b, c, ac) == pytest.approx(1 / 8, abs=EXACT)
        assert _sum(b, _inner(tableau, [node**2 for node in c])) == pytest.approx(1 / 12, abs=EXACT)
        assert _sum(b, _inner(tableau, ac)) == pytest.approx(1 / 24, abs=EXACT)


def test_tsit5_embeds_a_scheme_of_order_4_and_no_higher():
    """Error weights are differences of two sets of weights that both hold up to order 4: their sums vanish."""
    e, c = TSIT5.error_weights, TSIT5.c
    for k in range(4):
        assert _sum(e, [node**k for node in c]) == pytest.approx(0, abs=1e-11)
    assert abs(_sum(e, [node**4 for node in c])) > 1e-4


def test_tsit5_has_its_last_slope_first_in_the_next_step():
    assert TSIT5.is_fsal
    assert TSIT5.a[-1] == TSIT5.b[:-1]
    assert (TSIT5.b[-1], TSIT5.c[-1]) == (0, 1)


def test_tsit5_has_order_5_in_equal_steps():
    a, y0, y1 = linear_system()
    errors = [(solve_fixed(lambda t, y: a @ y, y0, tableau=TSIT5, num_steps=n).y - y1).norm().item() for n in (40, 80)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(5, abs=0.1)


def test_rk4_38_is_what_torchdiffeq_calls_rk4():
    from torchdiffeq import odeint

    a, y0, _ = linear_system()
    theirs = odeint(lambda t, y: a @ torch.sin(y + t), y0, torch.tensor([0.0, 1.0], dtype=torch.float64), method="rk4")
    ours = solve_fixed(lambda t, y: a @ torch.sin(y + t), y0, tableau=RK4_38, num_steps=1)
    assert torch.allclose(ours.y, theirs[1], rtol=EXACT, atol=EXACT)
