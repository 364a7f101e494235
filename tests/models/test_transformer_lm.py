"""The language models around pre-norm cores, in both forms."""

import copy

import pytest
import torch
from torch import nn

from depthtime.generate.decoder import Decoder, recompute
from depthtime.measure.decoding import cached
from depthtime.train.checkpoint import dump_weights, load_weights
from depthtime.train.optim import build_optimizer
from small_models import (
    CLASSES,
    DIFFEQFORMER,
    GPT,
    LLAMA,
    POSITIONS,
    RECIPE,
    TRANSFORMER,
    assert_logits_ignore_later_tokens,
    model,
)

FORMS = pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])
RUNS = pytest.mark.parametrize("run", [TRANSFORMER, DIFFEQFORMER], ids=["transformer", "diffeqformer"])
NOISY = {"dropout": 0.3}


def _tokens(batch=3, length=POSITIONS, seed=1):
    return torch.randint(0, CLASSES, (batch, length), generator=torch.Generator().manual_seed(seed))


@FORMS
@RUNS
def test_logits_ignore_later_tokens(run, sizes):
    assert_logits_ignore_later_tokens(model(run, sizes=sizes), _tokens())


@FORMS
@RUNS
def test_decoding_gives_the_logits_of_full_passes_also_beyond_the_window(run, sizes):
    network, tokens = model(run, sizes=sizes).double(), _tokens(2, 3 * POSITIONS)
    expected = recompute(network, tokens)
    for lengths in ([27], [1] * 27, [5, 1, 1, 10, 4, 6]):
        torch.testing.assert_close(cached(network, tokens, lengths), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(Decoder(network).feed_last(tokens), expected[:, -1], rtol=0, atol=1e-10)


def test_the_gpt_form_has_a_longest_window_and_the_llama_form_has_not():
    tokens = _tokens(1, POSITIONS + 1)
    with pytest.raises(ValueError, match="window of 10 positions, the model was built for 9"):
        model(TRANSFORMER, sizes=GPT)(tokens)
    assert model(TRANSFORMER, sizes=LLAMA)(tokens).shape == (1, POSITIONS + 1, CLASSES)
    assert "position_table" not in model(TRANSFORMER, sizes=LLAMA).state_dict()


@FORMS
def test_models_of_one_seed_start_from_the_same_embedding_and_head(sizes):
    first, second = (model(run, sizes=sizes, seed=3) for run in (TRANSFORMER, DIFFEQFORMER))
    other = model(DIFFEQFORMER, sizes=sizes, seed=4)
    for name in [n for n, _ in first.named_parameters() if not n.startswith(("core.", "norm."))]:
        assert torch.equal(first.state_dict()[name], second.state_dict()[name])
        assert not torch.equal(first.state_dict()[name], other.state_dict()[name])


def test_a_tied_head_reads_the_embedding_counts_once_and_follows_copies(tmp_path):
    network = model(TRANSFORMER, sizes=GPT)
    counts = network.parameter_counts()
    assert (counts["embedding"], counts["head"]) == (CLASSES * 16, 0)
    assert counts["other"] == POSITIONS * 16 + 2 * 16
    assert counts["total"] == sum(p.numel() for p in network.parameters())
    twin = copy.deepcopy(network).double()
    twin.embedding.weight.data.mul_(2)
    y = torch.randn(1, 2, 16, dtype=torch.float64)
    torch.testing.assert_close(twin.head(y), 2 * network.double().head(y))
    (tmp_path / "weights").write_bytes(dump_weights(network))
    fresh = model(TRANSFORMER, sizes=GPT, seed=5).double()
    load_weights(tmp_path / "weights", fresh)
    assert torch.equal(fresh(_tokens()), network(_tokens()))


def test_both_forms_start_as_published():
    wide = {"width": 64, "heads": 4}
    gpt = model(TRANSFORMER, sizes=GPT.model_copy(update=wide), num_classes=3000, max_positions=500)
    llama = model(TRANSFORMER, sizes=LLAMA.model_copy(update=wide), num_classes=3000)
    for weight, std in (
        (gpt.embedding.weight, 0.02), (gpt.position_table, 0.01), (llama.embedding.weight, 1.0),
        (llama.head.weight, 0.02),
    ):  # fmt: skip
        assert weight.std().item() == pytest.approx(std, rel=0.03)
    assert isinstance(gpt.norm, nn.LayerNorm)
    assert isinstance(llama.norm, nn.RMSNorm)
    assert llama.head.bias is None


@FORMS
@RUNS
def test_the_head_reads_normalised_states(run, sizes):
    network = model(run, sizes=sizes).double()
    y = network.solve(_tokens()).y
    torch.testing.assert_close(y.square().mean(-1), torch.ones_like(y[..., 0]), rtol=0, atol=0.2)
    torch.testing.assert_close(network.head(y), network(_tokens()), rtol=0, atol=0)


@FORMS
@RUNS
def test_dropout_acts_in_training_only(run, sizes):
    noisy, plain = model(run, sizes=sizes.model_copy(update=NOISY)), model(run, sizes=sizes)
    assert not torch.equal(noisy(_tokens()), noisy(_tokens()))
    torch.testing.assert_close(noisy.eval()(_tokens()), plain(_tokens()), rtol=0, atol=0)


@RUNS
def test_dropout_is_on_embedding_and_on_both_branches(run):
    """At p = 0.3 about a third of the embedding is 0, and a ninth of the sum of two branches in one layer."""
    once = {"layers": 1} if run is TRANSFORMER else {"num_steps": 1}
    row = run.model_copy(update=once | ({"wiring": "parallel"} if run is TRANSFORMER else {}))
    network = model(row, sizes=GPT.model_copy(update=NOISY)).double()
    assert (network.embed(_tokens(30)) == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)
    y = torch.randn(30, POSITIONS, 16, dtype=torch.float64)
    assert (network.core(y).y == y).double().mean().item() == pytest.approx(0.09, abs=0.02)


def test_forward_operations_count_layers_head_and_attention():
    """12 D^2 with F = 4 D, here 4 D^2 + 2 D F, two operations each; llama has a third feed-forward matrix."""
    layer = 4 * 16 * 16 + 2 * 16 * 24
    assert model(TRANSFORMER, sizes=GPT).flops_per_token(9) == 3 * (2 * layer + 4 * 9 * 16) + 2 * 16 * CLASSES
    llama = 3 * (2 * (layer + 16 * 24) + 4 * 9 * 16) + 2 * 16 * CLASSES
    assert model(DIFFEQFORMER, sizes=LLAMA).flops_per_token(9) == llama


GENERATORS = {"decays_generators": True}


@pytest.mark.parametrize(
    ("run", "sizes", "inside", "outside"),
    [
        (
            TRANSFORMER, GPT,
            {"embedding.weight", "position_table", "core.blocks.0.qkv.weight", "core.blocks.2.ff_out.weight"},
            {"norm.weight", "core.blocks.0.norm1.weight", "core.blocks.0.qkv.bias", "core.blocks.1.ff_in.bias"},
        ),
        (
            TRANSFORMER, LLAMA,
            {"embedding.weight", "core.blocks.0.attention_out.weight", "core.blocks.1.ff_gate.weight"},
            {"norm.weight", "head.weight", "core.blocks.0.norm2.weight"},
        ),
        (
            DIFFEQFORMER, GPT,
            {"embedding.weight", "position_table"},
            {"norm.bias", "core.ff_in.projection", "core.ff_in.depth.inner.weight", "core.ff_in.constant"},
        ),
        (
            DIFFEQFORMER.model_copy(update=GENERATORS), GPT,
            {
                "embedding.weight", "core.qkv.0.projection", "core.ff_in.depth.inner.weight",
                "core.norm1.depth.outer.weight",
            },
            {
                "core.ff_in.constant", "core.ff_in.bias_projection", "core.norm1.gain_projection",
                "core.ff_in.depth.inner.bias", "norm.weight",
            },
        ),
        (
            DIFFEQFORMER.model_copy(update=GENERATORS), LLAMA,
            {"embedding.weight", "head.weight", "norm.weight", "core.qkv.2.constant", "core.norm2.shift_projection"},
            set(),
        ),
    ],
    ids=["gpt", "llama", "gpt-generated", "gpt-generated-decayed", "llama-generated"],
)  # fmt: skip
def test_weight_decay_acts_where_the_source_lets_it(run, sizes, inside, outside):
    """Without gradients a decoupled decay shrinks exactly the decayed parameters."""
    network = model(run, sizes=sizes)
    for parameter in network.parameters():
        parameter.data.fill_(1.0)
        parameter.grad = torch.zeros_like(parameter)
    recipe = RECIPE.model_copy(update={"optimizer": "adamw", "weight_decay": 0.1})
    build_optimizer(network, recipe).step()
    shrunk = {name for name, parameter in network.named_parameters() if (parameter < 1).all()}
    names = {name for name, _ in network.named_parameters()}
    assert inside <= shrunk
    assert outside <= names - shrunk
    if not outside:
        assert shrunk == names


def test_old_models_and_recipes_without_decay_keep_one_group_of_parameters():
    decaying = RECIPE.model_copy(update={"weight_decay": 0.1})
    for network, recipe in ((model(), decaying), (model(TRANSFORMER, sizes=GPT), RECIPE)):
        groups = build_optimizer(network, recipe).param_groups
        assert [[id(p) for p in group["params"]] for group in groups] == [[id(p) for p in network.parameters()]]
    assert len(build_optimizer(model(TRANSFORMER, sizes=GPT), decaying).param_groups) == 2
