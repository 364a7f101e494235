"""Figures of the study: results/figures/NAME.png and NAME.svg, the same bytes for the same result files.

Lines are means over seeds, bands 95 % t intervals, faint lines single seeds; diamonds on dots published values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, StrMethodFormatter

from depthtime import paths
from depthtime.config import Study
from depthtime.report import wording as say
from depthtime.report.clustering import clustering_figure
from depthtime.report.decoding import decoding_figure
from depthtime.report.diffeqformer import diffeqformer_figure
from depthtime.report.downstream import downstream_figure
from depthtime.report.drawing import DARK, GREY, EndLabel, end_labels, new_figure, save, style_colors, styled, title
from depthtime.report.frontier import frontier
from depthtime.report.gradients import gradients_figure
from depthtime.report.sensitivity import sensitivity_figure
from depthtime.report.solver_swap import solver_swap_figure
from depthtime.report.sources import Sources, load_sources
from depthtime.report.spectra import spectra_figure
from depthtime.report.speed import speed_figure
from depthtime.report.trained_clustering import trained_clustering_figure

MARKERS = "os^vPX"  # of groups, beside their colours
FIGURES = paths.RESULTS / "figures"
TICKS = [1, 2, 5, 10, 20, 30, 50, 75, 100, 125, 150, 200, 250, 300, 400, 500, 750]  # of perplexity, also x 1000


def write_figures(study: Study) -> None:
    """Draw every figure of BUILDERS.

    Raises: RecordError when a result file is missing, damaged or of other runs than the study's.
    """
    sources = load_sources(study)
    with styled():
        for name, build in BUILDERS.items():
            save(build(sources), FIGURES, name)


def validation_curves(sources: Sources) -> Figure:
    """Validation perplexity over training steps: each run of the main group, published points, n-gram references."""
    group = sources.main_group
    analysis, published = sources.analyses[group], sources.published
    figure, axes = new_figure(9.2, 5.4)
    figure.subplots_adjust(left=0.075, right=0.735, top=0.83, bottom=0.11)
    labels: list[EndLabel] = []
    drawn: list[float] = []  # every perplexity in the figure, for the limits of its axis
    for run, color in zip(analysis["run_order"], style_colors(len(analysis["run_order"])), strict=True):
        curve = analysis["runs"][run]["curve"]
        _band(axes, [p["step"] for p in curve], curve, color)
        for seed in map(str, analysis["seeds"]):
            points = [(p["step"], p["perplexity"][seed]) for p in curve if p["perplexity"][seed] is not None]
            axes.plot(*zip(*points, strict=True) if points else ([], []), color=color, alpha=0.3, lw=0.7)
            drawn += [y for _, y in points]
        ours = published.by_step.get(run, {}).items() if published.group else ()
        axes.plot([s for s, _ in ours], [y for _, y in ours], **_published_marks(color))
        drawn += [y for _, y in ours]
        labels.append(_ending(sources.label(group, run), curve, color, max(drawn, default=1.0)))
    for entry in sources.references[analysis["data"]]:
        value = entry["valid"]["perplexity"]
        stated = published.references.get(entry["name"])
        note = f" (published {stated})" if stated else ""
        axes.axhline(value, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
        labels.append(EndLabel(value, f"{entry['label']}  {say.number(value)}{note}"))
        drawn.append(value)
    _log_perplexity(axes, min(drawn), max(drawn))
    _steps(axes, analysis["runs"][analysis["run_order"][0]]["curve"])
    axes.set_ylabel("validation perplexity (log scale)")
    end_labels(axes, labels)
    title(axes, _finding(sources, group), f"Group {group}, dataset {analysis['data']}")
    _legend(axes, len(analysis["seeds"]), is_published=bool(published.by_step), what="run")
    return figure


def gap_over_steps(sources: Sources) -> Figure:
    """Relative gap of the last run to the first in percent by step, for every group that has the main group's pair."""
    main = sources.analyses[sources.main_group]["pairs"]
    names = (main[0]["first"], main[0]["second"]) if main else ("", "")
    pairs = [(g, p) for g, p in sources.pairs() if (p["first"], p["second"]) == names]
    figure, axes = new_figure(9.2, 5.0)
    figure.subplots_adjust(left=0.085, right=0.745, top=0.82, bottom=0.115)
    axes.axhline(0, color=DARK, lw=1.0, zorder=2)
    labels = []
    for i, ((group, pair), color) in enumerate(zip(pairs, style_colors(len(pairs)), strict=True)):
        analysis = sources.analyses[group]
        curve = pair["curve"]
        steps = [point["step"] for point in curve]
        _band(axes, steps, [point["percent"] for point in curve], color, MARKERS[i % len(MARKERS)])
        ours = [(s, sources.published.gap_percent(group, names[0], names[1], s)) for s in steps]
        marks = [(s, gap) for s, gap in ours if gap is not None]
        axes.plot([s for s, _ in marks], [gap for _, gap in marks], **_published_marks(color))
        final, gone = curve[-1]["percent"]["mean"], curve[-1]["diverged"]
        known = [point["percent"]["mean"] for point in curve if point["percent"]["mean"] is not None]
        what = f"{say.number(final, sign=True)} %" if final is not None else f"{len(gone)} diverged"
        text = f"{group}  {what}  (n = {len(analysis['seeds'])})"
        labels.append(EndLabel(known[-1] if known else 0.0, text, color, True))
    if pairs:
        _steps(axes, max((pair["curve"] for _, pair in pairs), key=lambda curve: curve[-1]["step"]))
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: say.number(y, 0 if y == int(y) else 1, sign=True)))
    axes.set_ylabel(f"({names[1]} {say.MINUS} {names[0]}) / {names[0]}, perplexity (%)")
    axes.autoscale_view()
    _sides(axes, *names)
    end_labels(axes, labels)
    many = f"Relative gap {names[1]} {say.MINUS} {names[0]}, paired by seed, then averaged"
    title(axes, _gap_finding(sources, names), many)
    _legend(axes, None, is_published=bool(sources.published.by_step), what="group", has_seeds=False)
    return figure


def cost_ratios(sources: Sources) -> Figure:
    """Parameters, block evaluations, FLOPs and step times of the bench's later runs as multiples of its first."""
    rows = sources.cost_ratios()
    figure, axes = new_figure(8.2, 1.9 + 0.42 * len(rows))
    figure.subplots_adjust(
        left=0.3, right=0.96, top=1 - 0.75 / figure.get_figheight(), bottom=0.55 / figure.get_figheight()
    )
    base, *later = sources.study.bench.runs
    axes.axvline(1, color=DARK, lw=1.0, zorder=2)
    for run, color in zip(later, style_colors(len(later) + 1)[1:], strict=True):
        for y, row in enumerate(row for row in rows if row["run"] == run):
            x = row["ratio"]
            axes.plot([1, x], [y, y], color=color, lw=2.5, alpha=0.35, zorder=2)
            axes.plot([x], [y], "o", color=color, ms=7, zorder=3)
            stated = row["published"]
            if stated:
                axes.plot([stated], [y], **_published_marks(color))
            note = f"   (published {stated})" if stated else ""
            away, side = (8, "left") if x >= 1 else (-8, "right")
            axes.annotate(
                f"{x:.2f}{note}", (max(x, stated or x), y), (away, 0), textcoords="offset points",
                ha=side, va="center", color=DARK, size=9.5,
            )  # fmt: skip
    names = list(dict.fromkeys(row["what"] for row in rows))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    top = max([1.0, *(row["ratio"] for row in rows)])
    axes.set_xlim(0, top * 1.22)
    axes.set_xlabel(f"multiple of {base.partition('/')[2]}")
    compared = say.joined([run.partition("/")[2] for run in later]) if later else "Nothing"
    title(axes, f"{compared} beside {base.partition('/')[2]}: equal width, unequal cost", None)
    return figure


def _band(axes: Axes, steps: list[int], entries: list[dict[str, Any]], color: str, marker: str = "o") -> None:
    """Mean line with a marker at each evaluation, and the t interval as a band where there is one."""
    means = [(s, e["mean"]) for s, e in zip(steps, entries, strict=True) if e["mean"] is not None]
    axes.plot([s for s, _ in means], [m for _, m in means], color=color, marker=marker, ms=4, zorder=4, clip_on=False)
    bands = [(s, e["low"], e["high"]) for s, e in zip(steps, entries, strict=True) if e["low"] is not None]
    if bands:
        at, low, high = (list(column) for column in zip(*bands, strict=True))
        axes.fill_between(at, low, high, color=color, alpha=0.22, lw=0, zorder=3)


def _ending(label: str, curve: list[dict[str, Any]], color: str, top: float) -> EndLabel:
    """The label of a curve at its last mean; how many seeds diverged where it has no mean at its end."""
    known = [point["mean"] for point in curve if point["mean"] is not None]
    last = curve[-1]
    what = say.number(last["mean"]) if last["mean"] is not None else f"{len(last['diverged'])} diverged"
    return EndLabel(known[-1] if known else top, f"{label}  {what}", color, True)


def _published_marks(color: str) -> dict[str, Any]:
    line = {"color": color, "ls": (0, (1, 1.6)), "lw": 1.2, "zorder": 5, "clip_on": False}
    return {**line, "marker": "D", "ms": 5, "mfc": "white", "mec": color, "mew": 1.2}


def _log_perplexity(axes: Axes, lowest: float, highest: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(lowest / 1.12, highest * 1.08)
    axes.yaxis.set_major_locator(FixedLocator([*TICKS, *(1000 * tick for tick in TICKS)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _steps(axes: Axes, curve: list[dict[str, Any]]) -> None:
    steps = [point["step"] for point in curve]
    if steps:
        axes.set_xlim(steps[0] - 0.02 * steps[-1], steps[-1])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("training step (optimiser updates)")


def _sides(axes: Axes, first: str, second: str) -> None:
    """Which side of zero means what, inside the axes at the left."""
    low, high = axes.get_ylim()
    for y, text, va in ((0.975, f"{first} better", "top"), (0.025, f"{second} better", "bottom")):
        if (high > 0) if va == "top" else (low < 0):
            axes.text(0.015, y, text, transform=axes.transAxes, va=va, color=GREY, size=9, style="italic")


def _finding(sources: Sources, group: str) -> str:
    """The end of the curves and where they cross, in one neutral line."""
    analysis = sources.analyses[group]
    runs = [(run, analysis["runs"][run]) for run in analysis["run_order"]]
    means = [(run, row["final"]["mean"]) for run, row in runs]
    ends = say.joined(f"{run} {'diverged' if mean is None else say.number(mean)}" for run, mean in means)
    last = say.count(runs[0][1]["curve"][-1]["step"])
    where = ""
    if len(analysis["pairs"]) == 1:
        crossing = analysis["pairs"][0]["crossing"]
        step = crossing["step"]
        where = "; no crossing" if step is None else f"; the curves cross near step {say.count(round(step))}"
        where = "" if crossing["of_mean"] is None else where
    return f"Perplexity at step {last}: {ends}{where}"


def _gap_finding(sources: Sources, names: tuple[str, str]) -> str:
    """How many groups end on which side of zero, by their intervals."""
    ends = [p["curve"][-1]["difference"] for _, p in sources.pairs() if (p["first"], p["second"]) == names]
    known = [end for end in ends if end["low"] is not None]
    first = sum(end["low"] > 0 for end in known)
    second = sum(end["high"] < 0 for end in known)
    words = [f"{names[0]} lower in {first}"] if first else []
    words += [f"{names[1]} lower in {second}"] if second else []
    words += [f"undecided in {len(ends) - first - second}"] if len(ends) - first - second else []
    return f"At the last step: {', '.join(words)} of {len(ends)} settings" if words else "No pairs in this study"


def _legend(axes: Axes, n: int | None, *, is_published: bool, what: str, has_seeds: bool = True) -> None:
    """What line, band and marks mean, with the number of seeds."""
    seeds = "over seeds" if n is None else f"n = {n}"
    handles: list[Any] = [Line2D([], [], color=DARK, marker="o", ms=3.5, label=f"mean of a {what} ({seeds})")]
    if n != 1:
        handles.append(Patch(color=DARK, alpha=0.22, lw=0, label="95 % t interval over seeds"))
        if has_seeds:
            handles.append(Line2D([], [], color=DARK, alpha=0.4, lw=0.7, label="single seeds"))
    if is_published:
        handles.append(Line2D([], [], label="published, one seed", **_published_marks(DARK)))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.015, -0.13), ncols=len(handles), handlelength=2.2)


BUILDERS: dict[str, Callable[[Sources], Figure]] = {
    "validation_curves": validation_curves,
    "gap_over_steps": gap_over_steps,
    "cost_ratios": cost_ratios,
    "frontier": frontier,
    "diffeqformer": diffeqformer_figure,
    "speed": speed_figure,
    "gradients": gradients_figure,
    "solver_swap": solver_swap_figure,
    "decoding": decoding_figure,
    "clustering": clustering_figure,
    "trained_clustering": trained_clustering_figure,
    "spectra": spectra_figure,
    "sensitivity": sensitivity_figure,
    "downstream": downstream_figure,
}
