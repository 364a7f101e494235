"""MLflow as a view of runs and records: no stage reads it, and it can be rebuilt from results/ at any time.

Training uses `RunTracker`, which never fails and never waits for MLflow; people use `import_runs`, `serve_ui`.
MLflow itself is imported inside functions only: its import takes seconds.
"""

from depthtime.tracking.replay import import_runs, log_finished_run, log_reference
from depthtime.tracking.tracker import RunTracker
from depthtime.tracking.ui import serve_ui, ui_command

__all__ = ["RunTracker", "import_runs", "log_finished_run", "log_reference", "serve_ui", "ui_command"]
