"""Dropped results are moved aside whole, never lost, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from depthtime.interlock.leftovers import move_leftovers
from depthtime.interlock.stages import read_stages

PIPELINE = """
stages:
  train:
    matrix: {seed: [1]}
    cmd: train ${item.seed}
    outs: ["results/records/core/${item.seed}.json", "results/runs/core/${item.seed}"]
"""


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text(PIPELINE)
    Path(".dvcignore").write_text(".snakemake_timestamp\n*.tmp\n")


def write(name: str, text: str = "") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or name)
    return path


def test_only_undeclared_results_move_and_nothing_is_overwritten() -> None:
    kept = [
        write("results/records/core/1.json"),
        write("results/runs/core/1/history.csv"),
        write("results/tables/old.md"),
    ]
    kept += [write("results/records/core/.2.json.7.tmp")]  # another stage is writing it
    write("results/records/core/2.json", "first")
    write("results/runs/core/2/history.csv")
    write("results/runs/core/2/.snakemake_timestamp")
    stages = read_stages({})
    assert [path.as_posix() for path in move_leftovers(stages)] == [
        "results/dropped/records/core/2.json",
        "results/dropped/runs/core/2/history.csv",
    ]
    assert all(path.exists() for path in kept)
    assert not Path("results/runs/core/2").exists()
    write("results/records/core/2.json", "second")
    assert move_leftovers(stages) == [Path("results/dropped/records/core/2.2.json")]
    assert Path("results/dropped/records/core/2.json").read_text() == "first"
    assert Path("results/dropped/records/core/2.2.json").read_text() == "second"
    assert move_leftovers(stages) == []


def test_a_workspace_without_results_has_no_leftovers() -> None:
    assert move_leftovers(read_stages({})) == []
