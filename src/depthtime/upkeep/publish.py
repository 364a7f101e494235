"""Publish: put what dvc.lock refers to into the store that travels with the repository, and keep that store small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from depthtime.config import Study
from depthtime.errors import InterlockError
from depthtime.interlock.recording import read_freshness

STORE = Path("store")
CACHE = Path(".dvc/cache")  # laid out like the store
STORE_LIMIT_MB = 150  # over all history: git keeps every object that was ever in the store
KEPT_LIMIT = 12  # named runs whose weights are stored


def publish(study: Study) -> list[str]:
    """Collect garbage, push to the remote `store`, and check its size; returns lines for a person.

    Raises: InterlockError when a stage is not recorded, when too many runs keep weights, or when the store grows
            beyond its limit.
    """
    fresh = read_freshness()
    loose = [address for address in fresh.stages if not fresh.is_recorded(address)]
    if loose:
        raise InterlockError(
            f"{len(loose)} stages are not recorded in dvc.lock (first {loose[0]}); run `snakemake --cores all` first"
        )
    kept = [f"{group}/{run}" for group, row in study.groups.items() for run, r in row.runs.items() if r.keep_weights]
    if len(kept) > KEPT_LIMIT:
        raise InterlockError(
            f"params.yaml: keep_weights is set for {len(kept)} runs, the store takes {KEPT_LIMIT}: {', '.join(kept)}"
        )
    _dvc("gc", "--workspace", "--force", "--quiet")
    size_mb = store_mb(CACHE)
    if size_mb > STORE_LIMIT_MB:
        raise InterlockError(f"store/ would hold {size_mb:.0f} MB over its history, the limit is {STORE_LIMIT_MB} MB")
    pushed = _dvc("push", "--remote", "store")
    return [
        pushed,
        f"store/ holds {size_mb:.1f} MB over its whole history (limit {STORE_LIMIT_MB} MB); commit it with git",
    ]


def store_mb(*added: Path) -> float:
    """Size of every object that is or ever was in the store, in MB, with those of folders that are to be added."""
    files = [(folder, path) for folder in (STORE, *added) for path in folder.rglob("*") if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for folder, path in files}
    for name, size in _historic().items():
        sizes.setdefault(name, size)
    return sum(sizes.values()) / 1e6


def _historic() -> dict[str, int]:
    """Path in the store -> size, for everything git has ever had there; empty outside git."""
    listed = subprocess.run(["git", "rev-list", "--objects", "--all", "--", str(STORE)], capture_output=True, text=True)
    if listed.returncode:
        return {}
    named = dict(line.split(" ", 1) for line in listed.stdout.splitlines() if f" {STORE}/" in line)
    sizes = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)"],
        input="\n".join(named), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {}
    for line in sizes.stdout.splitlines():
        name, kind, size = line.split()
        if kind == "blob":
            found[named[name].removeprefix(f"{STORE}/")] = int(size)
    return found


def _dvc(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
    )
    if done.returncode:
        raise InterlockError(f"`dvc {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()
