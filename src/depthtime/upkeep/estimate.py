"""What a part of the study costs: hours from the published runs' own times, disk from what they left."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from depthtime import paths
from depthtime.config import Study
from depthtime.errors import ConfigError
from depthtime.interlock.recording import read_freshness
from depthtime.records import read_json

STATE_MB = 25  # checkpoint of one unfinished run at the published sizes


def estimate_lines(study: Study, targets: list[str], cores: int) -> Iterator[str]:
    """One line a group: runs, hours on `cores` side by side, what still has to run; then the disk."""
    main = next(iter(study.groups))
    groups = list(dict.fromkeys(_expand(study, targets, main))) or list(study.groups)
    fresh = read_freshness()
    times = _times(study)
    left_s = 0.0
    for group in groups:
        row = study.groups[group]
        todo = [
            (run, seed)
            for run in row.runs
            for seed in row.seeds
            if f"train_{group}@{run}-{seed}" in fresh.stages and not fresh.is_settled(f"train_{group}@{run}-{seed}")
        ]
        whole_s = sum(times[group, run] * len(row.seeds) for run in row.runs) / cores
        group_left_s = sum(times[group, run] for run, _ in todo) / cores
        left_s += group_left_s
        total = len(row.runs) * len(row.seeds)
        to_do = f"to do: {len(todo)} ({_hours(group_left_s)})"
        yield f"{group:18} {total:3} runs  {_hours(whole_s)} on {cores} cores; {to_do}"
    used_mb = sum(f.stat().st_size for f in _files(paths.RESULTS)) / 1e6
    yield f"{'left':18} {_hours(left_s)}, and about {cores * STATE_MB} MB for checkpoints while training"
    yield f"{'disk':18} results hold {used_mb:.0f} MB now; the Python environment takes about 2 GB, more with CUDA"


def _expand(study: Study, targets: Iterable[str], main: str) -> Iterator[str]:
    for target in targets:
        if target == "variants":
            yield from (group for group in study.groups if group != main)
        elif target in study.groups:
            yield target
        else:
            raise ConfigError([f"{target!r} is no group; there are {', '.join(study.groups)}, and `variants`"])


def _times(study: Study) -> dict[tuple[str, str], float]:
    """Seconds a seed of each run took where it was published; the mean of the others where it was not."""
    known: dict[tuple[str, str], float] = {}
    for group, row in study.groups.items():
        for run in row.runs:
            files = [paths.provenance(group, run, seed) for seed in row.seeds]
            took = [read_json(file)["elapsed_s"] for file in files if file.exists()]
            if took:
                known[group, run] = statistics.median(took)
    usual = statistics.fmean(known.values()) if known else 600.0
    return {(group, run): known.get((group, run), usual) for group, row in study.groups.items() for run in row.runs}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
