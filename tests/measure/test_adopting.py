"""Measurements are adopted when a part of them comes out again, and refused where a number moved."""

import itertools

import pytest
import torch

from depthtime import paths
from depthtime.config import load_params
from depthtime.errors import AdoptError
from depthtime.measure import particles
from depthtime.measure.clustering import measure_clustering
from depthtime.measure.decoding import measure_decoding
from depthtime.measure.gradients import measure_gradients
from depthtime.measure.solver_swap import measure_solver_swap
from depthtime.measure.spectra import measure_spectra
from depthtime.models import diffeqformer
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import KeyValues
from depthtime.records import read_json, write_json
from depthtime.train.run import train_run
from depthtime.upkeep.adopt import check_measured

MEASURE = {
    "gradients": measure_gradients,
    "solver_swap": measure_solver_swap,
    "decoding": measure_decoding,
    "clustering": measure_clustering,
    "spectra": measure_spectra,
}


@pytest.fixture
def params(study, monkeypatch):
    """The small study, finished, with what measures run in it."""
    monkeypatch.chdir(study.folder)
    params = load_params()
    for run, seed in itertools.product(("diffeq", "gpt"), (1, 2)):
        train_run(params, "forms", run, seed)
    for measure in MEASURE.values():
        measure(params)
    return params


@pytest.mark.parametrize("name", MEASURE)
def test_what_comes_out_again_is_adopted(params, name):
    check_measured(params, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [("gradients", r"adjoint.steps_1.relative_error"), ("solver_swap", r"perplexity.rk4_1: \d+")],
)
def test_a_changed_formula_is_refused(params, name, said, monkeypatch):
    plain = PostNormBlock.forward
    monkeypatch.setattr(PostNormBlock, "forward", lambda *args: 1.01 * plain(*args))
    with pytest.raises(AdoptError, match=said):
        check_measured(params, name)


def test_a_cache_that_forgets_is_refused(params, monkeypatch):
    plain = KeyValues.extend

    def forgets(self, keys, values):
        all_keys, all_values = plain(self, keys, values)
        return all_keys, torch.zeros_like(all_values)

    monkeypatch.setattr(KeyValues, "extend", forgets)
    with pytest.raises(AdoptError, match="max_logit_difference"):
        check_measured(params, "decoding")


def test_tokens_that_move_otherwise_are_refused(params, monkeypatch):
    plain = particles.standardise
    monkeypatch.setattr(particles, "standardise", lambda tokens: 1.01 * plain(tokens))
    with pytest.raises(AdoptError, match=r"d3\.\w+\."):
        check_measured(params, "clustering")


def test_weights_of_other_depth_times_are_refused(params, monkeypatch):
    plain = diffeqformer.time_features
    monkeypatch.setattr(diffeqformer, "time_features", lambda times, *rest: plain([0.9 * t for t in times], *rest))
    with pytest.raises(AdoptError, match=r"diffeq\.\w+\.trained"):
        check_measured(params, "spectra")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gradients", lambda record: record["direct"]["steps_2"].update(nfe_forward=9)),
        ("gradients", lambda record: record["adjoint"]["steps_1"].update(peak_saved_bytes=1)),
        ("solver_swap", lambda record: record["solvers"][0].update(nfe=17.0)),
        ("solver_swap", lambda record: record["solvers"][0].update(perplexity=None)),
        ("decoding", lambda record: record["ode"].update(positions=1)),
        ("clustering", lambda record: record["d3"]["g_cos"]["by_seed"].__setitem__(1, 99)),
        ("spectra", lambda record: record["gpt"]["qk"]["trained"]["by_seed"]["2"]["largest"][1].__setitem__(0, 9.0)),
        ("spectra", lambda record: record["diffeq"]["ov"]["untrained"].update(undefined=1)),
    ],
)
def test_counts_in_lists_and_missing_values_count_too(params, name, change):
    record = read_json(paths.measured(name))
    change(record)
    write_json(paths.measured(name), record)
    with pytest.raises(AdoptError, match=f"run `snakemake {name}`"):
        check_measured(params, name)
