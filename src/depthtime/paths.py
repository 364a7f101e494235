"""Where things lie, relative to the root of a workspace (the folder with params.yaml and dvc.yaml)."""

from __future__ import annotations

import os
from pathlib import Path

from depthtime.errors import DepthtimeError

PARAMS = Path("params.yaml")
PIPELINE = Path("dvc.yaml")
LOCK = Path("dvc.lock")
CORPORA = Path("data")  # downloaded or extracted text: local, never an output
ARRAYS = Path(".cache/arrays")  # token arrays by hash: local, never an output
RESUME = Path(".cache/resume")  # checkpoints of unfinished runs, by digest
STATE = Path(".depthtime")  # receipts, slices, hash cache
LOGS = Path("logs")
RESULTS = Path("results")
DROPPED = RESULTS / "dropped"


def enter_root(start: Path | None = None) -> Path:
    """Change into the nearest folder upward that holds params.yaml and dvc.yaml; return it."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / PARAMS).exists() and (folder / PIPELINE).exists():
            os.chdir(folder)
            return folder
    raise DepthtimeError(f"{start}: no params.yaml and dvc.yaml here or above; run inside a depthtime workspace")


def source_card(corpus: str) -> Path:
    return RESULTS / "cards/source" / f"{corpus}.json"


def data_card(dataset: str) -> Path:
    return RESULTS / "cards/data" / f"{dataset}.json"


def vocabulary(dataset: str) -> Path:
    return RESULTS / "vocabulary" / f"{dataset}.json"


def split(dataset: str) -> Path:
    return RESULTS / "splits" / f"{dataset}.json"


def ngram_record(dataset: str) -> Path:
    return RESULTS / "records/ngram" / f"{dataset}.json"


def record(group: str, run: str, seed: int) -> Path:
    return RESULTS / "records" / group / run / f"{seed}.json"


def run_folder(group: str, run: str, seed: int) -> Path:
    """History (history.csv) and, where kept, weights (weights.safetensors) of one run."""
    return RESULTS / "runs" / group / run / str(seed)


def provenance(group: str, run: str, seed: int) -> Path:
    return RESULTS / "provenance" / group / run / f"{seed}.json"


def selection(group: str) -> Path:
    return RESULTS / "records/selection" / f"{group}.json"


def measured(name: str) -> Path:
    """The record of a stage that measures: bench, gradients, solver_swap, decoding, clustering, conversion."""
    return RESULTS / "records" / f"{name}.json"


def analysis(group: str) -> Path:
    return RESULTS / "analysis" / f"{group}.json"
