"""Reading the records of a group: exactly the declared ones, complete, and made with the present configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from depthtime import paths
from depthtime.config import RunConfig, Study, digest
from depthtime.errors import RecordError
from depthtime.records import read_json

Record = dict[str, Any]

KEYS = (
    "group",
    "run",
    "seed",
    "status",
    "digest",
    "config",
    "data",
    "parameters",
    "cost",
    "curve",
    "best",
    "final",
    "test",
)
LISTED = 12  # names shown in one message


def gather(
    study: Study, group: str, *, only: Sequence[str] | None = None, seeds: Sequence[int] | None = None
) -> dict[str, list[Record]]:
    """Records of every run of a group (or of the runs `only`), one a seed (of `seeds`) in the order of params.yaml.

    The list comes from the study, never from the folder: a record of a dropped seed or run is not read.

    Raises: RecordError naming every missing record; or every record that is damaged, stale (made with another
            configuration) or scored on other data.
    """
    row = study.groups[group]
    runs = list(row.runs) if only is None else list(only)
    names = [(run, seed) for run in runs for seed in (row.seeds if seeds is None else seeds)]
    missing = [
        str(paths.record(group, run, seed)) for run, seed in names if not paths.record(group, run, seed).exists()
    ]
    if missing:
        raise RecordError(
            f"group {group}: {len(missing)} of {len(names)} records are missing: {_listed(missing)}; "
            f"`snakemake {group}` makes them, or `dvc pull` fetches them"
        )
    expected = {run: expected_config(study, group, run).digest for run in runs}
    records: dict[str, list[Record]] = {run: [] for run in runs}
    problems: list[str] = []
    for run, seed in names:
        path = paths.record(group, run, seed)
        record = read_json(path)
        problem = _problem(record, group, run, seed, expected[run])
        if problem:
            problems.append(f"{path}: {problem}")
        records[run].append(record)
    if problems:
        raise RecordError("\n".join(problems[:LISTED]))
    _check_same_data(group, records)
    return records


def expected_config(study: Study, group: str, run: str) -> RunConfig:
    """The configuration a record must have been made with; a selected learning rate is put in.

    Raises: RecordError when the selection is missing or names no rate for the run.
    """
    config = study.run(group, run)
    if study.groups[group].select is None:
        return config
    return config.with_learning_rate(selected_rate(group, run))


def selected_rate(group: str, run: str) -> float:
    """The learning rate that the selection stage chose for a run."""
    path = paths.selection(group)
    try:
        return float(read_json(path)["chosen"][run]["learning_rate"])
    except (KeyError, TypeError, ValueError):
        raise RecordError(
            f"{path}: names no learning rate for run {run}; make it again: `snakemake --forcerun {path}`"
        ) from None


def _problem(record: Any, group: str, run: str, seed: int, expected: str) -> str | None:
    """What is wrong with one record, or None."""
    if not isinstance(record, dict) or record.get("schema") != 1:
        return "is not a run record of schema 1; make it again"
    lacking = [key for key in KEYS if key not in record]
    if lacking:
        return f"lacks {', '.join(lacking)}; make it again"
    if (record["group"], record["run"], record["seed"]) != (group, run, seed):
        return f"claims to be {record['group']}/{record['run']}/{record['seed']}; was it copied? make it again"
    if record["digest"] != expected:
        return (
            f"stale: its configuration digest is {str(record['digest'])[:12]}, params.yaml now gives {expected[:12]}; "
            f"`snakemake {group}` trains it again, or restore the old values"
        )
    if not record["curve"] and record["status"] != "diverged":
        return "has an empty curve; make it again"
    return None


def _check_same_data(group: str, records: dict[str, list[Record]]) -> None:
    """All records of a group must be scored on the same data: pairs of others mean nothing."""
    cards: dict[str, list[str]] = {}
    for run, rows in records.items():
        for record in rows:
            cards.setdefault(digest(record["data"]), []).append(f"{run}/{record['seed']}")
    if len(cards) > 1:
        lines = [f"data {card[:12]}: {_listed(names)}" for card, names in cards.items()]
        raise RecordError(
            f"group {group}: records come from different data ({'; '.join(lines)}); train the older ones again"
        )


def _listed(names: list[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
