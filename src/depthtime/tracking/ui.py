"""Opening MLflow's own pages."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from depthtime.errors import TrackingError
from depthtime.tracking.store import alone, quiet_environment, tracking_uri


def ui_command(host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The command that serves the workspace's database on http://HOST:PORT.

    Raises: TrackingError where MLFLOW_TRACKING_URI names a server: it has pages of its own.
    """
    uri = tracking_uri()
    if urlsplit(uri).scheme in {"http", "https"}:
        raise TrackingError(f"MLFLOW_TRACKING_URI = {uri} is a server; open that address in a browser")
    where = ["--backend-store-uri", uri, "--host", host, "--port", str(port), "--workers", "1"]
    return [sys.executable, "-P", "-m", "mlflow", "server", *where]


def serve_ui(host: str = "127.0.0.1", port: int = 5000) -> None:
    """Become the MLflow server. The database is first set up under the lock: trainings may run meanwhile."""
    command = ui_command(host, port)
    quiet_environment()
    uri = tracking_uri()
    with alone(uri):
        from mlflow import MlflowClient

        MlflowClient(uri).search_experiments(max_results=1)
    os.execv(command[0], command)
