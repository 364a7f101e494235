"""Table and figure of the clustering say what the record holds."""

import copy
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from depthtime.config import load_params
from depthtime.report.clustering import LABELS, PANELS, clustering, clustering_figure, clustering_values
from depthtime.report.drawing import styled
from depthtime.report.frame import csv, markdown
from made_up_measures import short_clustering_record

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"


@pytest.fixture
def record():
    return copy.deepcopy(short_clustering_record(load_params(PARAMS)))


@pytest.fixture
def sources(record):
    return SimpleNamespace(measured={"clustering": record})


def test_every_width_and_choice_has_a_row(sources, record):
    rows = [(row["d"], row["weights"]) for row in clustering(sources).numbers]
    assert rows == list(itertools.product(record["dimensions"], record["choices"]))
    assert set(LABELS) == set(record["choices"])
    assert {name for names in PANELS.values() for name in names} <= set(LABELS)


def test_cells_are_worded_from_the_record(sources, record):
    cell = record["d16"]["g_cos"]
    cell["components"] |= {"median": 31.5, "median_low": 30, "median_high": 33}
    cell["few"] = {"share": 0.25, "low": 0.1, "high": 0.4}
    cell["more"] = {"mean": 12.25, "mean_low": -1, "mean_high": 20}
    rows = {(row["d"], row["weights"]): row for row in clustering(sources).words}
    row = rows["16", "g = cos 2πt"]
    assert (row["components"], row["at most 3 (%)"]) == ("31.5 [30.0, 33.0]", "25 [10, 40]")
    assert row["minus g = 1"] == "+12.2 [\u22121.0, +20.0]"
    assert rows["16", "A = V = I"]["minus g = 1"] == "\u2013"
    assert clustering_values(sources)["clustering.d16.g_cos.components"] == "31.5"
    assert clustering_values(sources)["clustering.d16.g_cos.few_percent"] == "25"
    cell = record["d16"]["identity"]["curve"]["components"]
    cell["median"] = [17.0, *cell["median"][1:]]
    assert clustering_values(sources)["clustering.d16.start"] == "17"


def test_rows_say_seeds_and_what_is_equal_and_fit_a_markdown_table(sources):
    table = clustering(sources)
    assert all(row["seeds"] == 4 and row["equal"] for row in table.numbers)
    assert "`results/records/clustering.json`" in markdown(table)
    assert not any("|" in text for row in table.words for text in (*row, *row.values()))
    assert csv(table) == csv(clustering(sources))


def test_the_title_is_computed_from_the_record(sources, record):
    for width, constant in ((3, 2.0), (64, 9.0)):
        cells = record[f"d{width}"]
        cells["gaussian"]["components"]["median"] = constant
        for name in cells:
            if name.startswith("g_"):
                cells[name]["components"]["median"] = 31.0 if name == "g_cos" else 8.0
    with styled():
        texts = [text.get_text() for text in clustering_figure(sources).texts]
    assert any("d = 3, constant: 2, changing: 8 to 31; at d = 64, constant: 9, changing: 8 to 31" in t for t in texts)


def test_lines_are_the_medians_of_the_record(sources, record):
    with styled():
        figure = clustering_figure(sources)
    last = figure.axes[3]
    drawn = [list(line.get_ydata()) for line in last.lines if len(line.get_xdata()) == len(record["times"])]
    names = PANELS["Gaussian weights times g(t)"]
    expected = [record["d64"][name]["curve"]["components"]["median"] for name in names]
    assert [line for line in expected if line not in drawn] == []
