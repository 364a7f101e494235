"""Figures have the same bytes for the same records, and their labels do not overlap."""

import itertools

import pytest
from matplotlib.text import Text

import made_up_study as made_up
from depthtime.analyse.aggregate import analyse
from depthtime.report.drawing import spread, styled
from depthtime.report.figures import BUILDERS, FIGURES, write_figures
from depthtime.report.frontier import DODGE, dodged
from depthtime.report.sources import load_sources


def test_the_same_records_give_the_same_bytes(study):
    write_figures(study)
    before = {path.name: path.read_bytes() for path in FIGURES.iterdir()}
    write_figures(study)
    assert {path.name: path.read_bytes() for path in FIGURES.iterdir()} == before
    assert set(before) == {f"{name}.{kind}" for name in BUILDERS for kind in ("png", "svg")}
    for content in before.values():
        assert b"Matplotlib v" not in content
        assert b"<dc:date>" not in content


def test_a_users_own_matplotlib_settings_do_not_reach_the_figures(study):
    import matplotlib

    write_figures(study)
    before = {path.name: path.read_bytes() for path in FIGURES.iterdir()}
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "svg.fonttype": "none"}):
        write_figures(study)
    assert {path.name: path.read_bytes() for path in FIGURES.iterdir()} == before


@pytest.mark.parametrize("name", BUILDERS)
def test_no_text_overlaps_another(study, name):
    with styled():
        figure = BUILDERS[name](load_sources(study))
        figure.canvas.draw()
        texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
        for axes in figure.axes:
            texts += [*axes.texts, axes._left_title, axes.xaxis.label, axes.yaxis.label]
            texts += axes.get_legend().get_texts() if axes.get_legend() else []
            ticks = [(axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())]
            texts += [
                tick.label1
                for axis, lim in ticks
                for tick in axis.get_major_ticks()
                if tick.label1.get_visible() and min(lim) <= tick.get_loc() <= max(lim)
            ]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    assert len(boxes) > 5
    overlaps = [(s, t) for (s, a), (t, b) in itertools.combinations(boxes, 2) if a.overlaps(b)]
    assert overlaps == []


@pytest.mark.parametrize("name", ["gradients", "clustering", "spectra", "sensitivity", "downstream"])
def test_no_text_leaves_a_figure_of_panels(study, name):
    with styled():
        figure = BUILDERS[name](load_sources(study))
        figure.canvas.draw()
        texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    assert len(boxes) > 30
    width, height = figure.canvas.get_width_height()
    assert [s for s, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height] == []


@pytest.mark.parametrize("name", BUILDERS)
def test_axes_are_labelled_and_titles_state_the_numbers(study, name):
    with styled():
        axes = BUILDERS[name](load_sources(study)).axes[0]
    assert axes.get_xlabel()
    assert axes.get_title(loc="left")


@pytest.mark.parametrize("name", BUILDERS)
def test_every_figure_has_a_caption_for_the_snakemake_report(name):
    assert (made_up.REPOSITORY / "workflow/report" / f"{name}.rst").read_text(encoding="utf-8").strip()


def test_diverged_seeds_are_marked_in_the_labels(study):
    made_up.diverge("core", "ode", 44, at=1700)
    analyse(study, "core")
    with styled():
        figures = [BUILDERS[name](load_sources(study)) for name in ("validation_curves", "gap_over_steps")]
    labels = [text.get_text() for figure in figures for text in figure.axes[0].texts]
    assert "ode (rk4 \u00d7 4)  1 diverged" in labels
    assert "core  1 diverged  (n = 5)" in labels


def test_a_control_with_a_diverged_seed_stays_in_the_frontier(study):
    made_up.diverge("controls", "prenorm", 44, at=1700)
    analyse(study, "controls")
    with styled():
        figure = BUILDERS["frontier"](load_sources(study))
    labels = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("prenorm (rk4 \u00d7 4)  1 diverged" in label for label in labels)


def test_a_run_of_which_every_seed_diverged_at_once_can_be_drawn(study):
    for seed in study.groups["core"].seeds:
        made_up.diverge("core", "ode", seed, at=100)
    analyse(study, "core")
    write_figures(study)


def test_the_title_gives_the_final_perplexities(study):
    with styled():
        axes = BUILDERS["validation_curves"](load_sources(study)).axes[0]
    assert axes.get_title(loc="left").startswith("Perplexity at step 3,000: discrete 119.1 and ode 129.5")


def test_labels_far_apart_stay_where_they_are():
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])


def test_labels_that_would_overlap_move_apart_around_their_middle():
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread([0.48, 0.5, 0.52], 0.1) == pytest.approx([0.4, 0.5, 0.6])


def test_spread_labels_keep_order_and_distance():
    placed = spread([0.1, 0.11, 0.12, 0.3, 0.31, 0.9], 0.08)
    assert all(b - a >= 0.08 - 1e-12 for a, b in itertools.pairwise(placed))


def test_marks_of_the_frontier_move_only_where_they_would_lie_on_each_other():
    costs, heights = [16.0, 16.0, 16.0, 2.0], [0.5, 0.51, 0.9, 0.5]
    moved = dodged(costs, heights)
    assert moved[0] == pytest.approx(16)
    assert max(moved[0], moved[1]) / min(moved[0], moved[1]) == pytest.approx(DODGE, rel=0.03)
    assert moved[2:] == pytest.approx([16, 2])
