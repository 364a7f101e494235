"""Scores of known sentences, and a record that says what it reports, from small models with weights on disk."""

import math
import re

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

import small_study
from depthtime import paths
from depthtime.config import load_params
from depthtime.data.corpus import fetch
from depthtime.data.prepare import prepare
from depthtime.errors import AdoptError, ConfigError
from depthtime.measure import lyapunov, sensitivity
from depthtime.measure.agreement import rank_correlation
from depthtime.measure.sensitivity import (
    RECENCY,
    REFERENCES,
    SCORES,
    measure_sensitivity,
    run_record,
    score_words,
    sensitivity_record,
)
from depthtime.models.build import build_model
from depthtime.records import read_json, write_bytes, write_json
from depthtime.train.checkpoint import dump_weights
from depthtime.upkeep.adopt import check_measured
from small_models import DIFFEQFORMER, GPT, TRANSFORMER, model
from tolerances import ROUNDING

FORMS = """\
data: tale_standard
seeds: [1, 2, 3]
model: {form: gpt, width: 16, heads: 4, ff_width: 24, dropout: 0.0}
runs:
  diffeq: {model: diffeqformer, num_steps: 3, solver: euler_right, sinusoids: 5, depth_features: 4, time_scale: 1000.0,
           decays_generators: false, keep_weights: [1, 2]}
  gpt: {model: transformer, layers: 3, wiring: sequential, step_scale: one, shares_weights: false, keep_weights: [2]}
"""
STANDARD = "{corpus: tale, protocol: standard, vocabulary: frequency, vocabulary_size: 30, window: 16, stride: 16, \
split: contiguous}"
CLASSES = [3, 1, 7, 2, 5, 4]


def curved(run, seed=0):
    network = model(run, sizes=GPT, seed=seed).double().eval().requires_grad_(False)
    for parameter in network.core.parameters():
        parameter.mul_(8)
    return network


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Parameters, vocabulary and weights, as a finished study leaves them; weights are drawn, not trained."""
    folder, yaml = tmp_path_factory.mktemp("study"), YAML(typ="safe", pure=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        raw = yaml.load(small_study.PARAMS)
        raw["datasets"]["tale_standard"] = yaml.load(STANDARD)
        raw["groups"]["forms"] = yaml.load(FORMS) | {"train": raw["groups"]["core"]["train"]}
        raw["sensitivity"] |= {"runs": ["forms/diffeq", "forms/gpt"]}
        with (folder / "params.yaml").open("w") as file:
            YAML().dump(raw, file)
        (folder / "text.txt").write_text(small_study.made_up_text())
        study = load_params()
        fetch(study, "tale")
        prepare(study, "tale_standard")
        known = [w for w in read_json(paths.vocabulary("tale_standard"))["words"] if re.fullmatch(r"w\d+", w)]
        lines = [known[0:7], known[5:14], known[10:16], known[3:11]]
        (folder / "sentences.yaml").write_text("".join(f"- {' '.join(line)}\n" for line in lines))
        for group, run, seed in study.all_runs():
            if group == "forms" and seed in study.groups[group].runs[run].keep_weights:
                torch.manual_seed(seed)
                config = study.run(group, run)
                network = build_model(config.run, config.sizes, num_classes=30, max_positions=16)
                with torch.no_grad():
                    for parameter in network.core.parameters():
                        parameter.mul_(8)
                write_bytes(paths.run_folder(group, run, seed) / "weights.safetensors", dump_weights(network))
    return folder


@pytest.fixture
def study(workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    return load_params()


@pytest.fixture(scope="module")
def record(workspace):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace)
        return sensitivity_record(load_params())


def test_words_are_scored_without_eos_and_the_last_one():
    for run, names in ((DIFFEQFORMER, SCORES), (TRANSFORMER, SCORES[1:])):
        found = score_words(curved(run), CLASSES, 16, skipped=1)
        assert tuple(found) == (*names, *REFERENCES, RECENCY)
        assert all(values.shape == (4,) and np.isfinite(values).all() for values in found.values())
        assert found[RECENCY].tolist() == [1, 2, 3, 4]
    every = score_words(curved(DIFFEQFORMER), CLASSES, 16, skipped=0)
    once = score_words(curved(DIFFEQFORMER), CLASSES, 16, skipped=1)
    assert all(np.array_equal(every[name][1:], once[name]) for name in once)


def test_all_directions_see_the_largest_growth_and_fewer_see_less():
    network = curved(DIFFEQFORMER)
    every, few = (score_words(network, CLASSES, r, skipped=0) for r in (16, 3))
    assert every["tangent_few"] == pytest.approx(every["tangent"], abs=1e-10)
    assert (few["tangent_few"] < few["tangent"]).all()
    assert (every["tangent_mean"] < every["tangent"]).all()
    assert np.array_equal(few["tangent"], every["tangent"])


def test_the_mended_score_of_the_output_itself_with_one_word_is_that_of_the_exact_product():
    """With one token pairs and flow are one: QR of the product of (1 + h J), from the same directions."""
    network = curved(DIFFEQFORMER)
    y = network.embed(torch.tensor([[3]]))[0]
    steps = sensitivity.steps_of(network.core)
    pairs = lyapunov.pair_exponents(steps, lyapunov.trajectory(steps, y)[:-1], 0)[0]
    product = lyapunov.flow_jacobian(steps, y, 0)[0]
    assert torch.allclose(pairs, torch.linalg.qr(product).R.diagonal().abs().log(), atol=1e-9)
    unit = torch.eye(16, dtype=torch.float64)
    flow = lyapunov.tangent_flow(steps, lyapunov.trajectory(steps, y)[:-1], unit, tokens=[0], output=0)
    assert torch.allclose(pairs, flow.exponents[0], atol=1e-9)


def test_the_released_score_is_that_of_late_states_and_early_weights():
    """Against the definition, step by step, with Jacobians by automatic differentiation of the field itself."""
    network = curved(DIFFEQFORMER)
    core, y = network.core, network.embed(torch.tensor([CLASSES]))[0]
    found = score_words(network, CLASSES, 4, skipped=0)
    states = lyapunov.trajectory(sensitivity.steps_of(core), y)
    q, sums = torch.eye(16, dtype=torch.float64).expand(6, 16, 16), torch.zeros(6, 16, dtype=torch.float64)
    for k in range(3):
        field = lambda state, k=k: core.vector_field(k / 3, state[None])[0, -1]  # noqa: E731
        jacobian = torch.autograd.functional.jacobian(field, states[k + 1])  # (D, N, D)
        q, r = torch.linalg.qr(q + jacobian.transpose(0, 1) @ q / 3)
        sums += r.diagonal(dim1=1, dim2=2).abs().log()
    assert found["released"] == pytest.approx(sums.amax(dim=1)[:-1].numpy(), abs=ROUNDING[torch.float64])
    assert np.abs(found["released"] - found["mended"]).max() > 1e-3


def test_the_record_holds_each_run_with_the_seeds_that_keep_weights(record):
    assert record["runs"] == ["diffeq", "gpt"]
    assert (record["diffeq"]["seeds"], record["gpt"]["seeds"]) == ([1, 2], [2])
    assert (record["num_sentences"], record["num_words"]) == (4, 6 + 8 + 5 + 7)
    assert record["diffeq"]["gap"].keys() == {"mended", "tangent", "exponent"}
    assert record["gpt"]["gap"] == {}
    assert "released" not in record["gpt"]["scores"]


def test_agreement_is_the_mean_over_sentences_of_rank_correlations(record):
    """Worked out again from the texts, which are of the first seed; with one seed they are the whole record."""
    texts, entry = record["gpt"]["texts"], record["gpt"]["agreement"]["tangent"]["deletion"]
    rhos = [rank_correlation(*(np.array(text["scores"][name]) for name in ("tangent", "deletion"))) for text in texts]
    assert entry["mean"] == pytest.approx(np.mean(rhos))
    assert entry["by_seed"] == pytest.approx([np.mean(rhos)])
    assert min(rhos) <= entry["low"] <= entry["mean"] <= entry["high"] <= max(rhos)
    recency = record["gpt"]["agreement"]["deletion"]["recency"]["mean"]
    assert entry["beyond_mean"] == pytest.approx(entry["mean"] - recency)


def test_seeds_are_averaged_before_sentences():
    draw = np.random.default_rng(0)

    def scores():
        names = [*SCORES, *REFERENCES]
        return {name: draw.normal(size=6) for name in names} | {RECENCY: np.arange(6.0)}

    by_seed = {seed: [scores() for _ in range(5)] for seed in (43, 44)}
    both, *single = (run_record(part, 50)["agreement"] for part in (by_seed, *({s: by_seed[s]} for s in by_seed)))
    for a, b in (("released", "tangent"), ("tangent", "rollout"), ("deletion", "gradient")):
        means = [each[a][b]["mean"] for each in single]
        assert both[a][b]["by_seed"] == pytest.approx(means)
        assert both[a][b]["mean"] == pytest.approx(np.mean(means))
        assert both[a][b]["partial_by_seed"] == pytest.approx([each[a][b]["partial_mean"] for each in single])


def test_gap_and_distance_of_scores_made_by_hand():
    def scores(released, tangent):
        both = {"released": np.array(released), "mended": np.array(released), "tangent": np.array(tangent)}
        return both | {"exponent": np.array(released), RECENCY: np.arange(float(len(released)))}

    found = run_record({1: [scores([1.0, 2.0, 3.0], [2.0, 4.0, 2.0]), scores([1.0, 4.0], [1.0, 5.0])]}, 20)
    assert found["gap"]["tangent"]["mean"] == pytest.approx((0.5 + 0.1) / 2)
    assert found["gap"]["exponent"] == {"mean": 0, "low": 0, "high": 0}
    rows = found["distance"]["released"]
    assert [(row["distance"], row["n"], row["mean"]) for row in rows] == [(1, 2, 3.5), (2, 2, 1.5)]


def test_texts_hold_our_words_the_prediction_and_scores(record):
    text = record["diffeq"]["texts"][1]
    assert text["name"] == "sentence_2"
    assert len(text["words"]) == 9
    assert all(len(values) == 8 for values in text["scores"].values())
    assert text["log_probability"] >= -math.log(30)  # the likeliest of 30 classes


def test_progress_and_bytes_and_adoption(study, record):
    moved = []
    measure_sensitivity(study, lambda done, total: moved.append((done, total)))
    assert moved == [(done, 12) for done in range(1, 13)]
    assert read_json(paths.measured("sensitivity")) == record
    check_measured(study, "sensitivity")


def test_a_moved_score_is_not_adopted(study, record):
    change = read_json(paths.measured("sensitivity")) if paths.measured("sensitivity").exists() else record
    change["gpt"]["texts"][0]["scores"]["tangent"][2] += 0.01
    write_json(paths.measured("sensitivity"), change)
    with pytest.raises(AdoptError, match=r"gpt.texts.*run `snakemake sensitivity`"):
        check_measured(study, "sensitivity")


def test_more_directions_than_width_are_refused(study):
    wide = study.sensitivity.model_copy(update={"directions": 17})
    with pytest.raises(ConfigError, match=r"sensitivity.directions = 17; forms/diffeq has width 16"):
        sensitivity_record(study.model_copy(update={"sensitivity": wide}))
