"""dvc.yaml is the only list of stages: this reads it exactly as DVC does, without importing DVC.

Snakemake's rules, receipts and recording all ask here for a stage's command, files and parameter keys. What we do
not use (`foreach`, `vars`, `wdir`, several commands a stage) is refused by name rather than half understood.
"""

from __future__ import annotations

import difflib
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from depthtime.config import read_yaml
from depthtime.errors import InterlockError
from depthtime.paths import PARAMS, PIPELINE

REFERENCE = re.compile(r"(?<!\\)\$\{(.*?)\}")  # ${groups.core.data} and ${item.run}, not \${escaped}
STAGE_KEYS = {"matrix", "cmd", "deps", "outs", "metrics", "plots", "params", "frozen", "desc", "meta"}
OUT_KEYS = {"cache", "push", "remote", "desc", "x", "y", "template", "title", "x_label", "y_label"}


@dataclass(frozen=True)
class Stage:
    """One stage, or with `item` values such as "{run}" the pattern that a Snakemake rule is made from."""

    address: str  # DVC's own: train_core@ode-42
    rule: str  # the entry of dvc.yaml: train_core
    cmd: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]  # dotted keys of params.yaml
    frozen: bool
    item: Mapping[str, str]  # matrix values as text, in the order of the address

    def described(self) -> dict[str, Any]:
        """What makes the stage what it is, as plain data for slices and receipts."""
        return {"cmd": self.cmd, "deps": list(self.deps), "outs": list(self.outs), "params": list(self.params)}


@dataclass(frozen=True)
class Stages(Mapping[str, Stage]):
    """Every stage by address, and one pattern a rule (`{run}` where dvc.yaml has `${item.run}`)."""

    by_address: dict[str, Stage]
    patterns: dict[str, Stage]
    raw: dict[str, Any] = field(repr=False)  # params.yaml as plain data
    file: str = str(PIPELINE)

    def __getitem__(self, address: str) -> Stage:
        """Raises: InterlockError with the nearest address when there is none of that name."""
        try:
            return self.by_address[address]
        except KeyError:
            raise InterlockError(f"{self.file}: no stage {address}{_suggest(address, self.by_address)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_address)

    def __len__(self) -> int:
        return len(self.by_address)

    def of_rule(self, rule: str) -> list[Stage]:
        return [stage for stage in self.by_address.values() if stage.rule == rule]

    def parameters(self, stage: Stage) -> dict[str, Any]:
        """The values of the keys that a stage declares."""
        return {key: pick(self.raw, key) for key in stage.params}

    @cached_property
    def makers(self) -> dict[str, str]:
        """Output path -> address of the stage that makes it."""
        return {out: stage.address for stage in self.by_address.values() for out in stage.outs}

    @cached_property
    def _by_command(self) -> dict[str, Stage]:
        return {" ".join(stage.cmd.split()): stage for stage in self.by_address.values()}

    def of_command(self, cmd: str) -> Stage | None:
        """The stage that runs a command (blanks do not count), or None."""
        return self._by_command.get(" ".join(cmd.split()))

    @cached_property
    def _members(self) -> dict[str, tuple[str, ...]]:
        """Folder -> the outputs declared somewhere in it."""
        found: dict[str, list[str]] = {}
        for out in self.makers:
            folder = posixpath.dirname(out)
            while folder:
                found.setdefault(folder, []).append(out)
                folder = posixpath.dirname(folder)
        return {folder: tuple(sorted(outs)) for folder, outs in found.items()}

    def files(self, dep: str) -> tuple[str, ...]:
        """What a dependency stands for: a folder that stages fill is the outputs they declare in it; a file inside
        a folder that a stage makes is that folder; anything else is itself."""
        if dep in self.makers:
            return (dep,)
        if dep in self._members:
            return self._members[dep]
        folder = posixpath.dirname(dep)
        while folder:
            if folder in self.makers:
                return (folder,)
            folder = posixpath.dirname(folder)
        return (dep,)

    def upstream(self, stage: Stage) -> list[str]:
        """Addresses of the stages that make what this one reads, each once."""
        made = (self.makers[path] for dep in stage.deps for path in self.files(dep) if path in self.makers)
        return [address for address in dict.fromkeys(made) if address != stage.address]


def is_folder(path: str) -> bool:
    """Outputs whose last component has no "." are folders."""
    return "." not in posixpath.basename(path)


def read_stages(params: Mapping[str, Any] | Path | str = PARAMS, pipeline: Path | str = PIPELINE) -> Stages:
    """Read dvc.yaml against params.yaml (its path, or its plain data).

    Raises: InterlockError with every problem found, one a line: file, stage, key, what is wrong; ConfigError where
    a file is not YAML.
    """
    values = dict(params) if isinstance(params, Mapping) else read_yaml(params)
    raw = read_yaml(pipeline)
    reader = _Reader(str(pipeline), values if isinstance(values, dict) else {})
    stages = reader.read(raw)
    if reader.problems:
        raise InterlockError("\n".join(dict.fromkeys(reader.problems)))
    return stages


def stage_of_command(cmd: str, stages: Stages | None = None) -> Stage | None:
    """The stage of dvc.yaml that runs `cmd`, or None when none does."""
    return (read_stages() if stages is None else stages).of_command(cmd)


def pick(values: Any, dotted: str) -> Any:
    """The value under a dotted key, `a.b[0]` as DVC writes it.

    Raises: KeyError with what is missing and the nearest name.
    """
    node, walked = values, ""
    for part in dotted.replace("[", ".").replace("]", "").split("."):
        try:
            node = node[int(part)] if isinstance(node, list) else node[part]
        except (KeyError, IndexError, TypeError, ValueError):
            known = node if isinstance(node, dict) else {}
            missing = f"{walked}.{part}" if walked else part
            raise KeyError(f"{PARAMS} has no key {missing}{_suggest(part, known)}") from None
        walked = f"{walked}.{part}" if walked else part
    return node


class _Wrong(Exception):
    """A problem inside one stage; the reader adds file, stage and key."""


class _Reader:
    """Collects stages and problems, so that all mistakes arrive together."""

    def __init__(self, file: str, values: dict[str, Any]) -> None:
        self.file, self.values = file, values
        self.problems: list[str] = []

    def read(self, raw: Any) -> Stages:
        patterns: dict[str, Stage] = {}
        stages: dict[str, Stage] = {}
        if not (isinstance(raw, dict) and isinstance(raw.get("stages"), dict)):
            self.problems.append(f"{self.file}: holds no mapping `stages`")
            raw = {"stages": {}}
        if "vars" in raw:
            self.problems.append(f"{self.file}: vars: not used here; put the value into {PARAMS}")
        for rule, row in raw["stages"].items():
            unknown = self._unknown_keys(rule, row)
            if unknown:
                self.problems += unknown
                continue
            axes = self._axes(rule, row)
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
        self.problems += _collisions(found)
        return found

    def _unknown_keys(self, rule: str, row: Any) -> list[str]:
        at = f"{self.file}: stages.{rule}"
        if not isinstance(row, dict) or "cmd" not in row:
            return [f"{at}: expected a mapping with cmd, deps, outs, params" + ("; foreach is not used here, write matrix" if "foreach" in (row or ()) else "")]
        return [f"{at}.{key}: not used here{_suggest(key, STAGE_KEYS)}" for key in row if key not in STAGE_KEYS]

    def _axes(self, rule: str, row: dict[str, Any]) -> dict[str, list[str]] | None:
        """Matrix axes with their values as text; a mapping stands for its keys, as in DVC."""
        axes = {}
        for axis, given in row.get("matrix", {}).items():
            try:
                values = self._value(given) if isinstance(given, str) else given
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

        def fill(text: Any, key: str) -> str:
            try:
                if not isinstance(text, str):
                    raise _Wrong(f"expected text, found {text!r}")
                return self._fill(text, item)
            except _Wrong as wrong:
                self.problems.append(f"{at}.{key}: {wrong}")
                return ""

        def entries(key: str) -> list[str]:
            found = []
            for entry in row.get(key) or []:
                name, options = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else (entry, {})
                if key != "params":
                    self.problems += [f"{at}.{key}: {name}: option {option} is not used here" for option in (options or {}) if option not in OUT_KEYS]
                elif options:
                    self.problems.append(f"{at}.params: {name}: expected dotted keys of {PARAMS} only")
                found.append(fill(name, key))
            return found

        deps, params = entries("deps"), entries("params")
        outs = entries("outs") + entries("metrics") + entries("plots")
        cmd = fill(row["cmd"], "cmd")
        for path in (*deps, *outs):
            if path and (posixpath.normpath(path) != path or path.startswith(("/", "..")) or "\\" in path):
                self.problems.append(f"{at}: {path!r} is not a plain path inside the workspace (no ./, .., // or last /)")
        if "{" not in "".join(item.values()):  # a pattern has no keys of its own to look up
            for key in params:
                try:
                    pick(self.values, key)
                except KeyError as error:
                    self.problems.append(f"{at}.params: {error.args[0]}")
        if len(self.problems) > count:
            return None
        return Stage(address, rule, cmd, tuple(deps), tuple(outs), tuple(params), bool(row.get("frozen")), item)

    def _value(self, reference: str) -> Any:
        match = REFERENCE.fullmatch(reference.strip())
        if match is None:
            raise _Wrong(f"{reference!r} is not a reference such as ${{groups.core.runs}}")
        try:
            return pick(self.values, match[1])
        except KeyError as error:
            raise _Wrong(f"{reference}: {error.args[0]}") from None

    def _fill(self, text: str, item: dict[str, str]) -> str:
        """Replace references: ${item.axis}, ${key} and keys of params.yaml."""

        def value(match: re.Match[str]) -> str:
            inner = match[1]
            if inner == "key" and item:
                return "-".join(item.values())
            if inner.startswith("item."):
                axis = inner.removeprefix("item.")
                if axis not in item:
                    raise _Wrong(f"{match[0]}: the matrix has no axis {axis}{_suggest(axis, item)}")
                return item[axis]
            try:
                found = pick(self.values, inner)
            except KeyError as error:
                raise _Wrong(f"{match[0]}: {error.args[0]}") from None
            if isinstance(found, list | dict):
                raise _Wrong(f"{match[0]} is a {'list' if isinstance(found, list) else 'mapping'}, expected one value")
            return _text(found)

        return REFERENCE.sub(value, text).replace(r"\${", "${")


def _collisions(stages: Stages) -> list[str]:
    """Outputs that two stages make, or that lie inside one another."""
    problems, seen = [], {}
    for stage in stages.by_address.values():
        for out in stage.outs:
            if out in seen:
                problems.append(f"{stages.file}: {out} is an output of {seen[out]} and of {stage.address}")
            seen[out] = stage.address
    for out in seen:
        folder = posixpath.dirname(out)
        while folder:
            if folder in seen:
                problems.append(f"{stages.file}: {out} lies inside {folder}, which is an output too")
            folder = posixpath.dirname(folder)
    return problems


def _text(value: Any) -> str:
    """A value inside text, as DVC writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _suggest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(str(name), [str(entry) for entry in known], n=1)
    return f"; did you mean {close[0]}?" if close else ""
