"""How numbers are worded in tables, figures and the README: one place, so that they always look alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MINUS = "\u2212"
NONE = "\u2013"  # where there is no number
TIMES = "\u00d7"
RECIPE = ["optimiser", "schedule", "learning rate"]

NOT_EQUAL = {  # ratio names in an analysis -> words
    "parameters": "parameters",
    "nfe_forward": "block evaluations",
    "flops_per_token_forward": "FLOPs",
}


def number(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """A decimal with a true minus sign; a dash where there is no value."""
    if value is None:
        return NONE
    text = f"{value:{'+' if sign else ''},.{digits}f}"
    is_zero = not text.strip("+-0.,")
    return text.lstrip("+-") if is_zero else text.replace("-", MINUS)


def small(value: float | None) -> str:
    """`0.12`, `2.3e-5`, `0` (exactly), a dash where there is no value: two significant digits."""
    if value is None or value == 0:
        return NONE if value is None else "0"
    if 1e-2 <= abs(value) < 1e3:
        return f"{value:.2g}".replace("-", MINUS)
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.replace('-', MINUS)}e{int(exponent)}"


def interval(entry: dict[str, Any], digits: int = 1, sign: bool = False) -> str:
    """`mean [low, high]`; only the mean with one seed; the diverged seeds where there is no mean."""
    if entry["mean"] is None:
        seeds = entry.get("diverged") or []
        return f"diverged (seed {', '.join(map(str, seeds))})" if seeds else NONE
    mean = number(entry["mean"], digits, sign)
    if entry["low"] is None:
        return mean
    return f"{mean} [{number(entry['low'], digits, sign)}, {number(entry['high'], digits, sign)}]"


def percent(entry: dict[str, Any]) -> str:
    """`+8.6 % [+8.1, +9.1]`."""
    if entry["mean"] is None:
        return NONE
    mean = f"{number(entry['mean'], 1, sign=True)} %"
    if entry["low"] is None:
        return mean
    return f"{mean} [{number(entry['low'], 1, sign=True)}, {number(entry['high'], 1, sign=True)}]"


def p_value(value: float | None) -> str:
    if value is None:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return NONE if value is None else f"{value:,.0f}"


def crossing(entry: dict[str, Any]) -> str:
    """`1,020 [900, 1,140] (5 of 5 seeds)`: where the mean curves cross, with the interval over the seeds' crossings."""
    seeds = f"{entry['num_crossing']} of {entry['num_seeds']} seeds"
    if entry["of_mean"] is None:
        return f"unknown, a seed diverged ({seeds})"
    step = "no crossing" if entry["step"] is None else count(entry["step"])
    over = entry["over_seeds"]
    low_high = "" if over["low"] is None else f" [{count(over['low'])}, {count(over['high'])}]"
    return f"{step}{low_high} ({seeds})"


def verdict(difference: dict[str, Any], first: str, second: str) -> str:
    """Which run has the lower perplexity, or that the interval does not decide and how many seeds might."""
    if difference["mean"] is None:
        return "no verdict: a seed diverged"
    if difference["low"] is None:
        return "no interval: one seed"
    if difference["low"] > 0:
        return f"{first} lower"
    if difference["high"] < 0:
        return f"{second} lower"
    needed = difference["seeds_needed"]
    return "inconclusive" if needed is None else f"inconclusive; about {needed:,} seeds would decide"


def seeds(entry: dict[str, Any]) -> str:
    """`n = 5`; diverged seeds are counted and named."""
    gone = entry.get("diverged") or []
    total = entry["n"] + (len(gone) if entry["mean"] is None else 0)
    return f"{total}, of which diverged: {', '.join(map(str, gone))}" if gone else str(total)


def equal(names: Iterable[str]) -> str:
    """What is held equal, in words; optimiser, schedule and learning rate together are the recipe."""
    names = list(names)
    if set(RECIPE) <= set(names):
        names = [name for name in names if name not in RECIPE] + ["recipe"]
    return ", ".join(names)


def unequal(pair: dict[str, Any]) -> str:
    """What is not equal in a pair, with ratios second / first."""
    words = [name for name in pair["not_equal"] if name not in pair["ratios"]]
    ratios = ((what, pair["ratios"][name]["ratio"]) for name, what in NOT_EQUAL.items())
    words += [f"{what} {TIMES}{ratio:.2f}" for what, ratio in ratios if ratio is not None and ratio != 1]
    return ", ".join(words) or "nothing counted here"


def joined(words: Iterable[str]) -> str:
    """`a, b and c`."""
    *most, last = list(words)
    return f"{', '.join(most)} and {last}" if most else last
