"""Gradients by method: how exact, at what memory and time. Two tables and a figure, from one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, new_figure, style_colors
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

SEEDS = "none: one trained model, one batch"
EQUAL = "weights, batch, loss, solver, steps, threads"
EQUAL_COUPLED = "weights, batch, loss, steps, threads (solver: coupled)"
LOOKS: dict[str, dict[str, Any]] = {  # direct and checkpointed coincide in error: checkpointed is open and dashed
    "direct": {"marker": "o", "ms": 6},
    "checkpointed": {"marker": "s", "ms": 8.5, "mfc": "none", "ls": (0, (4, 2))},
    "adjoint": {"marker": "^", "ms": 6},
    "reversible": {"marker": "D", "ms": 5},
}
PANELS = {
    "relative_error": "relative error of the float32 gradient",
    "peak_saved_mib": "peak of saved tensors (MiB)",
    "time_ratio": "time over that of direct",
}
OPTIONS = [  # option of the source, ours, what that means
    ("InterpolatingAdjoint (default)", "adjoint", "no equivalent: reads states kept on the way; ours solves back"),
    ("BacksolveAdjoint; any unknown value", "adjoint", "the same equations; our steps back are those of the solve"),
    ("QuadratureAdjoint", "adjoint", "no equivalent: same equations, parameter gradients by a quadrature afterwards"),
    ("ReverseDiff, Tracker", "direct", "the same: reverse differentiation of the solver's operations"),
    ("ForwardDiff", "direct", "the same derivative, by forward differentiation there"),
    ("reversible: true", "reversible", "there it selects BacksolveAdjoint; here an algebraically reversible scheme"),
    ("none", "checkpointed", "ours alone: direct, with each step computed again in the backward pass"),
]  # fmt: skip


def gradients(sources: Sources) -> Table:
    """One row for each method and number of steps: errors, memory, time, evaluations."""
    record = sources.measured["gradients"]
    numbers, words = [], []
    for row in rows(record):
        coupled = row["method"] == "reversible"
        numbers.append({**row, "seeds": SEEDS, "equal": EQUAL_COUPLED if coupled else EQUAL})
        words.append(
            {
                "gradient": row["method"],
                "steps": str(row["steps"]),
                "error, float32": say.small(row["relative_error"]),
                "error of the method, float64": say.small(row["relative_error_float64"]),
                "from plain scheme": say.small(row["scheme_difference"]),
                "saved MiB": say.number(row["peak_saved_mib"]),
                "ms, median [quartiles]": _quartiles(row),
                "time over direct": say.number(row["time_ratio"], 2),
                "block evaluations forward": say.count(row["nfe_forward"]),
                "backward": say.count(row["nfe_backward"]),
                "seeds": SEEDS,
                "held equal": EQUAL_COUPLED if coupled else EQUAL,
            }
        )
    batch, machine, threads = record["batch"], record["machine"], record["threads"]
    caption = (
        f"**Gradients by method.** Loss of {batch['windows']} training windows of {batch['positions']} positions after "
        f"the field of `{record['run']}`, differentiated with respect to its first state and all parameters of the "
        "block. Errors are relative to float64 direct differentiation of the same scheme in as many steps, in float32 "
        "and for the method itself in float64 (0 for direct, which is the reference); reversible integrates a coupled "
        "system, so its gradient differs from the plain scheme's, which is no error. Memory: the most bytes that "
        "tensors saved for the backward pass hold at once, parameters and first state not counted. Time: forward pass, "
        f"loss and gradient, {record['rounds']} rounds in turns, {threads} thread{'s' if threads > 1 else ''} of "
        f"{machine['cpu']}."
    )
    return Table(numbers, words, caption, [paths.measured("gradients")])


def gradient_methods(sources: Sources) -> Table:
    """The source's options and ours; says which of ours were measured."""
    record = sources.measured["gradients"]
    numbers, words = [], []
    for theirs, ours, what in OPTIONS:
        row = {"option": theirs, "gradient": ours, "meaning": what, "measured": ours in record}
        numbers.append(row | {"seeds": "none: a list", "equal": "names only"})
        words.append(
            {"option of the source": theirs, "here": f"`gradient: {ours}`", "what it means": what}
            | {"seeds": "none: a list", "held equal": "names only"}
        )
    caption = (
        "**Ways to get gradients**: the options that the source names for differentiating its solve, and the nearest "
        "ones here. Errors, memory and time of ours are in the table of gradients."
    )
    return Table(numbers, words, caption, [paths.measured("gradients")])


def gradients_figure(sources: Sources) -> Figure:
    """Error, saved bytes and time over the number of steps, one line a method."""
    record = sources.measured["gradients"]
    found = list(rows(record))
    methods = list(dict.fromkeys(row["method"] for row in found))
    figure, first = new_figure(11.0, 4.4)
    first.remove()
    panels = list(figure.subplots(1, len(PANELS)))
    figure.subplots_adjust(left=0.065, right=0.985, top=0.78, bottom=0.225, wspace=0.26)
    colors = dict(zip(LOOKS, style_colors(len(LOOKS)), strict=True))
    for axes, (key, what) in zip(panels, PANELS.items(), strict=True):
        for method in methods:
            points = [(row["steps"], row[key]) for row in found if row["method"] == method and row[key] is not None]
            look = {"mec": colors[method], "mew": 1.4, "lw": 1.6, **LOOKS[method]}
            axes.plot(*zip(*points, strict=True) if points else ([], []), color=colors[method], label=method, **look)
        _scales(axes, key, record["steps"])
        axes.text(0, 1.03, what, transform=axes.transAxes, color=GREY, size=9.5, va="bottom")
    panels[0].set_title(_finding(record), pad=28)
    note = f"{record['run']}, batch of {record['batch']['windows']} windows, threads: {record['threads']}"
    figure.text(0.985, 0.02, note, color=GREY, size=9, ha="right", va="bottom")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="lower left", bbox_to_anchor=(0.055, 0.0), ncols=len(methods)
    )
    return figure


def rows(record: Row) -> Iterator[Row]:
    """A flat row for each method and number of steps; `time_ratio` is over direct at the same steps."""
    for method in (name for name in LOOKS if name in record):
        for n in record["steps"]:
            row = record[method][f"steps_{n}"]
            base = record.get("direct", {}).get(f"steps_{n}", {}).get("median_s")
            yield {
                "method": method,
                "steps": n,
                **{key: row[key] for key in ("relative_error", "relative_error_float64", "scheme_difference")},
                "peak_saved_bytes": row["peak_saved_bytes"],
                "peak_saved_mib": row["peak_saved_bytes"] / 2**20,
                **{key: row[key] for key in ("median_s", "q1_s", "q3_s")},
                "time_ratio": row["median_s"] / base if base and row["median_s"] else None,
                **{key: row[key] for key in ("nfe_forward", "nfe_backward")},
            }


def _quartiles(row: Row) -> str:
    if row["median_s"] is None:
        return say.NONE
    middle, low, high = (say.number(1000 * row[key]) for key in ("median_s", "q1_s", "q3_s"))
    return f"{middle} [{low}, {high}]"


def _scales(axes: Axes, key: str, steps: list[int]) -> None:
    """Powers of two along x; errors and bytes on a logarithmic scale, times on a linear one from zero."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: say.count(x)))
    axes.set_xlabel("steps (log scale)")
    axes.margins(y=0.1)
    if key == "time_ratio":
        axes.axhline(1, color=DARK, lw=0.8, zorder=1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_minor_locator(NullLocator())


def _finding(record: Row) -> str:
    """Errors of adjoint and reversible gradients, and what reversible ones save beside direct ones."""
    steps = record["steps"]
    n, last = 4 if 4 in steps else steps[0], steps[-1]
    errors = [
        f"{method} {say.small(record[method][f'steps_{n}']['relative_error'])}"
        for method in ("adjoint", "reversible")
        if method in record
    ]
    parts = [f"Error with {_steps(n)}: {', '.join(errors)}"] if errors else []
    if "direct" in record and "reversible" in record:
        ours, theirs = (record[method][f"steps_{last}"]["peak_saved_bytes"] for method in ("reversible", "direct"))
        parts.append(f"memory with {_steps(last)}: reversible {say.small(100 * ours / theirs)} % of direct")
    return "; ".join(parts) or "Gradients by method"


def _steps(n: int) -> str:
    return f"{n} step{'s' if n > 1 else ''}"
