"""The statistics of the study as plain functions: t intervals over seeds, paired differences, crossings, seeds needed.

Everything works on lists with one number a seed, in the order of the seeds. Sums use `math.fsum`, so that the
same numbers give the same digits on every platform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95  # of every interval in the study
POWER = 0.8  # chance to decide that `seeds_needed` asks for


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation and two-sided t interval of `n` numbers; with n = 1 only the mean exists."""

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Difference(Summary):
    """A summary of differences by seed, with the p value of a paired two-sided t test.

    `seeds_needed` is given only where the interval includes 0 (see `seeds_needed`).
    """

    p_value: float | None
    seeds_needed: int | None


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution with `degrees` degrees of freedom."""
    return float(stdtrit(degrees, probability))


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Summary:
    """Mean and t interval, mean +- t * sd / sqrt(n) with n - 1 degrees of freedom, on the scale of the values.

    Raises: ValueError for an empty list or a value that is not finite (a diverged seed has no mean).
    Source: Student (1908), The probable error of a mean, Biometrika 6.
    """
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        raise ValueError(f"needs at least one value, all finite; got {list(values)}")
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(1, mean, None, None, None)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = t_quantile((1 + confidence) / 2, n - 1) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half)


def paired_difference(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Difference:
    """`second` minus `first`, seed by seed: mean, t interval, p value, and how many seeds would decide.

    Args:    first, second: one value a seed, the same seeds in the same order.
    Raises:  ValueError when the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"pairs need equal lengths; got {len(first)} and {len(second)}")
    s = mean_interval([b - a for a, b in zip(first, second, strict=True)], confidence)
    if s.sd is None or s.low is None or s.high is None:
        return Difference(s.n, s.mean, None, None, None, p_value=None, seeds_needed=None)
    needed = seeds_needed(s.mean, s.sd, confidence) if s.low <= 0 <= s.high else None
    return Difference(s.n, s.mean, s.sd, s.low, s.high, p_value=_p_value(s.mean, s.sd, s.n), seeds_needed=needed)


def _p_value(mean: float, sd: float, n: int) -> float:
    if sd == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(n - 1, -abs(mean) / (sd / math.sqrt(n))))


def percent_gap(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """By how many percent `second` exceeds `first`, seed by seed."""
    return [100 * (b / a - 1) for a, b in zip(first, second, strict=True)]


def seeds_needed(mean: float, sd: float, confidence: float = CONFIDENCE, power: float = POWER) -> int | None:
    """Seeds with which a paired t test would find a true difference `mean` with probability `power`.

    The smallest n >= 2 with (t[(1 + confidence) / 2] + t[power]) * sd / sqrt(n) <= |mean|, t with n - 1 degrees of
    freedom: it takes mean and standard deviation for the true ones, so it is a guide, not a promise.

    Returns: None when mean is 0, where no number of seeds decides.
    Source:  the usual sample size formula, e.g. Chow, Shao, Wang (2008), Sample Size Calculations, section 3.1.
    """
    if mean == 0:
        return None

    def is_enough(n: int) -> bool:
        quantiles = t_quantile((1 + confidence) / 2, n - 1) + t_quantile(power, n - 1)
        return quantiles * sd / math.sqrt(n) <= abs(mean)

    high = 2
    while not is_enough(high):
        high *= 2
        if high > 10**9:
            return None
    low = high // 2  # not enough, or below 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle >= 2 and is_enough(middle) else (middle, high)
    return high


def crossings(steps: Sequence[float], first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Steps at which two curves of perplexity change places, in ascending order.

    Between evaluations the logarithm of each perplexity is taken as linear in the step, so their difference is too
    and its zero is unique. Touching without changing places is no crossing; curves that are equal at some
    evaluations and then change places cross at the first of these.
    """
    gaps = [math.log(b) - math.log(a) for a, b in zip(first, second, strict=True)]
    found: list[float] = []
    last: int | None = None  # the latest evaluation with a gap other than 0
    for i, gap in enumerate(gaps):
        if gap == 0:
            continue
        if last is not None and gaps[last] * gap < 0:
            if i - last > 1:
                found.append(float(steps[last + 1]))
            else:
                share = gaps[last] / (gaps[last] - gap)
                found.append(steps[last] + share * (steps[i] - steps[last]))
        last = i
    return found


def crossing(steps: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """The last crossing, from which on the order stays as it ends; None when the curves never change places."""
    found = crossings(steps, first, second)
    return found[-1] if found else None
