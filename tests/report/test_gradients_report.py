"""The tables and the figure of gradients say what the record says, and their texts do not overlap."""

import dataclasses
import itertools

import pytest

import made_up_study as made_up
from depthtime.config import load_params
from depthtime.report.drawing import styled
from depthtime.report.frame import csv, markdown
from depthtime.report.gradients import gradient_methods, gradients, gradients_figure, rows
from depthtime.report.published import Published
from depthtime.report.sources import Sources
from made_up_measures import COUNTS, gradients_record


def sources_of(study, record):
    published = Published(**{field.name: None for field in dataclasses.fields(Published)})
    return Sources(study, published, {}, {}, {}, {"gradients": record})


@pytest.fixture(scope="module")
def params():
    return load_params(made_up.REPOSITORY / "params.yaml")


@pytest.fixture(scope="module")
def sources(params):
    return sources_of(params, gradients_record(params))


def test_one_row_for_each_method_and_number_of_steps(params, sources):
    settings = params.gradients
    table = gradients(sources)
    wanted = list(itertools.product(settings.methods, settings.steps))
    assert [(row["method"], row["steps"]) for row in table.numbers] == wanted
    assert len(table.words) == len(wanted)
    for row, words in zip(table.numbers, table.words, strict=True):
        assert row["seeds"] == words["seeds"] == "none: one trained model, one batch"
        assert row["equal"] == words["held equal"]
    assert "coupled" in table.numbers[-1]["equal"]


def test_numbers_are_those_of_the_record_and_times_are_over_direct(sources):
    table = {(row["method"], row["steps"]): row for row in gradients(sources).numbers}
    row = table["reversible", 64]
    cell = sources.measured["gradients"]["reversible"]["steps_64"]
    assert {key: row[key] for key in cell} == cell
    assert row["time_ratio"] == pytest.approx(2.7)
    assert row["peak_saved_mib"] == pytest.approx(17.5)
    assert table["direct", 4]["time_ratio"] == 1
    assert table["direct", 4]["scheme_difference"] is None
    assert "reversible,64," in csv(gradients(sources))


def test_the_caption_states_run_batch_reference_memory_and_machine(sources):
    text = markdown(gradients(sources)).splitlines()[0]
    wanted = ["core/ode/42", "8 training windows of 63 positions", "float64 direct", "saved for the backward pass"]
    wanted += ["1 thread of a made-up machine", "`results/records/gradients.json`"]
    wanted += [f"{sources.study.gradients.rounds} rounds"]
    for part in wanted:
        assert part in text


def test_what_was_not_timed_or_is_not_finite_has_a_dash(params):
    record = gradients_record(params)
    record["adjoint"]["steps_1"] |= {"relative_error": None, "median_s": None, "q1_s": None, "q3_s": None}
    source = sources_of(params, record)
    words = next(row for row in gradients(source).words if (row["gradient"], row["steps"]) == ("adjoint", "1"))
    assert words["error, float32"] == words["ms, median [quartiles]"] == words["time over direct"] == "\u2013"
    with styled():
        gradients_figure(source).canvas.draw()


def test_every_option_of_the_source_has_a_row(sources):
    table = gradient_methods(sources)
    options = " ".join(row["option"] for row in table.numbers)
    for option in ("Interpolating", "Backsolve", "Quadrature", "ReverseDiff", "Tracker", "ForwardDiff", "reversible"):
        assert option in options
    assert {row["gradient"] for row in table.numbers} == set(COUNTS)
    assert all(row["measured"] and row["seeds"] and row["equal"] for row in table.numbers)
    assert "`results/records/gradients.json`" in markdown(table)


@pytest.mark.parametrize("name", ["gradients", "gradient_methods"])
def test_there_is_a_caption_for_the_snakemake_report(name):
    assert (made_up.REPOSITORY / "workflow/report" / f"{name}.rst").read_text(encoding="utf-8").strip()


def test_the_figure_draws_every_row_and_its_title_holds_the_numbers(sources):
    with styled():
        figure = gradients_figure(sources)
    found = list(rows(sources.measured["gradients"]))
    for axes, key in zip(figure.axes, ("relative_error", "peak_saved_mib", "time_ratio"), strict=True):
        drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines if line.get_label() in COUNTS}
        assert drawn == {method: [row[key] for row in found if row["method"] == method] for method in COUNTS}
        assert axes.get_xlabel()
    title = figure.axes[0].get_title(loc="left")
    assert (
        title == "Error with 4 steps: adjoint 0.12, reversible 1.2e-6; memory with 64 steps: reversible 1.6 % of direct"
    )


def test_a_study_with_fewer_methods_and_steps_can_be_reported(params):
    few = params.gradients.model_copy(update={"methods": ("checkpointed", "adjoint"), "steps": (1,)})
    study = params.model_copy(update={"gradients": few})
    source = sources_of(study, gradients_record(study))
    assert [row["time_ratio"] for row in gradients(source).numbers] == [None, None]
    with styled():
        figure = gradients_figure(source)
        figure.canvas.draw()
    assert figure.axes[0].get_title(loc="left").startswith("Error with 1 step: adjoint")
