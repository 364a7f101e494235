"""Rebuilding the view: finished records and histories into MLflow, each once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from depthtime import paths
from depthtime.claims import MEASURES
from depthtime.config import Study
from depthtime.errors import DepthtimeError, TrackingError
from depthtime.records import read_json
from depthtime.tracking import contents, runs
from depthtime.tracking.store import STUDY, Store, children, is_off, open_store, tracking_uri

_LOGGER = logging.getLogger(__name__)


def log_finished_run(
    record: dict[str, Any], history_csv: Path, provenance: dict[str, Any] | None, study_name: str = STUDY
) -> None:
    """Log one finished run with its curves; nothing happens where the same record is there already.

    Raises: TrackingError (MLflow), RecordError (history).
    """
    if is_off():
        return
    rows = contents.read_history(history_csv)
    with _explained():
        store = open_store(study_name)
        if runs.fingerprint(record) not in _finished(store):
            _log_run(store, record, rows, provenance)


def log_reference(name: str, record: dict[str, Any], study_name: str = STUDY) -> None:
    """Log a record without curves (n-gram references, bench) as a child: numbers as metrics, texts as params.

    Raises: TrackingError.
    """
    if is_off():
        return
    with _explained():
        store = open_store(study_name)
        if runs.fingerprint(record) not in _finished(store):
            _log_reference(store, name, record)


def import_runs(study: Study, root: Path, study_name: str = STUDY) -> int:
    """Replay the runs of the study (its list in params.yaml, never a glob), n-gram references and bench.

    Runs without a record are not trained yet; runs whose history is not here are counted in one warning.
    Returns: how many were logged now. Raises: TrackingError, RecordError.
    """
    if is_off():
        raise TrackingError("DEPTHTIME_TRACKING is off, so nothing was imported; unset it and run again")
    root = Path(root)
    with _explained(root):
        store = open_store(study_name, root)
        known = _finished(store)
    jobs = [*_run_jobs(study, root), *_reference_jobs(study, root)]
    logged = missing = 0
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for path, job in progress.track(jobs, description="MLflow"):
            record = read_json(path)
            if runs.fingerprint(record) in known:
                continue
            with _explained(root):
                if job(store, record):
                    logged += 1
                else:
                    missing += 1
    if missing:
        _LOGGER.warning("%d runs have a record but no history here: `dvc pull`, then import again", missing)
    return logged


Job = tuple[Path, Callable[[Store, dict[str, Any]], bool]]


def _run_jobs(study: Study, root: Path) -> Iterator[Job]:
    for group, run, seed in study.all_runs():
        path = root / paths.record(group, run, seed)
        history = root / paths.run_folder(group, run, seed) / "history.csv"
        about = root / paths.provenance(group, run, seed)

        def job(store: Store, record: dict[str, Any], history: Path = history, about: Path = about) -> bool:
            if not history.exists():
                return False
            _log_run(store, record, contents.read_history(history), read_json(about) if about.exists() else None)
            return True

        if path.exists():
            yield path, job


def _reference_jobs(study: Study, root: Path) -> Iterator[Job]:
    named = {f"ngram/{dataset}": root / paths.ngram_record(dataset) for dataset in study.datasets}
    named |= {name: root / paths.measured(name) for name in ("bench", *MEASURES)}
    for name, path in named.items():

        def job(store: Store, record: dict[str, Any], name: str = name) -> bool:
            _log_reference(store, name, record)
            return True

        if path.exists():
            yield path, job


def _finished(store: Store) -> set[str]:
    """Fingerprints of the records that are in the store, whole."""
    there = (run for run in children(store) if run.info.status == "FINISHED")
    return {run.data.tags["record_sha256"] for run in there if "record_sha256" in run.data.tags}


def _log_run(store: Store, record: dict[str, Any], rows: list[contents.Row], provenance: dict[str, Any] | None) -> None:
    """Times come from the provenance, where there is one: an imported run is not as old as its import."""
    elapsed_ms = int(float((provenance or {}).get("elapsed_s") or 0) * 1000)
    begin_ms = runs.moment_ms((provenance or {}).get("started_at")) or runs.now_ms() - elapsed_ms
    end_ms = begin_ms + elapsed_ms
    config = record["config"]
    tags = runs.address_tags(record["group"], record["run"], record["seed"], record["digest"], config)
    name = f"{record['group']}/{record['run']}/{record['seed']}"
    run_id = runs.create_child(store, name=name, tags=tags, params=contents.params_of(config), start_ms=begin_ms)
    points = contents.curve_points(rows, begin_ms=begin_ms, end_ms=end_ms, stride=contents.stride_of(config))
    finite, odd = contents.split_finite(points)
    runs.log_points(store, run_id, finite)
    runs.log_tags(store, run_id, runs.odd_tags(odd))
    runs.conclude(store, run_id, record, provenance, end_ms)


def _log_reference(store: Store, name: str, record: dict[str, Any]) -> None:
    leaves = contents.flatten(record)
    numbers = {key: v for key, v in leaves.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    params = {contents.clean_key(k): str(v)[: contents.PARAM_LENGTH] for k, v in leaves.items() if k not in numbers}
    tags = {"kind": "reference", "reference": name}
    run_id = runs.create_child(store, name=contents.clean_key(name), tags=tags, params=params)
    now = runs.now_ms()
    finite, _ = contents.split_finite([(contents.clean_key(key), float(v), now, 0) for key, v in numbers.items()])
    runs.log_points(store, run_id, finite)
    runs.log_tags(store, run_id, {"record_sha256": runs.fingerprint(record), "current": "yes"})
    runs.make_current(store, run_id, {"reference": name})
    store.client.set_terminated(run_id, "FINISHED")


@contextmanager
def _explained(root: Path | None = None) -> Iterator[None]:
    """Whatever MLflow raises, as one error of ours."""
    try:
        yield
    except DepthtimeError:
        raise
    except Exception as error:
        raise TrackingError(
            f"MLflow at {tracking_uri(root)}: {brief(error)}; nothing in results/ is affected"
        ) from error


def brief(error: BaseException) -> str:
    """The first line of an error, at most 300 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
