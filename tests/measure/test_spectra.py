"""Eigenvalues of known matrices, trends of known series, and a record that follows from them."""

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import fresh_clone
from depthtime import paths
from depthtime.config import Spectra
from depthtime.measure.depth_trends import mean_interval, rank_correlation, summary, thirds, trends
from depthtime.measure.eigenvalues import describe, layer_eigenvalues, nonzero_eigenvalues
from depthtime.measure.spectra import hidden_units, measure_spectra, remeasure, run_spectra, spectra_record
from depthtime.models.layer_weights import LayerWeights
from depthtime.records import read_json, write_bytes
from depthtime.train.checkpoint import dump_weights
from depthtime.train.setup import build_for
from small_models import DIFFEQFORMER, GPT, LLAMA, TRANSFORMER, model

D, H, F = GPT.width, GPT.heads, GPT.ff_width
SETTINGS = Spectra(runs=("a/b",), ff_units=(6,), resamples=200, threads=1)
UNITS = {"ff_6": np.array([0, 2, 3, 11, 20, 23])}


def layer(seed=0, t=1.0, scale=1.0):
    """A layer of Gaussian matrices."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(D, D)] * 4 + [(D, F), (F, D)]
    return LayerWeights(t, *(scale * torch.randn(shape, generator=generator) for shape in shapes), None)


def config(run=DIFFEQFORMER, sizes=GPT):
    return type("Config", (), {"run": run, "sizes": sizes, "run_name": "b"})


def same_multiset(found, expected, within=1e-9):
    """Whether two lists of complex numbers are equal in some order: each takes its nearest."""
    left = list(expected)
    for value in found:
        nearest = min(range(len(left)), key=lambda place: abs(left[place] - value))
        if abs(left.pop(nearest) - value) > within * (1 + abs(value)):
            return False
    return not left


def full_products(weights):
    """All D eigenvalues of the full products, by kind and head: the slow way."""
    q, k, v, o, w_in, w_out = (
        getattr(weights, name).double().numpy()
        for name in ("query", "key", "value", "attention_out", "ff_in", "ff_out")
    )
    own = [slice(head * D // H, (head + 1) * D // H) for head in range(H)]
    some = UNITS["ff_6"]
    return {
        "qk": [np.linalg.eigvals(q[:, at] @ k[:, at].T) for at in own],
        "ov": [np.linalg.eigvals(v[:, at] @ o[at]) for at in own],
        "ff": [np.linalg.eigvals(w_in @ w_out)],
        "ff_6": [np.linalg.eigvals(w_in[:, some] @ w_out[some])],
    }


@pytest.mark.parametrize("seed", range(3))
def test_small_products_have_the_eigenvalues_of_the_full_ones_but_the_zeros(seed):
    weights = layer(seed)
    found, full = layer_eigenvalues(weights, H, UNITS), full_products(weights)
    counts = {"qk": D // H, "ov": D // H, "ff": D, "ff_6": 6}
    assert {kind: values.shape for kind, values in found.items()} == {
        kind: (len(full[kind]), count) for kind, count in counts.items()
    }
    for kind, values in found.items():
        for of_head, all_of_head in zip(values, full[kind], strict=True):
            by_size = sorted(all_of_head, key=abs, reverse=True)
            assert same_multiset(of_head, by_size[: counts[kind]]), kind
            assert max(map(abs, by_size[counts[kind] :]), default=0) < 1e-6 * abs(by_size[0])


def test_products_of_many_units_are_taken_the_other_way_round():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(4, 9)), rng.normal(size=(9, 4))
    assert same_multiset(nonzero_eigenvalues(left, right), np.linalg.eigvals(left @ right))
    assert nonzero_eigenvalues(left, right).shape == (4,)


def test_known_spectra():
    rng = np.random.default_rng(1)
    orthogonal = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    symmetric = rng.normal(size=(6, 6))
    symmetric = symmetric + symmetric.T
    diagonal = np.diag([3.0, -2.0, 0.5, -4.0])
    turn = np.array([[0.0, -2.0], [2.0, 0.0]])
    eye = np.eye
    found = describe(nonzero_eigenvalues(orthogonal, eye(6)))
    assert (found["largest"], found["mean"]) == (pytest.approx(1), pytest.approx(1))
    assert describe(nonzero_eigenvalues(eye(6), symmetric))["real"] == 1
    assert {key: float(x) for key, x in describe(nonzero_eigenvalues(eye(4), diagonal)).items()} == {
        "largest": 4, "mean": 2.375, "positive": 0.5, "real": 1,
    }  # fmt: skip
    assert describe(nonzero_eigenvalues(eye(2), turn))["real"] == 0
    assert describe(np.array([-1 + 0j, 2]))["positive"] == 0.5
    positive = symmetric @ symmetric.T  # W_Q = W_K: a form without negative eigenvalues
    assert describe(nonzero_eigenvalues(positive, eye(6)))["positive"] == 1


def test_a_change_of_basis_inside_a_head_changes_no_eigenvalue():
    weights, rng = layer(4), np.random.default_rng(2)
    basis = torch.zeros(D, D, dtype=torch.float64)
    for head in range(H):
        own = slice(head * D // H, (head + 1) * D // H)
        basis[own, own] = torch.from_numpy(rng.normal(size=(D // H, D // H)) + 3 * np.eye(D // H))
    inverse = torch.linalg.inv(basis)
    moved = LayerWeights(
        weights.t,
        weights.query.double() @ basis,
        weights.key.double() @ inverse.T,
        weights.value.double() @ basis,
        inverse @ weights.attention_out.double(),
        weights.ff_in,
        weights.ff_out,
        None,
    )
    before, after = layer_eigenvalues(weights, H, {}), layer_eigenvalues(moved, H, {})
    for kind in ("qk", "ov"):
        assert not torch.allclose(moved.query, weights.query.double())
        assert all(same_multiset(a, b, 1e-7) for a, b in zip(before[kind], after[kind], strict=True))


def test_units_are_drawn_from_all_hidden_ones_without_repetition():
    drawn = [hidden_units(64, (5, 16), seed) for seed in range(40)]
    assert all(len(set(units["ff_16"])) == 16 and max(units["ff_16"]) < 64 for units in drawn)
    assert set(np.concatenate([units["ff_16"] for units in drawn])) == set(range(64))
    assert all((units["ff_5"] == hidden_units(64, (5, 16), seed)["ff_5"]).all() for seed, units in enumerate(drawn))
    assert set(hidden_units(8, (8,), 0)["ff_8"]) == set(range(8))


def test_rho_of_growing_shrinking_and_constant_series():
    times = np.arange(1, 7) / 6
    series = np.array([[[1, 2, 3, 10, 11, 50], [9, 8, 7, 3, 2, 1], [4, 4, 4, 4, 4, 4]]], dtype=float)
    rho = rank_correlation(times, series)[0]
    assert rho[:2] == pytest.approx([1, -1])
    assert math.isnan(rho[2])
    shuffled = np.array(list(itertools.permutations(range(1, 6))), dtype=float)[None]
    all_rho = rank_correlation(np.arange(5.0), shuffled)
    assert all_rho.mean() == pytest.approx(0, abs=1e-12)
    assert mean_interval(rank_correlation(times, np.random.default_rng(0).random((3, 40, 6))), 500)["low"] < 0
    assert all_rho[0, 7] == pytest.approx(spearmanr(range(5), shuffled[0, 7]).statistic)


def test_trends_of_a_series_worked_out_by_hand():
    largest = np.array([[[2.0, 1, 1, 1, 8, 4], [6.0, 5, 4, 3, 2, 1.5]], [[3.0, 3, 3, 3, 3, 3], [0.0, 1, 2, 3, 4, 5]]])
    positive = np.array([[[0.0, 0.5, 1, 1, 1, 0.5]] * 2, [[1.0, 1, 0, 0, 0, 0.5]] * 2])
    found = trends(np.arange(1, 7) / 6, largest, positive)
    assert [thirds(steps) for steps in (6, 3, 2, 1)] == [2, 1, 1, 1]
    assert found["log_growth"][0] == pytest.approx([math.log(2), math.log(0.25)])
    assert (found["log_growth"][1, 0], math.isnan(found["log_growth"][1, 1])) == (0, True)
    assert found["peak_late"][0].tolist() == [1, 0]
    assert math.isnan(found["peak_late"][1, 0])
    assert found["positive_early"][:, 0].tolist() == [0.25, 1]
    assert found["positive_late"][:, 0].tolist() == [0.75, 0.25]
    assert found["positive_change"][:, 0].tolist() == [0.5, -0.75]
    said = summary(found, 100)
    assert said["growth"] == pytest.approx((2 * 0.25 * 1) ** (1 / 3))
    assert (said["undefined"], said["peak_late"]) == (1, pytest.approx(2 / 3))


def mean_interval_reference(values, resamples):
    """The bootstrap of seeds, then heads, a resample at a time."""
    rng, (seeds, heads) = np.random.default_rng(0), values.shape
    of_seeds = rng.integers(seeds, size=(resamples, seeds, 1))
    of_heads = rng.integers(heads, size=(resamples, seeds, heads))
    means = []
    for i in range(resamples):
        drawn = [values[of_seeds[i, s, 0], of_heads[i, s, h]] for s in range(seeds) for h in range(heads)]
        known = [x for x in drawn if not math.isnan(x)]
        means += [sum(known) / len(known)] if known else []
    return np.quantile(means, [0.025, 0.975])


def test_intervals_are_those_of_resampled_seeds_and_heads():
    values = np.random.default_rng(3).normal(size=(3, 4))
    values[1, 2] = math.nan
    found = mean_interval(values, 300)
    assert found["mean"] == pytest.approx(np.nanmean(values))
    assert [found["low"], found["high"]] == pytest.approx(mean_interval_reference(values, 300))


def test_heads_of_few_seeds_do_not_count_as_many_seeds():
    by_seed = np.array([[0.0], [1], [2]]) * np.ones((1, 50))  # heads of a seed are all alike
    found = mean_interval(by_seed, 2000)
    assert (found["low"], found["high"]) == (pytest.approx(0, abs=0.4), pytest.approx(2, abs=0.4))
    assert mean_interval(by_seed[:1], 100) == {"mean": 0, "low": None, "high": None}
    assert mean_interval(np.full((2, 3), math.nan), 100) == {"mean": None, "low": None, "high": None}


def grown(power, seeds=(1, 2, 3), steps=6):
    """Models whose matrices are a fixed one times t^power: every eigenvalue is times t^(2 power)."""
    return {seed: [layer(seed, k / steps, (k / steps) ** power) for k in range(1, steps + 1)] for seed in seeds}


def test_weights_that_grow_are_found_to_grow_and_constant_ones_have_no_rho():
    record = run_spectra(config(), SETTINGS, grown(2), grown(0))
    for kind in ("qk", "ov", "ff", "ff_6"):
        after, before, more = (record[kind][state] for state in ("trained", "untrained", "more"))
        assert (after["rho"], after["rho_low"], after["rho_high"]) == pytest.approx((1, 1, 1))
        assert after["growth"] == pytest.approx(6**4, rel=1e-4)
        assert (after["peak_late"], after["undefined"]) == (1, 0)
        assert (before["rho"], before["rho_low"], more["rho"]) == (None, None, None)
        assert (before["growth"], before["undefined"]) == (1, 3 * len(before["by_seed"]["1"]["largest"]))
        assert more["growth"] == pytest.approx(6**4, rel=1e-4)
        assert after["positive_change"] == before["positive_change"] == 0
    assert record["qk_and_ov"]["trained"]["rho"] == pytest.approx(1)


def test_order_is_what_rho_is_about():
    models = {}
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(6)
        models[seed] = [layer(seed, k / 6, float(1 + order[k - 1])) for k in range(1, 7)]
    record = run_spectra(config(), SETTINGS, models, models)
    assert record["qk"]["trained"]["rho_low"] < 0 < record["qk"]["trained"]["rho_high"]
    assert (record["qk"]["more"]["rho"], record["qk"]["more"]["growth"]) == (0, 1)


def test_the_record_is_made_of_the_numbers_by_seed():
    record = run_spectra(config(), SETTINGS, grown(1), grown(0.5))
    assert record["times"] == pytest.approx([k / 6 for k in range(1, 7)])
    for kind, count in (("qk", D // H), ("ov", D // H), ("ff", D), ("ff_6", 6)):
        own = record[kind]["trained"]
        stored = {key: np.array([own["by_seed"][str(s)][key] for s in (1, 2, 3)]) for key in own["by_seed"]["1"]}
        assert record[kind]["eigenvalues"] == count
        assert all(values.shape == (3, H if kind in {"qk", "ov"} else 1, 6) for values in stored.values())
        again = trends(np.array(record["times"]), stored["largest"], stored["positive"])
        assert {key: own[key] for key in summary(again, 200)} == summary(again, 200)
        assert own["by_step"]["largest"] == np.median(stored["largest"], axis=(0, 1)).tolist()
        lines = [own["by_step"]["real_part"][name] for name in ("q05", "q25", "median", "q75", "q95")]
        assert all(a <= b for low, high in itertools.pairwise(lines) for a, b in zip(low, high, strict=True))
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_both_positive_counts_heads_whose_qk_and_ov_are():
    """W_K = W_Q in every head, W_O = W_V^T in half of them and -W_V^T in the rest."""
    plain = layer(5)
    sign = torch.ones(D, 1)
    sign[D // 2 :] = -1
    made = LayerWeights(
        1.0, plain.query, plain.query, plain.value, sign * plain.value.T, plain.ff_in, plain.ff_out, None
    )
    record = run_spectra(config(), SETTINGS, {1: [made], 2: [made]}, {1: [plain], 2: [plain]})
    joint = record["qk_and_ov"]["trained"]
    assert record["qk"]["trained"]["positive_late"] == 1
    assert record["ov"]["trained"]["positive_late"] == 0.5
    assert (joint["both_positive_late"], joint["by_step"]["both_positive"]) == (0.5, [0.5])


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A study with random weights of every seed in place of trained ones, in the current folder."""
    monkeypatch.chdir(tmp_path)
    study = fresh_clone.build(tmp_path)
    for name, seed in itertools.product(study.spectra.runs, (1, 2)):
        config = study.run(*name.split("/"))
        made = model(config.run, seed=100 + seed, sizes=config.sizes, num_classes=30, max_positions=7)
        folder = paths.run_folder(config.group_name, config.run_name, seed)
        write_bytes(folder / "weights.safetensors", dump_weights(made))
    return study


def test_a_record_has_every_run_and_seed_and_is_the_same_twice(stored):
    moved = []
    measure_spectra(stored, lambda done, total: moved.append((done, total)))
    first = paths.measured("spectra").read_bytes()
    assert moved == [(done, 4) for done in range(1, 5)]
    measure_spectra(stored)
    assert paths.measured("spectra").read_bytes() == first
    record = read_json(paths.measured("spectra"))
    assert record["names"] == ["diffeq", "gpt"]
    for run in record["names"]:
        assert set(record[run]["qk"]["trained"]["by_seed"]) == {"1", "2"}
        assert {"qk", "ov", "ff", "ff_4", "qk_and_ov"} <= set(record[run])
    assert remeasure(stored) == record


def test_the_untrained_model_is_the_one_that_training_starts_from(stored):
    config = stored.run("forms", "diffeq")
    dataset = SimpleNamespace(vocabulary_size=30)
    start = {seed: build_for(config, dataset, seed).core.layer_weights() for seed in (1, 2)}
    record = spectra_record(stored)["diffeq"]
    expected = run_spectra(config, stored.spectra, start, start)
    for kind in ("qk", "ov", "ff"):
        assert record[kind]["untrained"] == expected[kind]["untrained"]
        assert record[kind]["trained"] != expected[kind]["trained"]


@pytest.mark.parametrize("run", [DIFFEQFORMER, TRANSFORMER])
@pytest.mark.parametrize("sizes", [GPT, LLAMA])
def test_models_give_their_layers_at_the_times_of_their_forward_pass(run, sizes):
    models = {seed: model(run, seed=seed, sizes=sizes).core.layer_weights() for seed in (1, 2)}
    record = run_spectra(config(run, sizes), SETTINGS, models, models)
    assert record["times"] == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-8)
    assert ("gate" in record["left_out"]) == (sizes.form == "llama")
    assert record["qk"]["more"]["positive_late"] == 0
    first = models[1][0]
    q, k = first.query[:, :4].double().numpy(), first.key[:, :4].double().numpy()
    expected = np.abs(np.linalg.eigvals(q @ k.T)).max()
    assert record["qk"]["trained"]["by_seed"]["1"]["largest"][0][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "run",
    [DIFFEQFORMER.model_copy(update={"depth_features": 0}), TRANSFORMER.model_copy(update={"shares_weights": True})],
)
def test_weights_shared_over_depth_have_no_rho_and_grow_by_nothing(run):
    models = {seed: model(run, seed=seed, sizes=GPT).core.layer_weights() for seed in (1, 2)}
    record = run_spectra(config(run), SETTINGS, models, models)
    for kind in ("qk", "ov", "ff"):
        own = record[kind]["trained"]
        heads = H if kind != "ff" else 1
        assert (own["rho"], own["undefined"], own["growth"], own["growth_low"]) == (None, 2 * heads, 1, 1)
        assert own["peak_late"] is None
