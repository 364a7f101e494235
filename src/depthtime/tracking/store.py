"""The door to MLflow: where the database is, its set-up by one process at a time, one parent run per study."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from depthtime.paths import STATE
from depthtime.tracking.contents import clean_key

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "depthtime"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # the UI then opens on runs and curves, not on chats
STUDY = "depthtime"  # name of the parent run, where the caller gives no other
LOCK_WAIT_S = 60
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # its errors reach us as exceptions
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",  # seconds; MLflow's 120 with 7 retries means many minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # of the UI: we have no jobs for it
    "GIT_PYTHON_REFRESH": "quiet",
}


@dataclass(frozen=True)
class Store:
    """An open connection: client, experiment, and the parent run of the study."""

    client: MlflowClient
    experiment_id: str
    parent_id: str


def is_off() -> bool:
    """Whether DEPTHTIME_TRACKING switches MLflow off (off, no, false, 0)."""
    return os.environ.get("DEPTHTIME_TRACKING", "on").strip().lower() in {"off", "no", "false", "0"}


def tracking_uri(root: Path | None = None) -> str:
    """MLFLOW_TRACKING_URI, else the database mlflow.db in the root of the workspace."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    return given or f"sqlite:///{(root or Path.cwd()).resolve() / 'mlflow.db'}"


def quiet_environment() -> None:
    """Telemetry off, short timeouts, no log lines, set before MLflow is imported; the user's settings win."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"


@contextmanager
def alone(uri: str, root: Path | None = None) -> Iterator[None]:
    """A lock for all processes that use this database: its migrations and our parent run race otherwise."""
    if uri.startswith("sqlite:///"):
        path = Path(uri.removeprefix("sqlite:///").partition("?")[0] + ".lock")
    else:
        path = (root or Path.cwd()).resolve() / STATE / "mlflow.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, timeout=LOCK_WAIT_S):
        yield


def open_store(study_name: str = STUDY, root: Path | None = None) -> Store:
    """Connect, and find or make experiment and parent run.

    Raises: whatever MLflow, its database driver or the lock raise; callers make one warning or error of it.
    """
    quiet_environment()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what third parties emit while they are imported
        from mlflow import MlflowClient

    uri = tracking_uri(root)
    study_name = clean_key(study_name).replace("'", "_")
    with alone(uri, root):
        client = MlflowClient(uri)
        experiment_id = _experiment(client)
        return Store(client, experiment_id, _parent(client, experiment_id, study_name))


def _experiment(client: MlflowClient) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        return str(client.create_experiment(EXPERIMENT, tags=KIND))
    if found.lifecycle_stage == "deleted":  # by hand, in the UI
        client.restore_experiment(found.experiment_id)
    for key, value in KIND.items():
        if key not in found.tags:
            client.set_experiment_tag(found.experiment_id, key, value)
    return str(found.experiment_id)


def _parent(client: MlflowClient, experiment_id: str, study_name: str) -> str:
    wanted = f"tags.kind = 'study' and tags.study = '{study_name}'"
    found = client.search_runs([experiment_id], wanted, order_by=["attributes.start_time ASC"], max_results=1)
    if found:
        return str(found[0].info.run_id)
    parent = client.create_run(experiment_id, tags={"kind": "study", "study": study_name}, run_name=study_name)
    client.set_terminated(parent.info.run_id, "FINISHED")  # it never runs, only holds its children
    return str(parent.info.run_id)


def children(store: Store, **tags: str) -> Iterator[Any]:
    """Runs of the study that carry these tags, newest first."""
    wanted = [f"tags.mlflow.parentRunId = '{store.parent_id}'"]
    wanted += [f"tags.{key} = '{value}'" for key, value in tags.items()]
    token = None
    while True:
        page = store.client.search_runs([store.experiment_id], " and ".join(wanted), page_token=token, max_results=500)
        yield from page
        token = page.token
        if not token:
            return
