"""Results of dropped runs and seeds: moved aside before the next analysis, never deleted, never counted."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from depthtime.interlock.hashes import Hashes
from depthtime.interlock.stages import Stages, read_stages
from depthtime.paths import DROPPED, RESULTS

WATCHED = (RESULTS / "records", RESULTS / "runs")


def move_leftovers(stages: Stages | None = None) -> list[Path]:
    """Move files under results/records and results/runs that no stage declares to results/dropped; say where to.

    The stages of today's dvc.yaml decide, so this must be called from the workspace's root. An older leftover of
    the same name keeps its place: the newer one gets a number.
    """
    stages = read_stages() if stages is None else stages
    hashes, moved = Hashes(), []
    for folder in WATCHED:
        for name in sorted(hashes.walk(folder.as_posix())):
            if name in stages.makers or any(parent.as_posix() in stages.makers for parent in Path(name).parents):
                continue
            target = _free(DROPPED / Path(name).relative_to(RESULTS))
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a stage that runs beside this one moved it first
                os.replace(name, target)
                moved.append(target)
        _remove_empty(folder)
    return moved


def _free(path: Path) -> Path:
    """The path, or the first numbered neighbour that nothing lies at."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return candidate


def _remove_empty(folder: Path) -> None:
    """Folders left without anything but Snakemake's mark: they would count as results of nothing."""
    for at, _, _ in sorted(os.walk(folder), reverse=True):
        names = os.listdir(at) if os.path.isdir(at) else ["gone"]
        if Path(at) != folder and set(names) <= {".snakemake_timestamp"}:
            with suppress(OSError):  # likewise, or a stage beside this one has just written there
                for name in names:
                    os.unlink(Path(at) / name)
                os.rmdir(at)
