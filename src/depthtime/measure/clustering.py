"""Into how many clusters attention draws its tokens, for weights that are shared over depth and for others.

A simulation without training or text: `particles` moves the tokens, this file counts and measures them over time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.special import entr
from scipy.stats import binomtest, bootstrap

from depthtime import paths
from depthtime.config import Clustering, Study
from depthtime.measure.particles import GROWTH, Array, System, choices, draw, simulate, standardise
from depthtime.records import write_json

CONFIDENCE = 0.95  # of every interval
CURVES = ("components", "cosine", "effective_rank")
CONTROLS = {"more": "gaussian", "more_than_weak": "gaussian_weak"}  # shared choices with the matrices of GROWTH


def measure_clustering(study: Study, on_choice: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/clustering.json, see `clustering_record`."""
    write_json(paths.measured("clustering"), clustering_record(study.clustering, on_choice))


def clustering_record(
    settings: Clustering, on_choice: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """By width (`d3`) and choice of weights: what the tokens look like at the end, and how they came there.

    Of each choice
      components (also _tight, _wide), cosine, effective_rank: median and mean over seeds with their percentile
                 bootstrap intervals (`median_low`, ...), `smallest`, `largest`; see the functions of these names
      few        share of seeds with at most `few` components, with Wilson's interval
      more, more_than_weak: components minus those of `gaussian` and of `gaussian_weak`, by seed, where weights change
      total_g    integral of |g| over time: how much the weights move the tokens in all
      curve      quartiles over seeds at `times`
      by_seed    components at the end
    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13; Wilson (1927), Probable
    inference, Journal of the American Statistical Association 22.
    """
    record: dict[str, Any] = {"schema": 1, **settings.model_dump(mode="json")}
    for number, width in enumerate(settings.dimensions):
        start, first, second = draw(settings.seeds, settings.tokens, width)
        systems = choices(first, second)
        cells: dict[str, Any] = {}
        for place, (name, system) in enumerate(systems.items(), start=1):
            record["times"], cells[name] = _measure(settings, system, start)
            on_choice(number * len(systems) + place, len(settings.dimensions) * len(systems))
        for name, (key, control) in itertools.product(GROWTH, CONTROLS.items()):
            more = np.subtract(cells[name]["by_seed"], cells[control]["by_seed"])
            cells[name][key] = _interval("mean", more, settings.resamples)
        record |= {"choices": list(cells), f"d{width}": cells}
    return record


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: the first width."""
    settings = study.clustering
    record = clustering_record(settings.model_copy(update={"dimensions": settings.dimensions[:1]}))
    return {key: value for key, value in record.items() if key != "dimensions"}


def _measure(settings: Clustering, system: System, start: Array) -> tuple[list[float], dict[str, Any]]:
    """Times, and the entries of one choice of weights at one width."""
    times, found = [], []
    states = simulate(system, start, step_size=settings.step_size, num_steps=settings.num_steps)
    for step, (t, tokens) in enumerate(states):
        if step % settings.record_every == 0 or step == settings.num_steps:
            times.append(round(t, 9))
            found.append(_look(settings, standardise(tokens) if system.standardises else tokens))
    series = {name: np.stack([look[name] for look in found]) for name in found[0]}  # (times, S) each
    ends = {name: values[-1] for name, values in series.items()}
    moments = np.arange(settings.num_steps) * settings.step_size
    return times, {
        **{name: _summary(values, settings.resamples) for name, values in ends.items()},
        "few": _share(int((ends["components"] <= settings.few).sum()), settings.seeds),
        "total_g": settings.step_size * sum(abs(system.growth(t)) for t in moments),
        "curve": {name: _quartiles(series[name]) for name in CURVES},
        "by_seed": ends["components"].astype(int).tolist(),
    }


def _look(settings: Clustering, tokens: Array) -> dict[str, Array]:
    """Every measure of tokens (S, n, d), each (S,)."""
    thresholds = (settings.threshold, settings.tight_threshold, settings.wide_threshold)
    counts = np.array([components(points, thresholds) for points in tokens], dtype=float)
    names = ("components", "components_tight", "components_wide")
    return {
        **dict(zip(names, counts.T, strict=True)),
        "cosine": mean_cosine(tokens),
        "effective_rank": effective_rank(tokens),
    }


def components(points: Array, thresholds: tuple[float, ...]) -> list[int]:
    """Connected components of points (n, d), neighbours where their distance is at most the threshold.

    They are the clusters of single linkage cut there, so one linkage serves all thresholds.
    """
    merges = linkage(points, method="single")[:, 2]
    return [1 + int((merges > threshold).sum()) for threshold in thresholds]


def mean_cosine(tokens: Array) -> Array:
    """Mean cosine of the angle between two different tokens of (S, n, d): 1 where all point the same way."""
    units = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    n = tokens.shape[-2]
    return np.asarray((np.square(units.sum(axis=-2)).sum(axis=-1) - n) / (n * (n - 1)))


def effective_rank(tokens: Array) -> Array:
    """exp of the entropy of the singular values of (S, n, d), divided by their sum: 1 on a line, n when orthonormal.

    Tokens on a line through 0 count as 1 whichever side they are on. Standardised tokens reach at most d - 1.
    Source: Roy and Vetterli (2007), The effective rank: a measure of effective dimensionality, EUSIPCO.
    """
    values = np.linalg.svd(tokens, compute_uv=False)
    return np.asarray(np.exp(entr(values / values.sum(axis=-1, keepdims=True)).sum(axis=-1)))


def _summary(values: Array, resamples: int) -> dict[str, float]:
    """Median, mean and range over seeds."""
    extremes = {"smallest": float(values.min()), "largest": float(values.max())}
    return _interval("median", values, resamples) | _interval("mean", values, resamples) | extremes


def _interval(name: str, values: NDArray[Any], resamples: int) -> dict[str, float]:
    """A statistic of numpy over seeds with its percentile bootstrap interval; the same values give the same one."""
    statistic = getattr(np, name)
    options = {"method": "percentile", "n_resamples": resamples, "rng": np.random.default_rng(0)}
    found = bootstrap((values,), statistic, confidence_level=CONFIDENCE, **options).confidence_interval
    return {name: float(statistic(values)), f"{name}_low": float(found.low), f"{name}_high": float(found.high)}


def _share(count: int, total: int) -> dict[str, float]:
    found = binomtest(count, total).proportion_ci(CONFIDENCE, method="wilson")
    return {"share": count / total, "low": float(found.low), "high": float(found.high)}


def _quartiles(series: Array) -> dict[str, list[float]]:
    """Over the seeds of (times, S)."""
    found = np.quantile(series, (0.25, 0.5, 0.75), axis=1)
    return dict(zip(("q1", "median", "q3"), found.tolist(), strict=True))
