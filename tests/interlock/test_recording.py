"""Recording waits for DVC, takes back what DVC saw differently, and says who is in the way."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from depthtime.errors import InterlockError
from depthtime.interlock import recording
from depthtime.interlock.lint import findings
from depthtime.interlock.receipts import receipt
from depthtime.interlock.recording import record, record_after_run, running_dvc


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stage that has run and is not recorded."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text("stages:\n  make: {cmd: make it, deps: [in.txt], outs: [out.txt]}\n")
    Path("params.yaml").write_text("a: 1\n")
    Path("in.txt").write_text("in")
    Path(".dvc").mkdir()
    with receipt("make"):
        Path("out.txt").write_text("out")


def answer(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str], write: str | None = None) -> list[list[str]]:
    """Let `dvc` answer these, one call each; the last may write a dvc.lock."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        code, said = answers[len(calls) - 1]
        if code == 0 and write is not None:
            Path("dvc.lock").write_text(write)
        return subprocess.CompletedProcess(command, code, "", said)

    monkeypatch.setattr(recording.subprocess, "run", run)
    monkeypatch.setattr(recording, "RETRY_S", 0.0)
    return calls


def lock(out: str) -> str:
    row = {"cmd": "make it", "deps": [{"path": "in.txt", "md5": "13b5bfe96f3e2fe411c9f66f4a582adf"}]}
    return json.dumps({"schema": "2.0", "stages": {"make": {**row, "outs": [{"path": "out.txt", "md5": out}]}}})


OUT = "c68271a63ddbc431c307beb7d2918275"  # md5 of "out"


def test_a_busy_dvc_is_waited_for_and_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = (255, "ERROR: Unable to acquire lock. Most likely another DVC process is running")
    calls = answer(monkeypatch, busy, busy, (0, ""), write=lock(OUT))
    assert record().lines() == ["recorded 1 stage in dvc.lock"]
    assert len(calls) == 3
    assert calls[0][-2:] == ["depthtime.interlock.commit", "make"]
    assert capsys.readouterr().err.count("waiting for another DVC process") == 1
    assert record().lines() == []
    assert len(calls) == 3


def test_a_dvc_that_stays_busy_ends_in_a_line_that_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, *[(255, "'x' is busy, it is being blocked by: (PID 7): dvc repro")] * 3)
    with pytest.raises(InterlockError, match=r"another DVC process holds its lock.*depthtime runs record"):
        record(wait_s=-1.0)


def test_what_dvc_saw_differently_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, (0, ""), write=lock("0" * 32))
    with pytest.raises(InterlockError, match=r"not recorded: make changed meanwhile \(output out\.txt: changed\)"):
        record()
    assert not Path("dvc.lock").exists()


def test_a_refusal_of_dvc_and_a_missing_set_up_are_told_and_never_raised_into_snakemake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, (255, "ERROR: unexpected"))
    record_after_run()
    assert "DVC refused" in capsys.readouterr().err
    Path(".dvc").rmdir()
    record_after_run()
    assert "run `dvc init`" in capsys.readouterr().err


def test_stale_and_edited_results_are_refused_with_the_way_out() -> None:
    Path("in.txt").write_text("new")
    assert record().lines() == ["not recorded: make is stale (in.txt changed after it ran); `snakemake` runs it again"]
    Path("out.txt").write_text("by hand")
    (line,) = record().lines()
    assert (
        line
        == "not recorded: out.txt is not what make wrote (edited, or cut short); `snakemake out.txt` makes it again"
    )


def test_a_running_dvc_is_seen_and_a_dead_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert running_dvc() is None
    Path(".dvc/tmp").mkdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    rows = {"write": {"/w/out.txt": {"pid": dead.pid, "cmd": "dvc repro"}}, "read": {}}
    Path(".dvc/tmp/rwlock").write_text(json.dumps(rows))
    assert running_dvc() is None
    rows["read"] = {"/w/in.txt": [{"pid": os.getppid(), "cmd": "dvc repro -f"}]}
    Path(".dvc/tmp/rwlock").write_text(json.dumps(rows))
    assert running_dvc() == f"dvc repro -f (process {os.getppid()})"


def test_the_one_allowed_lint_is_left_out_and_others_are_told() -> None:
    report = (
        "Lints for rule a (line 5, workflow/rules/stages.smk):\n"
        "    * Specify a conda environment or container for each rule.:\n      This way ...\n"
        "    * No log directive defined:\n      Without ...\n"
    )
    assert findings(report) == ["rule a (line 5, workflow/rules/stages.smk): No log directive defined"]
