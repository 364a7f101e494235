"""The measurement reports what it says it reports."""

import pytest
import torch

import fresh_clone
from depthtime import paths
from depthtime.config import Decoding
from depthtime.errors import ConfigError
from depthtime.measure.decoding import decoding_differences, measure_decoding, random_lengths
from depthtime.records import read_json

SETTINGS = Decoding(
    runs=("core/discrete/1", "core/ode/1"), splits=4, batch_size=2, prefixes=(3, 12), rounds=3, threads=1
)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """The study of a fresh clone with its weights, in the current folder; prefixes are longer than the window."""
    monkeypatch.chdir(tmp_path)
    return fresh_clone.build(tmp_path).model_copy(update={"decoding": SETTINGS})


def test_differences_and_times_of_every_run_and_prefix(fresh):
    moved = []
    measure_decoding(fresh, lambda done, total: moved.append((done, total)))
    record = read_json(paths.measured("decoding"))
    for run in ("discrete", "ode"):
        row = record[run]
        assert row["run"] == f"core/{run}/1"
        assert row["splits"] == 4
        assert row["positions"] > 2 * row["window"] == 14
        assert 0 < row["max_logit_difference"] < 1e-10
        assert row["max_logit_difference"] < row["max_logit_difference_float32"] < 1e-4
        for key, texts in (("speed", 1), ("speed_batch", 2)):
            assert row[key]["texts"] == texts
            for prefix in (3, 12):
                speed = row[key][f"prefix_{prefix}"]
                assert len(speed["cached_s"]) == len(speed["recompute_s"]) == 3
                assert speed["median_cached_s"] == sorted(speed["cached_s"])[1]
                assert speed["ratio"] == pytest.approx(speed["median_cached_s"] / speed["median_recompute_s"])
    assert moved == [(done, 6) for done in range(1, 7)]


def test_differences_come_out_again(fresh):
    assert decoding_differences(fresh) == decoding_differences(fresh)


def test_trained_positions_have_no_longer_prefix(fresh):
    sizes = fresh.groups["core"].model.model_copy(update={"positions": "trained"})
    group = fresh.groups["core"].model_copy(update={"model": sizes})
    with pytest.raises(ConfigError, match="positions are trained"):
        decoding_differences(fresh.model_copy(update={"groups": {"core": group}}))


def test_random_lengths_add_up_and_vary():
    generator = torch.Generator().manual_seed(0)
    found = [random_lengths(158, generator) for _ in range(50)]
    assert all(sum(lengths) == 158 and min(lengths) >= 1 for lengths in found)
    assert {1} < {length for lengths in found for length in lengths}
    assert len({lengths[0] for lengths in found}) > 20
