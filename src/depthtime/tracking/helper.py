"""The process that writes one live run into MLflow: `python -m depthtime.tracking.helper PARENT_PID`.

It reads JSON lines from standard input, which is a growing file (see tracker.py), until it is told the end or
its parent is gone. Trouble is reported once; what could not be written is kept and tried with the next message.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from depthtime.tracking import contents, runs
from depthtime.tracking.replay import brief
from depthtime.tracking.store import Store, open_store, quiet_environment, tracking_uri
from depthtime.tracking.tracker import CONNECTED, PROBLEM

POLL_S = 0.1
LAST_S = 120  # after the end of training this process lives at most so long


class LiveRun:
    """What is known of the run and what of it is not yet written."""

    def __init__(self, begin: dict[str, Any], time_ms: int) -> None:
        self._begin = begin
        self._store: Store | None = None
        self._run_id: str | None = None
        self._pending: list[contents.Point] = []
        self._odd: list[contents.Point] = []
        self._begin_ms = self._last_ms = time_ms
        self._stride = contents.stride_of(begin["config"])
        self.result: tuple[dict[str, Any], dict[str, Any] | None] | None = None  # record, provenance

    def add(self, rows: list[contents.Row], time_ms: int) -> None:
        points = contents.curve_points(rows, begin_ms=self._last_ms, end_ms=time_ms, stride=self._stride)
        finite, odd = contents.split_finite(points)
        self._pending += finite
        self._odd += odd
        self._last_ms = time_ms

    def write(self) -> None:
        """Bring MLflow up to date. May raise anything; a later call goes on where this one stopped."""
        begin = self._begin
        if self._store is None:
            self._store = open_store(begin["study_name"])
        if self._run_id is None:
            tags = runs.address_tags(begin["group"], begin["run"], begin["seed"], begin["digest"], begin["config"])
            runs.close_dead(self._store, tags)
            self._run_id = runs.create_child(
                self._store,
                name=f"{begin['group']}/{begin['run']}/{begin['seed']}",
                tags={**tags, "status": "running"},
                params=contents.params_of(begin["config"]),
                start_ms=self._begin_ms,
            )
            os.write(1, f"{CONNECTED}\n".encode())
        while self._pending:
            runs.log_points(self._store, self._run_id, self._pending[: runs.BATCH])
            del self._pending[: runs.BATCH]
        if self._odd:
            runs.log_tags(self._store, self._run_id, runs.odd_tags(self._odd))

    def end(self, status: str, time_ms: int) -> None:
        """Write what is left, and close the run. May raise anything, and may be repeated."""
        self.write()
        assert self._store is not None
        assert self._run_id is not None
        if status == "FINISHED" and self.result is not None:
            runs.conclude(self._store, self._run_id, *self.result, time_ms)
            return
        runs.log_tags(self._store, self._run_id, {"status": status.lower()})
        self._store.client.set_terminated(self._run_id, status, time_ms)


def follow(parent_pid: int) -> Iterator[dict[str, Any]]:
    """Messages as they arrive; the last one holds `end`; where the parent died without one, we supply it."""
    offset, rest = 0, b""
    while True:
        is_orphan = os.getppid() != parent_pid  # asked before the read, so nothing it wrote is missed
        data = os.pread(0, 1 << 20, offset)
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            yield message
            if "end" in message:
                return
        if not data:
            if is_orphan:
                yield {"end": "KILLED", "time_ms": runs.now_ms()}
                return
            time.sleep(POLL_S)


class Attempts:
    """Runs what may fail; the first failure is reported to the training side, later ones are not."""

    def __init__(self) -> None:
        self.has_complained = False

    def __call__(self, action: Callable[..., None], *args: Any) -> bool:
        try:
            action(*args)
        except Exception as error:
            if not self.has_complained:
                os.write(1, f"{PROBLEM}{tracking_uri()}: {brief(error)}\n".encode())
            self.has_complained = True
            return False
        return True


def main(parent_pid: int) -> int:
    quiet_environment()
    attempt = Attempts()
    run: LiveRun | None = None
    for message in follow(parent_pid):
        if "begin" in message:
            run = LiveRun(message["begin"], message["time_ms"])
        if run is None:  # the parent died before it said anything
            return 0
        if "end" in message:
            signal.alarm(LAST_S)
            if not attempt(run.end, message["end"], message["time_ms"]):
                time.sleep(1)
                attempt(run.end, message["end"], message["time_ms"])
        elif "record" in message:
            run.result = message["record"], message["provenance"]
        else:
            run.add(message.get("rows", []), message["time_ms"])
            attempt(run.write)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
