"""The fused solve against its simple twin, ContinuousDepth."""

import copy

import numpy as np
import pytest
import torch

from depthtime.config import ContinuousRun, FusedRun
from depthtime.errors import SolveError
from depthtime.integrate.tableaus import EULER, HEUN2, MIDPOINT, RK4, TABLEAUS
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import DepthCache
from depthtime.models.continuous import ContinuousDepth
from depthtime.models.fused import FusedContinuousDepth, fused_solve
from depthtime.train.loop import train_step
from depthtime.train.optim import build_optimizer
from small_models import ODE, POSITIONS, RECIPE, model, windows

WIDTH, HEADS, FF_WIDTH = 16, 4, 24
RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-10}
SCHEMES = pytest.mark.parametrize("tableau", [EULER, MIDPOINT, HEUN2, RK4], ids=lambda t: t.name)


def _block(dtype=torch.float64, width=WIDTH, heads=HEADS, ff_width=FF_WIDTH):
    """A block whose biases, gains and shifts are not at their start, where some gradients would be too simple."""
    block = PostNormBlock(width, heads, ff_width).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return block


def _state(dtype=torch.float64, batch=3, positions=POSITIONS, width=WIDTH):
    return torch.randn(batch, positions, width, dtype=dtype, requires_grad=True)


def _results(solve, block, y, cotangent):
    """Output, and gradients of the state and all parameters, by name."""
    output = solve(y).y
    gradients = torch.autograd.grad(output, [y, *block.parameters()], cotangent)
    return dict(zip(["output", "y0", *dict(block.named_parameters())], [output.detach(), *gradients], strict=True))


def _assert_equal(found, expected, relative):
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape, name
        assert (found[name] - wanted).norm() <= relative * wanted.norm(), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("num_steps", [1, 2, 3])
@SCHEMES
def test_output_and_all_gradients_equal_those_of_the_plain_solve(tableau, num_steps, dtype):
    block, y, cotangent = _block(dtype), _state(dtype), _state(dtype).detach()
    plain, fused = (kind(block, tableau, num_steps, 0.0, 1.0) for kind in (ContinuousDepth, FusedContinuousDepth))
    _assert_equal(_results(fused, block, y, cotangent), _results(plain, block, y, cotangent), RELATIVE[dtype])


@pytest.mark.parametrize("tableau", TABLEAUS.values(), ids=lambda t: t.name)
def test_every_scheme_is_equal_on_another_interval_at_published_sizes(tableau):
    block, y = _block(width=128, heads=4, ff_width=512), _state(batch=2, positions=63, width=128)
    plain, fused = (kind(block, tableau, 2, 0.5, 2.0) for kind in (ContinuousDepth, FusedContinuousDepth))
    cotangent = torch.randn_like(y)
    _assert_equal(_results(fused, block, y, cotangent), _results(plain, block, y, cotangent), 1e-10)


@pytest.mark.parametrize(("batch", "positions"), [(1, 1), (2, 16), (5, 17)])
def test_any_window_and_batch_is_equal(batch, positions):
    block, y = _block(), _state(batch=batch, positions=positions)
    plain, fused = (kind(block, RK4, 1, 0.0, 1.0) for kind in (ContinuousDepth, FusedContinuousDepth))
    cotangent = torch.randn_like(y)
    _assert_equal(_results(fused, block, y, cotangent), _results(plain, block, y, cotangent), 1e-10)


def test_gradients_agree_with_finite_differences():
    block, y = _block(width=4, heads=2, ff_width=3), _state(batch=1, positions=3, width=4)
    parameters = dict(block.named_parameters())

    def solve(state, *values):
        for name, value in zip(parameters, values, strict=True):
            owner, _, leaf = name.rpartition(".")
            module = block.get_submodule(owner)
            module._parameters.pop(leaf, None)
            setattr(module, leaf, value)
        return fused_solve(block, state, tableau=HEUN2, num_steps=2, t0=0.0, t1=1.0).y

    torch.autograd.gradcheck(solve, (y, *parameters.values()))


def test_without_gradients_the_result_is_the_same_and_nothing_is_kept():
    block, y = _block(), _state()
    fused = FusedContinuousDepth(block, RK4, 2, 0.0, 1.0)
    with torch.no_grad():
        alone = fused(y).y
    assert torch.equal(alone, fused(y).y)
    assert not alone.requires_grad
    assert {tape.keeps: len(set(tape.slots)) for tape in fused.pool.tapes} == {False: 1, True: 8}


def test_weights_are_interchangeable():
    plain, fused = (kind(_block(), RK4, 4, 0.0, 1.0) for kind in (ContinuousDepth, FusedContinuousDepth))
    assert list(plain.state_dict()) == list(fused.state_dict())
    fused.load_state_dict(plain.state_dict())
    y = _state()
    torch.testing.assert_close(fused(y).y, plain(y).y, rtol=1e-10, atol=1e-10)
    assert (fused(y).nfe, fused(y).num_steps) == (plain(y).nfe, plain(y).num_steps) == (16, 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_earlier_positions_ignore_later_ones(dtype):
    fused, y = FusedContinuousDepth(_block(dtype), RK4, 2, 0.0, 1.0), _state(dtype)
    before = fused(y).y
    for j in range(1, POSITIONS):
        changed = y.detach().clone().requires_grad_()
        with torch.no_grad():
            changed[:, j:] += 1 + torch.rand_like(changed[:, j:])
        after = fused(changed).y
        assert torch.equal(after[:, :j], before[:, :j]), j
        assert not torch.equal(after[:, j], before[:, j])


def test_solves_that_live_at_once_do_not_share_memory():
    block, first, second = _block(), _state(), _state()
    fused = FusedContinuousDepth(block, RK4, 2, 0.0, 1.0)
    alone = [torch.autograd.grad(fused(y).y.sum(), block.ff_in.weight)[0] for y in (first, second)]
    together = torch.autograd.grad(fused(first).y.sum() + fused(second).y.sum(), block.ff_in.weight)[0]
    torch.testing.assert_close(together, alone[0] + alone[1], rtol=1e-10, atol=1e-10)


def test_backward_can_run_twice_and_memory_comes_back():
    block, y = _block(), _state()
    fused = FusedContinuousDepth(block, RK4, 2, 0.0, 1.0)
    output = fused(y).y
    once, again = (torch.autograd.grad(output.sum(), y, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, again)
    assert not fused.pool.tapes
    del output
    (tape,) = fused.pool.tapes
    assert torch.equal(torch.autograd.grad(fused(y).y.sum(), y)[0], once)
    assert fused.pool.tapes == [tape]


def test_weights_changed_before_backward_are_noticed():
    block, y = _block(), _state()
    output = FusedContinuousDepth(block, RK4, 1, 0.0, 1.0)(y).y
    with torch.no_grad():
        block.ff_in.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_autocast_and_decoding_take_the_plain_solve():
    block, y = _block(torch.float32), _state(torch.float32)
    plain, fused = (kind(block, RK4, 2, 0.0, 1.0) for kind in (ContinuousDepth, FusedContinuousDepth))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(fused(y).y, plain(y).y)
    with torch.no_grad():
        assert torch.equal(fused(y, DepthCache(POSITIONS)).y, plain(y, DepthCache(POSITIONS)).y)


def test_a_copy_of_the_model_has_its_own_memory():
    fused = FusedContinuousDepth(_block(), RK4, 1, 0.0, 1.0)
    fused(_state())
    assert fused.pool.tapes
    assert not copy.deepcopy(fused).pool.tapes


def test_no_steps_are_refused():
    with pytest.raises(SolveError, match="num_steps = 0"):
        fused_solve(_block(), _state(), tableau=RK4, num_steps=0, t0=0.0, t1=1.0)


def test_a_row_of_its_kind_starts_and_trains_as_the_plain_model():
    """`model: fused` in params.yaml: the same initial weights, and the same losses to rounding."""
    losses = {}
    for kind, row in (("continuous", ContinuousRun), ("fused", FusedRun)):
        network = model(row(**{**ODE.model_dump(), "model": kind}))
        optimizer = build_optimizer(network, RECIPE)
        batch = windows(8).take(np.arange(8))
        tokens, targets = (torch.from_numpy(a) for a in batch)
        losses[kind] = [train_step(network, optimizer, tokens, targets, RECIPE)[0] for _ in range(5)]
    assert losses["fused"] == pytest.approx(losses["continuous"], rel=1e-5)
    assert losses["fused"][-1] < losses["fused"][0]
