"""Rank correlations of known orders, and intervals that say what they should."""

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from depthtime.measure.agreement import mean_with_interval, partial_rank_correlation, rank_correlation

DRAW = np.random.default_rng(0)


def test_ranks_agree_with_themselves_and_against_their_reverse():
    a = np.array([3.0, -1, 10, 4])
    assert rank_correlation(a, np.exp(a)) == pytest.approx(1)
    assert rank_correlation(a, -a) == pytest.approx(-1)


def test_ranks_with_ties_correlate_as_in_scipy():
    a, b = DRAW.integers(0, 5, 12).astype(float), DRAW.integers(0, 5, 12).astype(float)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)


def test_a_constant_score_ranks_nothing():
    assert rank_correlation(np.ones(4), np.arange(4.0)) == 0
    assert partial_rank_correlation(np.ones(4), np.arange(4.0)[::-1] ** 2, np.array([1.0, 0, 2, 3])) == 0


def test_the_partial_correlation_is_the_textbook_formula():
    a, b, z = DRAW.normal(size=(3, 9))
    ab, az, bz = (spearmanr(x, y).statistic for x, y in ((a, b), (a, z), (b, z)))
    expected = (ab - az * bz) / np.sqrt((1 - az**2) * (1 - bz**2))
    assert partial_rank_correlation(a, b, z) == pytest.approx(expected)


def test_scores_that_are_both_the_position_agree_on_nothing_beyond_it():
    position = np.arange(8.0)
    assert rank_correlation(position**3, np.exp(position)) == pytest.approx(1)
    assert partial_rank_correlation(position**3, np.exp(position), position) == 0


def test_scores_agree_beyond_a_position_that_only_hides_them():
    noise, position = DRAW.normal(size=40), np.arange(40.0)
    a, b = rankdata(noise), rankdata(noise + 0.01 * position)
    assert partial_rank_correlation(a, b, position) > 0.9


def test_an_interval_is_around_its_mean_and_narrows_with_more_sentences():
    few, many = DRAW.normal(0.3, 0.2, 10), DRAW.normal(0.3, 0.2, 1000)
    widths = []
    for values in (few, many):
        found = mean_with_interval(values, 500)
        assert found == mean_with_interval(values, 500)
        assert found["mean"] == pytest.approx(values.mean())
        assert found["low"] < found["mean"] < found["high"]
        widths.append(found["high"] - found["low"])
    assert widths[1] < 0.3 * widths[0]
    assert widths[1] == pytest.approx(2 * 1.96 * 0.2 / np.sqrt(1000), rel=0.2)


@pytest.mark.parametrize("values", [[0.4], [0.4, 0.4, 0.4]])
def test_sentences_that_do_not_differ_have_no_width(values):
    found = mean_with_interval(np.array(values), 100)
    assert found["low"] == found["mean"] == found["high"] == pytest.approx(0.4)
