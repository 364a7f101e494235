"""Layers that start from generated weights, with and without adapters, held against the model they come from."""

import math

import pytest
import torch

from depthtime.generate.decoder import recompute
from depthtime.measure.decoding import cached
from depthtime.models import converted, pretrained
from depthtime.models.adapters import ADAPTED
from depthtime.train.loop import fit
from depthtime.train.optim import build_optimizer
from small_models import (
    CLASSES,
    CONVERTED,
    DIFFEQFORMER,
    FAITHFUL,
    GPT,
    POSITIONS,
    PRETRAINED,
    RECIPE,
    STANDARD,
    TRANSFORMER,
    assert_logits_ignore_later_tokens,
    model,
    windows,
)
from tolerances import ROUNDING

EXACT = {"rtol": 0, "atol": 10 * ROUNDING[torch.float64]}
NEAR = {"rtol": 0, "atol": 1e-8}  # an adapter of the faithful start adds about 1e-12 to a weight
RUNS = pytest.mark.parametrize("run", [CONVERTED, FAITHFUL, STANDARD], ids=["full", "faithful", "standard"])
ADAPTERS = pytest.mark.parametrize("run", [FAITHFUL, STANDARD], ids=["faithful", "standard"])


def trained(run=DIFFEQFORMER, seed=1):
    """A model in float64 with every weight far from its start, so that generated weights change with t."""
    found = model(run, sizes=GPT, seed=seed).double()
    for parameter in found.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    return found


def started(run=CONVERTED, source=None, **changes):
    """The model of a row, in float64, after it took the weights of a trained one."""
    found = model(run.model_copy(update=changes), sizes=GPT).double()
    converted.start(found, trained() if source is None else source)
    return found


def _tokens(batch=3, length=POSITIONS, seed=1):
    return torch.randint(0, CLASSES, (batch, length), generator=torch.Generator().manual_seed(seed))


def _loss(network):
    logits = network(_tokens(8))
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), _tokens(8, seed=2).flatten())


def _adapters(network):
    return [block.get_submodule(name) for block in network.core.blocks for name in ADAPTED]


@RUNS
def test_at_its_own_depth_the_conversion_is_the_model(run):
    torch.testing.assert_close(started(run)(_tokens()), trained()(_tokens()), **(NEAR if run == FAITHFUL else EXACT))


@RUNS
@pytest.mark.parametrize("num_steps", [1, 2, 5, 49])  # floor(1 / (1 / 49)) is 48
def test_at_any_depth_it_is_the_model_solved_in_so_many_steps(run, num_steps):
    ode = trained()
    ode.core.run = ode.core.run.model_copy(update={"num_steps": num_steps})
    stack = started(run, num_steps=num_steps)
    torch.testing.assert_close(stack(_tokens()), ode(_tokens()), **(NEAR if run == FAITHFUL else EXACT))
    assert stack.solve(_tokens()).nfe == num_steps
    assert stack.flops_per_token(POSITIONS) == ode.flops_per_token(POSITIONS)


def test_constant_weights_give_a_tied_stack():
    tied = TRANSFORMER.model_copy(update={"wiring": "parallel", "step_scale": "inverse_depth", "shares_weights": True})
    source = trained(DIFFEQFORMER.model_copy(update={"depth_features": 0}))
    stack, expected = started(source=source), model(tied, sizes=GPT).double()
    own = stack.state_dict()
    expected.load_state_dict({name: own[name] for name in expected.state_dict()})
    torch.testing.assert_close(stack(_tokens()), expected(_tokens()), **EXACT)
    for name, value in own.items():
        if name.startswith("core.blocks.0."):
            assert torch.equal(value, own[name.replace("blocks.0.", "blocks.2.")]), name


def test_layers_are_independent_after_a_step():
    """Layers with equal weights are no longer equal, and a change to one leaves the others and the source alone."""
    source = trained(DIFFEQFORMER.model_copy(update={"depth_features": 0}))
    before = {name: t.clone() for name, t in source.state_dict().items()}
    stack = started(source=source)
    first, last = (stack.core.blocks[i].ff_in.weight for i in (0, 2))
    assert torch.equal(first, last)
    _loss(stack).backward()
    build_optimizer(stack, RECIPE).step()
    assert not torch.equal(first, last)
    assert all(torch.equal(t, before[name]) for name, t in source.state_dict().items())


@RUNS
def test_logits_ignore_later_tokens(run):
    network = model(run, sizes=GPT)
    converted.start(network, trained().float())
    assert_logits_ignore_later_tokens(network, _tokens())


@RUNS
def test_decoding_gives_the_logits_of_full_passes(run):
    network, tokens = started(run), _tokens(2, 2 * POSITIONS)
    torch.testing.assert_close(cached(network, tokens, [5, 1, 1, 10, 1]), recompute(network, tokens), rtol=0, atol=1e-9)


@ADAPTERS
def test_an_adapter_with_zero_factors_is_the_identity(run):
    network = started(run)
    for adapter in _adapters(network):
        adapter.down.data.zero_()
        adapter.up.data.zero_()
        assert torch.equal(adapter.weight, adapter.base.weight)
    assert torch.equal(network(_tokens()), started()(_tokens()))


@ADAPTERS
def test_an_adapter_adds_a_product_of_its_rank_scaled_by_alpha_over_rank(run):
    adapter = _adapters(started(run))[0]
    adapter.down.data.normal_()
    adapter.up.data.normal_()
    change = adapter.weight - adapter.base.weight
    torch.testing.assert_close(change, 8.0 / 2 * adapter.up @ adapter.down)
    assert torch.linalg.matrix_rank(change) == 2


@ADAPTERS
def test_adapters_and_embeddings_are_trained_and_nothing_else(run):
    network = model(run, sizes=GPT)
    converted.start(network, trained().float())
    before = {name: t.clone() for name, t in network.state_dict().items()}
    fit(network, windows(), windows(9, seed=1), RECIPE, seed=0)
    moved = {name for name, t in network.state_dict().items() if not torch.equal(t, before[name])}
    around = {"embedding.weight", "position_table"}
    assert moved == around | {name for name in before if name.endswith((".down", ".up"))}
    assert len(moved) == 2 + 3 * 4 * 2


def test_full_fine_tuning_trains_everything():
    network = model(CONVERTED, sizes=GPT)
    converted.start(network, trained().float())
    before = {name: t.clone() for name, t in network.state_dict().items()}
    fit(network, windows(), windows(9, seed=1), RECIPE, seed=0)
    assert not [name for name, t in network.state_dict().items() if torch.equal(t, before[name])]


def test_the_faithful_start_has_vanishing_gradients_at_both_factors_but_adam_moves():
    """A step is as large as the learning rate, a thousand times what the factors start with."""
    network, full = started(FAITHFUL), started()
    _loss(network).backward()
    _loss(full).backward()
    adapters = _adapters(network)
    of_matrix = full.core.blocks[0].qkv.weight.grad.abs().max()
    for factor in (adapters[0].down, adapters[0].up):
        assert 0 < factor.grad.abs().max() < 1e-3 * of_matrix
    before = adapters[0].up.detach().clone()
    build_optimizer(network, RECIPE.model_copy(update={"learning_rate": 1e-3})).step()
    assert (adapters[0].up - before).abs().median().item() == pytest.approx(1e-3, rel=0.2)


def test_the_standard_start_has_a_gradient_at_the_factor_that_is_0():
    network = started(STANDARD)
    _loss(network).backward()
    adapter = _adapters(network)[0]
    assert not adapter.up.any()
    assert adapter.up.grad.abs().max() > 1e-4
    assert not adapter.down.grad.any()
    assert adapter.down.abs().max() <= math.sqrt(1 / 16)


def test_weight_decay_acts_on_all_that_is_trained():
    for run in (CONVERTED, FAITHFUL, PRETRAINED):
        network = model(run, sizes=GPT)
        optimizer = build_optimizer(network, RECIPE.model_copy(update={"weight_decay": 0.1}))
        (group,) = optimizer.param_groups
        assert group["weight_decay"] == 0.1
        assert len(group["params"]) == sum(p.requires_grad for p in network.parameters())


def test_parameters_say_what_is_trained_and_what_is_frozen():
    full, lora = (model(run, sizes=GPT).parameter_counts() for run in (CONVERTED, STANDARD))
    d, f = GPT.width, GPT.ff_width
    adapters = 3 * 2 * (4 * d + 2 * d + (d + f) + (f + d))
    assert lora["core"] == adapters
    assert lora["total"] == adapters + (CLASSES + POSITIONS) * d
    assert lora["total"] + lora["frozen"] == full["total"] + adapters
    assert "frozen" not in full


@pytest.mark.parametrize("adapters", [{}, {"adapt": "lora", "rank": 2, "alpha": 8.0, "lora_init": "standard"}])
def test_a_pretrained_transformer_is_the_one_it_starts_from(adapters):
    run = PRETRAINED.model_copy(update=adapters)
    source, network = trained(TRANSFORMER), model(run, sizes=GPT, seed=7).double()
    assert not torch.equal(network(_tokens()), source(_tokens()))
    pretrained.start(network, source)
    assert torch.equal(network(_tokens()), source(_tokens()))
    assert len(_adapters(network)) == 12
    if not adapters:
        assert network.parameter_counts() == source.parameter_counts()
