"""DiffEqFormer against its baselines: a table of every run, and a figure of gaps to the runs with generated weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, new_figure, style_colors, title
from depthtime.report.frame import Row, Table, columns, files, level, seeds
from depthtime.report.sources import Sources

SOURCE = "diffeqformer"
REFERENCE = "diffeq"  # the run of a group with generated weights, which the others are held against


def diffeqformer(sources: Sources) -> Table:
    """Every compared run of the source's groups with its gap to the run with generated weights."""
    numbers: list[Row] = []
    words: list[Row] = []
    groups = sources.groups_of(SOURCE)
    for group in groups:
        analysis = sources.analyses[group]
        for run in analysis["run_order"]:
            row, pair = analysis["runs"][run], _pair(analysis, run)
            published = sources.published.gaps(SOURCE, group, run)
            cost = {"parameters": row["parameters"]["total"], **row["cost"]}
            gap = None if pair is None else pair["final"]["percent"]
            equal = "the others are held against it" if pair is None else say.equal(pair["equal"])
            numbers.append(
                {"group": group, "run": run, **cost, "learning_rate": row["learning_rate"]}
                | columns(row["final"], "final_") | columns(row["test"], "test_")
                | (columns(gap, "gap_percent_") if gap else {}) | {"gap_percent_published": published}
                | {"seeds": len(analysis["seeds"]), "diverged": [int(seed) for seed in row["diverged_seeds"]]}
                | {"equal": equal}
            )  # fmt: skip
            words.append(
                {
                    "run": f"{group}/{sources.label(group, run)}",
                    "parameters": say.count(cost["parameters"]),
                    "layer evaluations": say.count(cost["nfe_forward"]),
                    "MFLOPs a token": say.number(cost["flops_per_token_forward"] / 1e6, 2),
                    "learning rate": f"{row['learning_rate']:g}",
                    "perplexity": say.interval(row["final"]),
                    "test": say.interval(row["test"]),
                    f"gap to {REFERENCE}": say.percent(gap) if gap else say.NONE,
                    "published gaps": ", ".join(f"{say.number(g, 1, sign=True)} %" for g in published) or say.NONE,
                    "seeds": seeds(analysis, row),
                    "held equal": equal,
                }
            )
    sample = sources.analyses[groups[0] if groups else sources.main_group]
    caption = (
        "**Weights generated from depth time, against stored ones.** Validation perplexity at the last step and test "
        f"perplexity of the best model, mean and {level(sample)} t interval over seeds; gap to the run with generated "
        f"weights (`{REFERENCE}` of the form) in percent, paired by seed (positive: the run is worse). Not equal: "
        "parameters, and learning rates: each the best of as many trials on another seed, but where a group has no "
        "search (gpt_rates). Published gaps: "
        f"{sources.published.gap_places(SOURCE, groups)}, one seed each."
    )
    return Table(numbers, words, caption, files(sources, groups))


def _pair(analysis: dict[str, Any], run: str) -> dict[str, Any] | None:
    """The pair of a run with the run of generated weights of its form; None for that run itself."""
    couples = (pair for pair in analysis["pairs"] if pair["second"] == run)
    return next((pair for pair in couples if pair["first"].rpartition("/")[2] == REFERENCE), None)


def diffeqformer_figure(sources: Sources) -> Figure:
    """Gaps of all runs to generated weights: filled marks rest on several seeds, hollow ones on one."""
    rows = [row for group in sources.groups_of(SOURCE) for row in _rows(sources, group)]
    height_in = 2.3 + 0.36 * len(rows)
    figure, axes = new_figure(9.2, height_in)
    figure.subplots_adjust(left=0.2, right=0.72, top=1 - 0.95 / height_in, bottom=0.95 / height_in)
    axes.axvline(0, color=DARK, lw=1.0)
    colors = dict(zip(sources.groups_of(SOURCE), style_colors(len(sources.groups_of(SOURCE))), strict=True))
    for height, row in enumerate(reversed(rows)):
        color, gap = colors[row["group"]], row["gap"]
        if gap["low"] is not None:
            axes.plot([gap["low"], gap["high"]], [height, height], color=color, lw=2.5, alpha=0.5)
        if row["is_reference"]:
            axes.plot(0, height, "|", color=color, ms=16, mew=2.5, zorder=4)
        elif gap["mean"] is not None:
            fill = color if gap["low"] is not None else "white"
            axes.plot(gap["mean"], height, "o", color=color, mfc=fill, ms=7, zorder=4)
        axes.plot(row["published"], [height] * len(row["published"]), "D", color=GREY, mfc="white", ms=4.5, zorder=3)
        text = f"{say.interval(row['final'])}   {say.count(row['parameters'])}"
        axes.annotate(text, (1.02, height), xycoords=("axes fraction", "data"), va="center", color=color, size=9)
    axes.annotate(
        "perplexity, parameters", (1.02, len(rows) - 0.4), xycoords=("axes fraction", "data"), color=GREY, size=9
    )
    axes.set_yticks(range(len(rows)), [row["label"] for row in reversed(rows)])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: say.number(x, 0, sign=True)))
    axes.set_xlabel(f"perplexity beyond that of generated weights ({REFERENCE}, same form) in percent")
    title(axes, _finding(rows), "Validation at the last step; bars are 95 % t intervals over seeds, paired by seed")
    handles = [
        Line2D([], [], color=DARK, marker="|", ls="", ms=12, mew=2.5, label="generated weights"),
        Line2D([], [], color=DARK, marker="o", ls="", label="several seeds"),
        Line2D([], [], color=DARK, marker="o", ls="", mfc="white", label="one seed"),
        Line2D([], [], color=GREY, marker="D", ls="", mfc="white", ms=4.5, label="published, at larger sizes"),
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.05, 0), ncols=4)
    return figure


def _rows(sources: Sources, group: str) -> Iterator[dict[str, Any]]:
    """The runs of a group by perplexity, each with its gap; the run of generated weights has the gap 0."""
    analysis = sources.analyses[group]
    runs = sorted(analysis["run_order"], key=lambda run: analysis["runs"][run]["final"]["mean"] or float("inf"))
    zero = {"mean": 0.0, "low": None, "high": None}
    for run in runs:
        row, pair = analysis["runs"][run], _pair(analysis, run)
        yield {
            "group": group,
            "run": run,
            "label": f"{group}/{run}",
            "is_reference": pair is None,
            "gap": zero if pair is None else pair["final"]["percent"],
            "rate": row["learning_rate"],
            "final": row["final"],
            "parameters": row["parameters"]["total"],
            "published": sources.published.gaps(SOURCE, group, run),
        }


def _finding(rows: list[dict[str, Any]]) -> str:
    """The gaps of the baselines that were published, at each learning rate, and that of the best run."""
    known = [row for row in rows if row["gap"]["mean"] is not None and not row["is_reference"]]
    if not known:
        return "No run to compare"
    baselines = {row["run"] for row in known if row["published"]}
    shown = [row for row in known if row["run"] in baselines]
    best = min(known, key=lambda row: row["gap"]["mean"])
    shown += [] if best in shown else [best]
    words = [f"{row['run']} {say.number(row['gap']['mean'], 1, sign=True)} % (rate {row['rate']:g})" for row in shown]
    return f"Against generated weights: {', '.join(words)}"
