"""Parts of a trained layer move tokens as the model itself does, and no part moves more than it should."""

import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import torch

from depthtime.config import DiffEqFormerRun, FormSizes, TrainedClustering, load_params
from depthtime.errors import ConfigError
from depthtime.measure import trained_clustering as measure
from depthtime.measure.trained_clustering import FIELDS, Field, mean_weights, random_words, update
from depthtime.models.build import build_model
from depthtime.models.pre_norm import attention, normalise

SIZES = FormSizes(form="gpt", width=16, heads=2, ff_width=24, dropout=0.1)
RUN = DiffEqFormerRun(
    model="diffeqformer", num_steps=3, solver="euler_right", sinusoids=4, depth_features=3, time_scale=10.0,
    decays_generators=False, keep_weights=(1, 2),
)  # fmt: skip
SETTINGS = TrainedClustering(run="form/diffeq", tokens=5, draws=3, threshold=0.1, threads=1)


def big_model(seed=0, run=RUN):
    """A model whose weights are far from 0, as training leaves them."""
    torch.manual_seed(seed)
    model = build_model(run, SIZES, num_classes=30, max_positions=8).double().eval()
    with torch.no_grad():
        for parameter in model.core.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture
def record(monkeypatch):
    """The record over two models, read from no file."""
    models = {seed: big_model(seed) for seed in RUN.keep_weights}
    monkeypatch.setattr(measure, "_models", lambda study: models)
    return measure.trained_clustering_record(SimpleNamespace(trained_clustering=SETTINGS))


def states(model):
    return model.embed(random_words(SETTINGS, 30)).detach()


@torch.no_grad()
def test_the_whole_layer_is_the_models_own_field():
    model = big_model()
    y = states(model)
    for t, weights in zip(model.core.times(), model.core.generate(model.core.times()), strict=True):
        torch.testing.assert_close(update(model.core, weights, y, FIELDS["layer"]), model.core.vector_field(t, y))


@torch.no_grad()
def test_attention_alone_is_the_layers_own_with_and_without_a_mask():
    """Without one, every token sees what the mask shows to the last token alone."""
    model = big_model()
    weights, y = model.core.generate([0.5])[0], states(model)
    masked, unmasked = (update(model.core, weights, y, FIELDS[name]) for name in ("attention", "unmasked"))
    torch.testing.assert_close(masked, attention(SIZES, weights, normalise(SIZES, weights.norm1, y), None))
    for token in range(y.shape[1]):
        last = [*range(token), *range(token + 1, y.shape[1]), token]  # without positions order is no matter
        seen = update(model.core, weights, y[:, last], FIELDS["attention"])[:, -1]
        torch.testing.assert_close(unmasked[:, token], seen)


@torch.no_grad()
def test_only_without_a_mask_later_tokens_move_earlier_ones():
    model = big_model()
    weights, y = model.core.generate([0.5])[0], states(model)
    changed = y.clone()
    changed[:, -1] += 1
    for name, field in FIELDS.items():
        before, after = (update(model.core, weights, state, field)[:, 0] for state in (y, changed))
        assert torch.equal(before, after) == field.is_causal, name


@torch.no_grad()
def test_a_plain_norm_ignores_shift_and_scale_and_no_norm_does_not():
    model = big_model()
    weights, y = model.core.generate([0.5])[0], 100 * states(model)  # far above eps of the norm
    for norm, ignores in (("plain", True), ("none", False)):
        field = dataclasses.replace(FIELDS["plain_norm"], norm=norm)
        moved = update(model.core, weights, 3 * y + 2, field)
        assert torch.allclose(moved, update(model.core, weights, y, field), atol=1e-4) == ignores


@torch.no_grad()
def test_the_mean_of_constant_weights_is_what_they_are():
    model = big_model(run=RUN.model_copy(update={"depth_features": 0}))
    layers = model.core.generate(model.core.times())
    y = states(model)
    for field in FIELDS.values():
        torch.testing.assert_close(
            update(model.core, mean_weights(layers), y, field), update(model.core, layers[0], y, field)
        )


@torch.no_grad()
def test_the_mean_is_that_of_every_entry_over_depth():
    layers = big_model().core.generate([0.2, 0.5, 1.0])
    mean = mean_weights(layers)
    for name in ("norm1", "qkv", "attention_out", "norm2", "ff_in", "ff_out"):
        for number, part in enumerate(getattr(mean, name)):
            parts = [getattr(layer, name)[number] for layer in layers]
            torch.testing.assert_close(part, sum(parts) / 3)
            assert not torch.equal(parts[0], parts[1])


def test_every_cell_starts_from_the_same_words(record):
    starts = [record[name][weights]["start"] for name in record["fields"] for weights in record["weights"]]
    assert all(start == starts[0] for start in starts)
    assert len(starts[0]["cosine"]) == len(RUN.keep_weights)
    assert starts[0]["cosine"][0] != starts[0]["cosine"][1]


def test_curves_run_from_start_to_end_on_the_models_grid(record):
    assert record["times"] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    for name in record["fields"]:
        for weights in record["weights"]:
            cell = record[name][weights]
            for place, curve in enumerate(cell["curve"]):
                assert curve[0] == cell["start"]["cosine"][place]
                assert curve[-1] == cell["end"]["cosine"][place]
    assert record["layer"]["changing"]["end"] != record["layer"]["constant"]["end"]


def test_words_of_a_draw_differ():
    words = random_words(SETTINGS, 30)
    assert words.shape == (3, 5)
    assert all(len(set(row)) == 5 for row in words.tolist())


def test_a_run_without_kept_weights_is_refused_with_the_key(tmp_path, root):
    text = (root / "params.yaml").read_text(encoding="utf-8")
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("  run: gpt_form/diffeq\n", "  run: gpt_form/wide\n"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"trained_clustering.run: 'gpt_form/wide' keeps no weights"):
        load_params(path)


def test_fields_leave_out_one_thing_more_each():
    parts = [(field.has_feed_forward, field.is_causal, field.norm) for field in FIELDS.values()]
    changes = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in itertools.pairwise(parts)]
    assert changes == [1] * (len(FIELDS) - 1)
    assert parts[0] == dataclasses.astuple(Field(has_feed_forward=True, is_causal=True, norm="trained"))
