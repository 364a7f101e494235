"""Statistics of items that several seeds of a model are asked: means and shares with intervals, and differences.

Values of S seeds and I items come as arrays (S, I), by key; each item's values are averaged over seeds first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import bootstrap

CONFIDENCE = 0.95  # of every interval
Array = NDArray[np.float64]


def of_items(values: Mapping[str, Array], seeds: Sequence[int], resamples: int) -> dict[str, Any]:
    """Means over items with bootstrap intervals, and means by seed, of (S, I) each."""
    found: dict[str, Any] = {"by_seed": by_seed(values, seeds)}
    for key, rows in values.items():
        found |= resampled(key, rows.mean(axis=0), resamples)[0]
    return found


def of_shares(values: Mapping[str, Array], seeds: Sequence[int] | None) -> dict[str, Any]:
    """Shares over pairs and seeds with Wilson's interval for as many pairs, and shares by seed, of (S, P) each."""
    found: dict[str, Any] = {} if seeds is None else {"by_seed": by_seed(values, seeds)}
    for key, rows in values.items():
        low, high = wilson(float(rows.mean()), rows.shape[1])
        found |= {key: float(rows.mean()), f"{key}_low": low, f"{key}_high": high}
    return found


def paired(
    first: Mapping[str, Array], second: Mapping[str, Array], seeds: Sequence[int], resamples: int
) -> dict[str, Any]:
    """Second minus first, paired by seed and item."""
    gaps = {key: second[key] - first[key] for key in first}
    found: dict[str, Any] = {"by_seed": by_seed(gaps, seeds)}
    for key, rows in gaps.items():
        entry, means = resampled(key, rows.mean(axis=0), resamples)
        above = float((means > 0).mean() + 0.5 * (means == 0).mean())
        of_seeds = rows.mean(axis=1)
        found |= entry | {f"{key}_above": above}
        found |= {f"{key}_lowest_seed": float(of_seeds.min()), f"{key}_highest_seed": float(of_seeds.max())}
    return found


def by_seed(values: Mapping[str, Array], seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    return {
        f"seed_{seed}": {key: float(rows[number].mean()) for key, rows in values.items()}
        for number, seed in enumerate(seeds)
    }


def resampled(key: str, values: Array, resamples: int) -> tuple[dict[str, float], Array]:
    """The mean of items (I,) with its percentile bootstrap interval, and the means of the resamples, (resamples,).

    The same number of items gives the same resamples, so that tables agree with each other.
    """
    options = {"method": "percentile", "n_resamples": resamples, "batch": 100, "rng": np.random.default_rng(0)}
    found = bootstrap((values,), np.mean, confidence_level=CONFIDENCE, **options)
    low, high = found.confidence_interval
    entry = {key: float(values.mean()), f"{key}_low": float(low), f"{key}_high": float(high)}
    return entry, np.asarray(found.bootstrap_distribution)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's interval for a share of n items; ties may make it no whole number of them.

    Source: Wilson (1927), Probable inference, Journal of the American Statistical Association 22.
    """
    z = float(ndtri((1 + CONFIDENCE) / 2))
    centre, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # rounding, where share is 0 or 1
