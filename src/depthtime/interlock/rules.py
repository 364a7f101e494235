"""What Snakemake's rules ask for: inputs that content has decided on, outputs, commands, threads.

A settled stage gets `ancient()` inputs, so no file time can rerun it. A stage that has to run gets a new slice file
(its command, files, parameter values, and why it has to run) as an input, so that it runs whatever the times say.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from depthtime.interlock.lock import Freshness
from depthtime.interlock.stages import Stage, Stages, is_folder
from depthtime.paths import LOGS, STATE
from depthtime.records import dump_json, write_bytes

SLICES = STATE / "slices"


def slice_path(address: str) -> Path:
    return SLICES / f"{address}.json"


def log_path(address: str) -> Path:
    """Where the command line logs a stage's run by itself."""
    return LOGS / f"{address}.log"


class Plan:
    """The stages of dvc.yaml as Snakemake rules. `flags`: Snakemake's `ancient` and `directory` functions."""

    def __init__(
        self, stages: Stages, freshness: Freshness, *, ancient: Callable[[str], Any], directory: Callable[[str], Any]
    ) -> None:
        self.stages, self.freshness = stages, freshness
        self.ancient, self.directory = ancient, directory
        self.forced: frozenset[str] = frozenset()
        self.is_writer = True  # false in a job's own process on a cluster: the slice there is the main process's
        self._moves: dict[str, bool] = {}

    def address(self, rule: str, wildcards: Iterable[str]) -> str:
        """DVC's address of a job: the rule and its wildcards in the order of the matrix."""
        values = [str(value) for value in wildcards]
        return f"{rule}@{'-'.join(values)}" if values else rule

    def stage(self, rule: str, wildcards: Any) -> Stage:
        axes = self.stages.patterns[rule].item
        return self.stages[self.address(rule, (getattr(wildcards, axis) for axis in axes))]

    def inputs(self, rule: str) -> Callable[[Any], list[Any]]:
        """The input function of a rule."""

        def of(wildcards: Any) -> list[Any]:
            stage = self.stage(rule, wildcards)
            slice_file = self.write_slice(stage)
            paths = dict.fromkeys(path for dep in stage.deps for path in self.stages.files(dep))
            settled = self.freshness.is_settled(stage.address)
            makers = self.stages.makers
            found = [self.ancient(path) if settled and not self.moves(makers.get(path)) else path for path in paths]
            return [*found, self.ancient(slice_file) if settled else slice_file]

        return of

    def outputs(self, rule: str) -> list[Any]:
        outs = self.stages.patterns[rule].outs
        return [self.directory(out) if is_folder(out) else out for out in outs]

    def command(self, rule: str) -> Callable[[Any], str]:
        """The command of a job, exactly as in dvc.yaml."""
        return lambda wildcards: self.stage(rule, wildcards).cmd

    def log(self, rule: str) -> str:
        return str(log_path(self.address(rule, self.stages.patterns[rule].item.values())))

    def constraints(self, rule: str) -> dict[str, str]:
        """Wildcards of a rule take the values of its matrix and no others."""
        values: dict[str, dict[str, None]] = {axis: {} for axis in self.stages.patterns[rule].item}
        for stage in self.stages.of_rule(rule):
            for axis, value in stage.item.items():
                values[axis][value] = None
        return {axis: "|".join(map(_escape, found)) for axis, found in values.items()}

    def targets(self, rules: Iterable[str]) -> list[str]:
        """Outputs of the named rules that must be there: not those of a settled stage that `dvc pull` can bring, so
        that a fresh clone does not train for hours what is recorded."""
        wanted = set(rules)
        return [
            out
            for stage in self.stages.values()
            if stage.rule in wanted
            for out in stage.outs
            if os.path.exists(out) or not self.freshness.is_settled(stage.address)
        ]

    def force(self, names: Iterable[str]) -> None:
        """Rules or files that the user forces to run: what they make is no longer ancient to those who read it."""
        wanted = {posixpath.normpath(name) for name in names}
        self.forced = frozenset(
            stage.address for stage in self.stages.values() if stage.rule in wanted or wanted.intersection(stage.outs)
        )
        self._moves.clear()

    def moves(self, address: str | None) -> bool:
        """Whether a stage will run because the user forced it or something above it."""
        if address is None:
            return False
        if address not in self._moves:
            up = self.stages.upstream(self.stages[address])
            self._moves[address] = address in self.forced or any(self.moves(other) for other in up)
        return self._moves[address]

    def write_slice(self, stage: Stage) -> str:
        """Write the stage's slice where it differs; that of a stage that has to run is always new."""
        path = slice_path(stage.address)
        if path.exists() and not self.is_writer:
            return str(path)
        content: dict[str, Any] = {**stage.described(), "values": self.stages.parameters(stage)}
        if not self.freshness.is_settled(stage.address) and not stage.frozen:
            content |= {"runs_because": self.freshness.reasons(stage.address), "asked_at_ns": time.time_ns()}
        data = dump_json(content)
        if not path.exists() or path.read_bytes() != data:
            write_bytes(path, data)
        return str(path)


def total_memory_mb() -> int:
    """Memory of this machine in MB, for Snakemake's `mem_mb`."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10**6


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(".", r"\.").replace("+", r"\+")
