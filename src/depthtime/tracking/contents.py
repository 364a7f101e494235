"""What of a run goes into MLflow: plain data in, names and numbers out. Pure functions, no MLflow here."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from depthtime.errors import RecordError

COLUMNS = ("step", "loss_nats", "learning_rate", "grad_norm", "valid_nll_nats")  # of history.csv
CURVES = ("train_loss_nats", "learning_rate", "grad_norm", "valid_nll_nats")  # the same columns in MLflow
MAX_POINTS = 4000  # of a curve; longer runs log every n-th step (history.csv keeps all; the UI draws 320)
KEY_LENGTH, PARAM_LENGTH, TAG_LENGTH = 250, 6000, 8000  # MLflow's limits (mlflow/utils/validation.py)

Row = Sequence[float | None]  # one line of the history, in the order of COLUMNS
Point = tuple[str, float, int, int]  # metric name, value, time in ms since 1970, step


def clean_key(text: str) -> str:
    """A name MLflow takes on every system: alphanumerics and `_ - . space : /`, at most 250 characters."""
    return re.sub(r"[^A-Za-z0-9_\-. :/]", "_", text)[:KEY_LENGTH]


def flatten(data: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves of nested mappings by dotted name; mappings in a list go by their `name`, or number; other lists are
    leaves."""
    if isinstance(data, dict):
        items = [(str(key), value) for key, value in data.items()]
    elif isinstance(data, list | tuple) and any(isinstance(value, dict) for value in data):
        items = [(str(value.get("name", index)), value) for index, value in enumerate(data)]
    else:
        return {prefix: data}
    leaves: dict[str, Any] = {}
    for key, value in items:
        leaves |= flatten(value, f"{prefix}.{key}" if prefix else key)
    return leaves


def params_of(config: dict[str, Any]) -> dict[str, str]:
    """The filled-in configuration as MLflow parameters."""
    return {clean_key(key): str(value)[:PARAM_LENGTH] for key, value in flatten(config).items()}


def stride_of(config: dict[str, Any]) -> int:
    """Every how many steps a training curve is logged, so that it has at most MAX_POINTS points."""
    steps = config.get("train", {}).get("max_steps", 0)
    return max(1, math.ceil(steps / MAX_POINTS))


def perplexity_of(nll_nats: float) -> float:
    return math.exp(nll_nats) if nll_nats < 709 else math.inf


def curve_points(rows: Sequence[Row], *, begin_ms: int, end_ms: int, stride: int = 1) -> list[Point]:
    """Metrics of some history rows, their times spread evenly over the interval in which they were computed.

    Values that are not finite are among them, whatever the stride: `split_finite` parts them from the numbers.
    """
    points: list[Point] = []
    for index, row in enumerate(rows):
        step = int(row[0] or 0)
        time_ms = begin_ms + round((end_ms - begin_ms) * (index + 1) / len(rows))
        values = dict(zip(CURVES, row[1:], strict=True))
        nll = values.pop("valid_nll_nats")
        odd = any(value is not None and not math.isfinite(value) for value in values.values())
        if step % stride == 0 or nll is not None or odd:
            points += [(key, value, time_ms, step) for key, value in values.items() if value is not None]
        if nll is not None:
            points += [("valid_nll_nats", nll, time_ms, step), ("valid_perplexity", perplexity_of(nll), time_ms, step)]
    return points


def split_finite(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """(numbers, inf and NaN): MLflow would store inf as 1.8e308, so such values become tags instead."""
    finite: list[Point] = []
    odd: list[Point] = []
    for point in points:
        (finite if math.isfinite(point[1]) else odd).append(point)
    return finite, odd


def summary_points(record: dict[str, Any], time_ms: int) -> list[Point]:
    """Final, best and test values, counts and cost of a finished run; null entries are left out."""
    named: list[tuple[str, Any, int]] = []
    for part in ("best", "final", "test"):
        entry = record.get(part) or {}
        step = int(entry.get("step") or 0)
        named += [(f"{part}_{key}", value, step) for key, value in entry.items()]
    for part, prefix in (("train", "train_"), ("parameters", "parameters_"), ("cost", "")):
        named += [(prefix + key, value, 0) for key, value in (record.get(part) or {}).items()]
    renamed = {"train_final_loss_nats": "final_train_loss_nats", "train_max_grad_norm": "max_grad_norm"}
    return [
        (clean_key(renamed.get(key, key)), float(value), time_ms, step)
        for key, value, step in named
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def result_tags(record: dict[str, Any]) -> dict[str, str]:
    """status and diverged (MLflow has no word for a run that diverged)."""
    is_diverged = record["status"] == "diverged"
    tags = {"status": str(record["status"]), "diverged": "yes" if is_diverged else "no"}
    at = (record.get("train") or {}).get("diverged_at")
    return tags if at is None else {**tags, "diverged_at": str(at)}


def provenance_tags(provenance: dict[str, Any] | None) -> dict[str, str]:
    """Time, host, versions and commit as tags `provenance.*`; the commit also where MLflow's UI shows it."""
    leaves = flatten(provenance or {})
    tags = {clean_key(f"provenance.{key}"): str(value)[:TAG_LENGTH] for key, value in leaves.items()}
    commit = (provenance or {}).get("commit")
    return {**tags, "mlflow.source.git.commit": str(commit)} if commit else tags


def read_history(path: Path) -> list[Row]:
    """Rows of a history.csv: step, loss, learning rate, gradient norm, validation loss or None.

    Raises: RecordError naming file and line.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file; `dvc pull` fetches the histories of published runs") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path}: cannot be read ({error}); `dvc checkout --force` restores it") from error
    if not lines or tuple(lines[0]) != COLUMNS:
        found = ",".join(lines[0]) if lines else "nothing"
        raise RecordError(f"{path}: line 1 is {found!r}, expected the columns {','.join(COLUMNS)}")
    rows: list[Row] = []
    for number, cells in enumerate(lines[1:], start=2):
        try:
            rows.append((int(cells[0]), *(float(cell) if cell else None for cell in cells[1:])))
        except (ValueError, IndexError):
            raise RecordError(
                f"{path}: line {number} is {','.join(cells)!r}, expected {len(COLUMNS)} numbers"
            ) from None
        if len(cells) != len(COLUMNS):
            raise RecordError(f"{path}: line {number} has {len(cells)} cells, expected {len(COLUMNS)}")
    return rows
