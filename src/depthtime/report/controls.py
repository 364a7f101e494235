"""The fair comparison: runs held against those of another group, with what each has in common with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from depthtime.report import wording as say
from depthtime.report.frame import Row, Table, columns, files, level, seeds
from depthtime.report.sources import Sources


def controls(sources: Sources) -> Table:
    """Every run of the groups with `against`, below the runs that they are held against."""
    numbers: list[Row] = []
    words: list[Row] = []
    read: list[str] = []
    groups = [group for group in sources.compared_groups if sources.study.groups[group].against]
    for name in dict.fromkeys(name for group in groups for name in sources.study.groups[group].against):
        group, _, run = name.partition("/")
        read.append(group)
        _add(sources, group, run, {}, numbers, words)
    for group in groups:
        read.append(group)
        for run in sources.analyses[group]["run_order"]:
            pairs = {pair["first"]: pair for pair in sources.analyses[group]["pairs"] if pair["second"] == run}
            _add(sources, group, run, pairs, numbers, words)
    sample = next((sources.analyses[group] for group in groups), sources.analyses[sources.main_group])
    caption = (
        "**What the pair mixes, taken apart.** Validation perplexity at the last step, mean and "
        f"{level(sample)} t interval over seeds, and gaps paired by seed (negative: lower than the named run). "
        "Learning rates: the first two runs and the controls each took the best of as many trials on another seed; "
        "ablations take the rate of the pair."
    )
    return Table(numbers, words, caption, files(sources, list(dict.fromkeys(read))))


def _add(sources: Sources, group: str, run: str, pairs: dict[str, Any], numbers: list[Row], words: list[Row]) -> None:
    analysis = sources.analyses[group]
    row = analysis["runs"][run]
    cost = {"parameters": row["parameters"]["total"], **row["cost"]}
    named = {name.replace("/", "_"): pair for name, pair in pairs.items()}
    numbers.append(
        {"group": group, "run": run, **cost, "learning_rate": row["learning_rate"], **columns(row["final"], "final_")}
        | {key: value for n, p in named.items() for key, value in columns(p["final"]["percent"], f"{n}_gap_").items()}
        | {"seeds": len(analysis["seeds"]), "diverged": [int(seed) for seed in row["diverged_seeds"]]}
        | {"equal": _equal(pairs)}
    )
    baselines = dict.fromkeys(name for group in sources.compared_groups for name in sources.study.groups[group].against)
    words.append(
        {
            "run": f"{group}/{sources.label(group, run)}",
            "parameters": say.count(cost["parameters"]),
            "block evaluations": say.count(cost["nfe_forward"]),
            "MFLOPs a token": say.number(cost["flops_per_token_forward"] / 1e6, 2),
            "learning rate": f"{row['learning_rate']:g}",
            "perplexity": say.interval(row["final"]),
        }
        | {f"gap to {name}": say.percent(pairs[name]["final"]["percent"]) if pairs else say.NONE for name in baselines}
        | {"seeds": seeds(analysis, row), "held equal": _equal(pairs)}
    )


def _equal(pairs: dict[str, Any]) -> str:
    """What a run has in common with each run it is held against, counts that agree included."""
    shared = (f"with {name}: {say.equal(_shared(pair))}" for name, pair in pairs.items())
    return "; ".join(shared) or "the runs below are held against it"


def _shared(pair: dict[str, Any]) -> Iterator[str]:
    yield from pair["equal"]
    yield from (what for key, what in say.NOT_EQUAL.items() if pair["ratios"][key]["ratio"] == 1)


def frontier_points(sources: Sources) -> list[dict[str, Any]]:
    """One point a run of the fair comparison: name, label, block evaluations, FLOPs, and perplexity over seeds."""
    groups = [group for group in sources.compared_groups if sources.study.groups[group].against]
    names = dict.fromkeys(name for group in groups for name in sources.study.groups[group].against)
    names |= dict.fromkeys(f"{group}/{run}" for group in groups for run in sources.analyses[group]["run_order"])
    points = []
    for name in names:
        row = sources.analysed_run(name)
        points.append({"name": name, "label": sources.label(*name.split("/")), **row["cost"], **row["final"]})
    return points
