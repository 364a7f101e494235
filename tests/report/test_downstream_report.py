"""Table and figure of the tasks say what their record holds."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest

from depthtime.config import load_params
from depthtime.report.downstream import downstream, downstream_figure, downstream_values
from depthtime.report.drawing import styled
from depthtime.report.frame import csv, markdown
from depthtime.report.published import load_published
from made_up_measures import downstream_record

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def sources():
    study = load_params(ROOT / "params.yaml")
    record = copy.deepcopy(downstream_record(study))
    return SimpleNamespace(
        measured={"downstream": record}, study=study, published=load_published(study, ROOT / "published.yaml")
    )


@pytest.fixture
def record(sources):
    return sources.measured["downstream"]


def test_every_task_and_phenomenon_has_a_row_with_seeds_and_what_is_equal(sources, record):
    table = downstream(sources)
    names = [row["task"] for row in table.numbers]
    assert names == ["all", "repeated", "all_pairs", "all_pairs", *record["pairs"]["phenomena"]]
    assert len(table.words) == len(names)
    assert all(row["seeds"] == 3 and row["equal"] and row["n"] for row in table.numbers)
    assert "`results/records/downstream.json`" in markdown(table)
    assert csv(table) == csv(downstream(sources))


def test_cells_are_worded_from_the_record(sources, record):
    record["cloze"]["repeated"]["diffeq"] |= {"accuracy": 0.2512, "accuracy_low": 0.2, "accuracy_high": 0.3}
    record["cloze"]["repeated"]["difference"] |= {"accuracy": -0.011, "accuracy_low": -0.03, "accuracy_high": 0.01}
    row = downstream(sources).words[1]
    assert row["diffeq"] == "25.1 [20.0, 30.0]"
    assert row["diffeq \u2212 gpt"] == "\u22121.1 [\u22123.0, +1.0]"
    assert row["by seed"] == "\u22121.0 to +4.0"
    assert downstream_values(sources)["downstream.cloze.repeated.diffeq"] == "25.1"
    assert downstream_values(sources)["downstream.cloze.repeated.difference"] == "\u22121.1 [\u22123.0, +1.0]"


def test_published_values_stand_beside_the_test_most_like_theirs(sources):
    published = [row["published"] for row in downstream(sources).words]
    tests = load_published(sources.study, ROOT / "published.yaml").tasks
    assert [text != "\u2013" for text in published[:3]] == [False, True, False]
    assert all(f"{value:.1f}" in published[1] for values in tests.values() for value in values)


def test_the_title_gives_both_differences(sources, record):
    record["pairs"]["all"]["difference"] |= {"sum": 0.031, "sum_low": 0.01, "sum_high": 0.052}
    with styled():
        texts = [text.get_text() for text in downstream_figure(sources).texts]
    assert any(text.startswith("diffeq over gpt: +3.1 [+1.0, +5.2] points on minimal pairs, +2.0 [") for text in texts)


def test_marks_are_the_accuracies_of_the_record_from_the_hardest_phenomenon_up(sources, record):
    for number, name in enumerate(record["pairs"]["phenomena"]):
        share = 0.9 - 0.01 * number
        record["pairs"][name]["diffeq"] |= {"sum": share, "sum_low": share - 0.1, "sum_high": share + 0.1}
    with styled():
        pairs, _ = downstream_figure(sources).axes
    labels = [label.get_text() for label in pairs.get_yticklabels()]
    assert labels == [name.replace("_", " ") for name in reversed(record["pairs"]["phenomena"])] + ["all pairs"]
    drawn = {round(float(x), 6) for line in pairs.lines for x in line.get_xdata()}
    expected = {round(100 * record["pairs"][name]["diffeq"]["sum"], 6) for name in record["pairs"]["phenomena"]}
    assert expected <= drawn
