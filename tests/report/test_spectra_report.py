"""Table and figure of the spectra say what the record holds."""

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from depthtime.config import load_params
from depthtime.report.drawing import styled
from depthtime.report.frame import csv, markdown
from depthtime.report.sources import Sources
from depthtime.report.spectra import PANELS, spectra, spectra_figure, spectra_values
from made_up_measures import spectra_record

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"


@cache
def made():
    study = load_params(PARAMS)
    return study, spectra_record(study)


@pytest.fixture
def record():
    return copy.deepcopy(made()[1])


@pytest.fixture
def sources(record):
    return Sources(made()[0], None, {}, {}, {}, {"spectra": record})


def test_every_run_and_kind_has_a_row(sources):
    kinds = ["qk", "ov", "qk_and_ov", "ff", "ff_100", "ff_16"]
    rows = [(row["run"], row["kind"]) for row in spectra(sources).numbers]
    assert rows == [(run, kind) for run in ("diffeq", "gpt") for kind in kinds]


def test_cells_are_worded_from_the_record(sources, record):
    ov = record["gpt"]["ov"]
    ov["trained"] |= {"rho": 0.612, "rho_low": -0.1, "rho_high": 0.9, "growth": 2.5, "growth_low": 2, "growth_high": 3}
    ov["trained"] |= {"positive_late": 0.875, "positive_late_low": 0.8, "positive_late_high": 0.95}
    ov["untrained"] |= {"rho": None, "rho_low": None, "rho_high": None}
    row = next(row for row in spectra(sources).words if row["matrices"] == "OV (4 eigenvalues)" and "gpt" in row["run"])
    assert row["rank correlation with t"] == "+0.61 [\u22120.10, +0.90]"
    assert (row["last over first"], row["untrained"]) == ("2.50 [2.00, 3.00]", "\u2013")
    assert row["positive, last third (%)"] == "88 [80, 95]"
    assert (row["seeds"], row["seeds \u00d7 heads"]) == ("n = 3", "12")
    values = spectra_values(sources)
    assert values["spectra.gpt.ov.rho"] == "+0.61 [\u22120.10, +0.90]"
    assert values["spectra.gpt.ov.untrained_rho"] == "\u2013"
    assert values["spectra.gpt.ov.positive_late_percent"] == "88 [80, 95]"


def test_the_row_of_both_has_their_joint_shares(sources, record):
    both = record["diffeq"]["qk_and_ov"]["trained"]
    both |= {"both_positive_late": 0.25, "both_positive_late_low": 0, "both_positive_late_high": 0.5}
    row = next(row for row in spectra(sources).words if row["matrices"] == "QK and OV of a head")
    assert (row["positive, last third (%)"], row["last over first"]) == ("25 [0, 50]", "\u2013")


def test_rows_say_seeds_and_what_is_equal_and_fit_a_markdown_table(sources):
    table = spectra(sources)
    assert all(row["seeds"] == 3 and row["equal"] for row in table.numbers)
    assert "`results/records/spectra.json`" in markdown(table)
    assert not any("|" in text for row in table.words for text in (*row, *row.values()))
    assert csv(table) == csv(spectra(sources))


def test_the_caption_says_what_is_left_out_and_how_sure_it_is(sources, record):
    record["gpt"]["left_out"] = ["gate"]
    caption = spectra(sources).caption
    assert "biases, division by sqrt(D/H), activation and gate" in caption
    assert "with 3 seeds are rather too short" in caption


def test_the_title_is_computed_from_the_record(sources, record):
    for run, rho in (("diffeq", 0.25), ("gpt", -0.5)):
        record[run]["qk"]["trained"]["rho"] = rho
        record[run]["ov"]["trained"]["rho"] = None
    with styled():
        texts = [text.get_text() for text in spectra_figure(sources).texts]
    assert any(text.endswith("diffeq QK +0.25, OV \u2013; gpt QK \u22120.50, OV \u2013") for text in texts)


def test_lines_are_the_heads_of_the_record_and_their_median(sources, record):
    with styled():
        figure = spectra_figure(sources)
    for place, kind in enumerate(PANELS):
        for row, measure in enumerate(("largest", "positive")):
            drawn = [list(line.get_ydata()) for line in figure.axes[row * len(PANELS) + place].lines]
            for run in ("diffeq", "gpt"):
                own = record[run][kind]["trained"]
                heads = [head for seed in own["by_seed"].values() for head in seed[measure]]
                assert [line for line in heads if line not in drawn] == []
                assert np.median(heads, axis=0).tolist() in drawn


def test_the_untrained_line_starts_where_the_trained_one_does(sources):
    with styled():
        axes = spectra_figure(sources).axes[1]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    marked = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dashed) == len(marked) == 2
    for before, after in zip(dashed, marked, strict=True):
        assert before.get_ydata()[0] == pytest.approx(after.get_ydata()[0])
        assert before.get_ydata()[-1] != pytest.approx(after.get_ydata()[-1])


def test_one_seed_has_no_interval_and_can_be_drawn(sources, record):
    for run in record["names"]:
        for kind in ("qk", "ov", "qk_and_ov", "ff", "ff_100", "ff_16"):
            for state in ("trained", "untrained", "more"):
                entry = record[run][kind][state]
                entry |= {name: None for name in entry if name.endswith(("_low", "_high"))}
    row = spectra(sources).words[0]
    assert row["rank correlation with t"] == "+1.00"
    with styled():
        spectra_figure(sources)
