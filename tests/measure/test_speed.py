"""What the speed of a step is held against is what it says, and the ratios are the right way up."""

import pytest
import torch

from depthtime.config import ConfigError, load_params
from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.tableaus import RK4, RK4_38
from depthtime.measure.profile import profile
from depthtime.measure.speed import NoDepth, TorchdiffeqDepth, measure_speed, ratios_of
from depthtime.models.block import PostNormBlock
from tolerances import ROUNDING


def test_the_twin_through_torchdiffeq_is_the_three_eighths_rule_in_as_many_steps():
    block, y = PostNormBlock(16, 4, 24).double(), torch.randn(2, 5, 16, dtype=torch.float64)
    calls = []
    block.register_forward_hook(lambda *_: calls.append(1))
    solution = TorchdiffeqDepth(block, RK4, 3, 0.5, 2.0)(y)
    assert solution.nfe == len(calls) == 12
    ours = solve_fixed(lambda t, s: block(s), y, tableau=RK4_38, num_steps=3, t0=0.5, t1=2.0).y
    torch.testing.assert_close(solution.y, ours, rtol=0, atol=ROUNDING[torch.float64])


def test_no_depth_is_the_identity():
    y = torch.randn(2, 3)
    assert NoDepth()(y).y is y


def test_ratios_by_hand():
    """A fused step of 8 s against 3 blocks of 2 s and a head of 1 s; 10 s through torchdiffeq; 4 operations of 16."""
    seconds = {"fused": 8.0, "plain": 9.0, "torchdiffeq": 10.0, "discrete": 4.0, "head": 1.0, "block": 2.0, "peak": 2.0}
    flops = {"fused": 32.0, "plain": 32.0, "torchdiffeq": 32.0, "discrete": 8.0, "peak": 32.0}
    found = ratios_of(seconds, flops, 3)
    assert found["step_over_parts"] == pytest.approx(8 / 7)
    assert found["step_over_torchdiffeq"] == pytest.approx(0.8)
    assert found["share_of_peak"] == pytest.approx(4 / 16)
    assert found["step_over_discrete"] == pytest.approx(2)
    assert found["fused_over_plain"] == pytest.approx(8 / 9)
    assert found["plain_step_over_parts"] == pytest.approx(9 / 7)
    assert found["discrete_share_of_peak"] == pytest.approx(2 / 16)


def test_a_profile_finds_the_kind_that_takes_the_time():
    one = torch.randn(300, 300)
    shares = profile(lambda: one @ one)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["matrix products"] > 0.5
    assert max(shares, key=shares.__getitem__) == "matrix products"


def test_a_bench_of_the_small_study_holds_every_ratio_that_claims_read(study, monkeypatch):
    monkeypatch.chdir(study.folder)
    params = load_params()
    found = measure_speed(params)
    assert found["nfe"] == 4
    for name in ("step_over_parts", "step_over_torchdiffeq", "share_of_peak"):
        low, high = found["spread"][name]
        assert 0 < low <= found[name] <= high
    both = found["side_by_side"]
    assert both is None or both["ratio"] > 0


def test_another_model_cannot_be_taken_apart(study, monkeypatch):
    monkeypatch.chdir(study.folder)
    params = load_params()
    bench = params.bench.model_copy(update={"speed": "core/discrete"})
    with pytest.raises(ConfigError, match=r"bench.speed = 'core/discrete': expected `model: continuous`, solver rk4"):
        measure_speed(params.model_copy(update={"bench": bench}))
