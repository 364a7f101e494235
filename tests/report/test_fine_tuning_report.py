"""The table of fine-tuning and the figure of conversion, held against records and published values by hand."""

import pytest

import made_up_study as made_up
from depthtime import paths
from depthtime.analyse.aggregate import analyse
from depthtime.records import read_json
from depthtime.report.conversion import conversion, conversion_figure
from depthtime.report.drawing import styled
from depthtime.report.fine_tuning import fine_tuning
from depthtime.report.sources import load_sources


def _best(run):
    return [read_json(paths.record("fine_tuning", run, seed))["best"]["perplexity"] for seed in (43, 44, 45)]


def test_gaps_are_those_to_gpt_tuned_in_the_same_way(study):
    rows = {row["run"]: row for row in fine_tuning(load_sources(study)).numbers}
    for run, baseline in (("full_3", "gpt_full"), ("lora_12", "gpt_lora"), ("diffeq", "gpt_full")):
        gaps = [100 * (a / b - 1) for a, b in zip(_best(run), _best(baseline), strict=True)]
        assert rows[run]["against"] == baseline
        assert rows[run]["gap_percent"] == pytest.approx(sum(gaps) / 3)
    assert rows["gpt_full"]["gap_percent"] is None
    assert rows["lora_6"]["parameters"] - rows["lora_6"]["trained"] == 1189632


def test_published_gaps_are_those_at_the_same_multiple_of_the_trained_depth(study):
    rows = {row["run"]: row["gap_percent_published"] for row in fine_tuning(load_sources(study)).numbers}
    assert rows["full_3"] == pytest.approx([100 * (26.9 / 22.9 - 1), 100 * (20.4 / 23.5 - 1)])  # 18 -> 9
    assert rows["full_8"] == pytest.approx([100 * (23.6 / 22.9 - 1), 100 * (22.8 / 23.5 - 1)])  # 18 -> 24
    assert rows["lora_6"] == pytest.approx([100 * (36.4 / 37.6 - 1), 100 * (21.4 / 22.1 - 1)])
    assert rows["gpt"] == pytest.approx([100 * (26.8 / 22.9 - 1), 100 * (25.0 / 23.5 - 1)])
    assert rows["full_12"] == rows["diffeq"] == rows["gpt_full"] == []


def test_depths_stand_in_their_order_and_what_is_not_finite_says_so(study):
    table = conversion(load_sources(study))
    depths = [row["steps"] for row in table.numbers if row["as"] == "layers"]
    assert depths == sorted(study.conversion.depths)
    assert table.words[0]["perplexity"] == "not finite"


def test_the_title_says_what_twice_the_depth_costs_before_and_after(study):
    ratio = sum(_best("full_12")) / sum(_best("full_6"))
    with styled():
        figure = conversion_figure(load_sources(study))
    assert figure.texts[0].get_text() == (
        f"Stored as 12 layers instead of 6: perplexity \u00d72.50 at once, \u00d7{ratio:.2f} after fine-tuning both"
    )


def test_a_diverged_fine_tuning_run_can_be_reported(study):
    made_up.diverge("fine_tuning", "full_12", 43, at=100)
    made_up.diverge("fine_tuning", "gpt_full", 43, at=100)
    analyse(study, "fine_tuning")
    sources = load_sources(study)
    rows = {row["run"]: row for row in fine_tuning(sources).numbers}
    assert rows["full_12"]["gap_percent"] is rows["full_3"]["gap_percent"] is None
    with styled():
        conversion_figure(sources)
