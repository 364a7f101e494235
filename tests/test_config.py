"""params.yaml is read once, strictly, and tells all its mistakes together."""

from pathlib import Path

import pytest

from depthtime.config import digest, load_params, read_yaml
from depthtime.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")
TUNED = "train: *cosine            # the"  # the recipe of group tuned
SPECTRA = "[gpt_form/diffeq, gpt_form/gpt]\n  ff_units"


def _problems(tmp_path, *changes, text=TEXT):
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_params(path)
    return [line.removeprefix(f"{path}: ") for line in caught.value.problems]


def test_yaml_1_2_reads_numbers_as_dvc_does(tmp_path):
    (tmp_path / "x.yaml").write_text("a: 1e-3\nb: on\nc: 0o17\n", encoding="utf-8")
    assert read_yaml(tmp_path / "x.yaml") == {"a": 1e-3, "b": "on", "c": 15}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_steps: 3000", "max_step: 3000", "groups.core.train.max_step: unknown key; did you mean max_steps?"),
        ("seeds: [42, 43, 44, 45, 46]", "seeds: []", "groups.core.seeds = ... (list), expected at least one entry"),
        ("seeds: [42, 43, 44, 45, 46]", "seeds: [42, 42]", "groups.core: seeds = [42, 42] repeats a seed"),
        ("window: 64", "window: 6.5", "datasets.ptb_continuumlm.window = 6.5 (number), expected a whole number"),
        ("eps: 1e-8", "eps: .nan", "groups.core.train.eps = NaN (number), expected a finite number"),
        ("width: 128", "width: true", "groups.core.model.width = true (true/false), expected a whole number"),
        ("warmup_steps: 300", "warmup_steps: 4000", "groups.core.train: warmup_steps = 4000 exceeds max_steps = 3000"),
        ("stride: 64", "stride: 65", "datasets.ptb_standard: stride = 65 is larger than window = 64: tokens would"),
        ("solver: rk4", "solver: rk5", 'groups.core.runs.ode.solver = "rk5" (text), expected one of'),
        ("model: discrete, layers: 3", "model: discret, layers: 3", "groups.core.runs.discrete = ... (mapping)"),
        ("  core:", "  co-re:", "groups.co-re: a name takes letters, digits and '_'"),
        ("layers: 3", "size: 3", "groups.core.runs.discrete.size: this key name is ignored by DVC's run cache"),
        ("protocol: standard", "protocol: std", "datasets.ptb_standard = ... (mapping), expected one of"),
        ("keep_weights: [42]", "keep_weights: [1]", "groups.core.runs.discrete.keep_weights: seed 1 is not among"),
        (
            "[core/discrete, core/ode]",
            "[core/discret]",
            "bench.runs: 'core/discret' is not a run; did you mean core/di",
        ),
        ("speed: core/ode", "speed: core/od", "bench.speed: 'core/od' is not a run; did you mean core/ode"),
        ("run: core/ode/42", "run: core/ode/43", "gradients.run: 'core/ode/43' keeps no weights; did you mean core/"),
        (
            SPECTRA,
            SPECTRA.replace("diffeq", "diffe"),
            "spectra.runs: 'gpt_form/diffe' keeps no weights; did",
        ),
        (SPECTRA, SPECTRA.replace("diffeq", "wide"), "spectra.runs: 'gpt_form/wide' keeps no weights"),
        (
            SPECTRA,
            SPECTRA.replace("gpt_form/diffeq", "core/ode"),
            "spectra.runs: 'core/ode' is of model 'continuous'; exp",
        ),
        (SPECTRA, SPECTRA.replace("diffeq", "gpt"), "spectra.runs: two runs are called 'gpt'"),
        ("ff_units: [100,", "ff_units: [1000,", "spectra.ff_units: 1000 of the 512 hidden units of gpt_form/diffeq"),
        ("[core/discrete/42, core/ode/42]", "[tuned/ode/43]", "decoding.runs: 'tuned/ode/43' keeps no weights"),
        (
            "runs: [gpt_form/diffeq, gpt",
            "runs: [gpt_form/dif, gpt",
            "sensitivity.runs: 'gpt_form/dif' keeps no weights; did you",
        ),
        ("runs: [gpt_form/diffeq,", "runs: [core/gpt,", "sensitivity: runs = ['core/gpt', 'gpt_form/gpt']: two have"),
        (
            "runs: [gpt, diffeq]",
            "runs: [gpt, wide]",
            "downstream.runs, seeds: 'gpt_form/wide/43' keeps no weights; did you mean gpt_form/",
        ),
        (
            TUNED,
            f"against: [core/od]\n    {TUNED}",
            "groups.tuned.against: 'core/od' is not a run of another group; did you mean core/ode",
        ),
        (
            TUNED,
            f"against: [standard/ode]\n    {TUNED}",
            "groups.tuned.against: standard/ode is scored on ptb_standard, this group on ptb_continuumlm",
        ),
        (
            TUNED,
            f"against: [tuning/ode_low]\n    {TUNED}",
            "groups.tuned.against: tuning/ode_low has no seeds [43, 44, 45]",
        ),
        ("group: tuning", "group: tunin", "groups.tuned.select.group = 'tunin': no such other group; did you mean tun"),
        ("discrete_mid, ", "discrete_mod, ", "groups.tuned.select.among.discrete: 'discrete_mod' is not a run of"),
        ("source: ptb", "source: pdb", 'corpora.ptb.source = "pdb" (text)'),
    ],
)
def test_a_mistake_is_named_with_key_value_expectation(tmp_path, old, new, message):
    problems = _problems(tmp_path, (old, new))
    assert any(line.startswith(message) for line in problems), problems


def test_all_mistakes_arrive_together(tmp_path):
    problems = _problems(
        tmp_path, ("window: 64", "window: -1"), ("data: ptb_standard", "data: ptb_standart"), ("heads: 4", "heads: 5")
    )
    assert len(problems) >= 3
    assert sum("window" in line for line in problems) == 1
    assert any("did you mean ptb_standard" in line for line in problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("a: 1\na: 2\n", "valid YAML"),
    ],
)
def test_a_file_that_is_no_mapping_is_one_line(tmp_path, text, message):
    problems = _problems(tmp_path, text=text)
    assert len(problems) == 1
    assert message in problems[0]


def test_a_missing_file_and_a_wrong_encoding_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_bytes("corpora: {caf\u00e9: 1}".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_params(tmp_path / "params.yaml")


def test_the_digest_moves_with_what_can_move_a_number_and_with_nothing_else(tmp_path):
    study = load_params(ROOT / "params.yaml")
    ode = study.run("core", "ode")
    assert ode.digest == load_params(ROOT / "params.yaml").run("core", "ode").digest
    kept = study.groups["core"].runs["ode"].model_copy(update={"keep_weights": ()})
    group = study.groups["core"].model_copy(update={"runs": {**study.groups["core"].runs, "ode": kept}})
    assert study.model_copy(update={"groups": {**study.groups, "core": group}}).run("core", "ode").digest == ode.digest
    assert ode.with_learning_rate(5e-4).digest != ode.digest
    assert study.run("core", "discrete").digest != ode.digest
    assert study.run("first_appearance", "ode").digest != ode.digest
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})


def test_a_selected_learning_rate_replaces_the_group_s():
    study = load_params(ROOT / "params.yaml")
    assert study.run("tuning", "ode_low").train.learning_rate == 5e-4
    assert study.run("tuned", "ode").with_learning_rate(2e-3).train.learning_rate == 2e-3
