"""Finished runs into a real sqlite store."""

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from depthtime.errors import TrackingError
from depthtime.tracking import import_runs, log_finished_run, log_reference, ui_command
from depthtime.tracking.store import STUDY, children, open_store


def curve(store, run, key):
    return [(m.step, m.value) for m in store.client.get_metric_history(run.info.run_id, key)]


def test_a_finished_run_is_logged_whole_and_once(workspace, record, history, write_run):
    path = write_run(workspace)
    provenance = {"started_at": "2026-01-02T03:04:05+00:00", "elapsed_s": 80.0, "commit": "abc"}
    for _ in range(2):
        log_finished_run(record(), path, provenance)
    store = open_store()
    (run,) = children(store)
    assert run.info.run_name == "core/ode/42"
    assert run.info.status == "FINISHED"
    assert run.info.end_time - run.info.start_time == 80_000
    assert curve(store, run, "train_loss_nats") == [(row[0], row[1]) for row in history()]
    assert [step for step, _ in curve(store, run, "valid_perplexity")] == [10, 20, 30, 40]
    assert run.data.metrics["best_perplexity"] == pytest.approx(math.exp(4.5))
    assert run.data.params["train.max_steps"] == "40"
    wanted = {"group": "core", "run": "ode", "seed": "42", "model": "continuous", "status": "completed"}
    assert wanted.items() <= run.data.tags.items()
    assert run.data.tags["diverged"] == "no"
    assert run.data.tags["mlflow.parentRunId"] == store.parent_id
    assert run.data.tags["mlflow.source.git.commit"] == "abc"


def test_another_result_of_the_same_run_takes_its_place_as_current(workspace, record, write_run):
    path = write_run(workspace)
    log_finished_run(record(), path, None)
    log_finished_run(record(test={"step": 40, "nll_nats": 4.6}), path, None)
    found = {run.data.tags["current"]: run.data.metrics.get("test_nll_nats") for run in children(open_store())}
    assert found == {"yes": 4.6, "no": None}


def test_a_diverged_run_is_tagged_and_holds_finite_numbers_only(workspace, record, history, write_run):
    rows = [*history(1, 20), (21, math.nan, 1e-3, math.inf, None)]
    path = write_run(workspace, rows=rows)
    train = {"final_loss_nats": None, "max_grad_norm": None, "diverged_at": 21}
    log_finished_run(record(status="diverged", test=None, final=None, train=train), path, None)
    store = open_store()
    (run,) = children(store)
    assert run.data.tags["diverged"] == "yes"
    assert run.data.tags["not_finite.grad_norm"] == "1 values, first at step 21"
    for key in run.data.metrics:
        assert all(math.isfinite(value) and abs(value) < 1e300 for _, value in curve(store, run, key))


def test_import_takes_the_studys_list_and_skips_what_is_there(workspace, write_run, caplog):
    for seed in (42, 43, 44):
        write_run(workspace, seed=seed)
    (workspace / "results/runs/core/ode/44/history.csv").unlink()
    write_run(workspace, run="dropped")
    wanted = [("core", "ode", seed) for seed in (42, 43, 44, 45)]
    study = SimpleNamespace(all_runs=lambda: iter(wanted), datasets={"tiny": None})
    assert import_runs(study, workspace) == 2
    assert "1 runs have a record but no history here" in caplog.text
    assert {run.info.run_name for run in children(open_store())} == {"core/ode/42", "core/ode/43"}
    write_run(workspace, seed=44)
    assert import_runs(study, workspace) == 1
    assert import_runs(study, workspace) == 0


def test_references_are_children_too(workspace):
    data = {"dataset": "tiny", "models": {"unigram": {"perplexity": 426.8}}, "bad": None}
    for _ in range(2):
        log_reference("ngram/tiny", data)
    (run,) = children(open_store())
    assert run.info.run_name == "ngram/tiny"
    assert run.data.metrics == {"models.unigram.perplexity": 426.8}


def test_four_fresh_processes_share_a_new_database_and_one_parent(tmp_path, monkeypatch, write_run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    code = (
        "import sys, json; from pathlib import Path; from depthtime.tracking import log_finished_run as log\n"
        "seed = sys.argv[1]; place = f'core/ode/{seed}'\n"
        "log(json.loads(Path(f'results/records/{place}.json').read_text()),"
        " Path(f'results/runs/{place}/history.csv'), None)"
    )
    for seed in range(4):
        write_run(tmp_path, seed=seed)
    command = [sys.executable, "-W", "ignore", "-c", code]
    started = [subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE) for seed in range(4)]
    results = [(process.communicate()[1], process.returncode) for process in started]
    assert [code for _, code in results] == [0, 0, 0, 0], results
    store = open_store()
    assert sorted(run.info.run_name for run in children(store)) == [f"core/ode/{seed}" for seed in range(4)]
    parents = store.client.search_runs([store.experiment_id], f"tags.kind = 'study' and tags.study = '{STUDY}'")
    assert len(parents) == 1


def test_an_experiment_deleted_in_the_ui_comes_back(workspace):
    store = open_store()
    store.client.delete_experiment(store.experiment_id)
    assert open_store().experiment_id == store.experiment_id


def test_the_ui_is_told_that_the_experiment_holds_trainings(workspace):
    """Without this tag the UI opens on chats; an experiment from before it was set gets it as well."""
    for _ in ("new", "older"):
        store = open_store()
        tags = store.client.get_experiment(store.experiment_id).tags
        assert tags["mlflow.experimentKind"] == "custom_model_development"
        store.client.delete_experiment_tag(store.experiment_id, "mlflow.experimentKind")


def test_import_into_a_dead_server_or_with_tracking_off_is_one_clear_error(workspace, monkeypatch):
    study = SimpleNamespace(all_runs=lambda: iter([]), datasets={})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(TrackingError, match=r"MLflow at http://127.0.0.1:9: .*nothing in results/ is affected"):
        import_runs(study, workspace)
    with pytest.raises(TrackingError, match="is a server; open that address"):
        ui_command()
    monkeypatch.setenv("DEPTHTIME_TRACKING", "off")
    with pytest.raises(TrackingError, match="DEPTHTIME_TRACKING is off"):
        import_runs(study, workspace)
