"""Live tracking: whole curves in good times, one warning and no waiting in bad ones."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from depthtime.tracking import RunTracker, tracker
from depthtime.tracking.store import children, open_store

CONFIG = {"model": {"model": "discrete"}, "train": {"max_steps": 40}}
WHO = {"group": "core", "run": "ode", "seed": 42, "digest": "d" * 64, "config": CONFIG}
TRAINING = """
import sys, time
from depthtime.tracking import RunTracker
rows = [(s, 6.0, 1e-3, 1.0, 5.0 if s % 10 == 0 else None) for s in range(1, 21)]
with RunTracker(group="core", run="ode", seed=42, digest="d" * 64, config={"train": {"max_steps": 40}}) as tracker:
    tracker.log(rows)
    print("logged", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _leave_no_helper():
    yield
    for process in tracker._left:
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    tracker._left.clear()


def wait_until(is_true, seconds=120):  # long only where the machine is busy
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def newest_status(store, **tags):
    """None while the helper has not opened its run."""
    return next((run.info.status for run in children(store, **tags)), None)


def logged_steps(store, run, key="train_loss_nats"):
    return [metric.step for metric in store.client.get_metric_history(run.info.run_id, key)]


def test_curves_appear_while_training_and_the_end_is_complete(workspace, history, record):
    warnings = []
    with RunTracker(**WHO, warn=warnings.append) as run_tracker:
        run_tracker.log(history(1, 10))
        store = open_store()
        wait_until(lambda: any(logged_steps(store, run) for run in children(store)))
        (live,) = children(store)
        assert (live.info.status, live.info.run_name, live.data.tags["status"]) == ("RUNNING", "core/ode/42", "running")
        run_tracker.log(history(11, 40))
        run_tracker.finish(record(), {"commit": "abc"})
    wait_until(lambda: newest_status(store) == "FINISHED")
    (done,) = children(store)
    assert done.data.tags["status"] == "completed"
    assert logged_steps(store, done) == list(range(1, 41))
    assert logged_steps(store, done, "valid_nll_nats") == [10, 20, 30, 40]
    assert done.data.metrics["best_nll_nats"] == 4.5
    assert warnings == []


def test_what_was_tracked_live_is_not_imported_again(workspace, history, record, write_run):
    from depthtime.tracking import log_finished_run

    path = write_run(workspace)
    with RunTracker(**WHO) as run_tracker:
        run_tracker.log(history())
        run_tracker.finish(record(), None)
    store = open_store()
    wait_until(lambda: newest_status(store) == "FINISHED")
    log_finished_run(record(), path, None)
    assert len(list(children(store))) == 1


def test_a_killed_training_reads_killed_and_its_resumed_run_has_whole_curves(workspace, history, record):
    training = subprocess.Popen([sys.executable, "-c", TRAINING], stdout=subprocess.PIPE)
    training.stdout.readline()
    store = open_store()
    wait_until(lambda: any(len(logged_steps(store, run)) == 20 for run in children(store)))
    training.kill()
    training.communicate()
    wait_until(lambda: newest_status(store) == "KILLED")  # the helper saw its parent die
    with RunTracker(**WHO) as run_tracker:
        run_tracker.log(history(1, 20))  # as read from the resume state
        run_tracker.log(history(21, 40))
        run_tracker.finish(record(), None)
    wait_until(lambda: newest_status(store) == "FINISHED")
    new, old = children(store)
    assert logged_steps(store, new) == list(range(1, 41))
    assert (old.info.status, old.data.tags["status"]) == ("KILLED", "killed")


def test_a_run_whose_machine_died_is_closed_on_the_next_start(workspace, history):
    from depthtime.tracking import runs

    store = open_store()
    tags = runs.address_tags("core", "ode", 42, "d" * 64, CONFIG)
    dead = runs.create_child(store, name="core/ode/42", tags=tags, params={})
    other = runs.create_child(store, name="core/ode/43", tags={**tags, "seed": "43"}, params={})
    with contextlib.suppress(ValueError), RunTracker(**WHO) as run_tracker:
        run_tracker.log(history())
        raise ValueError("bug in the model")
    wait_until(lambda: store.client.get_run(dead).info.status == "KILLED")
    assert store.client.get_run(other).info.status == "RUNNING"
    wait_until(lambda: newest_status(store, seed="42") == "FAILED")


@pytest.mark.parametrize("trouble", ["dead port", "silent server", "damaged database", "no folder", "bad scheme"])
def test_trouble_costs_one_warning_and_no_time(workspace, history, record, monkeypatch, trouble):
    listener = socket.create_server(("127.0.0.1", 0))  # accepts and never answers
    uris = {
        "dead port": "http://127.0.0.1:9",
        "silent server": f"http://127.0.0.1:{listener.getsockname()[1]}",
        "no folder": "sqlite:////proc/nowhere/mlflow.db",
        "bad scheme": "nonsense://x",
    }
    if trouble == "damaged database":
        (workspace / "mlflow.db").write_bytes(b"this is not a database" * 1000)
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uris[trouble])
    warnings = []
    blocked_s = 0.0
    run_tracker = RunTracker(**WHO, warn=warnings.append)
    for first in (1, 11, 21, 31):
        started = time.monotonic()
        run_tracker.log(history(first, first + 9))
        blocked_s += time.monotonic() - started
    started = time.monotonic()
    run_tracker.finish(record(), None)
    ending_s = time.monotonic() - started
    listener.close()
    assert blocked_s < 0.5
    assert ending_s < tracker.MAX_WAIT_S
    assert len(warnings) == 1
    assert "depthtime runs import" in warnings[0]


def test_a_locked_database_delays_nothing(workspace, history, record):
    import sqlite3

    with sqlite3.connect(workspace / "mlflow.db", isolation_level=None) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        warnings = []
        started = time.monotonic()
        with RunTracker(**WHO, warn=warnings.append) as run_tracker:
            run_tracker.log(history())
            run_tracker.finish(record(), None)
        assert time.monotonic() - started < tracker.MAX_WAIT_S
        assert len(warnings) == 1
        connection.execute("ROLLBACK")
    connection.close()
    store = open_store()
    wait_until(lambda: any(run.info.status == "FINISHED" for run in children(store)))  # it went on in the background


def test_a_full_temporary_folder_costs_one_warning(workspace, history, record, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tracker.tempfile, "TemporaryFile", full)
    warnings = []
    with RunTracker(**WHO, warn=warnings.append) as run_tracker:
        run_tracker.log(history())
        run_tracker.finish(record(), None)
    assert len(warnings) == 1
    assert "No space left" in warnings[0]


def test_switched_off_it_starts_nothing(workspace, history, record, monkeypatch):
    monkeypatch.setenv("DEPTHTIME_TRACKING", "off")
    monkeypatch.setattr(tracker.subprocess, "Popen", None)
    with RunTracker(**WHO) as run_tracker:
        run_tracker.log(history())
        run_tracker.finish(record(), None)
    assert list(children(open_store())) == []


def test_importing_the_package_does_not_import_mlflow():
    code = "import sys, depthtime.tracking; sys.exit('mlflow' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_a_server_killed_midway_costs_one_warning(workspace, history, record, monkeypatch):
    from depthtime.tracking.ui import ui_command

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = (workspace / "server.log").open("wb")
    server = subprocess.Popen(ui_command(port=port), stdout=log, stderr=log, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"

    def answers():
        try:
            return urllib.request.urlopen(f"{uri}/health", timeout=1).status == 200
        except OSError:
            return False

    try:
        wait_until(answers, 300)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        warnings = []
        run_tracker = RunTracker(**WHO, warn=warnings.append)
        run_tracker.log(history(1, 20))
        store = open_store()
        wait_until(lambda: any(logged_steps(store, run) for run in children(store)))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        log.close()
    for first in (21, 31):
        run_tracker.log(history(first, first + 9))
    wait_until(lambda: run_tracker._problem() is not None)  # training takes longer than this
    started = time.monotonic()
    run_tracker.finish(record(), None)
    assert time.monotonic() - started < tracker.MAX_WAIT_S
    assert len(warnings) == 1
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    store = open_store()
    (run,) = children(store)
    assert logged_steps(store, run) == list(range(1, 21))
