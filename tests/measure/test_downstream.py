"""Tasks on two trained models: what the record says follows from what the models say, and holds no text."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

import standard_study
from depthtime import paths
from depthtime.errors import AdoptError, ConfigError, DataError
from depthtime.evaluate.sequences import log_probs_reference
from depthtime.generate.stored import load_stored
from depthtime.measure.downstream import load_tasks, measure_downstream, preferences, sentence_scores, unigram_scores
from depthtime.measure.paired_items import paired, resampled, wilson
from depthtime.records import read_json, write_json
from depthtime.upkeep.adopt import check_measured


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("standard")


@pytest.fixture(scope="module")
def trained(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        study = standard_study.build(folder)
        measure_downstream(study)
    return study


@pytest.fixture
def study(trained, folder, monkeypatch):
    monkeypatch.chdir(folder)
    return trained


@pytest.fixture
def record(study):
    return read_json(paths.measured("downstream"))


def test_sums_of_words_are_those_of_the_model_read_word_by_word(study):
    tasks, (model, _) = load_tasks(study), load_stored(study, "core", "ode", 1)
    scores = sentence_scores(model, tasks.pairs, tasks.eos, 4)
    flat = [pair for rows in tasks.pairs.values() for pair in rows]
    for found, pair in zip(scores, flat, strict=True):
        naive = [math.fsum(log_probs_reference(model, (tasks.eos, *words, tasks.eos), 1)) for words in pair]
        assert found == pytest.approx(naive, abs=1e-5)


def test_the_order_of_pairs_does_not_matter(study):
    tasks, (model, _) = load_tasks(study), load_stored(study, "core", "ode", 1)
    model = model.double()
    backwards = {name: rows[::-1] for name, rows in reversed(tasks.pairs.items())}
    there = sentence_scores(model, tasks.pairs, tasks.eos, 4)
    back = sentence_scores(model, backwards, tasks.eos, 3)[::-1]
    assert there == pytest.approx(back, abs=1e-10)


def test_equal_sentences_are_a_tie_and_count_as_half(study):
    tasks, (model, _) = load_tasks(study), load_stored(study, "core", "ode", 1)
    same = {"same": [((3, 4, 5), (3, 4, 5)), ((6,), (6,))], "other": [((3, 4), (4, 3))]}
    assert preferences(sentence_scores(model, same, tasks.eos, 2))[:2].tolist() == [0.5, 0.5]
    assert preferences(np.array([[-1.0, -2], [-2, -1], [-3, -3]])).tolist() == [1, 0, 0.5]


def test_a_model_without_context_cannot_tell_the_order_of_words(study):
    tasks = load_tasks(study)
    scores = unigram_scores(tasks.unigram, {"exchanged": tasks.pairs["exchanged"]}, tasks.eos)
    assert (scores[:, 0] == scores[:, 1]).all()
    assert tasks.unigram.sum() == pytest.approx(1)
    assert tasks.last_words[tasks.eos] < tasks.unigram[tasks.eos]


def test_the_cloze_asks_every_long_sentence_of_the_test_part(study, record):
    lines = (standard_study.small_study.made_up_text()).splitlines()[-40:]
    words = set(read_json(paths.vocabulary("tale"))["words"])
    long = [line.split() for line in lines if len(line.split()) >= study.downstream.min_words]
    assert record["cloze"]["asked"] == sum(line[-1] in words for line in long)
    assert record["cloze"]["left_out"]["too_short"] == len(lines) - len(long)
    assert record["cloze"]["left_out"]["unknown"] == len(long) - record["cloze"]["asked"]
    assert 2 <= record["cloze"]["repeated"]["n"] < record["cloze"]["all"]["n"] == record["cloze"]["asked"]


def test_differences_are_the_second_run_minus_the_first(record):
    first, second = record["runs"]
    for part, keys in ((record["cloze"]["all"], ("accuracy", "log_prob")), (record["pairs"]["all"], ("sum", "mean"))):
        for key in keys:
            gap = part["difference"]
            assert gap[key] == pytest.approx(part[second][key] - part[first][key])
            assert gap[f"{key}_low"] <= gap[key] <= gap[f"{key}_high"]
            assert gap["by_seed"]["seed_1"][key] == pytest.approx(gap[key])


def test_trained_models_beat_chance_and_words_without_context(record):
    """The made-up text says mostly which word comes next."""
    for run in record["runs"]:
        cloze = record["cloze"]["all"]
        assert cloze[run]["accuracy"] > cloze["unigram"]["accuracy"]
        assert cloze[run]["log_prob"] > cloze["unigram"]["log_prob"]
    assert record["pairs"]["exchanged"]["unigram"]["sum"] == 0.5


def test_all_pairs_are_those_of_the_phenomena(record):
    parts = [record["pairs"][name] for name in record["pairs"]["phenomena"]]
    whole = record["pairs"]["all"]
    assert whole["n"] == sum(part["n"] for part in parts)
    for run in record["runs"]:
        assert whole[run]["sum"] == pytest.approx(sum(part[run]["sum"] * part["n"] for part in parts) / whole["n"])


def test_the_record_holds_no_word_of_the_text(record):
    words = {f"w{number}" for number in range(40)}
    assert not [word for word in words if f'"{word}' in json.dumps(record) or f" {word}" in json.dumps(record)]
    assert len(json.dumps(record)) < 20_000


def test_the_interval_of_a_share_is_wilsons():
    for hits, n in ((0, 9), (5, 24), (24, 24)):
        expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
        assert wilson(hits / n, n) == pytest.approx((expected.low, expected.high))
    assert wilson(2.5 / 24, 24)[0] < 2.5 / 24 < wilson(2.5 / 24, 24)[1]


def test_resampled_means_have_the_spread_of_a_mean():
    values = np.random.default_rng(1).normal(size=400)
    entry, means = resampled("x", values, 4000)
    assert means.std() == pytest.approx(values.std() / 20, rel=0.05)
    assert entry["x_high"] - entry["x_low"] == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.05)
    assert resampled("x", values, 50)[0] == resampled("x", values, 50)[0]


def test_a_difference_is_above_exactly_when_its_interval_excludes_zero():
    draw = np.random.default_rng(2)
    for shift in (-0.3, -0.05, 0.0, 0.05, 0.3):
        first = {"x": draw.normal(size=(3, 200))}
        gap = paired(first, {"x": first["x"] + draw.normal(shift, 1, size=(3, 200))}, (1, 2, 3), 999)
        assert (gap["x_low"] > 0) == (gap["x_above"] > 0.975)
        assert (gap["x_high"] < 0) == (gap["x_above"] < 0.025)
        assert gap["x_lowest_seed"] <= gap["x"] <= gap["x_highest_seed"]
    equal = paired(first, first, (1, 2, 3), 99)
    assert (equal["x"], equal["x_above"]) == (0, 0.5)


def test_the_same_study_gives_the_same_bytes_and_is_adopted(study):
    before = paths.measured("downstream").read_bytes()
    moved = []
    measure_downstream(study, lambda done, total: moved.append((done, total)))
    assert paths.measured("downstream").read_bytes() == before
    assert moved == [(1, 2), (2, 2)]
    check_measured(study, "downstream")


def test_another_number_is_not_adopted(study, record):
    changed = json.loads(json.dumps(record))
    changed["pairs"]["replaced"]["ode"]["by_seed"]["seed_1"]["sum"] = 0.123
    write_json(paths.measured("downstream"), changed)
    try:
        with pytest.raises(AdoptError, match=r"pairs.replaced.ode.by_seed.seed_1.sum: 0.123"):
            check_measured(study, "downstream")
    finally:
        write_json(paths.measured("downstream"), record)


def test_what_the_tasks_lack_is_named(study):
    def with_(**changes):
        return study.model_copy(update={"downstream": study.downstream.model_copy(update=changes)})

    with pytest.raises(DataError, match=r"downstream\.min_words = 99: fewer than 2 test sentences of tale"):
        load_tasks(with_(min_words=99))
    with pytest.raises(ConfigError, match=r"no_pairs\.yaml: no such file"):
        load_tasks(with_(pairs="no_pairs.yaml"))
    chunks = study.model_copy(update={"datasets": {"tale": SimpleNamespace(protocol="continuumlm")}})
    with pytest.raises(ConfigError, match=r"downstream\.group = 'core': its dataset tale has no <eos>"):
        load_tasks(chunks)
