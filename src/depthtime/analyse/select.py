"""Choosing a learning rate: the candidate run with the lowest validation loss, the same rule for every model."""

from __future__ import annotations

from typing import Any

from depthtime import paths
from depthtime.config import Study
from depthtime.errors import ConfigError, RecordError
from depthtime.records import read_json, write_json


def select(study: Study, group: str) -> None:
    """Write results/records/selection/<group>.json from the records of the group that was searched.

    A candidate's loss is the mean over its seeds of the best validation loss; a diverged seed rules it out.
    Raises: RecordError when a record is missing or every candidate of a run diverged.
    """
    rule = study.group(group).select
    if rule is None:
        raise ConfigError([f"params.yaml: groups.{group}.select: missing; this group has nothing to select"])
    seeds = study.groups[rule.group].seeds
    chosen: dict[str, Any] = {}
    for run, candidates in rule.among.items():
        trials = [_trial(study, rule.group, name, seeds) for name in candidates]
        usable = [trial for trial in trials if trial["nll_nats"] is not None]
        if not usable:
            raise RecordError(f"groups.{group}.select.among.{run}: every candidate diverged; add a lower learning rate")
        best = min(usable, key=lambda trial: trial["nll_nats"])
        chosen[run] = {"candidate": best["run"], "learning_rate": best["learning_rate"], "trials": trials}
    write_json(paths.selection(group), {"schema": 1, "group": group, "searched": rule.group, "chosen": chosen})


def _trial(study: Study, group: str, run: str, seeds: tuple[int, ...]) -> dict[str, Any]:
    config = study.run(group, run)
    losses = []
    for seed in seeds:
        record = read_json(paths.record(group, run, seed))
        if record["digest"] != config.digest:
            raise RecordError(
                f"{paths.record(group, run, seed)}: made with other parameters than params.yaml has now; train it again"
            )
        losses.append(record["best"]["nll_nats"] if record["status"] == "completed" else None)
    known = [loss for loss in losses if loss is not None]
    mean = sum(known) / len(known) if len(known) == len(losses) else None
    return {"run": run, "learning_rate": config.train.learning_rate, "nll_nats": mean, "seeds": list(seeds)}
