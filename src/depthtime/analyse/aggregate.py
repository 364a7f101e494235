"""Records of a group -> results/analysis/GROUP.json: means and intervals over seeds, paired differences, crossings.

Decisions, for every table and figure:
- Means, standard deviations and t intervals are taken over seeds on the scale of perplexity (not of its logarithm).
- A diverged seed has no perplexity from the step on where it diverged, and no best, final or test value. It is
  named, never dropped: wherever a seed has no value, mean, interval and differences of that entry are null, and
  `diverged` lists the seeds.
- With one seed there is a mean and no interval (null).
- Pairs are every later run minus the first run of the group, seed by seed; in a group with `against`, every run
  minus each of those runs of other groups (named group/run), over the seeds of this group.
- A relative gap is computed for each seed, then averaged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from depthtime import paths
from depthtime.analyse.compare import (
    CONFIDENCE,
    POWER,
    crossings,
    mean_interval,
    paired_difference,
    percent_gap,
)
from depthtime.analyse.gather import Record, gather
from depthtime.config import Group, Study
from depthtime.errors import RecordError
from depthtime.records import read_json, write_json

Values = dict[str, float | None]  # seed (as text, for JSON) -> perplexity, None where diverged

EQUAL_BY_RECIPE = {  # what a pair may share -> keys of train in the record's configuration
    "data order": ("batch_size", "batch_order"),
    "steps": ("max_steps",),
    "optimiser": ("optimizer", "betas", "eps", "weight_decay", "clip_norm"),
    "schedule": ("schedule", "warmup_steps", "final_fraction"),
    "learning rate": ("learning_rate",),
}


def analyse(study: Study, group: str) -> None:
    """Analyse one group and write paths.analysis(group).

    Raises: RecordError when records are missing, damaged or stale (see `gather`); nothing is written then.
    """
    row = study.group(group)
    records = gather(study, group)
    runs = {run: _run(rows) for run, rows in records.items()}
    couples = list(itertools.product(list(row.runs)[:1], list(row.runs)[1:]))
    if row.against:
        couples = list(itertools.product(row.against, row.runs))
        records |= _baselines(study, row)
        runs |= {name: _run(records[name]) for name in row.against}
    steps = {tuple(int(point["step"]) for point in run["curve"]) for run in runs.values()}
    if len(steps) > 1:
        raise RecordError(
            f"group {group}: its runs were evaluated at different steps {sorted(steps)}; train them again"
        )
    write_json(
        paths.analysis(group),
        {
            "schema": 1,
            "group": group,
            "data": row.data,
            "dataset": study.datasets[row.data].model_dump(mode="json"),
            "seeds": list(row.seeds),
            "confidence": CONFIDENCE,
            "power": POWER,
            "scale": "perplexity",
            "run_order": list(row.runs),
            "runs": {run: runs[run] for run in row.runs},
            "pairs": [_pair(first, second, runs, records) for first, second in couples],
            "selection": None if row.select is None else read_json(paths.selection(group)),
        },
    )


def _baselines(study: Study, row: Group) -> dict[str, list[Record]]:
    """Records of the runs of other groups that a group is held against, over its own seeds."""
    found = {}
    for name in row.against:
        group, _, run = name.partition("/")
        found[name] = gather(study, group, only=[run], seeds=row.seeds)[run]
    return found


def _run(rows: list[Record]) -> dict[str, Any]:
    """One run over its seeds."""
    config = rows[0]["config"]
    has_test = any(record["test"] is not None for record in rows)
    return {
        "config": config,
        "learning_rate": config["train"]["learning_rate"],
        "parameters": rows[0]["parameters"],
        "cost": rows[0]["cost"],
        "diverged_seeds": {str(r["seed"]): r["train"]["diverged_at"] for r in rows if r["status"] == "diverged"},
        "curve": [{"step": step, "num_scored": count, **_summary(values)} for step, count, values in _curve(rows)],
        "best": {
            "steps": {str(r["seed"]): _at(r["best"], "step") for r in rows},
            **_summary(_entry(rows, "best")),
        },
        "final": _summary(_entry(rows, "final")),
        "test": {"num_scored": _num_scored(rows, "test"), **_summary(_entry(rows, "test"))} if has_test else None,
    }


def _curve(rows: list[Record]) -> Iterable[tuple[int, int, Values]]:
    """(step, tokens scored, perplexity by seed); steps missing from a diverged record have no value.

    Raises: RecordError when a completed record lacks a step.
    """
    curves = {str(record["seed"]): {int(point["step"]): point for point in record["curve"]} for record in rows}
    steps = sorted({step for curve in curves.values() for step in curve})
    for record in rows:
        absent = [step for step in steps if step not in curves[str(record["seed"])]]
        if absent and record["status"] != "diverged":
            path = paths.record(record["group"], record["run"], record["seed"])
            raise RecordError(f"{path}: has no evaluation at steps {absent}, which other seeds have; make it again")
    for step in steps:
        count = max(int(curve[step].get("num_scored") or 0) for curve in curves.values() if step in curve)
        yield step, count, {seed: _at(curve.get(step), "perplexity") for seed, curve in curves.items()}


def _entry(rows: list[Record], key: str) -> Values:
    return {str(r["seed"]): None if r["status"] == "diverged" else _at(r[key], "perplexity") for r in rows}


def _num_scored(rows: list[Record], key: str) -> int | None:
    return next((record[key]["num_scored"] for record in rows if record[key] is not None), None)


def _at(point: dict[str, Any] | None, key: str) -> Any:
    return None if point is None else point.get(key)


def _summary(values: Values) -> dict[str, Any]:
    """Statistics over seeds; null where a seed has no value."""
    known = [value for value in values.values() if value is not None]
    entry: dict[str, Any] = {
        "perplexity": values,
        "diverged": [int(seed) for seed, v in values.items() if v is None],
    }
    if len(known) < len(values):
        return entry | {"n": len(known), "mean": None, "sd": None, "low": None, "high": None}
    return entry | asdict(mean_interval(known))


def _pair(first: str, second: str, runs: dict[str, Any], records: dict[str, list[Record]]) -> dict[str, Any]:
    """`second` minus `first`."""
    a, b = runs[first], runs[second]
    entries = {key: _difference(a[key], b[key]) for key in ("best", "final", "test") if a[key] and b[key]}
    return {
        "first": first,
        "second": second,
        "curve": [
            {"step": p["step"], **_difference(p, q)} for p, q in zip(a["curve"], b["curve"], strict=True)
        ],
        **{"test": None, **entries},
        "crossing": _crossing(a["curve"], b["curve"]),
        **_held(records[first][0], records[second][0]),
    }  # fmt: skip


def _difference(p: dict[str, Any], q: dict[str, Any]) -> dict[str, Any]:
    """Paired difference of two summaries, in perplexity and in percent of the first."""
    first, second = p["perplexity"], q["perplexity"]
    diverged = sorted({*p["diverged"], *q["diverged"]})
    empty = {"n": len(first) - len(diverged), "mean": None, "sd": None, "low": None, "high": None}
    if diverged:
        by_seed = {s: None if None in (first[s], second[s]) else second[s] - first[s] for s in first}
        difference = {**empty, "p_value": None, "seeds_needed": None}
        return {"by_seed": by_seed, "diverged": diverged, "difference": difference, "percent": empty}
    xs, ys = list(first.values()), [second[seed] for seed in first]
    return {
        "by_seed": {seed: second[seed] - first[seed] for seed in first},
        "diverged": [],
        "difference": asdict(paired_difference(xs, ys)),
        "percent": asdict(mean_interval(percent_gap(xs, ys))),
    }


def _crossing(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> dict[str, Any]:
    """Where the curves change places: for each seed, and for the curves of the mean.

    A curve that changes places more than once counts with its last crossing (all are listed). The interval is the
    t interval over the seeds' crossings and exists only when every seed's curves cross.
    """
    steps = [point["step"] for point in a]
    by_seed: dict[str, list[float] | None] = {}
    for seed in a[0]["perplexity"] if a else {}:
        xs, ys = ([point["perplexity"][seed] for point in curve] for curve in (a, b))
        by_seed[seed] = None if None in xs or None in ys else crossings(steps, xs, ys)
    means = [[point["mean"] for point in curve] for curve in (a, b)]
    of_mean = None if None in means[0] or None in means[1] else crossings(steps, *means)
    last = [found[-1] for found in by_seed.values() if found]
    every = bool(last) and len(last) == len(by_seed)
    empty = {"n": len(last), "mean": None, "sd": None, "low": None, "high": None}
    return {
        "by_seed": by_seed,
        "of_mean": of_mean,
        "step": of_mean[-1] if of_mean else None,
        "num_seeds": len(by_seed),
        "num_crossing": len(last),
        "over_seeds": asdict(mean_interval(last)) if every else empty,
    }


def _held(p: Record, q: Record) -> dict[str, Any]:
    """What a pair shares and what it does not, from the records: parameters and compute are numbers and ratios."""
    x, y = p["config"], q["config"]
    shared = {"data": x["dataset"] == y["dataset"] and p["data"] == q["data"]}
    shared["width"] = x["sizes"] == y["sizes"]
    for name, keys in EQUAL_BY_RECIPE.items():
        shared[name] = all(x["train"][key] == y["train"][key] for key in keys)
    counts = {
        "parameters": (p["parameters"]["total"], q["parameters"]["total"]),
        "core_parameters": (p["parameters"]["core"], q["parameters"]["core"]),
        "nfe_forward": (p["cost"]["nfe_forward"], q["cost"]["nfe_forward"]),
        "flops_per_token_forward": (
            p["cost"]["flops_per_token_forward"],
            q["cost"]["flops_per_token_forward"],
        ),
    }
    return {
        "equal": [name for name, is_equal in shared.items() if is_equal],
        "not_equal": [name for name, is_equal in shared.items() if not is_equal]
        + [name for name, (u, v) in counts.items() if u != v],
        "ratios": {name: {"first": u, "second": v, "ratio": _ratio(u, v)} for name, (u, v) in counts.items()},
    }


def _ratio(first: float, second: float) -> float | None:
    return second / first if first and math.isfinite(second / first) else None
