import pytest
import torch
from torch import nn

from depthtime.config import ContinuousRun, ModelSizes
from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.tableaus import EULER
from depthtime.models.block import PostNormBlock
from depthtime.models.language_model import sinusoids
from small_models import CLASSES, DISCRETE, ODE, POSITIONS, SIZES, assert_logits_ignore_later_tokens, model
from tolerances import ROUNDING

KINDS = pytest.mark.parametrize("run", [DISCRETE, ODE], ids=["discrete", "ode"])


def _tokens(batch=3, seed=1):
    return torch.randint(0, CLASSES, (batch, POSITIONS), generator=torch.Generator().manual_seed(seed))


@KINDS
def test_logits_ignore_later_tokens(run):
    assert_logits_ignore_later_tokens(model(run), _tokens())


@KINDS
def test_a_sentence_is_scored_alone(run):
    network, tokens = model(run).double(), _tokens(4)
    together = network(tokens)
    alone = torch.cat([network(row[None]) for row in tokens])
    torch.testing.assert_close(together, alone, rtol=0, atol=ROUNDING[torch.float64])


@KINDS
def test_a_shorter_window_gives_the_same_logits(run):
    network, tokens = model(run).double(), _tokens()
    torch.testing.assert_close(network(tokens[:, :4]), network(tokens)[:, :4], rtol=0, atol=ROUNDING[torch.float64])


@KINDS
def test_every_parameter_gets_a_gradient(run):
    network = model(run)
    nn.functional.cross_entropy(network(_tokens(8)).flatten(0, 1), _tokens(8, seed=2).flatten()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_euler_steps_equal_a_stack_of_tied_blocks_with_residual():
    """L Euler steps of size 1/L with the field scaled by L are y <- y + Block(y), L times."""
    block, steps = PostNormBlock(16, 4, 24).double(), 5
    y = torch.randn(2, POSITIONS, 16, dtype=torch.float64)
    solved = solve_fixed(lambda t, s: steps * block(s), y, tableau=EULER, num_steps=steps).y
    for _ in range(steps):
        y = y + block(y)
    torch.testing.assert_close(solved, y, rtol=0, atol=ROUNDING[torch.float64])


def test_the_block_is_the_published_formula():
    """Written out once more, loop over heads and positions, against the batched block."""
    block = PostNormBlock(16, 4, 24).double()
    y = torch.randn(1, 5, 16, dtype=torch.float64)
    q, k, v = block.attention.qkv(y).chunk(3, dim=-1)
    mixed = torch.zeros_like(y)
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        for i in range(5):
            weights = (k[0, : i + 1, part] @ q[0, i, part] / 2.0).softmax(0)
            mixed[0, i, part] = weights @ v[0, : i + 1, part]
    a = nn.functional.layer_norm(y + block.attention.out(mixed), (16,), block.norm1.weight, block.norm1.bias, 1e-5)
    hidden = block.ff_in(a)
    gelu = 0.5 * hidden * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)))
    out = nn.functional.layer_norm(a + block.ff_out(gelu), (16,), block.norm2.weight, block.norm2.bias, 1e-5)
    torch.testing.assert_close(block(y), out, rtol=0, atol=1e-12)


def test_parameter_counts_of_the_published_sizes():
    sizes = ModelSizes(width=128, heads=4, ff_width=512, positions="fixed", embedding_std=1.0)
    discrete = model(DISCRETE, sizes=sizes, num_classes=4000, max_positions=63)
    ode = model(ODE, sizes=sizes, num_classes=4000, max_positions=63)
    assert discrete.parameter_counts()["total"] == 1_622_816
    assert ode.parameter_counts() == {
        "embedding": 512_000, "core": 198_272, "head": 516_000, "other": 0, "total": 1_226_272,
    }  # fmt: skip


def test_forward_operations_of_the_published_sizes():
    """3.40 is the published pair's ratio: 16 blocks and a head over 3 blocks and a head."""
    sizes = ModelSizes(width=128, heads=4, ff_width=512, positions="fixed", embedding_std=1.0)
    four = ContinuousRun(
        model="continuous", solver="rk4", num_steps=4, gradient="direct", t0=0.0, t1=1.0, keep_weights=()
    )
    ode = model(four, sizes=sizes, num_classes=4000, max_positions=63).flops_per_token(63)
    discrete = model(DISCRETE, sizes=sizes, num_classes=4000, max_positions=63).flops_per_token(63)
    block = 2 * (4 * 128 * 128 + 2 * 128 * 512) + 2 * 2 * 63 * 128
    head = 2 * 128 * 4000
    assert (ode, discrete) == (16 * block + head, 3 * block + head)
    assert ode / discrete == pytest.approx(3.40, abs=0.01)


@KINDS
def test_reported_evaluations_are_block_calls(run):
    network, calls = model(run), []
    for module in network.modules():
        if isinstance(module, PostNormBlock):
            module.register_forward_hook(lambda *_: calls.append(1))
    assert network.solve(_tokens()).nfe == len(calls) == {"discrete": 3, "continuous": 8}[run.model]


def test_initial_weights_follow_the_source():
    sizes = ModelSizes(width=64, heads=4, ff_width=256, positions="fixed", embedding_std=1.0)
    network = model(DISCRETE, sizes=sizes, num_classes=3000)
    block = network.core.blocks[0]
    assert network.embedding.weight.std().item() == pytest.approx(1, abs=0.02)
    for linear, fan_in, fan_out in (
        (network.head, 64, 3000), (block.ff_in, 64, 256), (block.ff_out, 256, 64), (block.attention.out, 64, 64),
    ):  # fmt: skip
        bound = (6 / (fan_in + fan_out)) ** 0.5
        assert linear.weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert linear.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not linear.bias.any()
    for matrix in block.attention.qkv.weight.chunk(3):
        assert matrix.abs().max().item() == pytest.approx((6 / 128) ** 0.5, rel=0.02)


def test_models_of_one_seed_share_embedding_and_head():
    discrete, ode = model(DISCRETE, seed=3), model(ODE, seed=3)
    assert torch.equal(discrete.embedding.weight, ode.embedding.weight)
    assert torch.equal(discrete.head.weight, ode.head.weight)
    assert not torch.equal(model(ODE, seed=4).head.weight, ode.head.weight)


def test_sinusoids_are_the_published_table():
    table = sinusoids(7, 6).double()
    for i in range(7):
        for j in range(3):
            angle = torch.tensor(i / 10000 ** (2 * j / 6), dtype=torch.float64)
            assert table[i, 2 * j].item() == pytest.approx(angle.sin().item(), abs=1e-7)
            assert table[i, 2 * j + 1].item() == pytest.approx(angle.cos().item(), abs=1e-7)


def test_positions_are_trained_only_when_asked():
    assert "position_table" not in dict(model(ODE).named_parameters())
    trained = model(ODE, sizes=SIZES.model_copy(update={"positions": "trained"}))
    assert "position_table" in dict(trained.named_parameters())


def test_a_window_longer_than_the_model_is_refused():
    with pytest.raises(ValueError, match="built for 9"):
        model(ODE)(torch.zeros(1, POSITIONS + 1, dtype=torch.int64))
