"""Table, figure and page of the sensitivity say what the record holds; the page can be read by everybody."""

import copy
import itertools
import re
from html.parser import HTMLParser

import pytest

from depthtime.report.drawing import styled
from depthtime.report.frame import csv, markdown
from depthtime.report.sensitivity import (
    LABELS,
    PANELS,
    ROWS,
    agreement,
    sensitivity,
    sensitivity_figure,
    sensitivity_values,
)
from depthtime.report.sensitivity_page import ABOUT, LEVELS, PAGE, TEXT, color, levels, page, write_page
from depthtime.report.sources import load_sources
from depthtime.report.wording import TIMES


@pytest.fixture
def sources(study):
    found = load_sources(study)
    found.measured["sensitivity"] = copy.deepcopy(found.measured["sensitivity"])
    return found


@pytest.fixture
def record(sources):
    return sources.measured["sensitivity"]


class Elements(HTMLParser):
    """Tags with their attributes, and the text of all spans of words."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self._open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs).get("class", "")

    def handle_data(self, data):
        if self._open and self._open.startswith("w "):
            self.words.append(data)
            self._open = None


def test_every_run_and_pair_of_scores_has_a_row(sources, record):
    rows = [(row["run"], row["score"], row["against"]) for row in sensitivity(sources).numbers]
    expected = [(run, *pair) for run in record["runs"] for pair in itertools.combinations(record[run]["scores"], 2)]
    assert rows == expected
    assert set(LABELS) == set(record["diffeq"]["scores"])


def test_cells_are_worded_from_the_record(sources, record):
    entry = record["diffeq"]["agreement"]["released"]["deletion"]
    entry |= {"mean": 0.5, "low": 0.4, "high": 0.625, "partial_mean": -0.1, "partial_low": -0.2, "partial_high": 0.0}
    entry |= {"beyond_mean": 0.25, "beyond_low": 0.2, "beyond_high": 0.3, "by_seed": [0.4, 0.6]}
    rows = {(row["model"], row["score"], row["against"]): row for row in sensitivity(sources).words}
    row = rows[f"diffeq (euler_right {TIMES} 6)", "released exponent", "effect of deletion"]
    assert row["rank correlation"] == "+0.50 [+0.40, +0.62]"
    assert row["given the position"] == "\u22120.10 [\u22120.20, 0.00]"
    assert (row["minus that of the position"], row["by seed"]) == ("+0.25 [+0.20, +0.30]", "0.40, 0.60")
    bare = rows[f"diffeq (euler_right {TIMES} 6)", "effect of deletion", "position alone"]
    assert bare["given the position"] == bare["minus that of the position"] == "\u2013"
    assert sensitivity_values(sources)["sensitivity.diffeq.released.deletion"] == "+0.50 [+0.40, +0.62]"
    record["diffeq"]["gap"]["exponent"] = {"mean": 1.234, "low": 1.0, "high": 1.5}
    assert sensitivity_values(sources)["sensitivity.diffeq.gap.exponent_percent"] == "123"
    assert "exponent of the flow 123 % [100, 150] (diffeq)" in sensitivity(sources).caption


def test_rows_say_n_and_what_is_equal_and_fit_a_markdown_table(sources):
    table = sensitivity(sources)
    assert all(row["sentences"] == 6 and row["words"] == 41 and row["equal"] for row in table.numbers)
    assert all((row["scored"], row["seeds"]) == ("6 sentences, 41 words", "n = 3") for row in table.words)
    assert not any("|" in text for row in table.words for text in (*row, *row.values()))
    assert "`results/records/sensitivity.json`" in markdown(table)
    assert csv(table) == csv(sensitivity(sources))


def test_a_pair_is_found_whichever_is_named_first(record):
    part = record["gpt"]
    assert agreement(part, "deletion", "tangent") is agreement(part, "tangent", "deletion")
    assert agreement(part, "released", "deletion") is None


def test_dots_are_the_agreements_of_the_record(sources, record):
    with styled():
        figure = sensitivity_figure(sources)
    for axes, reference in zip(figure.axes, PANELS, strict=False):
        dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
        entries = [agreement(record[run], name, reference) for run in record["runs"] for name in ROWS]
        wanted = [entry[key] for entry in entries if entry for key in ("mean", "partial_mean") if key in entry]
        assert sorted(dots) == sorted(wanted)


def test_the_title_is_computed_from_the_record(sources, record):
    for name, value in (("released", 0.125), ("tangent", -0.5)):
        entry = record["diffeq"]["agreement"][name]["deletion"]
        entry |= {"partial_mean": value, "partial_low": value - 0.25, "partial_high": value + 0.25}
    with styled():
        texts = [text.get_text() for text in sensitivity_figure(sources).texts]
    assert any("released exponent +0.12 [\u22120.12, +0.38]; growth at the output \u22120.50" in text for text in texts)


def test_levels_are_equal_steps_from_the_smallest_to_the_largest():
    assert levels([0, 1, 9.99, 10, 5.5]) == [0, 1, 9, 9, 5]
    assert levels([-3.0, -3.0]) == [0, 0]


def test_text_can_be_read_on_every_colour_and_colours_differ_in_grey():
    """Contrast of at least 7 to 1, level AAA of the Web Content Accessibility Guidelines 2.1, criterion 1.4.6."""
    shades = [_luminance(color(level)) for level in range(LEVELS)]
    assert all((shade + 0.05) / (_luminance(TEXT) + 0.05) >= 7 for shade in shades)
    assert shades == sorted(shades, reverse=True)
    assert shades[0] - shades[-1] > 0.5


def _luminance(code):
    parts = [int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_needs_nothing_from_elsewhere(sources):
    text = page(sources)
    assert not re.search(r"<script|<link|<img|https?:|url\(|@import|src=", text)
    assert text.startswith("<!doctype html>")


def test_every_score_and_model_can_be_chosen_and_is_explained(sources, record):
    tags = Elements(page(sources)).tags
    radios = [attrs for tag, attrs in tags if tag == "input"]
    labels = {attrs["for"] for tag, attrs in tags if tag == "label"}
    assert labels == {attrs["id"] for attrs in radios}
    assert sum(attrs["name"] == "score" for attrs in radios) == len(ABOUT) == len(record["diffeq"]["scores"]) - 1
    assert sum(attrs["name"] == "run" for attrs in radios) == len(record["runs"])
    assert [attrs["id"] for attrs in radios if "checked" in attrs] == ["score-0", "run-0"]
    about = [attrs["class"] for tag, attrs in tags if attrs.get("class", "").startswith("about ")]
    assert about == [f"about about-{number}" for number in range(len(ABOUT))]


def test_words_are_shown_with_their_levels(sources, record):
    found = Elements(page(sources))
    assert found.words == [w for run in record["runs"] for text in record[run]["texts"] for w in text["words"][:-1]]
    shown = [attrs["class"].split()[1:] for tag, attrs in found.tags if attrs.get("class", "").startswith("w ")]
    first = record["diffeq"]["texts"][0]["scores"]
    for letter, name in zip("abcdefghi", ABOUT, strict=True):
        place = [next(c for c in classes if c[0] == letter) for classes in shown[: len(first[name])]]
        assert place == [f"{letter}{level}" for level in levels(first[name])]
    assert not any(c.startswith("a") for classes in shown[record["num_words"] :] for c in classes)  # gpt: not released


def test_words_are_escaped_and_bytes_are_the_same(sources, study, record):
    record["gpt"]["texts"][0]["words"][0] = "<b>&"
    assert "&lt;b&gt;&amp;</span>" in page(sources)
    write_page(study)
    first = PAGE.read_bytes()
    write_page(study)
    assert PAGE.read_bytes() == first
