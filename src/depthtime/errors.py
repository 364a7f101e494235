"""The one family of errors a user may meet. Each message names the place, the value, what was expected, and the fix."""

from __future__ import annotations


class DepthtimeError(Exception):
    """Base of every error the command line reports in one line, without a traceback."""

    exit_code = 1


class ConfigError(DepthtimeError):
    """params.yaml (or another YAML file) is wrong; all its problems come together."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        return type(self), (self.problems,)  # errors travel between processes


class DataError(DepthtimeError):
    """A corpus is missing, truncated, altered, or cannot be used as asked."""


class RecordError(DepthtimeError):
    """A result file is missing, damaged, or does not belong to the configuration it claims."""


class SolveError(DepthtimeError):
    """A solver stopped before the end of the interval; the message names its status."""


class TrainingError(DepthtimeError):
    """Training cannot start or go on (not: a diverged loss, which is a result)."""


class InterlockError(DepthtimeError):
    """dvc.yaml, dvc.lock and the workspace do not fit together."""


class AdoptError(DepthtimeError):
    """A stale result differs under the present code and must be recomputed."""


class TrackingError(DepthtimeError):
    """MLflow cannot be reached or written, where somebody asked for it by name (training only warns)."""
