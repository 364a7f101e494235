"""The generated layer integrated over depth time, held against stacks, formulas and its own solver."""

import pytest
import torch

from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.tableaus import TABLEAUS
from depthtime.models.cache import DepthCache
from small_models import CLASSES, DIFFEQFORMER, GPT, LLAMA, POSITIONS, TRANSFORMER, model
from tolerances import ROUNDING

EXACT = {"rtol": 0, "atol": ROUNDING[torch.float64]}
FORMS = pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])
TIED = TRANSFORMER.model_copy(update={"wiring": "parallel", "step_scale": "inverse_depth", "shares_weights": True})


def network(sizes=GPT, **changes):
    """In float64, with every generator far from its small start, so that weights change visibly with t."""
    found = model(DIFFEQFORMER.model_copy(update=changes), sizes=sizes).double()
    for parameter in found.core.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    return found


def _tokens(seed=1):
    return torch.randint(0, CLASSES, (3, POSITIONS), generator=torch.Generator().manual_seed(seed))


def _state():
    return torch.randn(2, POSITIONS, 16, dtype=torch.float64)


def _store(block, weights):
    """Put the weights of one depth time into a block of a stack."""
    for name, value in weights._asdict().items():
        module = getattr(block, name)
        if value is None:
            assert module is None
            continue
        module.weight.data = value[0].t().contiguous() if value[0].dim() == 2 else value[0].clone()
        if getattr(module, "bias", None) is not None:
            module.bias.data = value[1].clone()


@FORMS
def test_constant_weights_are_a_tied_parallel_stack_with_steps_of_one_over_depth(sizes):
    ode, tied = network(sizes, depth_features=0), model(TIED, sizes=sizes).double()
    tied.load_state_dict({n: t for n, t in ode.state_dict().items() if not n.startswith("core.")}, strict=False)
    _store(tied.core.blocks[0], ode.core.generate([0.5])[0])
    torch.testing.assert_close(ode(_tokens()), tied(_tokens()), **EXACT)
    assert ode.parameter_counts() == tied.parameter_counts()
    assert ode.flops_per_token(POSITIONS) == tied.flops_per_token(POSITIONS)


def test_it_is_a_parallel_stack_with_the_weights_of_each_step():
    """The gpt form, written into blocks of their own: layer k has the weights at k/L."""
    ode = network().core
    apart = model(TIED.model_copy(update={"shares_weights": False}), sizes=GPT).double().core
    for k, block in enumerate(apart.blocks, start=1):
        _store(block, ode.generate([k / 3])[0])
    y = _state()
    torch.testing.assert_close(ode(y).y, apart(y).y, rtol=0, atol=1e-10)


@FORMS
def test_the_field_is_evaluated_at_the_right_ends_of_steps(sizes, monkeypatch):
    core, y, seen = network(sizes).core, _state(), []
    field = core.vector_field
    monkeypatch.setattr(core, "vector_field", lambda t, *rest: seen.append(t) or field(t, *rest))
    solution = core(y)
    assert seen == pytest.approx([1 / 3, 2 / 3, 1])
    assert solution.nfe == solution.num_steps == 3
    assert [layer.t for layer in core.layer_weights()] == seen


@FORMS
@pytest.mark.parametrize("solver", sorted(TABLEAUS))
def test_a_solve_is_that_of_the_field_alone(sizes, solver):
    """Weights generated together for a solve are those the field generates by itself at each time."""
    core, y = network(sizes, solver=solver, num_steps=4).core, _state()
    by_hand = solve_fixed(core.vector_field, y, tableau=TABLEAUS[solver], num_steps=4)
    torch.testing.assert_close(core(y).y, by_hand.y, rtol=0, atol=1e-10)
    assert core(y).nfe == by_hand.nfe


@FORMS
def test_weights_differ_over_depth_time_and_layer_weights_are_they(sizes):
    core = network(sizes).core
    layers = core.layer_weights()
    for layer in layers:
        weights = core.generate([layer.t])[0]
        torch.testing.assert_close(torch.cat([layer.query, layer.key, layer.value], 1), weights.qkv.weight, **EXACT)
        for name in ("attention_out", "ff_in", "ff_out"):
            torch.testing.assert_close(getattr(layer, name), getattr(weights, name).weight, **EXACT)
        assert layer.query.shape == (16, 16)
        assert (layer.ff_gate is None) == (sizes.form == "gpt")
    assert (layers[0].query - layers[1].query).abs().max() > 1e-2


@FORMS
@pytest.mark.parametrize("depth_features", [0, 4])
def test_every_parameter_gets_a_gradient(sizes, depth_features):
    found = network(sizes, depth_features=depth_features)
    torch.nn.functional.cross_entropy(found(_tokens()).flatten(0, 1), _tokens(2).flatten()).backward()
    for name, parameter in found.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def _of_matrix(in_width, out_width, e, s, has_bias):
    return (e + 1) * in_width * out_width + has_bias * e * out_width + (2 * s + 1) * e + e + e * e + e


@pytest.mark.parametrize("num_steps", [2, 9])
def test_parameters_are_those_of_the_formula_whatever_the_depth(num_steps):
    d, f, e, s = 16, 24, 4, 5
    norm = 2 * d * e + (2 * s + 1) * e + e + e * e + e
    gpt = sum(_of_matrix(i, o, e, s, True) for i, o in ((d, 3 * d), (d, d), (d, f), (f, d))) + 2 * norm
    llama = sum(_of_matrix(i, o, e, s, False) for i, o in 4 * [(d, d)] + 2 * [(d, f)] + [(f, d)]) + 2 * norm
    assert network(GPT, num_steps=num_steps).parameter_counts()["core"] == gpt
    assert network(LLAMA, num_steps=num_steps).parameter_counts()["core"] == llama


@FORMS
def test_cached_positions_go_on_where_the_cache_ends(sizes):
    core, y, cache = network(sizes, solver="midpoint").core, _state(), DepthCache(POSITIONS)
    pieces = [core(piece, cache).y for piece in y.split([4, 1, 2, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), core(y).y, rtol=0, atol=1e-10)


def test_dropout_in_training_is_refused_where_a_step_has_several_stages():
    noisy = GPT.model_copy(update={"dropout": 0.1})
    core, y = network(noisy, solver="midpoint").core, _state()
    with pytest.raises(ValueError, match=r"dropout = 0.1 with solver midpoint"):
        core(y)
    assert torch.isfinite(core.eval()(y).y).all()
    assert torch.isfinite(network(noisy, solver="euler").core(y).y).all()


def test_half_precision_generates_and_integrates():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(DIFFEQFORMER, sizes=LLAMA)(_tokens())
    assert torch.isfinite(logits).all()
