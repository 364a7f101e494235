"""Writing one child run into an open store, in pieces that may be repeated safely."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from depthtime.records import dump_json
from depthtime.tracking import contents
from depthtime.tracking.contents import Point
from depthtime.tracking.store import Store, children

BATCH = 1000  # metrics a call, MLflow's limit; 0.06-0.15 ms a metric (one call a metric: 44 ms)
SMALL_BATCH = 100  # params or tags a call, MLflow's limit


def now_ms() -> int:
    return int(time.time() * 1000)


def moment_ms(text: Any) -> int | None:
    """ISO time of a provenance file, in ms since 1970; None where it is missing or unreadable."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def fingerprint(record: dict[str, Any]) -> str:
    """sha256 of a record (which holds the sha256 of its history): the same content is logged once."""
    return hashlib.sha256(dump_json(record)).hexdigest()


def create_child(
    store: Store, *, name: str, tags: Mapping[str, str], params: Mapping[str, str], start_ms: int | None = None
) -> str:
    """Open a run below the study's parent and give it its parameters. Returns its id."""
    all_tags = {**tags, "mlflow.parentRunId": store.parent_id, "mlflow.source.name": "depthtime"}
    run = store.client.create_run(store.experiment_id, start_time=start_ms, tags=all_tags, run_name=name)
    log_params(store, run.info.run_id, params)
    return str(run.info.run_id)


def address_tags(group: str, run: str, seed: int, digest: str, config: dict[str, Any]) -> dict[str, str]:
    """The tags by which a training run is found again."""
    model = config.get("model", {})
    kind = model.get("model", "unknown") if isinstance(model, dict) else str(model)
    return {"kind": "run", "group": group, "run": run, "seed": str(seed), "digest": digest, "model": str(kind)}


def log_params(store: Store, run_id: str, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param

    for part in _parts([Param(key, value) for key, value in params.items()], SMALL_BATCH):
        store.client.log_batch(run_id, params=part)


def log_tags(store: Store, run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    entities = [RunTag(contents.clean_key(key), value[: contents.TAG_LENGTH]) for key, value in tags.items()]
    for part in _parts(entities, SMALL_BATCH):
        store.client.log_batch(run_id, tags=part)


def log_points(store: Store, run_id: str, points: Sequence[Point]) -> None:
    """Log finite metrics, at most BATCH a call."""
    from mlflow.entities import Metric

    for part in _parts(points, BATCH):
        metrics = [Metric(key, value, time_ms, step) for key, value, time_ms, step in part]
        store.client.log_batch(run_id, metrics=metrics)


def odd_tags(odd: Sequence[Point]) -> dict[str, str]:
    """One tag for each curve that held inf or NaN: how many, and where first."""
    by_key: dict[str, list[int]] = {}
    for key, _, _, step in odd:
        by_key.setdefault(key, []).append(step)
    return {f"not_finite.{key}": f"{len(steps)} values, first at step {min(steps)}" for key, steps in by_key.items()}


def close_dead(store: Store, tags: Mapping[str, str]) -> None:
    """End runs of this address that read RUNNING: a run is trained by one process at a time, so they died."""
    for old in children(store, **_address(tags)):
        if old.info.status == "RUNNING":
            log_tags(store, old.info.run_id, {"status": "killed"})
            store.client.set_terminated(old.info.run_id, "KILLED")


def conclude(
    store: Store, run_id: str, record: dict[str, Any], provenance: dict[str, Any] | None, end_ms: int | None
) -> None:
    """Final values and tags of a run with a record; older runs of this address are not `current`."""
    finite, odd = contents.split_finite(contents.summary_points(record, end_ms or now_ms()))
    log_points(store, run_id, finite)
    tags = {**contents.result_tags(record), **contents.provenance_tags(provenance), **odd_tags(odd)}
    address = {"group": str(record["group"]), "run": str(record["run"]), "seed": str(record["seed"])}
    log_tags(store, run_id, {**tags, "record_sha256": fingerprint(record), "current": "yes"})
    make_current(store, run_id, address)
    store.client.set_terminated(run_id, "FINISHED", end_ms)


def make_current(store: Store, run_id: str, tags: Mapping[str, str]) -> None:
    """Mark other runs with these tags as not current: `tags.current = 'yes'` shows each run once."""
    for old in children(store, **tags):
        if old.info.run_id != run_id and old.data.tags.get("current") == "yes":
            store.client.set_tag(old.info.run_id, "current", "no")


def _address(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: tags[key] for key in ("group", "run", "seed")}


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
