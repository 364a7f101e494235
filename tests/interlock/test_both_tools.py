"""Snakemake and DVC on one graph, end to end on a toy study: whatever one runs, the other finds done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zc.lockfile
from toy_study import Workspace, build, kill, script

CORE = {f"train_core@{run}-{seed}" for run in ("discrete", "ode") for seed in (1, 2)}
ALL = {"fetch@tale", "prepare@small", *CORE, "train_extra@discrete-1", "analyse_core", "analyse_extra", "report"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Run once with Snakemake, in a path with blanks and accents; tests work on copies."""
    workspace = build(tmp_path_factory.mktemp("toy") / "une étude finie")
    assert workspace.snakemake() == ALL
    assert "recorded 10 stages in dvc.lock" in workspace.output
    workspace.commit("results")
    return workspace


@pytest.fixture
def study(finished: Workspace, tmp_path: Path) -> Workspace:
    return finished.copy(tmp_path / "study")


def test_after_snakemake_both_tools_have_nothing_to_do(study: Workspace) -> None:
    assert study.dvc_is_clean()
    assert study.snakemake_is_clean()
    assert study.call("git", "status", "--porcelain").split() == []  # no .gitignore, no stray file


def test_after_dvc_repro_both_tools_have_nothing_to_do(tmp_path: Path) -> None:
    workspace = build(tmp_path / "fresh")
    assert workspace.repro() == ALL
    assert workspace.snakemake_is_clean()
    assert workspace.dvc_is_clean()


def test_a_clone_elsewhere_has_nothing_to_do_before_and_after_pull(study: Workspace, tmp_path: Path) -> None:
    study.call("dvc", "push", "-q")
    study.commit("store")
    clone = Workspace(tmp_path / "un autre chemin")
    study.call("git", "clone", "-q", str(study.folder), str(clone.folder))
    shutil.rmtree(study.folder)
    assert not clone.path("results/runs").exists()
    assert clone.snakemake_is_clean()  # what dvc.lock records need not be here to count as done
    clone.call("dvc", "pull", "-q")
    assert clone.path("results/runs/core/ode/1/history.csv").exists()
    assert clone.dvc_is_clean()
    assert clone.snakemake_is_clean()
    clone.edit("params.yaml", "num_steps: 4", "num_steps: 5")
    assert clone.snakemake() == {"train_core@ode-1", "train_core@ode-2", "analyse_core", "report"}
    assert clone.dvc_is_clean()


ONE_RUN = {"train_core@ode-1", "train_core@ode-2", "analyse_core", "report"}
AFTER_CORE = {*CORE, "analyse_core", "report"}


def change_parameter(study: Workspace) -> None:
    study.edit("params.yaml", "num_steps: 4", "num_steps: 8")


def add_dependency_key_and_command(study: Workspace) -> None:
    """One of each, to three stages."""
    study.edit("dvc.yaml", "results/analysis/extra.json, src", "results/analysis/extra.json, text.txt, src")
    study.edit("dvc.yaml", "params: [groups.extra]", "params: [groups.extra, bench.rounds]")
    study.edit("dvc.yaml", "cmd: python src/toy/analyse.py core", "cmd: python src/toy/analyse.py core --again")


def add_seed_and_run(study: Workspace) -> None:
    study.edit("params.yaml", "seeds: [1, 2]", "seeds: [1, 2, 3]")
    discrete = "      discrete: {model: discrete, layers: 3, keep_weights: []}\n"
    study.edit("params.yaml", f"{discrete}bench", f"{discrete}{discrete.replace('discrete:', 'deep:')}bench")


def drop_seed_and_run(study: Workspace) -> None:
    study.edit("params.yaml", "seeds: [1, 2]", "seeds: [1]")
    study.edit("params.yaml", "core/ode", "core/discrete")
    study.edit("params.yaml", "runs: [discrete, ode]", "runs: [discrete, discrete]")
    lines = study.path("params.yaml").read_text().splitlines(keepends=True)
    study.path("params.yaml").write_text("".join(line for line in lines if "ode: {" not in line))


def change_text(study: Workspace) -> None:
    study.path("text.txt").write_text("another tale\n")


ADDED = {"train_core@discrete-3", "train_core@ode-3", "train_extra@deep-1"}
AFTER_ALL = {"analyse_core", "analyse_extra", "report"}
EDITS: list[Any] = [
    (change_parameter, ONE_RUN),
    (add_dependency_key_and_command, AFTER_ALL),
    (add_seed_and_run, {*ADDED, *AFTER_ALL}),
    (drop_seed_and_run, {"analyse_core", "report"}),
    pytest.param(change_text, ALL, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("edit", "expected"), EDITS, ids=lambda value: getattr(value, "__name__", ""))
def test_both_tools_run_the_same_stages_after(
    edit: Callable[[Workspace], None], expected: set[str], study: Workspace, tmp_path: Path
) -> None:
    twin = study.copy(tmp_path / "twin")
    edit(study)
    edit(twin)
    assert study.snakemake() == expected
    assert study.dvc_is_clean()
    assert twin.repro() == expected
    assert twin.snakemake_is_clean()
    assert study.path("dvc.lock").read_bytes() == twin.path("dvc.lock").read_bytes()


def test_dropped_results_are_moved_aside_and_no_longer_counted(study: Workspace) -> None:
    kept = study.path("results/records/core/ode/2.json").read_bytes()
    study.edit("params.yaml", "seeds: [1, 2]", "seeds: [1]")
    study.snakemake()
    assert study.path("results/dropped/records/core/ode/2.json").read_bytes() == kept
    assert study.path("results/dropped/runs/core/ode/2/history.csv").exists()
    assert not study.path("results/records/core/ode/2.json").exists()
    assert study.dvc_is_clean()
    study.edit("params.yaml", "seeds: [1]\n    model: &", "seeds: [1, 2]\n    model: &")
    assert study.snakemake() == {"train_core@discrete-2", "train_core@ode-2", "analyse_core", "report"}
    assert study.path("results/records/core/ode/2.json").read_bytes() == kept


def test_a_code_edit_reruns_exactly_its_users_and_a_revert_before_running_nothing(study: Workspace) -> None:
    code = study.path("src/toy/analyse.py")
    code.write_text(script("analyse") + "# edited\n")
    assert study.snakemake_is_clean() is False
    code.write_text(script("analyse"))
    assert study.snakemake_is_clean()  # newer than all results, but the same
    code.write_text(script("analyse") + "# edited\n")
    os.utime(code, (1, 1))  # older than all results, but not the same
    assert study.snakemake() == {"analyse_core", "analyse_extra", "report"}
    assert study.dvc_is_clean()
    study.path("src/toy/train.py").write_text(script("train") + "# edited\n")
    assert study.snakemake("core") == AFTER_CORE - {"report"}
    assert study.repro() == {"train_extra@discrete-1"}  # same bytes written: DVC stops below them
    assert study.snakemake_is_clean()


def test_a_failed_run_is_not_recorded_and_everything_else_is(study: Workspace) -> None:
    change_parameter(study)
    assert study.snakemake(ok=False, TOY_FAIL="train_core@ode-1") == {"train_core@ode-2"}
    assert "recorded 1 stage in dvc.lock" in study.output
    said = study.call("dvc", "status", "train_core")
    assert "train_core@ode-1" in said
    assert "train_core@ode-2" not in said
    assert study.snakemake() == ONE_RUN - {"train_core@ode-2"}
    assert study.dvc_is_clean()


def test_a_stage_that_fails_under_dvc_is_made_by_snakemake(study: Workspace) -> None:
    change_parameter(study)
    assert study.repro("--keep-going", ok=False, TOY_FAIL="train_core@ode-1") == {"train_core@ode-2"}
    assert study.snakemake() == ONE_RUN - {"train_core@ode-2"}
    assert study.dvc_is_clean()


def test_outputs_edited_by_hand_are_never_blessed_and_are_made_again(study: Workspace) -> None:
    lock = study.path("dvc.lock").read_bytes()
    names = {
        "train_core@ode-1": "results/records/core/ode/1.json",  # in git
        "train_core@ode-2": "results/runs/core/ode/2/history.csv",  # in DVC's cache
    }
    right = {name: study.path(name).read_bytes() for name in names.values()}
    for name, data in right.items():
        study.path(name).write_bytes(data[: len(data) // 2])
    said = study.call("python", "-m", "depthtime.interlock.recording", ok=False)
    assert all(f"is not what {address} wrote" in said for address in names)
    assert study.path("dvc.lock").read_bytes() == lock
    assert study.snakemake() == {*names, "analyse_core", "report"}
    assert {name: study.path(name).read_bytes() for name in names.values()} == right
    assert study.path("dvc.lock").read_bytes() == lock
    assert study.dvc_is_clean()


def test_a_killed_stage_leaves_nothing_recorded_and_runs_again(study: Workspace) -> None:
    change_parameter(study)
    half_written = "results/runs/core/ode/1/history.csv"
    old = study.path(half_written).read_bytes()
    lock = study.path("dvc.lock").read_bytes()
    process = study.start("snakemake", TOY_HANG="train_core@ode-1")
    end = time.monotonic() + 60
    while not study.path(half_written).exists() or study.path(half_written).read_bytes() == old:
        assert time.monotonic() < end
        time.sleep(0.05)
    kill(process)
    study.ran()
    said = study.call("snakemake", ok=False)
    assert "--unlock" in said
    study.call("python", "-m", "depthtime.interlock.recording", ok=False)
    study.call("snakemake", "--unlock")
    assert "train_core@ode-1" in study.snakemake()
    assert study.path(half_written).read_bytes() != old
    assert study.path("dvc.lock").read_bytes() != lock
    assert study.dvc_is_clean()
    assert study.snakemake_is_clean()


def test_what_a_killed_snakemake_had_finished_is_recorded_by_the_next(study: Workspace) -> None:
    change_parameter(study)
    assert study.snakemake("--no-hooks") == ONE_RUN  # as if killed just before it could record
    assert not study.dvc_is_clean()
    assert study.snakemake_is_clean()  # a dry run records nothing
    assert not study.dvc_is_clean()
    assert study.snakemake() == set()
    assert "recorded 4 stages" in study.output
    assert study.dvc_is_clean()


def test_forcing_a_rule_runs_it_and_what_lies_below_and_no_more(study: Workspace) -> None:
    assert study.snakemake("--forcerun", "analyse_extra") == {"analyse_extra", "report"}
    assert study.snakemake("--force", "results/analysis/core.json") == {"analyse_core"}
    above = {"fetch@tale", "prepare@small", "train_extra@discrete-1"}
    assert study.snakemake("--forceall", "extra") == {*above, "analyse_extra"}
    assert study.dvc_is_clean()
    assert study.snakemake_is_clean()


def test_conflict_markers_in_dvc_lock_are_named_in_one_line(study: Workspace) -> None:
    lock = study.path("dvc.lock")
    lines = lock.read_text().splitlines(True)
    ours, theirs = ["<<<<<<< HEAD\n", *lines[5:9]], ["=======\n", *lines[5:9], ">>>>>>> other\n"]
    lock.write_text("".join([*lines[:5], *ours, *theirs, *lines[9:]]))
    said = study.call("snakemake", "-n", ok=False)
    assert "dvc.lock: line 6 is a git conflict marker" in said
    assert "Traceback" not in said
    lock.write_text("".join(lines[:40]))  # a merge that lost entries: those stages run again, the rest stands
    study.snakemake()
    assert study.dvc_is_clean()


def test_configuration_mistakes_stop_snakemake_with_our_messages_all_at_once(study: Workspace) -> None:
    study.edit("params.yaml", "max_steps: 5", "max_step: 5")
    study.edit("params.yaml", "      batch_size: 1", "      batch_size: 0")
    said = study.call("snakemake", "-n", ok=False)
    assert "unknown key; did you mean max_steps?" in said
    assert "batch_size = 0" in said
    assert "Traceback" not in said
    assert "Error in" not in said


def test_command_line_configuration_is_refused(study: Workspace) -> None:
    said = study.call("snakemake", "-n", "--config", "learning_rate=3", ok=False)
    assert "--config learning_rate=3: not read here" in said
    assert "params.yaml" in said


def test_a_workspace_without_git_works_the_same(tmp_path: Path) -> None:
    workspace = build(tmp_path / "demo")
    shutil.rmtree(workspace.path(".git"))
    workspace.edit(".dvc/config", "[core]", "[core]\n    no_scm = true")
    assert workspace.snakemake() == ALL
    assert workspace.dvc_is_clean()
    assert workspace.snakemake_is_clean()


def test_snakemake_does_not_start_beside_a_running_dvc(study: Workspace) -> None:
    change_text(study)
    running = {"write": {"/somewhere": {"pid": os.getpid(), "cmd": "dvc repro"}}, "read": {}}
    study.path(".dvc/tmp/rwlock").write_text(json.dumps(running))
    assert study.snakemake(ok=False) == set()
    assert f"`dvc repro (process {os.getpid()})` runs stages in this folder; wait until it ends" in study.output


def test_recording_waits_for_another_dvc_command(study: Workspace) -> None:
    change_parameter(study)
    study.snakemake("--no-hooks")
    said = study.folder / "said.tmp"
    held = zc.lockfile.LockFile(str(study.path(".dvc/tmp/lock")))
    try:
        with said.open("w") as file:
            command = [sys.executable, "-m", "depthtime.interlock.recording"]
            process = subprocess.Popen(command, cwd=study.folder, env=study.environment(), stdout=file, stderr=file)
        end = time.monotonic() + 120
        while "waiting for another DVC process to end" not in said.read_text():
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        held.close()
    assert process.wait(120) == 0
    assert "recorded 4 stages in dvc.lock" in said.read_text()
    assert study.dvc_is_clean()
