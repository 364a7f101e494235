"""Keeping published results true: adopt them after a refactoring, verify them by a rerun, score weights again."""

from depthtime.upkeep.adopt import adopt
from depthtime.upkeep.estimate import estimate_lines
from depthtime.upkeep.presets import preset_lines
from depthtime.upkeep.publish import publish
from depthtime.upkeep.verify import evaluate_run, verify

__all__ = ["adopt", "estimate_lines", "evaluate_run", "preset_lines", "publish", "verify"]
