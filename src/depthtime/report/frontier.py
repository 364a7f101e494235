"""Quality against cost: every run of the fair comparison by block evaluations, training step and forward pass."""

from __future__ import annotations

import itertools
import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from depthtime.report import wording as say
from depthtime.report.controls import frontier_points
from depthtime.report.drawing import DARK, GREY, EndLabel, end_labels, new_panels, style_colors, title
from depthtime.report.sources import Sources

FAR = 1.5  # times the lowest perplexity: a run above that would flatten all others, and is drawn at the upper edge
DODGE = 1.22  # factor between the costs of runs that would lie on each other
NEAR = 0.05  # of the height of a panel: how near in perplexity that is
PANELS = {
    "nfe_forward": "block evaluations (log scale)",
    "step_ms": "ms a training step (log scale)",
    "forward_ms": "ms a forward pass (log scale)",
}


def frontier(sources: Sources) -> Figure:
    """Perplexity at the last step over three costs; filled marks rest on several seeds, hollow ones on one.

    Runs are numbered by perplexity. The grey line joins those that no other run beats in both respects. A run far above
    the others, or one with diverged seeds and so without a mean, is an arrow at the upper edge.
    """
    points = frontier_points(sources)
    timed = {row["run"]: row for row in sources.bench["rows"] if row["threads"] == 1}
    for point in points:
        point["step_ms"] = 1000 * timed[point["name"]]["median_step_s"]
        point["forward_ms"] = 1000 * timed[point["name"]]["median_forward_s"]
    points = sorted(points, key=lambda p: math.inf if p["mean"] is None else float(p["mean"]))
    top = 1.02 * max((p["mean"] for p in points if not _is_far(p, points)), default=1.0)
    for point in points:
        point["y"] = top if _is_far(point, points) else point["mean"]
    figure, panels = new_panels(11.4, 5.0, len(PANELS))
    figure.subplots_adjust(left=0.065, right=0.765, top=0.82, bottom=0.13, wspace=0.08)
    colors = style_colors(len(points))
    for axes, (key, label) in zip(panels, PANELS.items(), strict=True):
        _panel(axes, points, colors, key)
        axes.set_xlabel(label)
    panels[0].set_ylabel("validation perplexity at the last step")
    for axes in panels[1:]:
        axes.tick_params(labelleft=False)
    labels = [
        EndLabel(point["y"], f"{rank}  {point['label']}  {_ending(point)}", color, True)
        for rank, (point, color) in enumerate(zip(points, colors, strict=True), start=1)
    ]
    end_labels(panels[-1], labels)
    if points:
        best = points[0]
        finding = f"Lowest perplexity: {best['label']}, {_ending(best)}"
        title(
            panels[0],
            finding,
            "One-thread times; bars are 95 % t intervals over seeds; runs of equal cost are drawn side by side"
            + ("; arrows: above the axis" if any(_is_far(point, points) for point in points) else ""),
        )
    handles: list[Any] = [
        Line2D([], [], color=DARK, marker="o", ls="", label="several seeds"),
        Line2D([], [], color=DARK, marker="o", ls="", mfc="white", label="one seed"),
        Line2D([], [], color=GREY, lw=1.0, ls=(0, (4, 3)), label="no other run is better in both respects"),
    ]
    panels[0].legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.05, -0.13), ncols=3)
    return figure


def _is_far(point: dict[str, Any], points: list[dict[str, Any]]) -> bool:
    return point["mean"] is None or bool(point["mean"] > FAR * points[0]["mean"])


def _ending(point: dict[str, Any]) -> str:
    """The perplexity at the end, or how many seeds diverged where there is no mean."""
    return say.number(point["mean"]) if point["mean"] is not None else f"{len(point['diverged'])} diverged"


def _panel(axes: Axes, points: list[dict[str, Any]], colors: list[str], key: str) -> None:
    low, high = points[0]["y"] if points else 0.0, max((point["y"] for point in points), default=1.0)
    height = (high - low) or 1.0
    values = dodged([point[key] for point in points], [(point["y"] - low) / height for point in points])
    drawn_at = {point["name"]: x for point, x in zip(points, values, strict=True)}
    best = unbeaten(points, key)
    at = [drawn_at[point["name"]] for point in best]
    axes.plot(at, [point["mean"] for point in best], color=GREY, lw=1.0, ls=(0, (4, 3)), zorder=2)
    for rank, (point, x, color) in enumerate(zip(points, values, colors, strict=True), start=1):
        is_far = _is_far(point, points)
        if point["low"] is not None and not is_far:
            axes.plot([x, x], [point["low"], point["high"]], color=color, lw=2, alpha=0.5, zorder=3)
        fill, ink = (color, "white") if point["low"] is not None else ("white", color)
        axes.plot([x], [point["y"]], "^" if is_far else "o", color=color, mfc=fill, ms=14 if is_far else 11, zorder=4)
        axes.annotate(
            str(rank), (x, point["y"]), ha="center", va="center_baseline", color=ink, size=7, weight="bold", zorder=5
        )
    axes.set_xscale("log")
    values = values or [1.0]
    axes.set_xlim(min(values) / 1.5, max(values) * 1.5)
    ticks = [1, 2, 4, 8, 16, 32, 64] if key == "nfe_forward" else [5, 10, 20, 50, 100, 200, 500, 1000]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def dodged(costs: list[float], heights: list[float]) -> list[float]:
    """Costs with those of points that would lie on each other moved apart, no further than needed.

    Two points lie on each other when their costs differ by less than DODGE and their heights by less than NEAR.
    """
    moved: list[float] = []
    for cost, height in zip(costs, heights, strict=True):
        beside = [math.log(x) for x, y in zip(moved, heights, strict=False) if abs(height - y) < NEAR]
        places = (math.log(cost) + sign * step * 0.02 for step in itertools.count() for sign in (1, -1))
        free = next(place for place in places if all(abs(place - x) >= math.log(DODGE) for x in beside))
        moved.append(math.exp(free))
    return moved


def unbeaten(points: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Points that no other point beats in cost `key` and in perplexity, by ascending cost."""
    kept: list[dict[str, Any]] = []
    for point in sorted((p for p in points if p["mean"] is not None), key=lambda p: (p[key], p["mean"])):
        if not kept or point["mean"] < kept[-1]["mean"]:
            kept.append(point)
    return kept
