"""The training side of live tracking. MLflow has a process of its own, so that training never waits for it.

The tracker appends messages to an unnamed temporary file; depthtime.tracking.helper reads them there and writes
to MLflow. A file never blocks, the import of MLflow (seconds) touches no thread or random state of the training,
and when training is killed the helper sees its parent gone and closes the run as KILLED.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal, Self

from depthtime.tracking.contents import Row
from depthtime.tracking.store import STUDY, is_off

Status = Literal["FINISHED", "FAILED", "KILLED"]
CONNECTED = "connected"  # the helper has opened the run in MLflow
PROBLEM = "problem: "  # marks the helper's one complaint among what libraries print
WAIT_SHARE, MIN_WAIT_S, MAX_WAIT_S = 0.015, 3.0, 10.0  # `close` waits this share of the run
_LOGGER = logging.getLogger(__name__)
_left: list[subprocess.Popen[bytes]] = []  # helpers that still write after their run has ended


class RunTracker:
    """Follows one training run in MLflow. Every method returns at once, and none raises.

    with RunTracker(group=..., run=..., seed=..., digest=..., config=...) as tracker:
        tracker.log(rows_so_far)            # after each evaluation (after a resume: first the whole history)
        tracker.finish(record, provenance)
    """

    def __init__(
        self,
        *,
        group: str,
        run: str,
        seed: int,
        digest: str,
        config: dict[str, Any],
        study_name: str = STUDY,
        warn: Callable[[str], object] = _LOGGER.warning,
    ) -> None:
        """Start the helper. `warn` gets the one message about trouble. DEPTHTIME_TRACKING=off: do nothing."""
        self._warn = warn
        self._started = time.monotonic()
        self._is_on = not is_off()
        self._has_record = False
        self._files: list[IO[bytes]] = []
        self._helper: subprocess.Popen[bytes] | None = None
        begin = {"group": group, "run": run, "seed": seed, "digest": digest, "config": config, "study_name": study_name}
        if self._is_on:
            self._guarded(lambda: self._start(begin))

    def log(self, rows: Sequence[Row]) -> None:
        """History rows since the last call, in the order of contents.COLUMNS; they are sent in batches."""
        if self._is_on and rows:
            self._guarded(lambda: self._send({"rows": [list(row) for row in rows]}))

    def finish(self, record: dict[str, Any], provenance: dict[str, Any] | None) -> None:
        """The run has its record: final values, tags, status FINISHED (also a diverged run: it is a result)."""
        self._has_record = True
        if self._is_on:
            self._guarded(lambda: self._send({"record": record, "provenance": provenance}))
        self.close("FINISHED")

    def close(self, status: Status) -> None:
        """End the run. Waits a little for a healthy MLflow (see WAIT_SHARE), not at all for a broken one."""
        if self._is_on:
            self._guarded(lambda: self._send({"end": status}))
        if self._is_on:
            self._guarded(lambda: self._wait(is_patient=status == "FINISHED"))
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_failure = kind is not None and issubclass(kind, Exception)
        self.close("FAILED" if is_failure else "KILLED" if not self._has_record else "FINISHED")

    def _guarded(self, action: Callable[[], None]) -> None:
        """MLflow is a view: whatever goes wrong here (full disk, no process) costs one warning."""
        try:
            action()
            problem = self._problem()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self._is_on = False
        if problem is not None:
            self._complain(problem)

    def _complain(self, problem: str) -> None:
        warn, self._warn = self._warn, lambda message: None
        warn(
            f"MLflow: {problem}. Training goes on; `depthtime runs import` fills in finished runs later "
            f"(DEPTHTIME_TRACKING=off switches MLflow off)"
        )

    def _start(self, begin: dict[str, Any]) -> None:
        _left[:] = [process for process in _left if process.poll() is None]
        self._spool = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as the run
        self._output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._files = [self._spool, self._output]
        self._helper = subprocess.Popen(
            [sys.executable, "-P", "-m", "depthtime.tracking.helper", str(os.getpid())],
            stdin=self._spool,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C ends training; the helper stays to say so
        )
        self._send({"begin": begin})

    def _send(self, message: dict[str, Any]) -> None:
        data = (json.dumps({**message, "time_ms": int(time.time() * 1000)}) + "\n").encode()
        written = self._spool.write(data)
        if written != len(data):
            raise OSError("the temporary folder is full")

    def _said(self) -> str:
        fd = self._output.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def _problem(self) -> str | None:
        """What the helper complained of, or how it ended, if not well."""
        if self._helper is None:
            return None
        text = self._said()
        for line in text.splitlines():
            if line.startswith(PROBLEM):
                return line.removeprefix(PROBLEM)
        if self._helper.poll():
            last = text.strip().splitlines()[-1:] or ["no message"]
            return f"the helper process ended with status {self._helper.returncode}: {last[0][:300]}"
        return None

    def _wait(self, *, is_patient: bool) -> None:
        helper = self._helper
        assert helper is not None
        budget_s = min(MAX_WAIT_S, max(MIN_WAIT_S, WAIT_SHARE * (time.monotonic() - self._started)))
        deadline = time.monotonic() + (budget_s if is_patient else 0)
        while helper.poll() is None and self._problem() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if helper.poll() is None:
            _left.append(helper)
            if is_patient and self._problem() is None:
                if CONNECTED in self._said().splitlines():  # healthy, only behind: a busy machine is no trouble
                    _LOGGER.info("MLflow is still writing, %.0f s after training; it goes on by itself", budget_s)
                else:
                    self._complain(f"no answer {budget_s:.0f} s after the end of training")

    def _release(self) -> None:
        """Close our ends of the files; the helper has its own."""
        self._is_on = False
        for file in self._files:
            file.close()
        if self._helper is not None:
            if self._helper.poll() is None and self._helper not in _left:
                _left.append(self._helper)
            self._helper = None
