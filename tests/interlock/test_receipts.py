"""A receipt is left by a complete run only, and says what the run read and wrote."""

from __future__ import annotations

import json
import logging
import multiprocessing
from pathlib import Path

import pytest

from depthtime.errors import InterlockError
from depthtime.interlock.receipts import read_receipts, receipt, receipt_path
from depthtime.interlock.recording import read_freshness
from depthtime.interlock.stages import read_stages

PIPELINE = """
stages:
  make:
    matrix: {seed: "${seeds}"}
    cmd: make it ${item.seed}
    deps: [in.txt]
    params: [rate]
    outs: ["results/records/${item.seed}.json", "results/runs/${item.seed}"]
  read: {cmd: read it, deps: [results/records], outs: [table.md]}
"""


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    Path("dvc.yaml").write_text(PIPELINE)
    Path("params.yaml").write_text("seeds: [1]\nrate: 1e-3\n")
    Path("in.txt").write_text("in")


def write_outputs(seed: int = 1) -> None:
    for name in (f"results/records/{seed}.json", f"results/runs/{seed}/history.csv"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


def change(file: str, text: str) -> None:
    write_outputs()
    Path(file).write_text(text)


@pytest.mark.parametrize("name", ["make@1", "make it 1", "make  it 1 "])
def test_a_complete_run_leaves_a_receipt_that_settles_its_stage(name: str) -> None:
    with receipt(name) as stage:
        assert stage is not None
        assert stage.address == "make@1"
        write_outputs()
    found = json.loads(receipt_path("make@1").read_text())
    assert found["cmd"] == "make it 1"
    assert found["params"] == {"rate": 0.001}
    assert set(found["deps"]) == {"in.txt"}
    assert found["outs"]["results/runs/1"].endswith(".dir")
    assert read_freshness().is_settled("make@1")
    Path("results/records/1.json").write_text("edited")
    assert not read_freshness().is_settled("make@1")


def test_a_failed_run_leaves_none_and_removes_that_of_an_earlier_run() -> None:
    with receipt("make@1"):
        write_outputs()
    with pytest.raises(ZeroDivisionError), receipt("make@1"):
        raise ZeroDivisionError
    assert not receipt_path("make@1").exists()


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("in.txt", "other", "in.txt"),
        ("params.yaml", "seeds: [1]\nrate: 2e-3\n", "params.yaml: rate"),
        ("dvc.yaml", PIPELINE.replace("deps: [in.txt]", "deps: []"), "dvc.yaml: make"),
    ],
)
def test_a_change_during_the_run_leaves_no_receipt_and_says_so(
    file: str, text: str, named: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Path(file).read_text()
    with caplog.at_level(logging.WARNING), receipt("make@1"):
        change(file, text)
    assert not receipt_path("make@1").exists()
    assert f"{named} changed while make@1 was running" in caplog.text
    Path(file).write_text(before)
    monkeypatch.setenv("DVC_STAGE", "make@1")  # DVC would record the new input with the old output: stop it
    with pytest.raises(InterlockError, match="run `dvc repro` again"), receipt("make@1"):
        change(file, text)


def test_an_output_that_was_not_written_is_an_error() -> None:
    with pytest.raises(InterlockError, match=r"make@1: did not write results/records/1\.json"), receipt("make@1"):
        pass


def test_a_missing_dependency_is_an_error_with_its_fix() -> None:
    made = r"dependency results/records is not there; `snakemake results/records`"
    with pytest.raises(InterlockError, match=made), receipt("read it"):
        pass
    Path("in.txt").unlink()
    given = r"dependency in\.txt is not there; it is part of this repository"
    with pytest.raises(InterlockError, match=given), receipt("make@1"):
        pass


def test_a_command_outside_dvc_yaml_runs_without_a_receipt() -> None:
    with receipt("make it 99") as stage:
        assert stage is None
    with pytest.raises(InterlockError, match=r"no stage make@9; did you mean make@1\?"), receipt("make@9"):
        pass


def test_what_no_stage_makes_is_moved_out_before_a_folder_is_read() -> None:
    with receipt("make@1"):
        write_outputs()
    write_outputs(seed=2)
    with receipt("read it"):
        assert not Path("results/records/2.json").exists()
        Path("table.md").write_text("table")
    assert Path("results/dropped/records/2.json").exists()
    assert Path("results/dropped/runs/2/history.csv").exists()
    assert read_freshness().is_settled("read")


def test_a_damaged_receipt_counts_as_absent() -> None:
    with receipt("make@1"):
        write_outputs()
    receipt_path("make@1").write_text("{half")
    assert read_receipts(read_stages()) == {}


def hold(started: object, go_on: object) -> None:
    with receipt("make@1"):
        started.set()  # type: ignore[attr-defined]
        go_on.wait(30)  # type: ignore[attr-defined]
        write_outputs()


def test_a_stage_is_not_run_twice_at_a_time() -> None:
    context = multiprocessing.get_context("fork")
    started, go_on = context.Event(), context.Event()
    other = context.Process(target=hold, args=(started, go_on))
    other.start()
    try:
        assert started.wait(30)
        twice = f"make@1 is already being run by process {other.pid}"
        with pytest.raises(InterlockError, match=twice), receipt("make@1"):
            pass
    finally:
        go_on.set()
        other.join()
    assert other.exitcode == 0
    assert receipt_path("make@1").exists()  # the refused one took nothing away
    with receipt("make@1"):
        write_outputs()
