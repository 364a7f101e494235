"""Is a stage, and all above it, exactly what was recorded? Decided from content, never from times.

Two things count as a record: the stage's entry in dvc.lock, and the receipt it left when it last ran here. Both say
which command ran, on which files and parameter values, and what it wrote; equality is exact, both ways.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ruamel.yaml.resolver import implicit_resolvers

from depthtime.errors import InterlockError
from depthtime.interlock.hashes import Hashes
from depthtime.interlock.stages import Stage, Stages
from depthtime.paths import LOCK, PARAMS

CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """What a stage was when it ran: its command, parameter values, and the hashes of what it read and wrote."""

    cmd: str
    params: Mapping[str, Any]
    deps: Mapping[str, str | None]
    outs: Mapping[str, str | None]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's fast loader with the words of YAML 1.2, which DVC writes: 1e-08 is a number, `on` is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}


for _versions, _tag, _pattern, _first in implicit_resolvers:
    if (1, 2) in _versions:
        for _character in _first:
            _Loader.yaml_implicit_resolvers.setdefault(_character, []).append((_tag, _pattern))


def read_lock(path: Path = LOCK) -> dict[str, Entry]:
    """The entries of dvc.lock by address; none where there is no such file.

    Raises: InterlockError in one line when it holds conflict markers or is no lock file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        what = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise InterlockError(f"{path}: {what}; restore it with `git checkout {path}`") from None
    marker = CONFLICT.search(text)
    if marker:
        line = text.count("\n", 0, marker.start()) + 1
        raise InterlockError(
            f"{path}: line {line} is a git conflict marker; take one side (`git checkout --ours {path}`, or --theirs), "
            "then run `snakemake`, which reruns and records what that side does not match"
        )
    try:
        rows = (yaml.load(text, Loader=_Loader) or {}).get("stages") or {}
        return {str(address): _entry(row) for address, row in rows.items()}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise InterlockError(f"{path}: damaged ({what}); restore it with `git checkout {path}`") from None


def _entry(row: Mapping[str, Any]) -> Entry:
    deps, outs = ({item["path"]: item.get("md5") for item in row.get(key) or ()} for key in ("deps", "outs"))
    return Entry(row["cmd"], (row.get("params") or {}).get(str(PARAMS)) or {}, deps, outs)


class Freshness:
    """The workspace against what was recorded. Reads each file at most once."""

    def __init__(
        self, stages: Stages, lock: Mapping[str, Entry], receipts: Mapping[str, Entry], hashes: Hashes | None = None
    ) -> None:
        self.stages, self.lock, self.receipts = stages, lock, receipts
        self.hashes = hashes or Hashes()
        self._found: dict[str, str | None] = {}
        self._settled: dict[str, bool] = {}
        self._changes: dict[str, list[str]] = {}

    def is_recorded(self, address: str) -> bool:
        """dvc.lock says exactly what the stage is now (what lies above it is not asked)."""
        return not self.changes(address)

    def has_receipt(self, address: str) -> bool:
        """The stage's own receipt says exactly what it is now, and all its files are here."""
        receipt = self.receipts.get(address)
        return receipt is not None and not list(self._differences(self.stages[address], receipt, is_complete=True))

    def is_settled(self, address: str) -> bool:
        """The stage and everything above it need not run."""
        if address not in self._settled:
            own = self.is_recorded(address) or self.has_receipt(address)
            stage = self.stages[address]
            above = [] if stage.frozen else self.stages.upstream(stage)
            self._settled[address] = own and all(self.is_settled(up) for up in above)
        return self._settled[address]

    def unrecorded(self) -> list[str]:
        """Stages that have run and that dvc.lock does not hold yet, with all above them in order."""
        return [address for address in self.stages if self.is_settled(address) and not self.is_recorded(address)]

    def changes(self, address: str) -> list[str]:
        """What differs from dvc.lock, a line each; empty when nothing does."""
        if address not in self._changes:
            entry = self.lock.get(address)
            stage = self.stages[address]
            new = ["not in dvc.lock"]
            self._changes[address] = new if entry is None else list(self._differences(stage, entry, is_complete=False))
        return self._changes[address]

    def reasons(self, address: str) -> list[str]:
        """Why a stage has to run, for people: its own changes, then the unsettled stages above it."""
        if self.is_settled(address):
            return []
        own = [] if self.has_receipt(address) else self.changes(address)
        return own + [f"after {up}" for up in self.stages.upstream(self.stages[address]) if not self.is_settled(up)]

    def digest(self, path: str) -> str | None:
        """Hash of what lies at a path, as DVC takes it; None where nothing does."""
        if path not in self._found:
            self._found[path] = self.hashes.of(path)
        return self._found[path]

    def _differences(self, stage: Stage, entry: Entry, *, is_complete: bool) -> Iterator[str]:
        """`is_complete`: every file must be here. Else a recorded output that is not (yet `dvc pull`ed) counts as it
        was recorded, so that a fresh clone has nothing to do."""
        for out in _both(stage.outs, entry.outs):
            yield from self._compare(out, stage.outs, entry.outs, "output", is_complete)
        if stage.frozen:
            return
        if entry.cmd != stage.cmd:
            yield f"command: {entry.cmd} -> {stage.cmd}"
        yield from self.moved_parameters(stage, entry)
        for dep in _both(stage.deps, entry.deps):
            yield from self._compare(dep, stage.deps, entry.deps, "dependency", is_complete)

    def moved_parameters(self, stage: Stage, entry: Entry) -> Iterator[str]:
        """What params.yaml has now beside what an entry was made with, a line for each leaf that moved."""
        values = self.stages.parameters(stage)
        for key in _both(values, entry.params):
            if key not in entry.params:
                yield f"parameter {key}: new"
            elif key not in values:
                yield f"parameter {key}: no longer read"
            elif values[key] != entry.params[key]:
                yield from _moved(key, entry.params[key], values[key])

    def _compare(
        self, path: str, declared: tuple[str, ...], recorded: Mapping[str, str | None], what: str, is_complete: bool
    ) -> Iterator[str]:
        if path not in recorded:
            yield f"{what} {path}: new"
        elif path not in declared:
            yield f"{what} {path}: no longer declared"
        else:
            now = self.digest(path) if is_complete else self._digest_or_recorded(path, recorded[path])
            if now is None:
                yield f"{what} {path}: missing"
            elif now != recorded[path]:
                yield f"{what} {path}: changed"

    def _digest_or_recorded(self, path: str, recorded: str | None) -> str | None:
        """Hash at a path, where outputs that are not here count as dvc.lock has them."""
        members = self.stages.files(path)
        absent = [member for member in members if not os.path.exists(member)]
        if not absent:
            return self.digest(path)
        known = {member: self._recorded_output(member) for member in absent}
        if any(md5 is None for md5 in known.values()):
            return self.digest(path) if members == (path,) else None
        if members == (path,):
            return known[path]
        if any(str(md5).endswith(".dir") for md5 in known.values()):
            return recorded  # a folder in a folder: its files cannot be told from its hash alone
        return self.hashes.folder(path, ((member, str(md5)) for member, md5 in known.items()))

    def _recorded_output(self, path: str) -> str | None:
        entry = self.lock.get(self.stages.makers.get(path, ""))
        return entry.outs.get(path) if entry is not None else None


def _both(declared: Any, recorded: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*declared, *recorded]))


def _moved(key: str, old: Any, new: Any) -> Iterator[str]:
    """The leaves of a parameter that moved: one line each."""
    if isinstance(old, dict) and isinstance(new, dict):
        for part in _both(new, old):
            if old.get(part) != new.get(part) or (part in old) != (part in new):
                yield from _moved(f"{key}.{part}", old.get(part), new.get(part))
    else:
        yield f"parameter {key}: {old} -> {new}"
