"""Connects the training loop to a RunTracker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from depthtime import paths
from depthtime.config import RunConfig
from depthtime.progress import logger
from depthtime.records import read_json
from depthtime.tracking.tracker import RunTracker

if TYPE_CHECKING:
    from depthtime.train.checkpoint import Progress


class TrackingObserver:
    """Sends history rows at each evaluation; after a resume the first call sends the whole history."""

    def __init__(self, tracker: RunTracker) -> None:
        self.tracker, self.sent = tracker, 0

    def on_step(self, progress: Progress) -> None:
        """Nothing: rows travel in batches."""

    def on_evaluation(self, progress: Progress) -> None:
        self.tracker.log(progress.history[self.sent :])  # type: ignore[arg-type]
        self.sent = len(progress.history)

    def finish(self, record: dict[str, Any]) -> None:
        """The record is written: final values and status."""
        where = paths.provenance(record["group"], record["run"], record["seed"])
        self.tracker.finish(record, read_json(where) if where.exists() else None)


@contextmanager
def tracked(config: RunConfig, seed: int) -> Iterator[TrackingObserver]:
    """An observer for one run; trouble with MLflow is told once and changes nothing else."""
    with RunTracker(
        group=config.group_name,
        run=config.run_name,
        seed=seed,
        digest=config.digest,
        config=config.described(),
        warn=logger.warning,
    ) as tracker:
        yield TrackingObserver(tracker)
