"""The learning rate of a group is taken from the candidate with the lowest validation loss, by one rule for all."""

from pathlib import Path

import pytest

from depthtime import paths
from depthtime.analyse.select import select
from depthtime.config import load_params
from depthtime.errors import ConfigError, RecordError
from depthtime.records import read_json, write_json

ROOT = Path(__file__).resolve().parents[2]
LOSSES = {
    "discrete_low": 4.9,
    "discrete_mid": 4.7,
    "discrete_high": 4.8,
    "ode_low": 4.6,
    "ode_mid": 4.75,
    "ode_high": 5.0,
}


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = load_params(ROOT / "params.yaml")
    for run, loss in LOSSES.items():
        _write(study, run, loss)
    return study


def _write(study, run, loss, *, status="completed", digest=None):
    record = {"digest": digest or study.run("tuning", run).digest, "status": status, "best": {"nll_nats": loss}}
    write_json(paths.record("tuning", run, 42), record)


def test_the_lowest_validation_loss_wins_for_each_model(study):
    select(study, "tuned")
    chosen = read_json(paths.selection("tuned"))["chosen"]
    assert chosen["discrete"]["learning_rate"] == 1e-3
    assert chosen["ode"]["learning_rate"] == 5e-4
    assert [trial["nll_nats"] for trial in chosen["ode"]["trials"]] == [4.6, 4.75, 5.0]
    _write(study, "ode_high", 4.5)
    select(study, "tuned")
    assert read_json(paths.selection("tuned"))["chosen"]["ode"]["learning_rate"] == 2e-3


def test_a_diverged_candidate_is_never_chosen(study):
    _write(study, "ode_low", None, status="diverged")
    select(study, "tuned")
    assert read_json(paths.selection("tuned"))["chosen"]["ode"]["candidate"] == "ode_mid"
    for run in ("ode_mid", "ode_high"):
        _write(study, run, None, status="diverged")
    with pytest.raises(RecordError, match="every candidate diverged"):
        select(study, "tuned")


def test_records_of_other_parameters_or_missing_ones_are_refused(study):
    _write(study, "ode_low", 4.6, digest="0" * 64)
    with pytest.raises(RecordError, match="other parameters"):
        select(study, "tuned")
    paths.record("tuning", "ode_low", 42).unlink()
    with pytest.raises(RecordError, match="no such file"):
        select(study, "tuned")


def test_a_group_without_a_rule_has_nothing_to_select(study):
    with pytest.raises(ConfigError, match=r"groups.core.select: missing"):
        select(study, "core")
