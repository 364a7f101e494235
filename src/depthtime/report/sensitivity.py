"""Which words matter: a table of how well scores of words agree, and a figure of it with exponents by distance."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, EndLabel, end_labels, style_colors
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

LABELS = {
    "released": "released exponent",
    "mended": "released, steps mended",
    "tangent": "growth at the output",
    "tangent_few": "growth, few directions",
    "tangent_mean": "mean growth at the output",
    "exponent": "exponent of the flow",
    "deletion": "effect of deletion",
    "gradient": f"gradient {say.TIMES} input",
    "rollout": "attention roll-out",
    "recency": "position alone",
}
ROWS = ("released", "mended", "tangent", "tangent_mean", "exponent", "recency")  # of the figure; the table has all
LINES = ("released", "mended", "tangent", "tangent_mean", "exponent")
PANELS = ("deletion", "gradient", "rollout")
EQUAL = "model, sentence, predicted word, words ranked"
PLACED = {"left": 0.15, "right": 0.985}  # of the upper panels, in parts of the figure


def runs_of(sources: Sources) -> dict[str, tuple[str, dict[str, Any]]]:
    """Run name -> (its label, its part of the record), in the order of params.yaml."""
    names = [name.split("/") for name in sources.study.sensitivity.runs]
    return {run: (sources.label(group, run), sources.measured["sensitivity"][run]) for group, run in names}


def agreement(part: dict[str, Any], a: str, b: str) -> dict[str, Any] | None:
    """The entry of a pair of scores, whichever is named first; None where a run lacks one."""
    table = part["agreement"]
    found: dict[str, Any] | None = table.get(a, {}).get(b) or table.get(b, {}).get(a)
    return found


def sensitivity(sources: Sources) -> Table:
    """One row for each run and pair of scores: rank correlation, the same given the position, and beyond it."""
    record = sources.measured["sensitivity"]
    numbers: list[Row] = []
    words: list[Row] = []
    about = {"sentences": record["num_sentences"], "words": record["num_words"], "equal": EQUAL}
    for run, (label, part) in runs_of(sources).items():
        for a, b in itertools.combinations(part["scores"], 2):
            entry = part["agreement"][a][b]
            numbers.append({"run": run, "score": a, "against": b, **entry, "seeds": part["seeds"], **about})
            words.append(
                {
                    "model": label,
                    "score": LABELS[a],
                    "against": LABELS[b],
                    "rank correlation": _interval(entry, ""),
                    "given the position": _interval(entry, "partial_"),
                    "minus that of the position": _interval(entry, "beyond_"),
                    "by seed": ", ".join(say.number(value, 2) for value in entry["by_seed"]),
                    "scored": f"{record['num_sentences']} sentences, {record['num_words']} words",
                    "seeds": f"n = {len(part['seeds'])}",
                    "held equal": EQUAL,
                }
            )
    columns = list(dict.fromkeys(key for row in numbers for key in row))
    numbers = [{key: row.get(key) for key in columns} for row in numbers]
    caption = (
        "**Which words matter to the next one, by several scores.** Spearman's rank correlation of two scores of the "
        "words of a sentence before its last one; mean over seeds, then over sentences, with a 95 % bootstrap interval "
        "over sentences. Given the position: partial correlation, since place alone may decide. "
        f"Minus that of the position: beyond ranking by place. {_gaps(sources)}Few directions: "
        f"{record['directions']} random ones instead of all. The source shows coloured sentences and no number."
    )
    return Table(numbers, words, caption, [paths.measured("sensitivity")])


def _interval(entry: Row, prefix: str) -> str:
    if f"{prefix}mean" not in entry:
        return say.NONE
    mean, low, high = (say.number(entry[f"{prefix}{key}"], 2, sign=True) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _gaps(sources: Sources) -> str:
    """How far the released exponent is from the others, where a run has it."""
    told = []
    for run, (_, part) in runs_of(sources).items():
        for other, gap in part["gap"].items():
            low, high = (say.number(100 * gap[key], 0) for key in ("low", "high"))
            told.append(f"{LABELS[other]} {say.number(100 * gap['mean'], 0)} % [{low}, {high}] ({run})")
    return f"Released exponent, median relative difference from: {'; '.join(told)}. " if told else ""


def sensitivity_figure(sources: Sources) -> Figure:
    """Above: agreement of each score with three measures of importance. Below: scores by distance from the output."""
    runs = runs_of(sources)
    figure = Figure(figsize=(14.4, 8.6))
    FigureCanvasAgg(figure)
    above = figure.add_gridspec(1, len(PANELS), **PLACED, top=0.85, bottom=0.545, wspace=0.08)
    upper = above.subplots(sharex=True, sharey=True, squeeze=False)[0]
    lower = figure.add_gridspec(1, len(runs), left=0.065, right=0.835, top=0.41, bottom=0.075, wspace=0.62)
    colors = style_colors(len(runs))
    for axes, reference in zip(upper, PANELS, strict=True):
        axes.set_title(f"agreement with {LABELS[reference]}", size=10.5, pad=6)
        for number, ((_, part), color) in enumerate(zip(runs.values(), colors, strict=True)):
            _draw_agreement(axes, part, reference, color, 0.36 * (number - (len(runs) - 1) / 2))
        axes.axvline(0, color=DARK, lw=1, zorder=2)
        axes.set_xlabel("rank correlation over words")
    upper[0].set_yticks(range(len(ROWS)), [LABELS[name] for name in ROWS])
    upper[0].set_ylim(len(ROWS) - 0.4, -0.6)
    panels = lower.subplots(sharey=True, squeeze=False)[0]
    for axes, (label, part) in zip(panels, runs.values(), strict=True):
        _draw_distances(axes, label, part)
    panels[0].set_ylabel("log growth over depth (nats)")
    _explain(figure, sources, colors)
    return figure


def _draw_agreement(axes: Axes, part: dict[str, Any], reference: str, color: str, shift: float) -> None:
    """Dots with intervals: filled, the rank correlation; open, given the position."""
    for row, name in enumerate(ROWS):
        entry = agreement(part, name, reference)
        for prefix, fill, offset in (("", color, -0.08), ("partial_", "white", 0.08)):
            if entry is None or f"{prefix}mean" not in entry:
                continue
            y = row + shift + offset
            axes.plot([entry[f"{prefix}low"], entry[f"{prefix}high"]], [y, y], color=color, lw=1.3, zorder=3)
            axes.plot([entry[f"{prefix}mean"]], [y], color=color, marker="o", ms=5.5, mfc=fill, zorder=4)


def _draw_distances(axes: Axes, label: str, part: dict[str, Any]) -> None:
    """Mean of each score over sentences by distance from the last word, with its interval."""
    labels = []
    for name, color in zip(LINES, [*style_colors(6)[2:], DARK], strict=True):  # the first two are the runs' above
        if name not in part["distance"]:
            continue
        points = part["distance"][name]
        x = [point["distance"] for point in points]
        low, high = ([point[key] for point in points] for key in ("low", "high"))
        axes.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
        axes.plot(x, [point["mean"] for point in points], color=color, marker="o", ms=3, zorder=4)
        labels.append(EndLabel(points[-1]["mean"], LABELS[name], color, True))
    axes.axhline(0, color=DARK, lw=0.8, zorder=2)
    axes.set_title(f"{label}: scores by distance", size=10.5, pad=6)
    axes.set_xlabel("words before the last one")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelleft=True)
    axes.autoscale_view()
    end_labels(axes, labels, size=8.5)


def _explain(figure: Figure, sources: Sources, colors: list[str]) -> None:
    """Headline, what it rests on, and what marks mean."""
    record, runs = sources.measured["sensitivity"], runs_of(sources)
    seeds = say.joined(f"{len(part['seeds'])} of {run}" for run, (_, part) in runs.items())
    detail = (
        f"{record['num_words']} words of {record['num_sentences']} sentences of this study; seeds: {seeds}. "
        "Words before the last one, at which the model predicts the next."
    )
    figure.text(0.012, 0.97, finding(sources), size=11.5, weight="bold", va="center")
    figure.text(0.012, 0.938, detail, color=GREY, size=9.5, va="center")
    handles: list[Any] = [Patch(color=c, label=label) for c, (label, _) in zip(colors, runs.values(), strict=True)]
    handles += [
        Line2D([], [], color=DARK, marker="o", ms=5.5, label="mean and 95 % bootstrap interval over sentences"),
        Line2D([], [], color=DARK, marker="o", ms=5.5, mfc="white", label="the same, given the position"),
    ]
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(0.005, 0.902), ncols=len(handles))


def finding(sources: Sources) -> str:
    """How the first run's scores agree with deletion, once the position is known."""
    run, (_, part) = next(iter(runs_of(sources).items()))
    told = []
    for name in ("released", "tangent"):
        entry = agreement(part, name, "deletion")
        told += [f"{LABELS[name]} {_interval(entry, 'partial_')}"] if entry else []
    return f"Agreement with the effect of deletion given the position, {run}: {'; '.join(told)}"


def sensitivity_values(sources: Sources) -> dict[str, str]:
    """Values for sentences, such as sensitivity.diffeq.released.deletion and ...deletion_given_position."""
    record = sources.measured["sensitivity"]
    found = {f"sensitivity.num_{what}": str(record[f"num_{what}"]) for what in ("sentences", "words")}
    for run, (_, part) in runs_of(sources).items():
        for a, b in itertools.combinations(part["scores"], 2):
            entry, at = part["agreement"][a][b], f"sensitivity.{run}.{a}.{b}"
            found[at] = _interval(entry, "")
            found[f"{at}_given_position"] = _interval(entry, "partial_")
        found |= {
            f"sensitivity.{run}.gap.{other}_percent": say.number(100 * gap["mean"], 0)
            for other, gap in part["gap"].items()
        }
    return found
