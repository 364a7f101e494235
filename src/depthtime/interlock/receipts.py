"""A stage's receipt: the command, parameter values and file hashes of its last complete run in this workspace.

Written around every stage verb, whoever calls it (Snakemake, DVC, a person). What was read is hashed before the
run, what was written after it; a run that was killed, failed, or whose inputs changed under it leaves none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

import depthtime
from depthtime.errors import InterlockError, RecordError
from depthtime.interlock.hashes import Hashes
from depthtime.interlock.leftovers import move_leftovers
from depthtime.interlock.lock import Entry
from depthtime.interlock.stages import Stage, Stages, read_stages
from depthtime.paths import DROPPED, PARAMS, STATE
from depthtime.records import read_json, write_json

RECEIPTS = STATE / "receipts"
RUNNING = STATE / "running"

logger = logging.getLogger("depthtime")


def receipt_path(address: str) -> Path:
    return RECEIPTS / f"{address}.json"


def read_receipts(stages: Stages) -> dict[str, Entry]:
    """The receipts of today's stages by address; a damaged one counts as absent."""
    found = {}
    for address in stages:
        path = receipt_path(address)
        if path.exists():
            try:
                row = read_json(path)
                found[address] = Entry(row["cmd"], row["params"], row["deps"], row["outs"])
            except (RecordError, KeyError, TypeError):
                continue
    return found


@contextmanager
def receipt(stage: str, stages: Stages | None = None) -> Iterator[Stage | None]:
    """Run a stage's work inside this: it is refused while the same stage runs elsewhere, and leaves a receipt when
    it ends well. A stage that reads a whole folder of results first has what no stage makes moved out of it.

    Args:    stage: an address (train_core@ode-42) or the stage's command (depthtime train core ode 42). A command
             that dvc.yaml does not have is simply run.
    Raises:  InterlockError when the stage is being run by another process; when run by DVC, also when an input
             changed meanwhile, because DVC would record the new input with the old output.
    """
    stages = read_stages() if stages is None else stages
    found = stages.of_command(stage) if " " in stage.strip() else stages[stage]
    if found is None:
        yield None
        return
    with _alone(found.address):
        receipt_path(found.address).unlink(missing_ok=True)
        if any(stages.is_filled(dep) for dep in found.deps):
            for path in move_leftovers(stages):
                logger.info("moved %s to %s: no run of %s makes it", path.relative_to(DROPPED), DROPPED, PARAMS)
        _same_code(found)
        before = read_side(found, stages)
        yield found
        changed = changes_since(before, found)
        if not changed:
            write_receipt(found, before)
            return
    message = f"{', '.join(changed)} changed while {found.address} was running, so its result is not recorded"
    if os.environ.get("DVC_STAGE") == found.address:
        raise InterlockError(f"{message}; run `dvc repro` again")
    logger.warning("%s; run `snakemake` again", message)


def _same_code(stage: Stage) -> None:
    """The code that runs is the code that is hashed: with another checkout's environment active it would not be.

    Raises: InterlockError naming both files.
    """
    running, package = Path(depthtime.__file__).parent, Path("src/depthtime")
    for dep in stage.deps:
        if Path(dep).is_relative_to(package):
            other = running / Path(dep).relative_to(package)
            if not other.exists() or Path(dep).read_bytes() != other.read_bytes():
                raise InterlockError(
                    f"{stage.address}: {dep} is not the code that runs ({other}); activate this folder's environment "
                    "(`make` sets one up), or set PYTHONPATH=src"
                )


def read_side(stage: Stage, stages: Stages) -> Entry:
    """Command, parameter values and hashes of the dependencies as they are now; outputs not yet."""
    hashes = Hashes()
    deps = {dep: hashes.of(dep) for dep in stage.deps}
    hashes.save()
    missing = [dep for dep, md5 in deps.items() if md5 is None]
    if missing:
        made = [dep for dep in missing if any(path in stages.makers for path in stages.files(dep))]
        fix = f"`snakemake {made[0]}` makes it, or `dvc pull` fetches it" if made else "it is part of this repository"
        raise InterlockError(f"{stage.address}: dependency {missing[0]} is not there; {fix}")
    return Entry(stage.cmd, stages.parameters(stage), deps, {})


def write_receipt(stage: Stage, before: Entry) -> None:
    """Leave the receipt of a run that has just ended; `before` is what `read_side` saw before it.

    Raises: InterlockError when a declared output was not written.
    """
    hashes = Hashes()
    outs = {out: hashes.of(out) for out in stage.outs}
    hashes.save()
    missing = [out for out, md5 in outs.items() if md5 is None]
    if missing:
        raise InterlockError(f"{stage.address}: did not write {missing[0]}, which dvc.yaml declares as its output")
    row = asdict(Entry(before.cmd, before.params, before.deps, outs))
    write_json(receipt_path(stage.address), {"schema": 1, "address": stage.address, **row})


def changes_since(before: Entry, stage: Stage) -> list[str]:
    """Names of what is no longer as it was before the run: dependencies, parameters, the stage itself."""
    hashes = Hashes()
    names = [dep for dep, md5 in before.deps.items() if hashes.of(dep) != md5]
    stages = read_stages()
    now = stages.by_address.get(stage.address)
    if now is None or now != stage:
        return [*names, f"dvc.yaml: {stage.rule}"]
    values: Mapping[str, object] = stages.parameters(now)
    return names + [f"{PARAMS}: {key}" for key in stage.params if values[key] != before.params[key]]


@contextmanager
def _alone(address: str) -> Iterator[None]:
    """Hold the right to run a stage; the system releases it when the process dies."""
    RUNNING.mkdir(parents=True, exist_ok=True)
    holder = RUNNING / f"{address}.pid"
    lock = FileLock(RUNNING / f"{address}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        pid = holder.read_text(encoding="utf-8").strip() if holder.exists() else "?"
        raise InterlockError(
            f"{address} is already being run by process {pid} (Snakemake and DVC do not see each other's runs); "
            "wait for it, or end it, and run again"
        ) from None
    try:
        holder.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
