"""Tokens moved by trained weights: what becomes of them over depth, with weights that change and held constant."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, EndLabel, end_labels, new_figure, style_colors, title
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

LABELS = {
    "layer": "whole layer",
    "attention": "attention",
    "unmasked": "attention, no mask",
    "plain_norm": "attention, no mask, plain norm",
    "no_norm": "attention, no mask, no norm",
}
EQUAL = "words, embeddings, steps"


def trained_clustering(sources: Sources) -> Table:
    """One row for each field and choice of weights: the mean over trained seeds, with their range."""
    record = sources.measured["trained_clustering"]
    numbers: list[Row] = []
    words: list[Row] = []
    count = f"n = {len(record['model_seeds'])}"
    for name in record["fields"]:
        for weights in record["weights"]:
            cell = record[name][weights]
            row: Row = {"field": name, "weights": weights}
            text: Row = {"moved by": LABELS[name], "weights": weights}
            for key, digits in (("components", 0), ("cosine", 2), ("effective_rank", 1)):
                for when in ("start", "end"):
                    row |= {f"{key}_{when}_{n}": v for n, v in _spread(cell[when][key]).items()}
                start, end = (_worded(cell[when][key], digits) for when in ("start", "end"))
                text[key.replace("_", " ")] = f"{start} to {end}"
            numbers.append(row | {"seeds": len(record["model_seeds"]), "draws": record["draws"], "equal": EQUAL})
            words.append(text | {"seeds": count, "held equal": EQUAL})
    caption = (
        f"**Tokens moved by the trained weights of `{record['run']}`.** {record['tokens']} random words of the "
        f"vocabulary at a time, {record['draws']} draws, from t = 0 to 1 on the model's own grid. Constant: the same "
        "weights, averaged over depth. Components at distance "
        f"{record['threshold']:g} of standardised tokens, mean cosine over pairs, effective rank: medians over draws, "
        "then mean over trained seeds [smallest, largest]. A plain norm has no gain and shift."
    )
    return Table(numbers, words, caption, [paths.measured("trained_clustering")])


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "smallest": min(values), "largest": max(values)}


def _worded(values: Sequence[float], digits: int) -> str:
    low, high = (say.number(value, digits) for value in (min(values), max(values)))
    mean = say.number(statistics.fmean(values), digits)
    return mean if low == high else f"{mean} [{low}, {high}]"


def trained_clustering_figure(sources: Sources) -> Figure:
    """Mean cosine between tokens over depth time: a line for each trained seed, dashed where weights are constant."""
    record = sources.measured["trained_clustering"]
    figure, axes = new_figure(9.2, 5.0)
    figure.subplots_adjust(left=0.085, right=0.62, top=0.83, bottom=0.2)
    labels = []
    for name, color in zip(record["fields"], style_colors(len(record["fields"])), strict=True):
        for weights in record["weights"]:
            style = "-" if weights == "changing" else (0, (4, 2))
            curves = record[name][weights]["curve"]
            for curve in curves:
                axes.plot(record["times"], curve, color=color, ls=style, lw=1.2)
            mean = statistics.fmean(curve[-1] for curve in curves)
            text = f"{LABELS[name]}, {weights}  {say.number(mean, 2)}"
            labels.append(EndLabel(mean, text, color, weights == "changing"))
    axes.set_xlim(0, 1)
    axes.set_xlabel("depth time t")
    axes.set_ylabel("mean cosine between two tokens")
    axes.margins(y=0.06)
    axes.autoscale_view(scalex=False)
    end_labels(axes, labels, size=8.5)
    title(axes, _finding(record), f"{record['tokens']} random words, medians of {record['draws']} draws")
    handles = [
        Line2D([], [], color=DARK, label="weights W(t), one line a trained seed"),
        Line2D([], [], color=DARK, ls=(0, (4, 2)), label="their mean over depth"),
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.05, 0), ncols=2)
    return figure


def _finding(record: Row) -> str:
    """Where cosine starts and ends under the whole layer, and under its constant mean."""
    layer = record["layer"]
    start = statistics.fmean(layer["changing"]["start"]["cosine"])
    ends = (statistics.fmean(layer[weights]["end"]["cosine"]) for weights in record["weights"])
    changing, constant = (say.number(end, 2) for end in ends)
    return f"Cosine from {say.number(start, 2)} to {changing} under changing weights, {constant} under constant ones"


def trained_clustering_values(sources: Sources) -> dict[str, str]:
    """Values for sentences, such as trained_clustering.layer.changing.cosine."""
    record = sources.measured["trained_clustering"]
    found = {}
    for name in record["fields"]:
        for weights in record["weights"]:
            cell, at = record[name][weights], f"trained_clustering.{name}.{weights}"
            found[f"{at}.start_cosine"] = say.number(statistics.fmean(cell["start"]["cosine"]), 2)
            found[f"{at}.cosine"] = say.number(statistics.fmean(cell["end"]["cosine"]), 2)
            found[f"{at}.components"] = say.number(statistics.fmean(cell["end"]["components"]), 0)
            found[f"{at}.rank"] = say.number(statistics.fmean(cell["end"]["effective_rank"]), 1)
    return found
