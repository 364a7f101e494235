"""What surrounds every stage verb: checked parameters, a receipt, and a log that an error can point to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from depthtime import paths
from depthtime.config import Study, load_params
from depthtime.errors import DepthtimeError
from depthtime.interlock.receipts import receipt
from depthtime.interlock.stages import read_stages

logger = logging.getLogger("depthtime")


@contextmanager
def running_stage(*words: str) -> Iterator[Study]:
    """Enter the workspace, check params.yaml, run a verb's work inside its receipt, and keep a log of what it says.

    Args:   words: the verb and its arguments, as dvc.yaml writes them after `depthtime`.
    Raises: DepthtimeError, with the name of the log, when the work fails.
    """
    paths.enter_root()
    study = load_params()
    stages = read_stages()
    command = " ".join(("depthtime", *words))
    stage = stages.of_command(command)
    name = stage.address if stage else "-".join(words)
    log = paths.LOGS / f"{name}.log"
    with _logged_to(log):
        logger.debug("%s", command)
        try:
            with receipt(command, stages):
                yield study
        except DepthtimeError as error:
            logger.debug("%s: %s", type(error).__name__, error)
            error.add_note(f"log: {log}")
            raise
        except Exception:
            logger.exception("%s failed; this is a bug in depthtime or its set-up, the trace is in %s", command, log)
            raise SystemExit(1) from None


@contextmanager
def _logged_to(log: Path) -> Iterator[None]:
    """Append everything depthtime says, with times, to a file while it lasts."""
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
