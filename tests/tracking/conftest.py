"""A workspace with an empty MLflow database, and records and histories as training leaves them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthtime.records import write_json
from depthtime.tracking.contents import COLUMNS, Row
from depthtime.tracking.store import open_store

CONFIG = {
    "data": "tiny",
    "model": {"model": "continuous", "solver": "rk4"},
    "train": {"max_steps": 40, "betas": [0.9, 0.99]},
}


@pytest.fixture(autouse=True)
def _tracking_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shell says that runs the tests; a test may switch it off."""
    monkeypatch.delenv("DEPTHTIME_TRACKING", raising=False)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrations take seconds: once for all tests. The study's parent run is not in it."""
    folder = tmp_path_factory.mktemp("database")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        open_store("other study", folder)
    return folder / "mlflow.db"


@pytest.fixture
def workspace(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.fixture
def history() -> Callable[..., list[Row]]:
    """Rows of steps first..last, one evaluation every 10 steps."""

    def make(first: int = 1, last: int = 40) -> list[Row]:
        steps = range(first, last + 1)
        return [(s, 6.0 - s / 50, 1e-3, 1.0 + s / 100, 5.5 - s / 40 if s % 10 == 0 else None) for s in steps]

    return make


@pytest.fixture
def record() -> Callable[..., dict[str, Any]]:
    """A run record; keywords replace entries."""

    def make(**changes: Any) -> dict[str, Any]:
        nll = 4.5
        best = {"step": 40, "nll_nats": nll, "perplexity": math.exp(nll)}
        return {
            "schema": 1, "group": "core", "run": "ode", "seed": 42, "status": "completed", "digest": "d" * 64,
            "config": CONFIG, "parameters": {"total": 10, "block": 4}, "cost": {"nfe_forward": 16},
            "best": best, "final": best, "test": None,
            "train": {"final_loss_nats": 4.4, "max_grad_norm": 1.4, "diverged_at": None},
        } | changes  # fmt: skip

    return make


@pytest.fixture
def write_run(record: Callable[..., dict[str, Any]], history: Callable[..., list[Row]]) -> Callable[..., Path]:
    """Leave record, history and provenance of one run in a workspace; returns the history's path."""

    def write(root: Path, group: str = "core", run: str = "ode", seed: int = 42, rows: list[Row] | None = None) -> Path:
        place = f"{group}/{run}/{seed}"
        write_json(root / f"results/records/{place}.json", record(group=group, run=run, seed=seed))
        about = {
            "started_at": "2026-01-02T03:04:05+00:00",
            "elapsed_s": 80.0,
            "commit": "abc",
            "versions": {"torch": "2"},
        }
        write_json(root / f"results/provenance/{place}.json", about)
        path = root / f"results/runs/{place}/history.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [",".join("" if cell is None else repr(cell) for cell in row) for row in rows or history()]
        path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
        return path

    return write
