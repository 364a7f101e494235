"""Record in dvc.lock what Snakemake has run: exactly the stages whose receipt equals the workspace, in one commit.

Called after every Snakemake run, also a failed one, and by `depthtime runs record`. Nothing truncated, stale or
edited by hand is recorded: such a stage has no receipt that fits, and the next `snakemake` makes it again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from depthtime.errors import DepthtimeError, InterlockError
from depthtime.interlock.hashes import Hashes
from depthtime.interlock.lock import Freshness, read_lock
from depthtime.interlock.receipts import read_receipts
from depthtime.interlock.stages import Stages, read_stages
from depthtime.paths import LOCK, enter_root

DVC = Path(".dvc")
WAIT_S = 600.0  # how long another DVC command may hold DVC's lock
RETRY_S = 2.0


@dataclass(frozen=True)
class Recorded:
    """What a recording did: addresses now in dvc.lock, and for each refused output why and what to do."""

    stages: tuple[str, ...]
    refused: tuple[str, ...]

    def lines(self) -> list[str]:
        count = len(self.stages)
        said = [f"recorded {count} stage{'s' if count != 1 else ''} in {LOCK}"] if count else []
        return said + list(self.refused)


def read_freshness(stages: Stages | None = None) -> Freshness:
    """The workspace, its dvc.lock and its receipts, ready to be asked."""
    stages = read_stages() if stages is None else stages
    return Freshness(stages, read_lock(), read_receipts(stages), Hashes())


def record(wait_s: float = WAIT_S) -> Recorded:
    """Commit every settled stage that dvc.lock does not hold yet.

    Raises: InterlockError when DVC is not set up here, is held by another process, or refuses.
    """
    fresh = read_freshness()
    waiting = fresh.unrecorded()
    refused = tuple(_refusals(fresh))
    fresh.hashes.save()
    if waiting:
        if not DVC.is_dir():
            raise InterlockError(
                f"not recorded: no folder {DVC} here; run `dvc init` (without git: `dvc init --no-scm`)"
            )
        before = LOCK.read_bytes() if LOCK.exists() else None
        commit(waiting, wait_s)
        _check(waiting, before)
    return Recorded(tuple(waiting), refused)


def commit(addresses: Iterable[str], wait_s: float = WAIT_S) -> None:
    """Let DVC record the named stages, in a process of its own, after waiting for other DVC commands to end."""
    command = [sys.executable, "-m", "depthtime.interlock.commit", *addresses]
    give_up, told = time.monotonic() + wait_s, False
    while True:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "DVC_NO_ANALYTICS": "1"})
        said = (done.stdout + done.stderr).strip()
        if done.returncode == 0:
            return
        busy = "acquire lock" in said or "is busy" in said
        if not busy or time.monotonic() > give_up:
            why = f"another DVC process holds its lock for over {wait_s:.0f} s" if busy else "DVC refused"
            raise InterlockError(f"not recorded: {why}; then run `depthtime runs record`\n{said}")
        if not told:
            print("waiting for another DVC process to end, to record in dvc.lock", file=sys.stderr)
            told = True
        time.sleep(RETRY_S)


def _check(addresses: list[str], before: bytes | None) -> None:
    """DVC hashed the files itself: what it wrote must be what the receipts say, or dvc.lock is put back."""
    after = read_freshness()
    wrong = [address for address in addresses if not after.is_recorded(address)]
    after.hashes.save()
    if not wrong:
        return
    if before is None:
        LOCK.unlink()
    else:
        LOCK.write_bytes(before)
    what = "; ".join(after.changes(wrong[0]))
    raise InterlockError(f"not recorded: {wrong[0]} changed meanwhile ({what}); run `snakemake` again")


def _refusals(fresh: Freshness) -> list[str]:
    """A line for each stage whose outputs lie here but are not what its records say, or were made from other inputs."""
    lines = []
    for address, stage in fresh.stages.items():
        receipt = fresh.receipts.get(address)
        known = [entry.outs for entry in (fresh.lock.get(address), receipt) if entry is not None]
        if not known or fresh.is_recorded(address) or fresh.has_receipt(address):
            continue
        present = {out: fresh.digest(out) for out in stage.outs}
        odd = [out for out, md5 in present.items() if md5 is not None and all(outs.get(out) != md5 for outs in known)]
        if odd:
            what = f"{odd[0]} is not what {address} wrote (edited, or cut short)"
            lines.append(f"not recorded: {what}; `snakemake {odd[0]}` makes it again")
        elif receipt is not None:
            moved = [dep for dep in stage.deps if fresh.digest(dep) != receipt.deps.get(dep)]
            what = moved[0] if moved else f"{stage.rule} in dvc.yaml, or its parameters"
            lines.append(f"not recorded: {address} is stale ({what} changed after it ran); `snakemake` runs it again")
    return lines


def record_after_run() -> None:
    """What Snakemake calls when it ends, well or not: record, and say so in a line or two. Never raises."""
    try:
        for line in record().lines():
            print(line, file=sys.stderr)
    except DepthtimeError as error:
        print(error, file=sys.stderr)


def running_dvc() -> str | None:
    """The DVC command that is running stages in this workspace now, with its process id; None when there is none."""
    try:
        rows = json.loads((DVC / "tmp" / "rwlock").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for held in (held for kind in ("write", "read") for held in rows.get(kind, {}).values()):
        for info in held if isinstance(held, list) else [held]:
            if info["pid"] != os.getpid() and _is_alive(info["pid"]):
                return f"{info['cmd']} (process {info['pid']})"
    return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> int:
    """`python -m depthtime.interlock.recording`: record now."""
    try:
        enter_root()
        done = record()
    except DepthtimeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for line in done.lines() or [f"{LOCK} is up to date"]:
        print(line)
    return 1 if done.refused else 0


if __name__ == "__main__":
    sys.exit(main())
