"""What a person sees while something runs: a bar with time left on a terminal, a line at each evaluation elsewhere."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from depthtime.train.checkpoint import Progress as TrainingProgress

console = Console(stderr=True, highlight=False, soft_wrap=True)
logger = logging.getLogger("depthtime")


class ScreenHandler(logging.Handler):
    """Shows messages through the console that also draws bars, so that they do not tear each other."""

    def emit(self, record: logging.LogRecord) -> None:
        console.print(self.format(record), markup=False)


def bar() -> Progress:
    """A progress bar on standard error; shows nothing when that is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total) that moves a bar."""
    with bar() as shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


class TrainingDisplay:
    """Observer of one training: loss and time left in a bar; one line for each evaluation."""

    def __init__(self, label: str, max_steps: int) -> None:
        self.label, self.max_steps = label, max_steps
        self.bar = bar()
        self.task = self.bar.add_task(label, total=max_steps)

    def __enter__(self) -> TrainingDisplay:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_step(self, progress: TrainingProgress) -> None:
        loss = progress.history[-1][1]
        shown = f"{self.label}  loss {loss:.3f}" if loss is not None else self.label
        self.bar.update(self.task, completed=progress.step, description=shown)

    def on_evaluation(self, progress: TrainingProgress) -> None:
        if progress.diverged_at is not None:
            line = f"{self.label}: diverged at step {progress.diverged_at}; recorded as diverged"
        elif progress.curve and progress.curve[-1]["step"] == progress.step:
            nll = progress.curve[-1]["nll_nats"]
            line = (
                f"{self.label}: step {progress.step}/{self.max_steps}  validation perplexity {math.exp(nll):.2f}"
                f"  ({progress.elapsed_s / progress.step * 1e3:.0f} ms a step)"
            )
        else:
            return
        logger.info("%s", line)
