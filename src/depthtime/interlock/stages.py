"""dvc.yaml is the only list of stages: this reads it exactly as DVC does, without importing DVC.

What we do not use (`foreach`, `vars`, `wdir`, several commands a stage) is refused by name, not half understood.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from depthtime.config import read_yaml
from depthtime.errors import InterlockError
from depthtime.interlock.graph import Stage, Stages, is_folder, pick, suggest
from depthtime.paths import PARAMS, PIPELINE

__all__ = ["Stage", "Stages", "is_folder", "pick", "read_stages", "stage_of_command"]

REFERENCE = re.compile(r"(?<!\\)\$\{(.*?)\}")  # ${groups.core.data} and ${item.run}, not \${escaped}
STAGE_KEYS = {"matrix", "cmd", "deps", "outs", "metrics", "plots", "params", "frozen", "desc", "meta"}
OUT_KEYS = {"cache", "push", "remote", "desc", "x", "y", "template", "title", "x_label", "y_label"}


def read_stages(params: Mapping[str, Any] | Path | str = PARAMS, pipeline: Path | str = PIPELINE) -> Stages:
    """Read dvc.yaml against params.yaml (its path, or its plain data).

    Raises: InterlockError with every problem found, one a line: file, stage, key, what is wrong; ConfigError where
    a file is not YAML.
    """
    values = dict(params) if isinstance(params, Mapping) else read_yaml(params)
    reader = _Reader(str(pipeline), values if isinstance(values, dict) else {})
    stages = reader.read(read_yaml(pipeline))
    if reader.problems:
        raise InterlockError("\n".join(dict.fromkeys(reader.problems)))
    return stages


def stage_of_command(cmd: str, stages: Stages | None = None) -> Stage | None:
    """The stage of dvc.yaml that runs `cmd`, or None when none does."""
    return (read_stages() if stages is None else stages).of_command(cmd)


class _Wrong(Exception):
    """A problem inside one stage; the reader adds file, stage and key."""


class _Reader:
    """Collects stages and problems, so that all mistakes arrive together."""

    def __init__(self, file: str, values: dict[str, Any]) -> None:
        self.file, self.values = file, values
        self.problems: list[str] = []

    def read(self, raw: Any) -> Stages:
        rows = raw.get("stages") if isinstance(raw, dict) else None
        if not isinstance(rows, dict):
            self.problems.append(f"{self.file}: holds no mapping `stages`")
            rows = {}
        elif "vars" in raw:
            self.problems.append(f"{self.file}: vars: not used here; put the value into {PARAMS}")
        patterns: dict[str, Stage] = {}
        stages: dict[str, Stage] = {}
        for rule, row in rows.items():
            problems = list(self._unknown_keys(rule, row))
            axes = None if problems else self._axes(rule, row)
            self.problems += problems
            if axes is None:
                continue
            pattern = self._stage(rule, rule, row, {axis: f"{{{axis}}}" for axis in axes})
            if pattern is None:
                continue
            patterns[rule] = pattern
            for combination in itertools.product(*axes.values()):
                address = f"{rule}@{'-'.join(combination)}" if axes else rule
                stage = self._stage(address, rule, row, dict(zip(axes, combination, strict=True)))
                if stage is not None:
                    stages[address] = stage
        found = Stages(stages, patterns, self.values, self.file)
        self.problems += found.collisions()
        return found

    def _unknown_keys(self, rule: str, row: Any) -> Iterator[str]:
        at = f"{self.file}: stages.{rule}"
        if not isinstance(row, dict) or "cmd" not in row:
            hint = "; foreach is not used here, write matrix" if isinstance(row, dict) and "foreach" in row else ""
            yield f"{at}: expected a mapping with cmd, deps, params, outs{hint}"
            return
        for key in row:
            if key not in STAGE_KEYS:
                yield f"{at}.{key}: not used here{suggest(key, STAGE_KEYS)}"

    def _axes(self, rule: str, row: dict[str, Any]) -> dict[str, list[str]] | None:
        """Matrix axes with their values as text; a mapping stands for its keys, as in DVC."""
        axes = {}
        for axis, given in row.get("matrix", {}).items():
            try:
                values = self._look_up(given) if isinstance(given, str) else given
                if not isinstance(values, list | dict) or not values:
                    raise _Wrong(f"{given!r} is neither a list nor a mapping with entries")
                if any(isinstance(value, list | dict) for value in values):
                    raise _Wrong(f"{given!r} holds lists or mappings; expected plain values")
                axes[axis] = [_text(value) for value in values]
            except _Wrong as wrong:
                self.problems.append(f"{self.file}: stages.{rule}.matrix.{axis}: {wrong}")
                return None
        return axes

    def _stage(self, address: str, rule: str, row: dict[str, Any], item: dict[str, str]) -> Stage | None:
        """One stage with its references filled in, or None after noting what is wrong."""
        at, count = f"{self.file}: stages.{rule}", len(self.problems)
        deps, params = self._entries(at, "deps", row, item), self._entries(at, "params", row, item)
        outs = [out for key in ("outs", "metrics", "plots") for out in self._entries(at, key, row, item)]
        cmd = self._filled(at, "cmd", row["cmd"], item)
        for path in (*deps, *outs):
            if path and (posixpath.normpath(path) != path or path.startswith(("/", "..")) or "\\" in path):
                self.problems.append(f"{at}: {path!r} is not a plain path inside the workspace (no ./, .., last /)")
        for key in params:
            try:
                if "{" not in key:  # a pattern's own axes have no value yet
                    pick(self.values, key)
            except KeyError as error:
                self.problems.append(f"{at}.params: {error.args[0]}")
        if len(self.problems) > count:
            return None
        return Stage(address, rule, cmd, tuple(deps), tuple(outs), tuple(params), bool(row.get("frozen")), item)

    def _entries(self, at: str, key: str, row: dict[str, Any], item: dict[str, str]) -> list[str]:
        """The names under one key of a stage; what stands behind a name (`{cache: false}`) is checked."""
        found = []
        for entry in row.get(key) or []:
            is_named = isinstance(entry, dict) and len(entry) == 1
            name, options = next(iter(entry.items())) if is_named else (entry, None)
            if options and key == "params":
                self.problems.append(f"{at}.params: {name}: expected dotted keys of {PARAMS} only")
            for option in () if key == "params" else options or ():
                if option not in OUT_KEYS:
                    self.problems.append(f"{at}.{key}: {name}: option {option} is not used here")
            found.append(self._filled(at, key, name, item))
        return found

    def _filled(self, at: str, key: str, text: Any, item: dict[str, str]) -> str:
        try:
            if not isinstance(text, str):
                raise _Wrong(f"expected text, found {text!r}")
            return REFERENCE.sub(lambda match: self._replacement(match, item), text).replace(r"\${", "${")
        except _Wrong as wrong:
            self.problems.append(f"{at}.{key}: {wrong}")
            return ""

    def _replacement(self, match: re.Match[str], item: dict[str, str]) -> str:
        """The text for ${item.axis}, ${key}, or a key of params.yaml."""
        inner = match[1]
        if inner == "key" and item:
            return "-".join(item.values())
        if inner.startswith("item."):
            axis = inner.removeprefix("item.")
            if axis not in item:
                raise _Wrong(f"{match[0]}: the matrix has no axis {axis}{suggest(axis, item)}")
            return item[axis]
        found = self._look_up(match[0])
        if isinstance(found, list | dict):
            raise _Wrong(f"{match[0]} is a {'list' if isinstance(found, list) else 'mapping'}, expected one value")
        return _text(found)

    def _look_up(self, reference: str) -> Any:
        match = REFERENCE.fullmatch(reference.strip())
        if match is None:
            raise _Wrong(f"{reference!r} is not a reference such as ${{groups.core.runs}}")
        try:
            return pick(self.values, match[1])
        except KeyError as error:
            raise _Wrong(f"{reference}: {error.args[0]}") from None


def _text(value: Any) -> str:
    """A value inside text, as DVC writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
