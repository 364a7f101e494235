"""Models that change the source's one respect at a time: each is tied to the model it departs from."""

import copy

import pytest
import torch
from torch import nn

from depthtime.config import ContinuousVariantRun, SharedRun
from depthtime.integrate.fixed import solve_fixed
from depthtime.integrate.tableaus import TABLEAUS
from depthtime.measure.clustering import mean_cosine
from small_models import CLASSES, DISCRETE, ODE, POSITIONS, SIZES, assert_logits_ignore_later_tokens, model
from tolerances import ROUNDING

SHARED = SharedRun(model="shared", layers=3, keep_weights=())
EXACT = {"rtol": 0, "atol": ROUNDING[torch.float64]}


def variant(field="postnorm", *, reads_time=False, final_norm=False, **changes):
    row = {**ODE.model_dump(), "model": "continuous_variant", "field": field, **changes}
    return ContinuousVariantRun(**row, reads_time=reads_time, final_norm=final_norm)


def _tokens(seed=1):
    return torch.randint(0, CLASSES, (3, POSITIONS), generator=torch.Generator().manual_seed(seed))


def _state():
    return torch.randn(2, POSITIONS, 16, dtype=torch.float64)


def test_without_any_change_it_is_the_continuous_model():
    torch.testing.assert_close(model(variant())(_tokens()), model(ODE)(_tokens()), rtol=0, atol=0)


def test_a_stack_of_shared_weights_is_euler_with_the_difference_field_and_steps_of_length_one():
    """y + 1 * (Block(y) - y) = Block(y)."""
    shared, row = model(SHARED).double(), variant("difference", solver="euler", num_steps=3, t1=3.0)
    ode = model(row).double()
    torch.testing.assert_close(shared(_tokens()), ode(_tokens()), **EXACT)


def test_the_prenorm_field_is_what_a_prenorm_layer_adds():
    """Written out once more: y + f(y) = u + FFN(LN2(u)) with u = y + Attention(LN1(y))."""
    field, y = model(variant("prenorm")).double().core.field, _state()
    block = field.block
    u = y + block.attention(block.norm1(y))
    layer = u + block.ff_out(nn.functional.gelu(block.ff_in(block.norm2(u)), approximate="tanh"))
    torch.testing.assert_close(y + field(y), layer, **EXACT)


def test_depth_time_is_read_once_its_weights_have_left_zero():
    network = model(variant(reads_time=True)).double()
    torch.testing.assert_close(network(_tokens()), model(variant()).double()(_tokens()), **EXACT)
    core, y = network.core, _state()
    nn.init.normal_(core.time.weight)
    at = [core.vector_field(t, y) for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert all((a - b).abs().max() > 1e-3 for i, a in enumerate(at) for b in at[:i])
    by_hand = solve_fixed(core.vector_field, y, tableau=TABLEAUS[ODE.solver], num_steps=ODE.num_steps).y
    torch.testing.assert_close(core(y).y, by_hand, **EXACT)


def test_the_final_norm_is_applied_after_the_solve_alone():
    network = model(variant(final_norm=True)).double()
    core, y = network.core, _state()
    bare = copy.deepcopy(core)
    bare.norm = nn.Identity()
    torch.testing.assert_close(core(y).y, nn.functional.layer_norm(bare(y).y, (16,)), **EXACT)


@pytest.mark.parametrize(
    ("run", "more"),
    [
        (SHARED, 0),
        (variant("difference"), 0),
        (variant("prenorm"), 0),
        (variant(final_norm=True), 2 * 16),
        (variant(reads_time=True), 8 * 16),
    ],
    ids=["shared", "difference", "prenorm", "final_norm", "reads_time"],
)
def test_parameters_beside_those_of_the_continuous_model_are_those_that_were_added(run, more):
    assert model(run).parameter_counts()["core"] == model(ODE).parameter_counts()["core"] + more


@pytest.mark.parametrize(
    "run", [SHARED, variant("difference"), variant("prenorm", final_norm=True)], ids=["shared", "difference", "prenorm"]
)
def test_logits_ignore_later_tokens(run):
    assert_logits_ignore_later_tokens(model(run), _tokens())


def test_only_repetition_leaves_the_positions_of_a_text_alike_at_the_start():
    """Why a block repeated 16 times does not learn: at the published size all its states point the same way."""
    sizes, words = SIZES.model_copy(update={"width": 128, "ff_width": 512}), torch.arange(8 * 63).view(8, 63)
    runs = {
        "shared": SHARED.model_copy(update={"layers": 16}),
        "discrete": DISCRETE,
        "ode": ODE.model_copy(update={"num_steps": 4}),
    }
    cosine = {}
    for name, run in runs.items():
        with torch.no_grad():
            states = model(run, sizes=sizes, num_classes=words.numel(), max_positions=63).solve(words).y
        cosine[name] = mean_cosine(states.numpy()).mean()
    assert cosine["shared"] > 0.95
    assert max(cosine["discrete"], cosine["ode"]) < 0.8


def test_euler_and_shared_count_their_evaluations():
    assert model(SHARED).solve(_tokens()).nfe == 3
    assert model(variant("difference", solver="euler", num_steps=5)).solve(_tokens()).nfe == 5
