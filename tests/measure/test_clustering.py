"""Clusters, cosines and ranks of known tokens, and a record that says what it reports."""

import math

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from depthtime import paths
from depthtime.config import Clustering
from depthtime.measure.clustering import (
    clustering_record,
    components,
    effective_rank,
    mean_cosine,
    measure_clustering,
)
from depthtime.records import read_json

SETTINGS = Clustering(
    dimensions=(3, 5),
    tokens=8,
    seeds=6,
    step_size=0.1,
    num_steps=21,
    record_every=5,
    threshold=0.1,
    tight_threshold=0.03,
    wide_threshold=0.3,
    few=3,
    resamples=200,
)


@pytest.fixture(scope="module")
def record():
    return clustering_record(SETTINGS)


def test_components_of_points_made_by_hand():
    chain = np.array([[0.0, 0], [0.1, 0], [0.2, 0], [0.35, 0], [5, 5]])
    assert components(chain, (0.05, 0.12, 0.2, 10.0)) == [5, 3, 2, 1]
    assert components(np.ones((4, 2)), (0.0,)) == [1]


def test_points_at_the_threshold_are_neighbours():
    assert components(np.array([[0.0], [0.5]]), (0.5, math.nextafter(0.5, 0))) == [1, 2]


def test_components_are_those_of_the_graph_of_neighbours():
    points = np.random.default_rng(0).uniform(-1, 1, (60, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    for threshold in (0.1, 0.3, 0.45, 0.7):
        count, _ = connected_components(distances <= threshold)
        assert components(points, (threshold,)) == [count]
        assert 1 <= count < 60 or threshold == 0.1


def test_effective_rank_of_known_matrices():
    line = np.outer([1.0, -2, 3], [1.0, 1, -1, 0])
    orthonormal = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 4)))[0].T
    halves = np.diag([3.0, 1.0])  # shares 3/4 and 1/4
    assert effective_rank(line[None]) == pytest.approx([1])
    assert effective_rank(np.stack([orthonormal, 7 * orthonormal])) == pytest.approx([4, 4])
    assert effective_rank(halves[None]) == pytest.approx([4 / 3**0.75])


def test_mean_cosine_is_that_of_all_pairs():
    tokens = np.random.default_rng(2).normal(size=(2, 7, 3))
    units = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    pairs = [[units[s, i] @ units[s, j] for i in range(7) for j in range(i)] for s in range(2)]
    assert mean_cosine(tokens) == pytest.approx(np.mean(pairs, axis=1))
    assert mean_cosine(np.array([[[1.0, 0], [5, 0], [-2, 0]]])) == pytest.approx([-1 / 3])


def test_a_record_holds_every_width_and_choice_and_can_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moved = []
    study = type("Study", (), {"clustering": SETTINGS})
    measure_clustering(study, lambda done, total: moved.append((done, total)))
    record = read_json(paths.measured("clustering"))
    count = len(record["choices"])
    assert moved == [(done, 2 * count) for done in range(1, 2 * count + 1)]
    assert record["times"] == [0, 0.5, 1, 1.5, 2, 2.1]
    for width in ("d3", "d5"):
        assert set(record[width]) == set(record["choices"])
        for cell in record[width].values():
            assert all(len(line) == 6 for curve in cell["curve"].values() for line in curve.values())


def test_summaries_are_those_of_the_seeds(record):
    for cell in record["d3"].values():
        ends, found = cell["by_seed"], cell["components"]
        assert found["median"] == np.median(ends) == cell["curve"]["components"]["median"][-1]
        assert found["mean"] == pytest.approx(np.mean(ends))
        assert (found["smallest"], found["largest"]) == (min(ends), max(ends))
        for name in ("median", "mean"):
            assert found["smallest"] <= found[f"{name}_low"] <= found[name] <= found[f"{name}_high"] <= found["largest"]
        assert cell["few"]["share"] == sum(n <= 3 for n in ends) / 6
        assert cell["components_tight"]["mean"] >= found["mean"] >= cell["components_wide"]["mean"]


def test_changing_weights_are_paired_with_constant_ones_by_seed(record):
    cells = record["d3"]
    for key, control in (("more", "gaussian"), ("more_than_weak", "gaussian_weak")):
        more = np.subtract(cells["g_t"]["by_seed"], cells[control]["by_seed"])
        assert more.any()
        assert cells["g_t"][key]["mean"] == pytest.approx(more.mean())
        assert cells["g_t"][key]["mean_low"] <= more.mean() <= cells["g_t"][key]["mean_high"]
    assert "more" not in cells["gaussian"]


def test_all_choices_start_from_the_same_tokens(record):
    starts = {name: cell["curve"]["cosine"]["median"][0] for name, cell in record["d3"].items()}
    assert len({start for name, start in starts.items() if name != "rescaled"}) == 1


def test_total_g_is_the_integral_of_the_weights(record):
    totals = {name: cell["total_g"] for name, cell in record["d3"].items()}
    assert totals["gaussian"] == pytest.approx(2.1)
    assert totals["g_t"] == pytest.approx(0.1 * sum(k / 10 for k in range(21)))
    assert totals["g_cos"] == totals["g_abs_cos"] > 0


def test_forty_tokens_in_three_dimensions_end_as_known():
    long = {"dimensions": (3,), "tokens": 40, "num_steps": 101, "record_every": 101, "resamples": 2}
    cells = clustering_record(SETTINGS.model_copy(update=long))["d3"]
    ends = {name: cell["components"]["median"] for name, cell in cells.items()}
    assert ends["identity"] == ends["g_t2"] == ends["g_t4"] == 2
    assert min(ends["g_cos"], ends["gaussian_weak"], ends["repelling"]) > 15
    assert cells["gaussian_weak"]["total_g"] == pytest.approx(cells["g_late"]["total_g"], rel=0.02)


def test_the_same_settings_give_the_same_record(record):
    assert clustering_record(SETTINGS) == record
