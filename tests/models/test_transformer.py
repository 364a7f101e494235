"""The discrete stacks: equal to layers written out, and to each other where the wiring should not matter."""

import math

import pytest
import torch

from depthtime.models.cache import DepthCache
from depthtime.models.pre_norm import attention
from depthtime.models.rotary import rotate
from small_models import GPT, LLAMA, POSITIONS, TRANSFORMER, model
from tolerances import ROUNDING

EXACT = {"rtol": 0, "atol": ROUNDING[torch.float64]}
FORMS = pytest.mark.parametrize("sizes", [GPT, LLAMA], ids=["gpt", "llama"])


def stack(sizes=GPT, seed=0, **changes):
    """A float64 core whose biases and gains have left their start."""
    core = model(TRANSFORMER.model_copy(update=changes), sizes=sizes, seed=seed).double().core
    for parameter in core.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return core


def _state(seed=1):
    return torch.randn(2, POSITIONS, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _norm(layer, y, form):
    centred = y - y.mean(-1, keepdim=True) if form == "gpt" else y
    x = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight
    return x + layer.bias if form == "gpt" else x


def _turned(x, i):
    """A head's query or key at position i, each pair (j, j + d/2) as a complex number times exp(i angle)."""
    half = len(x) // 2
    angles = torch.tensor([i / 10000 ** (j / half) for j in range(half)], dtype=x.dtype)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag])


def _attention(block, x, form, heads=4):
    """One position and one head at a time."""
    width = x.shape[-1]
    d = width // heads
    out = torch.zeros_like(x)
    for b in range(len(x)):
        q, k, v = block.qkv(x[b]).split(width, dim=1)
        for h in range(heads):
            at = slice(h * d, (h + 1) * d)
            for i in range(x.shape[1]):
                query, keys = q[i, at], [k[j, at] for j in range(i + 1)]
                if form == "llama":
                    query, keys = _turned(query, i), [_turned(key, j) for j, key in enumerate(keys)]
                weights = torch.softmax(torch.stack([query @ key for key in keys]) / math.sqrt(d), dim=0)
                out[b, i, at] = sum(weight * v[j, at] for j, weight in enumerate(weights))
    return block.attention_out(out)


def _feed_forward(block, x, form):
    if form == "llama":
        gate = block.ff_gate(x)
        return block.ff_out(gate / (1 + torch.exp(-gate)) * block.ff_in(x))
    u = block.ff_in(x)
    return block.ff_out(0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))))


@FORMS
@pytest.mark.parametrize(("step_scale", "h"), [("one", 1.0), ("inverse_depth", 0.5)])
def test_sequential_layers_are_those_written_out(sizes, step_scale, h):
    core, y = stack(sizes, layers=2, step_scale=step_scale), _state()
    expected = y
    for block in core.blocks:
        u = expected + h * _attention(block, _norm(block.norm1, expected, sizes.form), sizes.form)
        expected = u + h * _feed_forward(block, _norm(block.norm2, u, sizes.form), sizes.form)
    torch.testing.assert_close(core(y).y, expected, **EXACT)


@FORMS
def test_parallel_layers_are_those_written_out(sizes):
    """Both branches read the same state; the llama form norms the feed-forward's input twice, as was published."""
    core, y = stack(sizes, layers=2, wiring="parallel", step_scale="inverse_depth"), _state()
    expected = y
    for block in core.blocks:
        x = _norm(block.norm1, expected, sizes.form)
        read = _norm(block.norm2, expected if sizes.form == "gpt" else x, sizes.form)
        expected = expected + (_attention(block, x, sizes.form) + _feed_forward(block, read, sizes.form)) / 2
    torch.testing.assert_close(core(y).y, expected, **EXACT)


@FORMS
def test_parallel_and_sequential_wiring_differ(sizes):
    parallel, sequential = (stack(sizes, wiring=wiring) for wiring in ("parallel", "sequential"))
    assert (parallel(_state()).y - sequential(_state()).y).abs().max() > 1e-2


@FORMS
def test_shared_weights_are_one_layer_applied_often(sizes):
    shared, apart = stack(sizes, shares_weights=True), stack(sizes, seed=1)
    for block in apart.blocks:
        block.load_state_dict(shared.blocks[0].state_dict())
    torch.testing.assert_close(shared(_state()).y, apart(_state()).y, rtol=0, atol=0)
    assert 3 * sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in apart.parameters())
    assert shared(_state()).nfe == apart(_state()).nfe == 3


@FORMS
def test_layer_weights_act_from_the_right_and_name_their_depth_time(sizes):
    core, x = stack(sizes), _state()
    layers = core.layer_weights()
    assert [layer.t for layer in layers] == pytest.approx([1 / 3, 2 / 3, 1])
    for block, layer in zip(core.blocks, layers, strict=True):
        bias = block.qkv.bias if sizes.form == "gpt" else 0
        together = torch.cat([x @ layer.query, x @ layer.key, x @ layer.value], dim=-1) + bias
        torch.testing.assert_close(together, block.qkv(x), **EXACT)
        for name in ("attention_out", "ff_in"):
            module = getattr(block, name)
            bias = module.bias if sizes.form == "gpt" else 0
            torch.testing.assert_close(x @ getattr(layer, name) + bias, module(x), **EXACT)
        assert layer.ff_out.shape == (24, 16)
        assert (layer.ff_gate is None) == (sizes.form == "gpt")
        assert not layer.query.requires_grad
    shared = stack(sizes, shares_weights=True).layer_weights()
    assert [layer.t for layer in shared] == [layer.t for layer in layers]
    assert torch.equal(shared[0].ff_in, shared[2].ff_in)


def test_rotary_attention_reads_relative_positions_only():
    """With 5 positions before them that they cannot see, the same words give the same attention weights."""
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 3, 4, POSITIONS, 8, dtype=torch.float64, generator=generator)
    scores = [rotate(q, begin) @ rotate(k, begin).mT for begin in (0, 5, 200)]
    torch.testing.assert_close(scores[1], scores[0], rtol=0, atol=1e-11)
    torch.testing.assert_close(scores[2], scores[0], rtol=0, atol=1e-11)
    assert (rotate(q, 0) @ rotate(k, 1).mT - scores[0]).abs().max() > 0.1
    torch.testing.assert_close(rotate(q, 7).norm(dim=-1), q.norm(dim=-1), **EXACT)


@FORMS
def test_attention_of_a_reversed_past_tells_positions_apart_only_when_rotary(sizes):
    """Without rotary positions the last word's attention does not see in which order the words before it came."""
    block, x = stack(sizes).blocks[0], _state()
    reordered = torch.cat([x[:, :-1].flip(1), x[:, -1:]], dim=1)
    last, other = (attention(sizes, block.weights(), y, None)[:, -1] for y in (x, reordered))
    assert torch.allclose(last, other, rtol=0, atol=1e-12) is (sizes.form == "gpt")


@FORMS
def test_cached_positions_go_on_where_the_cache_ends(sizes):
    core, y, cache = stack(sizes), _state(), DepthCache(POSITIONS)
    pieces = [core(piece, cache).y for piece in y.split([4, 1, 2, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), core(y).y, **EXACT)


@FORMS
def test_a_stack_starts_with_small_matrices_and_zero_biases(sizes):
    wide = sizes.model_copy(update={"width": 64, "ff_width": 256})
    block = model(TRANSFORMER, sizes=wide).core.blocks[0]
    for name, parameter in block.named_parameters():
        if name.startswith("norm"):
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("weight"))))
        elif name.endswith("weight"):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
        else:
            assert parameter.abs().max() == 0, name
