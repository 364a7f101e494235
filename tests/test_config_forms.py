"""Rows of pre-norm models: sizes of their own, one beta, and combinations that make no sense."""

import pytest
from pydantic import ValidationError

from depthtime.config import FormSizes, Group, RunConfig, load_params
from small_models import DIFFEQFORMER, DISCRETE, GPT, LLAMA, TRANSFORMER

GROUP = """
  forms:
    data: ptb_continuumlm
    seeds: [42]
    model: {form: gpt, width: 128, heads: 4, ff_width: 512, dropout: 0.0}
    train: *published
    runs:
      wide:
        {model: transformer, layers: 2, wiring: sequential, step_scale: one, shares_weights: false, keep_weights: [],
         sizes: {form: gpt, width: 148, heads: 4, ff_width: 592, dropout: 0.0}}

bench:
"""
WIDE = FormSizes(form="gpt", width=32, heads=4, ff_width=48, dropout=0.0)


def _group(root, sizes, **runs):
    """The first group of the study with other sizes and runs, checked anew."""
    base = next(iter(load_params(root / "params.yaml").groups.values()))
    fields = {name: getattr(base, name) for name in type(base).model_fields} | {"model": sizes, "runs": runs}
    return Group(**fields)


def _config(root, **runs):
    study = load_params(root / "params.yaml")
    study = study.model_copy(update={"groups": {"forms": _group(root, GPT, **runs)}})
    return {run: RunConfig(study=study, group_name="forms", run_name=run) for run in runs}


def test_a_row_s_sizes_replace_the_group_s_and_are_described_once(root):
    wide = TRANSFORMER.model_copy(update={"sizes": WIDE})
    configs = _config(root, plain=TRANSFORMER, wide=wide)
    assert (configs["plain"].sizes, configs["wide"].sizes) == (GPT, WIDE)
    assert configs["wide"].described()["sizes"] == WIDE.model_dump(mode="json")
    assert configs["wide"].described()["model"] == configs["plain"].described()["model"]
    assert configs["wide"].digest != configs["plain"].digest


def test_a_row_s_beta2_replaces_the_second_beta_alone(root):
    configs = _config(root, plain=TRANSFORMER, sharp=TRANSFORMER.model_copy(update={"beta2": 0.95}))
    assert configs["plain"].train == configs["plain"].group.train
    assert configs["sharp"].train.betas == (configs["plain"].train.betas[0], 0.95)
    assert configs["sharp"].described()["model"] == configs["plain"].described()["model"]
    assert configs["sharp"].digest != configs["plain"].digest
    both = configs["sharp"].with_learning_rate(7e-4).train
    assert (both.learning_rate, both.betas[1]) == (7e-4, 0.95)


@pytest.mark.parametrize(
    ("sizes", "run", "message"),
    [
        (GPT, DISCRETE, "runs.odd: model = discrete needs a group whose `model` has `positions`"),
        (
            GPT.model_copy(update={"dropout": 0.1}),
            DIFFEQFORMER.model_copy(update={"solver": "rk4"}),
            "solver = rk4 has several stages a step; expected dropout = 0",
        ),
        (LLAMA, DIFFEQFORMER, "decays_generators = false; the llama form decays everything"),
    ],
)
def test_rows_that_do_not_fit_the_sizes_are_named(root, sizes, run, message):
    with pytest.raises(ValidationError, match=message):
        _group(root, sizes, odd=run)


def test_pre_norm_rows_need_a_form(root):
    sizes = load_params(root / "params.yaml").groups["core"].model
    with pytest.raises(ValidationError, match="model = transformer needs a group whose `model` has `form`"):
        _group(root, sizes, odd=TRANSFORMER)


def test_heads_must_divide_the_width_into_pairs_where_positions_are_rotary():
    with pytest.raises(ValidationError, match="heads = 5 does not divide width = 16"):
        FormSizes(form="gpt", width=16, heads=5, ff_width=24, dropout=0.0)
    with pytest.raises(ValidationError, match="heads of width 3 are odd; rotary positions need pairs"):
        FormSizes(form="llama", width=12, heads=4, ff_width=24, dropout=0.0)
    assert FormSizes(form="gpt", width=12, heads=4, ff_width=24, dropout=0.0).width == 12


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("form: gpt, width: 128", "form: gpt, width: 1.5", ".model.width = 1.5 (number), expected a whole number"),
        ("form: gpt, width: 128", "form: gpt, widht: 128", ".model.widht: unknown key; did you mean width?"),
        ("sizes: {form: gpt, width:", "sizes: {form: gpt, widht:", ".sizes.widht: unknown key; did you mean width?"),
        ("wiring: sequential", "wiring: serial", '.wiring = "serial" (text), expected one of'),
    ],
)
def test_mistakes_in_sizes_and_rows_are_named(root, tmp_path, old, new, message):
    from depthtime.errors import ConfigError

    text = (root / "params.yaml").read_text(encoding="utf-8").replace("\nbench:\n", GROUP, 1)
    assert old in text
    (tmp_path / "params.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_params(tmp_path / "params.yaml")
    assert any(message in line for line in caught.value.problems), caught.value.problems
