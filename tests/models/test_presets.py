"""The published configurations have the published sizes."""

import pytest

from depthtime.errors import ConfigError
from depthtime.upkeep.presets import load_presets, needs, preset_lines


@pytest.fixture(scope="module")
def presets(request):
    return load_presets(_path(request))


def _path(request):
    return request.config.rootpath / "presets" / "diffeqformer.yaml"


@pytest.mark.parametrize(
    ("name", "run", "changes", "millions", "digits"),
    [
        ("wikitext_small", "diffeqformer", {}, 188, 0),
        ("wikitext_small", "gpt", {}, 124, 0),
        ("wikitext_medium", "diffeqformer", {}, 670, 0),
        ("openwebtext_medium", "diffeqformer", {}, 1270, -1),
        ("openwebtext_medium", "diffeqformer", {"depth_features": 144}, 1880, -1),
        ("openwebtext_medium", "gpt", {}, 355, 0),
        ("openwebtext_large", "diffeqformer", {}, 1970, -1),
        ("openwebtext_large", "gpt", {}, 774, 0),
        ("llama_1b", "diffeqformer", {}, 6600, -2),
        ("llama_1b", "llama", {}, 1200, -2),
        ("fine_tuning", "diffeqformer", {}, 1330, -1),
    ],
)
def test_parameters_are_the_published_numbers(presets, name, run, changes, millions, digits):
    preset = presets[name]
    row = preset.runs[run].model_copy(update=changes)
    preset = preset.model_copy(update={"runs": {run: row}})
    assert round(needs(preset, run).parameters / 1e6, digits) == millions


def test_depth_of_each_pair_and_tokens_of_each_training(presets):
    """Steps and layers agree but for fine-tuning; tokens are the published budgets in billions."""
    found = {}
    for name, preset in presets.items():
        baseline, ours = preset.runs.values()
        found[name] = (baseline.layers, ours.num_steps)
        tokens = preset.train.max_steps * preset.train.batch_size * preset.window
        budget = {"wikitext": 2.6, "fine": 2.6, "openwebtext": 10.5, "llama": 21.0}[name.split("_")[0]]
        assert tokens / 1e9 == pytest.approx(budget, rel=0.01), name
    assert found == {
        "wikitext_small": (12, 12), "wikitext_medium": (24, 24), "openwebtext_small": (12, 12),
        "openwebtext_medium": (24, 24), "openwebtext_large": (36, 36), "llama_1b": (16, 16), "fine_tuning": (24, 18),
    }  # fmt: skip


def test_needs_of_the_small_gpt_by_hand(presets):
    found, tokens = needs(presets["wikitext_small"], "gpt"), 256 * 1024
    assert found.state_bytes == 16 * found.parameters
    assert found.flops_per_token == 12 * (24 * 768**2 + 4 * 1024 * 768) + 2 * 768 * 50257
    assert found.training_flops == 3 * 10001 * tokens * found.flops_per_token
    assert found.activation_bytes == tokens * (12 * (8 * 768 + 2 * 3072) * 2 + 8 * 50257)


def test_generated_weights_are_part_of_memory_and_operations(presets):
    gpt, ours = (needs(presets["wikitext_small"], run) for run in ("gpt", "diffeqformer"))
    assert ours.flops_per_token == gpt.flops_per_token
    assert ours.training_flops - gpt.training_flops == 3 * 10001 * 12 * 2 * 20 * 12 * 768**2
    assert ours.activation_bytes - gpt.activation_bytes == 12 * 12 * 768**2 * 2


def test_the_table_has_a_line_a_model_and_names_what_it_does_not_know(request):
    path = _path(request)
    lines = list(preset_lines("llama_1b", path))
    assert [line.split()[:2] for line in lines[1:3]] == [["llama_1b", "llama"], ["llama_1b", "diffeqformer"]]
    assert "6641.9 M" in lines[2]
    assert (
        sum(line.startswith(("wikitext", "openwebtext", "llama_1b", "fine")) for line in preset_lines(None, path)) == 14
    )
    with pytest.raises(ConfigError, match="no preset is called 'lama_1b'; did you mean llama_1b"):
        list(preset_lines("lama_1b", path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("window: 2048", "window: 0", "llama_1b.window = 0 (whole number), expected a number >= 1"),
        ("heads: 20", "heads: 21", "openwebtext_large.model: heads = 21 does not divide width = 1280"),
        ("max_steps: 10001", "max_step: 10001", "wikitext_small.train.max_step: unknown key; did you mean max_steps?"),
        ("{model: transformer, layers: 12", "{model: transformer, layer: 12", "wikitext_small.runs.gpt.layer: unknown"),
        ("decays_generators: true", "decays_generators: false", "llama_1b: runs.diffeqformer: decays_generators"),
    ],
)
def test_mistakes_of_the_file_are_named_as_those_of_params(tmp_path, request, old, new, message):
    text = _path(request).read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "presets.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_presets(path)
    assert any(message in line for line in caught.value.problems), caught.value.problems


def test_all_mistakes_of_the_file_arrive_together(tmp_path, request):
    text = _path(request).read_text(encoding="utf-8").replace("heads: 20", "heads: 21")
    path = tmp_path / "presets.yaml"
    path.write_text(text.replace("window: 2048", "window: 0"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_presets(path)
    assert len(caught.value.problems) == 2
