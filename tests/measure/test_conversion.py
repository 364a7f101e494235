"""What the conversion record says of a model whose weights change with depth time, held against the models."""

import math

import numpy as np
import pytest
import torch

from depthtime.config import Conversion
from depthtime.evaluate.network import score_network
from depthtime.measure import smoothness as smooth
from depthtime.measure.conversion import compare, convert, measure_model, score_windows
from depthtime.records import dump_json
from small_models import DIFFEQFORMER, GPT, model, windows

WINDOWS = windows(10)
SLOW = {"time_scale": 1.0}


def settings(**changes):
    solvers = {"euler_right": (3, 6), "midpoint": (3,), "rk4": (3, 48)}
    given = {"run": "transfer/diffeq/43", "depths": (1, 3, 4, 6), "solvers": solvers, "windows": 10, "batch_size": 4}
    return Conversion(**{**given, "intervals": 8, "resamples": 50, "threads": 1, **changes})


def network(**changes):
    """A small model whose weights change visibly with t."""
    found = model(DIFFEQFORMER.model_copy(update=changes), sizes=GPT)
    for parameter in found.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    return found.eval()


@pytest.fixture(scope="module")
def measured():
    torch.manual_seed(0)
    return measure_model(network(), WINDOWS, settings())


def test_at_the_trained_depth_nothing_changes(measured):
    assert measured["conversion"]["max_logit_difference"] < 1e-11
    assert measured["conversion"]["max_logit_difference_float32"] < 1e-3
    for entry in (measured["zero_shot"]["depth_3"], measured["solvers"]["euler_right_3"], measured["trained"]):
        assert entry["ratio"] == pytest.approx(1, abs=1e-5)
        assert entry["perplexity"] == pytest.approx(measured["trained"]["perplexity"], rel=1e-5)
    assert measured["trained_depth"] == 3


def test_perplexity_is_that_of_the_one_definition():
    found, layers = network(), convert(network(), 4)
    base = score_windows(found, WINDOWS, 4)
    assert compare(base, base, 20)["perplexity"] == pytest.approx(score_network(found, WINDOWS, 4).perplexity, rel=1e-9)
    ratio = score_network(layers, WINDOWS, 4).perplexity / score_network(found, WINDOWS, 4).perplexity
    assert compare(score_windows(layers, WINDOWS, 4), base, 20)["ratio"] == pytest.approx(ratio, rel=1e-9)


def test_each_window_has_its_own_sum():
    found, scores = network(), score_windows(network(), WINDOWS, 4)
    for i in (0, 7):
        alone = windows(10)
        one = type(alone)(alone.tokens, alone.starts[i : i + 1], alone.first_scored[i : i + 1], alone.positions)
        assert scores.nats[i] == pytest.approx(score_network(found, one, 1).total_nll_nats, rel=1e-5)
        assert scores.counts[i] == one.num_scored


def test_layers_at_a_depth_are_right_point_euler_steps_on_the_same_weights(measured):
    """6 layers and 6 Euler steps, one through the conversion and one through the solver."""
    assert measured["zero_shot"]["depth_6"]["perplexity"] == pytest.approx(
        measured["solvers"]["euler_right_6"]["perplexity"], rel=1e-5
    )


def test_times_that_were_trained_are_counted(measured):
    assert {entry["depth"]: entry["seen"] for entry in measured["zero_shot"].values()} == {1: 1, 3: 3, 4: 1, 6: 3}


def test_evaluations_are_those_of_the_scheme(measured):
    assert {name: row["nfe"] for name, row in measured["solvers"].items()} == {
        "euler_right_3": 3, "euler_right_6": 6, "midpoint_3": 6, "rk4_3": 12, "rk4_48": 192,
    }  # fmt: skip


def test_intervals_hold_their_values_and_the_record_is_json(measured):
    for entry in [*measured["zero_shot"].values(), *measured["solvers"].values()]:
        assert entry["perplexity_low"] <= entry["perplexity"] <= entry["perplexity_high"]
        assert entry["ratio_low"] <= entry["ratio"] <= entry["ratio_high"]
    assert dump_json(measured)
    torch.manual_seed(0)
    assert measure_model(network(), WINDOWS, settings()) == measured


def test_the_model_is_as_before():
    found = network()
    before = {name: t.clone() for name, t in found.state_dict().items()}
    measure_model(found, WINDOWS, settings(depths=(2,), solvers={"rk4": (2,)}))
    assert found.core.run == DIFFEQFORMER
    assert all(torch.equal(t, before[name]) for name, t in found.state_dict().items())


@pytest.mark.parametrize(("depth", "percent"), [(6, 43), (12, 36), (18, 31), (24, 28), (36, 24)])
def test_aliased_sinusoids_are_the_share_worked_out_by_hand(depth, percent):
    """1000 * 10000^(-x) > pi L where x < log10(1000 / (pi L)) / 4, x even on [0, 1)."""
    run = DIFFEQFORMER.model_copy(update={"num_steps": depth, "sinusoids": 1000})
    assert round(100 * smooth.aliased_share(run)) == percent
    assert smooth.aliased_share(run) == pytest.approx(math.log10(1000 / (math.pi * depth)) / 4, abs=2e-3)


def test_weights_that_do_not_change_are_straight():
    found = smooth.smoothness(network(depth_features=0).core, 8)
    for name in smooth.MATRICES:
        assert found[name]["largest"] == found[name]["neighbours_largest"] == found[name]["trained"] == 0
        assert found[name]["path"] is None


def test_weights_leave_the_line_between_trained_times_and_meet_it_there():
    core = network().core
    found = smooth.smoothness(core, 8)
    assert len(found["times"]) == 24
    for name in smooth.MATRICES:
        curve = np.array(found[name]["curve"])
        assert curve[7::8].max() < 1e-6  # t = 1/3, 2/3, 1
        assert curve.max() == found[name]["largest"] > 0.1
        assert found[name]["path"] > 1


def test_slow_sinusoids_give_smoother_weights_than_fast_ones():
    fast, slow = (smooth.smoothness(network(**scale).core, 8) for scale in ({}, SLOW))
    for name in smooth.MATRICES:
        assert slow[name]["middle"] < 0.2 * fast[name]["middle"]
        assert slow[name]["path"] < fast[name]["path"]


def test_smoothness_is_the_formula_written_out():
    """One matrix, one time in the middle of a step, from the generated weights alone."""
    core = network().core
    found = smooth.smoothness(core, 8)["ff_in"]
    at = {t: core.generate([t])[0].ff_in.weight.detach().double() for t in (1 / 3, 0.5, 2 / 3, 11 / 24, 1.0)}
    line = (at[1 / 3] + at[2 / 3]) / 2
    assert found["curve"][11] == pytest.approx(float((at[0.5] - line).norm() / at[0.5].norm()), rel=1e-4)
    steps = [float((at[a] - at[b]).norm() / at[a].norm()) for a, b in ((2 / 3, 1 / 3), (1.0, 2 / 3))]
    assert found["trained"] == pytest.approx(sum(steps) / 2, rel=1e-4)


def test_slow_weights_have_a_limit_that_finer_steps_of_any_scheme_approach():
    slow = measure_model(network(**SLOW), WINDOWS, settings(solvers={"euler_right": (96,), "rk4": (24,)}))
    ends = [slow["solvers"][name]["perplexity"] for name in ("euler_right_96", "rk4_24")]
    assert ends[0] == pytest.approx(ends[1], rel=0.02)
