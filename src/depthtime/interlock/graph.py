"""Stages, and who makes what: the one graph that Snakemake, DVC, receipts and recording share."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from depthtime.errors import InterlockError
from depthtime.paths import PARAMS, PIPELINE


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
        """What makes the stage what it is, as plain data for its slice."""
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
            raise InterlockError(f"{self.file}: no stage {address}{suggest(address, self.by_address)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_address)

    def __len__(self) -> int:
        return len(self.by_address)

    def of_rule(self, rule: str) -> list[Stage]:
        return [stage for stage in self.by_address.values() if stage.rule == rule]

    def of_command(self, cmd: str) -> Stage | None:
        """The stage that runs a command (blanks do not count), or None."""
        return self._by_command.get(" ".join(cmd.split()))

    def parameters(self, stage: Stage) -> dict[str, Any]:
        """The values of the keys that a stage declares."""
        return {key: pick(self.raw, key) for key in stage.params}

    def is_filled(self, folder: str) -> bool:
        """Whether stages make files somewhere in a folder that is not itself an output."""
        return folder not in self.makers and folder in self._members

    def files(self, dep: str) -> tuple[str, ...]:
        """What a dependency stands for: a folder that stages fill is the outputs they declare in it; a file inside
        a folder that a stage makes is that folder; anything else is itself."""
        if self.is_filled(dep):
            return self._members[dep]
        return next(((at,) for at in (dep, *_folders(dep)) if at in self.makers), (dep,))

    def upstream(self, stage: Stage) -> list[str]:
        """Addresses of the stages that make what this one reads, each once."""
        made = (self.makers[path] for dep in stage.deps for path in self.files(dep) if path in self.makers)
        return [address for address in dict.fromkeys(made) if address != stage.address]

    @cached_property
    def makers(self) -> dict[str, str]:
        """Output path -> address of the stage that makes it."""
        return {out: stage.address for stage in self.by_address.values() for out in stage.outs}

    @cached_property
    def _by_command(self) -> dict[str, Stage]:
        return {" ".join(stage.cmd.split()): stage for stage in self.by_address.values()}

    @cached_property
    def _members(self) -> dict[str, tuple[str, ...]]:
        """Folder -> the outputs declared somewhere in it."""
        found: dict[str, list[str]] = {}
        for out in self.makers:
            for folder in _folders(out):
                found.setdefault(folder, []).append(out)
        return {folder: tuple(sorted(outs)) for folder, outs in found.items()}

    def collisions(self) -> list[str]:
        """Outputs that two stages make, or that lie inside one another: a line each."""
        problems: list[str] = []
        seen: dict[str, str] = {}
        for stage in self.by_address.values():
            for out in stage.outs:
                if out in seen:
                    problems.append(f"{self.file}: {out} is an output of {seen[out]} and of {stage.address}")
                seen[out] = stage.address
        for out in seen:
            for folder in _folders(out):
                if folder in seen:
                    problems.append(f"{self.file}: {out} lies inside {folder}, which is an output too")
        return problems


def is_folder(path: str) -> bool:
    """Outputs whose last component has no "." are folders."""
    return "." not in posixpath.basename(path)


def pick(values: Any, dotted: str) -> Any:
    """The value under a dotted key, `a.b[0]` as DVC writes it.

    Raises: KeyError with what is missing and the nearest name.
    """
    node, walked = values, ""
    for part in dotted.replace("[", ".").replace("]", "").split("."):
        here = f"{walked}.{part}" if walked else part
        try:
            node = node[int(part)] if isinstance(node, list) else node[part]
        except (KeyError, IndexError, TypeError, ValueError):
            known = node if isinstance(node, dict) else ()
            raise KeyError(f"{PARAMS} has no key {here}{suggest(part, known)}") from None
        walked = here
    return node


def suggest(name: Any, known: Iterable[Any]) -> str:
    """The nearest known name, as the end of a message."""
    close = difflib.get_close_matches(str(name), [str(entry) for entry in known], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _folders(path: str) -> Iterator[str]:
    """The folders that a path lies in, innermost first."""
    folder = posixpath.dirname(path)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
