"""Numbers are worded the same way everywhere."""

import pytest

from depthtime.report import wording as say


@pytest.mark.parametrize(
    ("value", "digits", "sign", "expected"),
    [
        (119.04, 1, False, "119.0"),
        (-4.96, 1, True, "\u22125.0"),
        (8.71, 1, True, "+8.7"),
        (-0.04, 1, True, "0.0"),
        (1622816.0, 0, False, "1,622,816"),
        (None, 1, False, "\u2013"),
    ],
)
def test_numbers_have_true_minus_signs_and_no_negative_zero(value, digits, sign, expected):
    assert say.number(value, digits, sign) == expected


def test_an_interval_shows_what_there_is():
    full = {"mean": 1.0, "low": 0.5, "high": 1.5}
    assert say.interval(full) == "1.0 [0.5, 1.5]"
    assert say.interval({**full, "low": None, "high": None}) == "1.0"
    assert say.interval({"mean": None, "low": None, "high": None, "diverged": [43, 44]}) == "diverged (seed 43, 44)"


def test_verdicts_follow_the_interval():
    d = {"mean": 1.0, "low": 0.5, "high": 1.5, "seeds_needed": None}
    assert say.verdict(d, "a", "b") == "a lower"
    assert say.verdict({**d, "low": -2.0, "high": -1.0}, "a", "b") == "b lower"
    assert say.verdict({**d, "low": -2.0, "seeds_needed": 1234}, "a", "b") == (
        "inconclusive; about 1,234 seeds would decide"
    )
    assert say.verdict({**d, "low": None}, "a", "b") == "no interval: one seed"
    assert say.verdict({**d, "mean": None}, "a", "b") == "no verdict: a seed diverged"


def test_small_p_values_are_bounded():
    assert say.p_value(0.0004) == "< 0.001"
    assert say.p_value(0.0312) == "0.031"


def test_a_full_recipe_is_one_word():
    assert say.equal(["data", "optimiser", "schedule", "learning rate"]) == "data, recipe"
    assert say.equal(["data", "optimiser", "schedule"]) == "data, optimiser, schedule"
