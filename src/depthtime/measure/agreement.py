"""How well two scores agree on the order of a sentence's tokens: rank correlations, with intervals over sentences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, rankdata

Array = NDArray[np.float64]
CONFIDENCE = 0.95  # of every interval


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's rho of two scores (n), ties at their mean rank; 0 where a score is constant and so ranks nothing."""
    return _correlation(rankdata(a), rankdata(b))


def partial_rank_correlation(a: Array, b: Array, given: Array) -> float:
    """Spearman's rho of a and b with the linear effect of the ranks of `given` taken out of both.

    Equal to the correlation of what a regression on the ranks of `given` leaves; 0 where it leaves nothing of a or b.
    Source: Conover (1999), Practical nonparametric statistics, section 5.4.
    """
    x, y, z = rankdata(a), rankdata(b), rankdata(given)
    return _correlation(_left_over(x, z), _left_over(y, z))


def mean_with_interval(values: Array, resamples: int) -> dict[str, float]:
    """mean, low, high: mean over sentences (M) and its percentile bootstrap interval; same values, same interval.

    One sentence has no interval: it is that value alone.
    Source: Efron and Tibshirani (1993), An introduction to the bootstrap, chapter 13.
    """
    mean = float(values.mean())
    if len(values) < 2 or np.ptp(values) == 0:
        return {"mean": mean, "low": mean, "high": mean}
    options = {"method": "percentile", "n_resamples": resamples, "rng": np.random.default_rng(0)}
    found = bootstrap((values,), np.mean, confidence_level=CONFIDENCE, **options).confidence_interval
    return {"mean": mean, "low": float(found.low), "high": float(found.high)}


def _left_over(x: Array, z: Array) -> Array:
    """Residuals of the least-squares line of x on z; exactly 0 where rounding is all that is left."""
    dx, dz = x - x.mean(), z - z.mean()
    residual = dx if not dz.any() else dx - dz * (dx @ dz) / (dz @ dz)
    return np.zeros_like(x) if np.abs(residual).max() <= 1e-9 * max(np.abs(dx).max(), 1.0) else residual


def _correlation(x: Array, y: Array) -> float:
    dx, dy = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((dx @ dx) * (dy @ dy)))
    return 0.0 if scale == 0 else float(dx @ dy) / scale
