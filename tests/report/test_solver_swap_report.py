"""The tables and the figure of the solver swap say what its record holds, and hide no solver."""

import itertools
from types import SimpleNamespace

import pytest

from depthtime.report import wording
from depthtime.report.drawing import styled
from depthtime.report.frame import csv, markdown
from depthtime.report.solver_swap import leaks, solver_swap, solver_swap_figure
from made_up_measures import NONE, solver_swap_record


@pytest.fixture
def sources():
    return SimpleNamespace(measured={"solver_swap": solver_swap_record()})


def test_every_solver_of_the_record_has_a_row(sources):
    names = list(sources.measured["solver_swap"]["perplexity"])
    table = solver_swap(sources)
    assert [row["name"] for row in table.numbers] == names
    assert len(table.words) == len(names)
    assert [row["name"] for row in leaks(sources).numbers] == list(sources.measured["solver_swap"]["leak"])


def test_the_trained_setting_is_marked_and_has_ratio_one(sources):
    (row,) = [row for row in solver_swap(sources).words if "(trained)" in row["steps or tolerance"]]
    assert (row["solver"], row["steps or tolerance"], row["ratio to trained"]) == (
        "rk4",
        "4 steps (trained)",
        "1.00000",
    )
    assert "trained with rk4 \u00d7 4" in solver_swap(sources).caption


def test_a_solver_that_did_not_finish_says_why(sources):
    rows = {(row["solver"], row["steps or tolerance"]): row for row in solver_swap(sources).words}
    row = rows["adaptive_heun", "1e-6"]
    assert (row["block evaluations"], row["perplexity"]) == ("more than 2,000", "\u2013")
    assert rows["rk4", "8 steps"]["block evaluations"] == "32"
    assert rows["dopri5", "1e-3"]["block evaluations"] == "37.9 [36, 39]"


def test_leaks_tell_exact_zero_from_small_and_from_unknown(sources):
    rows = {(row["solver"], row["steps or tolerance"]): row for row in leaks(sources).words}
    assert rows["rk4", "4 steps"]["later words: logit"] == "0"
    assert rows["rk4", "4 steps"]["alone: logit"] == "4.0e-6"
    assert rows["dopri5", "1e-2"]["later words: logit"] == "0.018"
    assert rows["adaptive_heun", "1e-6"]["later words: logit"] == "\u2013"


def test_small_numbers_keep_two_digits():
    found = [wording.small(x) for x in (None, 0.0, 1.234e-5, 0.0123, 0.5, 12.3, -2e-7)]
    assert found == ["\u2013", "0", "1.2e-5", "0.012", "0.5", "12", "\u22122.0e-7"]


@pytest.mark.parametrize("build", [solver_swap, leaks])
def test_rows_say_seeds_and_what_is_equal_and_captions_their_record(sources, build):
    table = build(sources)
    assert all(row["seeds"] and row["equal"] for row in table.numbers)
    assert {"seeds", "held equal"} <= set(table.words[0])
    assert "`results/records/solver_swap.json`" in markdown(table)
    assert csv(table) == csv(build(sources))
    assert not any(isinstance(cell, float) for row in table.words for cell in row.values())


def texts_of(axes):
    texts = [*axes.texts, axes._left_title, axes.xaxis.label, axes.yaxis.label]
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        texts += [tick.label1 for tick in axis.get_major_ticks() if min(limits) <= tick.get_loc() <= max(limits)]
    return texts


def test_no_text_overlaps_another_or_leaves_the_figure(sources):
    with styled():
        figure = solver_swap_figure(sources)
        figure.canvas.draw()
        texts = [text for axes in figure.axes for text in texts_of(axes)]
        legends = [axes.get_legend() for axes in figure.axes]
        texts += [text for legend in legends for text in (*legend.get_texts(), legend.get_title())]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    assert len(boxes) > 20
    assert [(s, t) for (s, a), (t, b) in itertools.combinations(boxes, 2) if a.overlaps(b)] == []
    width, height = figure.canvas.get_width_height()
    assert [text for text, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height] == []


def test_titles_and_note_are_computed_from_the_record(sources):
    with styled():
        left, right = solver_swap_figure(sources).axes
    assert left.get_title(loc="left") == "At tolerance 1e-6: perplexity +0.040 %"
    assert right.get_title(loc="left") == "Leak: up to 0.045 at 1e-2, 3.0e-6 at 1e-6"
    assert any("later words exactly 0" in text.get_text() for text in right.texts)


def test_a_record_in_which_no_adaptive_solver_finished_can_be_reported(sources):
    record = solver_swap_record()
    for row in record["solvers"]:
        if row["tolerance"]:
            row |= NONE | {"status": "too many evaluations"}
            record["leak"][row["name"]] = dict.fromkeys(record["leak"][row["name"]])
    empty = SimpleNamespace(measured={"solver_swap": record})
    assert len(solver_swap(empty).words) == len(record["solvers"])
    with styled():
        assert solver_swap_figure(empty).axes[0].get_title(loc="left") == "No adaptive solver finished"
    assert "by at most" in leaks(empty).caption
