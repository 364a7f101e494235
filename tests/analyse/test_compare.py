"""The statistics agree with cases worked by hand, and have the properties a reader relies on."""

import math

import pytest
from scipy import stats

from depthtime.analyse.compare import (
    crossing,
    crossings,
    mean_interval,
    paired_difference,
    percent_gap,
    seeds_needed,
    t_quantile,
)


def test_t_quantiles_are_those_of_a_printed_table():
    assert t_quantile(0.975, 1) == pytest.approx(12.706, abs=5e-4)
    assert t_quantile(0.975, 4) == pytest.approx(2.776, abs=5e-4)
    assert t_quantile(0.975, 9) == pytest.approx(2.262, abs=5e-4)


def test_mean_and_interval_of_three_numbers_worked_by_hand():
    # 1, 2, 6: mean 3, squared deviations 4 + 1 + 9 = 14, sd = sqrt(7), half width = 4.302653 sqrt(7 / 3)
    summary = mean_interval([1.0, 2.0, 6.0])
    half = 4.302653 * math.sqrt(7 / 3)
    assert (summary.n, summary.mean) == (3, 3.0)
    assert summary.sd == pytest.approx(math.sqrt(7))
    assert (summary.low, summary.high) == pytest.approx((3 - half, 3 + half), rel=1e-6)


def test_one_seed_has_a_mean_and_no_interval():
    summary = mean_interval([119.0])
    assert (summary.n, summary.mean, summary.sd, summary.low, summary.high) == (1, 119.0, None, None, None)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf]])
def test_a_diverged_value_cannot_slip_into_a_mean(values):
    with pytest.raises(ValueError, match="finite"):
        mean_interval(values)


def test_intervals_move_with_the_values_and_scale_with_them():
    base = mean_interval([3.0, 5.0, 4.0, 9.0])
    moved = mean_interval([13.0, 15.0, 14.0, 19.0])
    scaled = mean_interval([6.0, 10.0, 8.0, 18.0])
    assert (moved.low, moved.high) == pytest.approx((base.low + 10, base.high + 10))
    assert (scaled.low, scaled.high) == pytest.approx((2 * base.low, 2 * base.high))


def test_more_confidence_gives_a_wider_interval():
    narrow, wide = (mean_interval([1.0, 2.0, 6.0], confidence) for confidence in (0.9, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_paired_difference_worked_by_hand():
    # differences 9, 10, 11: mean 10, sd 1, t = 10 sqrt(3), half width = 4.302653 / sqrt(3)
    d = paired_difference([100.0, 101.0, 102.0], [109.0, 111.0, 113.0])
    assert (d.n, d.mean, d.sd) == (3, 10.0, 1.0)
    assert d.low == pytest.approx(10 - 4.302653 / math.sqrt(3), rel=1e-6)
    assert d.p_value == pytest.approx(2 * stats.t.sf(10 * math.sqrt(3), 2))
    assert d.seeds_needed is None


def test_pairing_removes_what_the_seeds_share():
    first = [100.0, 120.0, 140.0, 160.0]
    d = paired_difference(first, [x + e for x, e in zip(first, (1.0, 1.1, 0.9, 1.0), strict=True)])
    assert d.low > 0
    assert mean_interval(first).sd > 20 * d.sd


def test_swapping_the_runs_changes_the_sign_alone():
    a, b = [3.0, 5.0, 4.5], [4.0, 5.5, 4.0]
    d, e = paired_difference(a, b), paired_difference(b, a)
    assert (e.mean, e.low, e.high) == pytest.approx((-d.mean, -d.high, -d.low))
    assert e.p_value == pytest.approx(d.p_value)


def test_the_p_value_and_the_interval_agree():
    for shift in (0.0, 0.5, 1.0, 2.0, 4.0):
        d = paired_difference([0.0, 0.0, 0.0, 0.0], [shift - 1, shift, shift + 1, shift + 0.5])
        assert (d.p_value < 0.05) == (not d.low <= 0 <= d.high)
        assert d.p_value == pytest.approx(stats.ttest_1samp([shift - 1, shift, shift + 1, shift + 0.5], 0).pvalue)


def test_equal_differences_need_no_noise_model():
    assert paired_difference([1.0, 2.0], [1.5, 2.5]).p_value == 0.0
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


def test_lists_of_unequal_length_are_no_pairs():
    with pytest.raises(ValueError, match="equal lengths"):
        paired_difference([1.0], [1.0, 2.0])


def test_the_percent_gap_is_taken_seed_by_seed():
    assert percent_gap([100.0, 200.0], [110.0, 190.0]) == pytest.approx([10.0, -5.0])


def test_seeds_needed_for_a_difference_of_one_standard_deviation():
    # n = 10: (2.262 + 0.883) / sqrt(10) = 0.995 <= 1; n = 9: (2.306 + 0.889) / 3 = 1.065 > 1
    assert seeds_needed(1.0, 1.0) == 10


def test_seeds_needed_is_the_smallest_number_that_is_enough():
    for mean, sd in ((0.3, 1.0), (2.0, 1.0), (1.0, 7.7), (50.0, 1.0)):
        n = seeds_needed(mean, sd)
        need = [(stats.t.ppf(0.975, k - 1) + stats.t.ppf(0.8, k - 1)) * sd / math.sqrt(k) for k in (n, max(n - 1, 2))]
        assert need[0] <= mean
        assert n == 2 or need[1] > mean


def test_seeds_needed_ignores_sign_and_scale_and_gives_up_at_zero():
    assert seeds_needed(-1.0, 3.0) == seeds_needed(10.0, 30.0) == seeds_needed(1.0, 3.0)
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1e-9, 1.0) is None


def test_an_undecided_difference_says_how_many_seeds_would_decide():
    d = paired_difference([10.0, 10.0, 10.0], [9.0, 10.5, 12.0])
    assert d.low < 0 < d.high
    assert d.seeds_needed == seeds_needed(0.5, 1.5) > 3


def test_curves_that_cross_half_way_in_log_perplexity():
    # log b - log a: log 2 at step 0, -log 2 at step 100: zero at 50
    assert crossings([0, 100], [1.0, 2.0], [2.0, 1.0]) == [50.0]


def test_a_crossing_worked_by_hand_from_the_published_table():
    # log gaps: log(163.2 / 166.9) at 1000, log(142.1 / 139.7) at 1500
    low, high = math.log(163.2 / 166.9), math.log(142.1 / 139.7)
    steps, discrete, ode = [500, 1000, 1500, 2000], [229.0, 166.9, 139.7, 127.2], [219.8, 163.2, 142.1, 132.2]
    assert crossing(steps, discrete, ode) == pytest.approx(1000 + 500 * low / (low - high))


def test_the_crossing_does_not_depend_on_which_curve_comes_first():
    a, b = [9.0, 7.0, 4.0], [8.0, 6.5, 5.0]
    assert crossings([1, 2, 3], a, b) == pytest.approx(crossings([1, 2, 3], b, a))


def test_curves_that_never_change_places_have_no_crossing():
    assert crossing([1, 2, 3], [3.0, 2.0, 1.0], [4.0, 3.0, 2.0]) is None
    assert crossing([1, 2, 3], [3.0, 2.0, 1.0], [4.0, 2.0, 2.0]) is None  # touching
    assert crossing([1, 2], [3.0, 2.0], [3.0, 2.0]) is None  # equal


def test_curves_that_meet_at_an_evaluation_cross_there():
    assert crossings([10, 20, 30], [3.0, 2.0, 1.0], [4.0, 2.0, 0.5]) == [20.0]


def test_of_several_crossings_the_last_counts():
    steps, a, b = [0, 1, 2, 3], [1.0, 1.0, 1.0, 1.0], [2.0, 0.5, 2.0, 0.5]
    assert crossings(steps, a, b) == [0.5, 1.5, 2.5]
    assert crossing(steps, a, b) == 2.5
