"""Sampling against distributions known beforehand."""

import math

import pytest
import torch

from depthtime.errors import DepthtimeError
from depthtime.generate.sampling import check_options, distribution, sample

DRAWS = 100_000
KNOWN = torch.tensor([0.40, 0.02, 0.25, 0.05, 0.15, 0.13], dtype=torch.float64)


def _draw(probabilities, *, seed=0, **options):
    """Shares of each class over many draws from logits that have these probabilities at temperature 1."""
    logits = (probabilities.log() + 3.0).expand(DRAWS, -1)  # logits are known up to a constant
    options = {"temperature": 1.0, **options}
    drawn = sample(logits, generator=torch.Generator().manual_seed(seed), **options)
    return torch.bincount(drawn, minlength=len(probabilities)).double() / DRAWS


def _assert_drawn_from(shares, expected):
    """Pearson's chi-square at 0.1 percent (fixed seed), on the classes that can be drawn; no other is."""
    possible = expected > 0
    assert not shares[~possible].any()
    statistic = (DRAWS * (shares - expected)[possible].square() / expected[possible]).sum().item()
    freedom = int(possible.sum()) - 1
    bound = {0: 1e-12, 1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52}[freedom]
    assert statistic <= bound, (shares, expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_draws_follow_the_softmax_of_logits_over_temperature(temperature):
    _assert_drawn_from(_draw(KNOWN, temperature=temperature), (KNOWN.log() / temperature).softmax(0))


@pytest.mark.parametrize(("k", "support"), [(1, [0]), (2, [0, 2]), (3, [0, 2, 4]), (6, range(6)), (60, range(6))])
def test_top_k_keeps_the_k_likeliest_in_their_proportions(k, support):
    expected = torch.zeros_like(KNOWN)
    expected[list(support)] = KNOWN[list(support)]
    _assert_drawn_from(_draw(KNOWN, top_k=k), expected / expected.sum())


@pytest.mark.parametrize(
    ("p", "support"),
    [
        (0.01, [0]),
        (0.40, [0]),  # reached exactly: no further word
        (0.41, [0, 2]),
        (0.65, [0, 2]),
        (0.80, [0, 2, 4]),
        (0.93, [0, 2, 4, 5]),
        (0.94, [0, 2, 3, 4, 5]),
        (0.99, range(6)),
        (1.0, range(6)),
    ],
)
def test_top_p_keeps_the_smallest_set_with_that_mass(p, support):
    expected = torch.zeros_like(KNOWN)
    expected[list(support)] = KNOWN[list(support)]
    _assert_drawn_from(_draw(KNOWN, top_p=p), expected / expected.sum())


def test_the_order_is_temperature_then_top_k_then_top_p():
    """At temperature 2 the square roots count; of the three kept, 0.5 is reached by two, and 0.39 by the first."""
    weights = KNOWN.sqrt()
    top = weights[[0, 2, 4]] / weights[[0, 2, 4]].sum()  # 0.416, 0.329, 0.255
    assert 0.39 < top[0] < 0.5 < top[0] + top[1]
    for p, support in ((0.39, [0]), (0.5, [0, 2]), (0.8, [0, 2, 4])):
        found = distribution(KNOWN.log()[None], temperature=2.0, top_k=3, top_p=p)[0]
        assert found.nonzero().flatten().tolist() == support
        torch.testing.assert_close(found[support], weights[support] / weights[support].sum())


@pytest.mark.parametrize(
    "off", [{"top_k": 0, "top_p": 0.0}, {"top_k": None, "top_p": None}, {"top_k": 6, "top_p": 1.0}]
)
def test_off_is_off(off):
    torch.testing.assert_close(distribution(KNOWN.log()[None], temperature=1.0, **off)[0], KNOWN)


def test_temperature_zero_takes_the_largest_logit_also_a_negative_one():
    """The source takes the first positive logit here."""
    logits = torch.randn(500, 40, generator=torch.Generator().manual_seed(1))
    logits[:100] -= 50
    state = torch.Generator().manual_seed(0)
    before = state.get_state()
    drawn = sample(logits, temperature=0, top_k=5, top_p=0.5, generator=state)
    assert torch.equal(drawn, logits.argmax(-1))
    assert torch.equal(state.get_state(), before)
    assert torch.equal(distribution(logits, temperature=0).argmax(-1), drawn)


def test_a_temperature_near_zero_is_the_largest_logit():
    logits = torch.randn(200, 40, generator=torch.Generator().manual_seed(1))
    for temperature in (1e-6, 1e-300, 5e-324):
        drawn = sample(logits, temperature=temperature, generator=torch.Generator().manual_seed(0))
        assert torch.equal(drawn, logits.argmax(-1))


def test_ties_go_to_the_lower_class_and_k_stays_k():
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
    assert sample(logits, temperature=0, generator=torch.Generator()).tolist() == [1]
    assert distribution(logits, temperature=1.0, top_k=2)[0].tolist() == [0, 0.5, 0.5, 0, 0]
    flat = torch.zeros(1, 8)
    assert distribution(flat, temperature=1.0, top_p=0.5)[0].tolist() == [0.25] * 4 + [0] * 4


def test_a_banned_class_is_never_drawn():
    logits = KNOWN.log().expand(DRAWS, -1).index_fill(1, torch.tensor([0]), -math.inf)
    drawn = sample(logits, temperature=3.0, generator=torch.Generator().manual_seed(0))
    assert drawn.min() == 1
    assert sample(logits[:1], temperature=0, generator=torch.Generator()).tolist() == [2]


def test_a_draw_of_the_whole_mass_still_takes_a_kept_class(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.ones(*shape, dtype=torch.float64))
    assert sample(KNOWN.log()[None], temperature=1.0, top_k=3, generator=torch.Generator()).tolist() == [4]


def test_rows_of_a_batch_have_their_own_distributions():
    logits = torch.full((4, 4), -40.0).fill_diagonal_(40.0)
    assert sample(logits, temperature=1.0, generator=torch.Generator().manual_seed(0)).tolist() == [0, 1, 2, 3]


def test_a_seed_gives_its_draws():
    logits = torch.randn(300, 50, generator=torch.Generator().manual_seed(1))
    options = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}
    one, again, other = (sample(logits, generator=torch.Generator().manual_seed(s), **options) for s in (7, 7, 8))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_dtypes_give_the_same_distribution_and_logits_stay_as_they_are():
    logits = torch.randn(5, 30, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    single = distribution(logits, temperature=0.7, top_k=9, top_p=0.8)
    assert torch.equal(single, distribution(logits.double(), temperature=0.7, top_k=9, top_p=0.8))
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.0, math.nan, 1.0], "logits with NaN"),
        ([0.0, math.inf, 1.0], "no largest finite value"),
        ([-math.inf] * 3, "no largest finite value"),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_logits_that_give_no_distribution_are_an_error(row, message, temperature):
    logits = torch.tensor([[0.0, 1.0, 2.0], row])
    with pytest.raises(DepthtimeError, match=message):
        sample(logits, temperature=temperature, generator=torch.Generator())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((-0.1, None, None), "temperature = -0.1, expected a number >= 0"),
        ((math.nan, None, None), "temperature = nan"),
        ((math.inf, None, None), "temperature = inf"),
        ((1.0, -1, None), "top_k = -1, expected a whole number >= 0"),
        ((1.0, None, 1.1), "top_p = 1.1, expected a number from 0 to 1"),
        ((1.0, None, math.nan), "top_p = nan"),
    ],
)
def test_options_without_meaning_are_named(options, message):
    with pytest.raises(DepthtimeError, match=message):
        check_options(*options)
