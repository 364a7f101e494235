"""Real faults at the command line: a training killed at a random moment goes on and ends with the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

import small_study

LONG = [
    ("max_steps: 24", "max_steps: 400"),
    ("eval_every: 12", "eval_every: 20"),
    ("warmup_steps: 6", "warmup_steps: 40"),
]


def _outputs(workspace):
    return {
        name: (workspace.folder / "results" / name).read_bytes()
        for name in ("records/core/ode/1.json", "runs/core/ode/1/history.csv", "runs/core/ode/1/weights.safetensors")
    }


@pytest.fixture
def workspace(tmp_path):
    workspace = small_study.build(tmp_path / "whole", git=False)
    for old, new in LONG:
        workspace.edit("params.yaml", old, new)
    for verb in (("fetch", "tale"), ("prepare", "tale")):
        workspace.depthtime(*verb)
    return workspace


def test_a_killed_training_resumes_to_the_same_bytes(workspace, tmp_path):
    killed = small_study.copy(workspace, tmp_path / "killed")
    workspace.depthtime("train", "core", "ode", "1")
    state = killed.folder / ".cache" / "resume"
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "depthtime.cli", "train", "core", "ode", "1"],
            cwd=killed.folder, env=killed.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        give_up = time.monotonic() + 120
        while process.poll() is None and not list(state.glob("*.safetensors")) and time.monotonic() < give_up:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert list(state.glob("*.safetensors")), "it was killed after its end; nothing was tested"
    assert not (killed.folder / "results/records/core/ode/1.json").exists()
    killed.depthtime("train", "core", "ode", "1")
    assert _outputs(killed) == _outputs(workspace)
    assert not list(state.glob("*.safetensors"))


def test_a_diverged_run_is_a_complete_record(workspace):
    workspace.edit("params.yaml", "learning_rate: 1e-2", "learning_rate: 1e30")
    workspace.edit("params.yaml", "clip_norm: 0.2", "clip_norm: null")
    done = workspace.depthtime("train", "core", "ode", "1")
    assert "diverged at step" in done.stderr
    record = workspace.folder / "results/records/core/ode/1.json"
    assert '"status": "diverged"' in record.read_text()
    assert workspace.depthtime("train", "core", "ode", "1", "--strict", check=False).returncode == 3
