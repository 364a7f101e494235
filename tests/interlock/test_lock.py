"""Freshness is decided by exact equality with dvc.lock, or with the stage's receipt."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depthtime.errors import InterlockError
from depthtime.interlock.lock import Entry, Freshness, read_lock
from depthtime.interlock.stages import Stages, read_stages

PARAMS: dict[str, Any] = {"rate": 1e-3, "model": {"width": 8, "deep": {"heads": 2}}}
PIPELINE = """
stages:
  make: {cmd: make it, deps: [in.txt], params: [rate, model], outs: [made/a.json]}
  read: {cmd: read it, deps: [made], outs: [table.md]}
"""


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(PIPELINE)
    Path("made").mkdir()
    for name, text in {"in.txt": "in", "made/a.json": "a", "table.md": "t"}.items():
        Path(name).write_text(text)
    return read_stages(PARAMS)


FOLDER = md5(f'[{{"md5": "{md5("a")}", "relpath": "a.json"}}]') + ".dir"
MAKE = Entry("make it", PARAMS, {"in.txt": md5("in")}, {"made/a.json": md5("a")})
READ = Entry("read it", {}, {"made": FOLDER}, {"table.md": md5("t")})
LOCK = {"make": MAKE, "read": READ}


def test_what_equals_dvc_lock_is_settled(stages: Stages) -> None:
    fresh = Freshness(stages, LOCK, {})
    assert fresh.is_settled("make")
    assert fresh.is_settled("read")
    assert fresh.reasons("read") == []


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        (replace(MAKE, cmd="make"), "command: make -> make it"),
        (replace(MAKE, params={**PARAMS, "rate": 2e-3}), "parameter rate: 0.002 -> 0.001"),
        (
            replace(MAKE, params={**PARAMS, "model": {"width": 8, "deep": {"heads": 4}}}),
            "parameter model.deep.heads: 4 -> 2",
        ),
        (replace(MAKE, params={"rate": 1e-3}), "parameter model: new"),
        (replace(MAKE, params={**PARAMS, "old": 1}), "parameter old: no longer read"),
        (replace(MAKE, deps={}), "dependency in.txt: new"),
        (replace(MAKE, deps={**MAKE.deps, "b.txt": "0"}), "dependency b.txt: no longer declared"),
        (replace(MAKE, deps={"in.txt": "0"}), "dependency in.txt: changed"),
        (replace(MAKE, outs={}), "output made/a.json: new"),
        (replace(MAKE, outs={**MAKE.outs, "b.json": "0"}), "output b.json: no longer declared"),
        (replace(MAKE, outs={"made/a.json": "0"}), "output made/a.json: changed"),
    ],
)
def test_any_difference_makes_a_stage_and_all_below_it_stale(entry: Entry, change: str, stages: Stages) -> None:
    fresh = Freshness(stages, {**LOCK, "make": entry}, {})
    assert fresh.changes("make") == [change]
    assert not fresh.is_settled("make")
    assert not fresh.is_settled("read")
    assert fresh.is_recorded("read")
    assert fresh.reasons("read") == ["after make"]


def test_a_receipt_settles_what_dvc_lock_does_not_know(stages: Stages) -> None:
    fresh = Freshness(stages, {"read": READ}, {"make": MAKE})
    assert fresh.is_settled("read")
    assert not fresh.is_recorded("make")


def test_an_absent_output_counts_as_recorded_but_never_as_received(stages: Stages) -> None:
    Path("made/a.json").unlink()
    assert Freshness(stages, LOCK, {}).is_settled("read")
    assert not Freshness(stages, {}, LOCK).is_settled("make")
    Path("made").rmdir()
    assert Freshness(stages, LOCK, {}).is_settled("read")
    assert not Freshness(stages, {"make": replace(MAKE, outs={"made/a.json": "0"}), "read": READ}, {}).is_settled(
        "read"
    )


def test_an_undeclared_file_in_a_folder_counts_as_it_does_for_dvc(stages: Stages) -> None:
    Path("made/stray.json").write_text("s")
    assert Freshness(stages, LOCK, {}).changes("read") == ["dependency made: changed"]


def test_a_frozen_stage_is_asked_for_its_outputs_only(stages: Stages) -> None:
    frozen = replace(stages, by_address={at: replace(stage, frozen=True) for at, stage in stages.by_address.items()})
    assert Freshness(frozen, {**LOCK, "make": replace(MAKE, cmd="old", deps={})}, {}).is_settled("read")
    assert not Freshness(frozen, {**LOCK, "make": replace(MAKE, outs={"made/a.json": "0"})}, {}).is_settled("make")


def test_values_written_by_dvc_are_read_back_equal(tmp_path: Path) -> None:
    from dvc.utils.serialize import dumps_yaml

    values = {
        "small": 1e-8, "large": 1e22, "three": 1e-3, "whole": 3, "yes": True, "none": None,
        "list": [1, 2.5, [True, "a"]],
        "on": "on", "no": "no", "off": "off", "y": "y", "time": "12:30:45", "date": "2020-01-01", "text number": "1e-3",
        "octal": "0o17", "hex": "0x1f", "zero": "010", "under": "1_000", "tilde": "~", "equal": "=", "merge": "<<",
        "dot": ".5", "plus": "+1", "empty": "", "colon": "a: b", "accent": "é", "negative zero": -0.0,
        "nested": {"a": {"b": 1e-9}},
    }  # fmt: skip
    path = tmp_path / "dvc.lock"
    row = {"cmd": "run", "params": {"params.yaml": values}}
    path.write_text(dumps_yaml({"schema": "2.0", "stages": {"a": row}}), encoding="utf-8")
    read = read_lock(path)["a"].params
    assert read == values
    assert {key: type(value) for key, value in read.items()} == {key: type(value) for key, value in values.items()}


def test_no_lock_file_means_nothing_recorded(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "dvc.lock") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schema: '2.0'\nstages:\n<<<<<<< HEAD\n  a: 1\n=======\n",
            r"dvc\.lock: line 3 is a git conflict marker; take one side",
        ),
        ("stages: [1", r"dvc\.lock: damaged .*git checkout"),
        ("stages: {a: {deps: []}}", r"dvc\.lock: damaged \('cmd'\)"),
        ("- 1", r"dvc\.lock: damaged"),
    ],
)
def test_a_broken_lock_file_gives_one_clear_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    path.write_text(text)
    with pytest.raises(InterlockError, match=message) as caught:
        read_lock(path)
    assert len(str(caught.value).splitlines()) == 1
