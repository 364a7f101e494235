"""A core taken apart into steps is the core, and its attention maps are what it multiplies values with."""

import pytest
import torch

from depthtime.errors import ConfigError
from depthtime.measure.depth_steps import attention_map, attention_maps, left_steps, steps_of, weights_of
from depthtime.measure.lyapunov import flow_jacobian, orthonormal, tangent_flow, trajectory
from depthtime.models import pre_norm
from small_models import DIFFEQFORMER, GPT, LLAMA, ODE, TRANSFORMER, model
from tolerances import HALF_DIGITS, ROUNDING

PARALLEL = TRANSFORMER.model_copy(update={"wiring": "parallel", "step_scale": "inverse_depth"})
SCALED = TRANSFORMER.model_copy(update={"step_scale": "inverse_depth"})
SHARED = TRANSFORMER.model_copy(update={"shares_weights": True})
LEFT = DIFFEQFORMER.model_copy(update={"solver": "euler"})
CONSTANT = DIFFEQFORMER.model_copy(update={"depth_features": 0})
RUNS = {"right": DIFFEQFORMER, "left": LEFT, "constant": CONSTANT, "gpt": TRANSFORMER, "parallel": PARALLEL}
RUNS |= {"scaled": SCALED, "shared": SHARED}


def small(run, sizes=GPT):
    """A model in float64 whose weights are large enough to curve its steps."""
    network = model(run, sizes=sizes).double().eval().requires_grad_(False)
    draw = torch.Generator().manual_seed(1)
    for parameter in network.core.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return network


def state(network, words=(3, 1, 7, 2)):
    return network.embed(torch.tensor([list(words)]))[0]


@pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize("name", RUNS)
def test_the_steps_end_where_the_core_ends(name, sizes):
    network = small(RUNS[name], sizes)
    y = state(network)
    end = trajectory(steps_of(network.core), y)[-1]
    assert torch.allclose(end, network.core(y[None]).y[0], atol=ROUNDING[torch.float64])
    assert (end - y).abs().max() > 0.1


@pytest.mark.parametrize("name", ["right", "gpt"])
@pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])
def test_forward_and_reverse_mode_agree_on_what_a_token_does(name, sizes):
    network = small(RUNS[name], sizes)
    y, steps = state(network), steps_of(network.core)
    states, seeds = trajectory(steps, y), orthonormal(16, 5)
    jacobian = flow_jacobian(steps, y, 3)
    flow = tangent_flow(steps, states[:-1], seeds, tokens=range(4), output=3)
    assert torch.allclose(flow.at_output, jacobian @ seeds, atol=1e-11)


@pytest.mark.parametrize("name", ["right", "gpt"])
def test_a_small_change_of_a_word_does_to_the_output_what_the_flow_says(name):
    network = small(RUNS[name])
    y, eps = state(network), 1e-6
    jacobian = flow_jacobian(steps_of(network.core), y, 3)
    change = torch.zeros_like(y)
    change[1] = eps * orthonormal(16, 1)[:, 0]
    ends = [network.core((y + sign * change)[None]).y[0, 3] for sign in (1, -1)]
    moved = (ends[0] - ends[1]) / (2 * eps)
    assert torch.allclose(jacobian[1] @ change[1] / eps, moved, atol=HALF_DIGITS[torch.float64])


@pytest.mark.parametrize("name", ["right", "gpt"])
def test_a_later_word_does_nothing_to_an_earlier_output(name):
    network = small(RUNS[name])
    jacobian = flow_jacobian(steps_of(network.core), state(network), 1)
    assert torch.equal(jacobian[2:], torch.zeros(2, 16, 16, dtype=torch.float64))
    assert jacobian[:2].abs().amax(dim=(1, 2)).min() > 0


def test_left_steps_have_the_weights_of_the_beginning_of_each_step():
    """Those of Euler with the left end; a stack has no weights between its layers."""
    right, left = small(DIFFEQFORMER), small(LEFT)
    y = state(right)
    for a, b in zip(left_steps(right.core), steps_of(left.core), strict=True):
        assert torch.allclose(a.field(y), b.field(y), atol=ROUNDING[torch.float64])
    assert not torch.allclose(left_steps(right.core)[1].field(y), steps_of(right.core)[1].field(y))
    shifted, first = left_steps(right.core)[1].field(y), steps_of(right.core)[0].field(y)
    assert torch.allclose(shifted, first, atol=ROUNDING[torch.float64])
    assert left_steps(small(TRANSFORMER).core) is None


@pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize("name", ["right", "gpt"])
def test_attention_maps_times_values_are_the_attention_of_the_model(name, sizes):
    network = small(RUNS[name], sizes)
    y = state(network)
    states = trajectory(steps_of(network.core), y)
    maps = attention_maps(network.core, states)
    assert len(maps) == len(states) - 1
    for each, weights, at in zip(maps, weights_of(network.core), states, strict=False):
        x = pre_norm.normalise(sizes, weights.norm1, at)
        values = x @ weights.qkv.weight[:, 32:] + (0 if weights.qkv.bias is None else weights.qkv.bias[32:])
        mixed = (each @ values.view(4, 4, 4).transpose(0, 1)).transpose(0, 1).reshape(4, 16)
        out = mixed @ weights.attention_out.weight
        out = out + (0 if weights.attention_out.bias is None else weights.attention_out.bias)
        expected = pre_norm.attention(sizes, weights, x[None], None)[0]
        assert torch.allclose(out, expected, atol=ROUNDING[torch.float64])
        assert torch.equal(each.triu(1), torch.zeros_like(each))


def test_a_map_of_one_position_looks_at_itself():
    network = small(DIFFEQFORMER)
    weights = weights_of(network.core)[0]
    assert torch.equal(attention_map(GPT, weights, state(network, (3,))), torch.ones(4, 1, 1, dtype=torch.float64))


@pytest.mark.parametrize("run", [ODE, DIFFEQFORMER.model_copy(update={"solver": "rk4"})], ids=["post-norm", "rk4"])
def test_cores_without_such_steps_are_refused(run):
    network = model(run) if run is ODE else model(run, sizes=GPT)
    with pytest.raises(ConfigError, match=r"sensitivity.runs: .*expected"):
        steps_of(network.core)
