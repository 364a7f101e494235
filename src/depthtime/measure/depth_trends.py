"""How spectra change over depth: one number for each seed and head, and their mean with an interval.

The first and the last third of the steps are called early and late; with fewer than three steps they are one step each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

Array = NDArray[np.float64]
CONFIDENCE = 0.95  # of every interval


def trends(times: Array, largest: Array, positive: Array) -> dict[str, Array]:
    """For each seed and head, (S, H), from the largest modulus and the share of positive real parts, (S, H, T):

      rho              Spearman's rank correlation of the largest modulus with depth time, see `rank_correlation`
      log_growth       log of the largest modulus at the last step over that at the first; undefined where one is 0
      peak_late        1 where the largest modulus of all steps is at a late one, else 0; undefined where it is constant
      positive_early, positive_late, positive_change (late minus early)

    Undefined is NaN.
    """
    third = thirds(len(times))
    first, last = largest[..., 0], largest[..., -1]
    growing = (first > 0) & (last > 0)
    log_growth = np.full(first.shape, np.nan)
    log_growth[growing] = np.log(last[growing] / first[growing])
    peak_late = (largest.argmax(axis=-1) >= len(times) - third).astype(float)
    peak_late[np.ptp(largest, axis=-1) == 0] = np.nan
    early, late = positive[..., :third].mean(axis=-1), positive[..., -third:].mean(axis=-1)
    return {
        "rho": rank_correlation(times, largest),
        "log_growth": log_growth,
        "peak_late": peak_late,
        "positive_early": early,
        "positive_late": late,
        "positive_change": late - early,
    }


def thirds(steps: int) -> int:
    """Steps in a third of them, at least one."""
    return max(1, steps // 3)


def rank_correlation(times: Array, series: Array) -> Array:
    """Spearman's rho of series (S, H, T) with times (T), (S, H); NaN where a series is constant: shared weights."""
    rho = np.full(series.shape[:-1], np.nan)
    for place in np.ndindex(rho.shape):
        if np.ptp(series[place]) > 0:
            rho[place] = spearmanr(times, series[place]).statistic
    return rho


def mean_interval(values: Array, resamples: int) -> dict[str, float | None]:
    """Mean of values (S, H), NaN left out, with its percentile interval under a bootstrap of seeds, then of heads.

    Heads are drawn anew inside each drawn seed, since those of a seed were trained together. There is no interval with
    one seed, and with three it is rather too short: seeds can be drawn in ten ways only. The same values give the same.
    Source: Davison and Hinkley (1997), Bootstrap Methods and their Application, section 3.8.
    """
    seeds, heads = values.shape
    low = high = None
    if seeds > 1:
        rng = np.random.default_rng(0)
        of_seeds = rng.integers(seeds, size=(resamples, seeds, 1))
        of_heads = rng.integers(heads, size=(resamples, seeds, heads))
        means = _mean(values[of_seeds, of_heads])
        if (known := means[~np.isnan(means)]).size:
            tail = (1 - CONFIDENCE) / 2
            low, high = (float(x) for x in np.quantile(known, (tail, 1 - tail)))
    mean = float(_mean(values[None])[0])
    return {"mean": None if np.isnan(mean) else mean, "low": low, "high": high}


def summary(values: dict[str, Array], resamples: int) -> dict[str, Any]:
    """`NAME`, `NAME_low`, `NAME_high` of each of the trends (S, H), and `undefined`, how often rho is.

    `growth` is the geometric mean, exp of the mean of log_growth.
    """
    found: dict[str, Any] = {}
    for name, entries in values.items():
        interval = mean_interval(entries, resamples)
        if name == "log_growth":
            name, interval = "growth", {key: None if x is None else float(np.exp(x)) for key, x in interval.items()}
        found |= {name: interval["mean"], f"{name}_low": interval["low"], f"{name}_high": interval["high"]}
    if "rho" in values:
        found["undefined"] = int(np.isnan(values["rho"]).sum())
    return found


def _mean(values: Array) -> Array:
    """Mean over the last two axes, NaN left out; NaN where nothing is left."""
    known = ~np.isnan(values)
    count = known.sum(axis=(-2, -1))
    total = np.where(known, values, 0).sum(axis=(-2, -1))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
