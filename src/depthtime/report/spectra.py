"""Spectra over depth, before and after training: a table of growth and sign, and a figure of both."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, style_colors
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

KINDS = {"qk": "QK", "ov": "OV", "ff": "FF"}
PANELS = {
    "qk": "QK: W_Q W_Kᵀ, what a head attends to",
    "ov": "OV: W_V W_O, what a head adds",
    "ff": "FF: W_in W_out, the whole layer",
}
BOTH = "QK and OV of a head"
EQUAL = "configuration, seed, depth times"
RHO = "\u03c1"
STATES = ("trained", "untrained", "more")


def spectra(sources: Sources) -> Table:
    """One row for each run and kind of eigenvalues: growth and sign over depth, beside the untrained model."""
    record = sources.measured["spectra"]
    numbers: list[Row] = []
    words: list[Row] = []
    for run, label in _labels(sources).items():
        part = record[run]
        for kind in _kinds(record):
            entry = part[kind]
            number = len(part["seeds"]) * (1 if kind.startswith("ff") else part["heads"])
            numbers.append(
                {"run": run, "kind": kind, "eigenvalues": entry["eigenvalues"], **_flat(entry)}
                | {"steps": len(part["times"]), "seeds": len(part["seeds"]), "seeds_x_heads": number, "equal": EQUAL}
            )
            words.append(
                {"run": label, "matrices": _kind_label(kind, part), **_cells(entry, kind)}
                | {"seeds": f"n = {len(part['seeds'])}", f"seeds {say.TIMES} heads": str(number), "held equal": EQUAL}
            )
    return Table(numbers, words, _caption(record), [paths.measured("spectra")])


def _cells(entry: Row, kind: str) -> Row:
    after, before, more = (entry[state] for state in STATES)
    share = "both_positive" if kind == "qk_and_ov" else "positive"
    cells = {
        "rank correlation with t": _interval(after, "rho", 2, sign=True),
        "untrained": _interval(before, "rho", 2, sign=True),
        "minus untrained": _interval(more, "rho", 2, sign=True),
        "last over first": _interval(after, "growth", 2),
        "untrained, last over first": _interval(before, "growth", 2),
        "largest in the last third (%)": _interval(after, "peak_late", 0, 100),
    }
    for name, words in (("early", "first third"), ("late", "last third"), ("change", "change")):
        cells[f"positive, {words} (%)"] = _interval(after, f"{share}_{name}", 0, 100, sign=name == "change")
    return cells | {"positive, last third, untrained (%)": _interval(before, f"{share}_late", 0, 100)}


def _caption(record: Row) -> str:
    parts = [record[run] for run in record["names"]]
    left_out = list(dict.fromkeys(word for part in parts for word in part["left_out"]))
    fewest = min(len(part["seeds"]) for part in parts)
    return (
        "**Eigenvalues over depth, before and after training.** Of the matrices W(t) of the forward pass, at its own "
        "depth times: QK = W_Q W_Kᵀ and OV = W_V W_O of each head, FF = W_in W_out of a layer, all or some hidden "
        f"units; eigenvalues that are 0 by rank are left out, and so are {say.joined(left_out)}. Rank correlation: "
        "Spearman's rho of the largest modulus with depth time, by head and seed; last over first: its ratio at the "
        "ends, geometric mean; largest in the last third of the steps: share of heads, a third by chance; positive: "
        f"share of eigenvalues with a positive real part ({BOTH}: share of heads in which both are mostly so; its rho "
        f"is the mean of both). Means with {100 * record['confidence']:g} % intervals from a bootstrap of seeds, then "
        f"heads, which with {fewest} seeds are rather too short. {say.NONE}: undefined, as with constant weights. "
        "Untrained: the model that training started from, same seed. Held equal: trained and untrained, pair by pair; "
        "between runs only what their group shares. The source publishes no numbers for its spectra."
    )


def _kinds(record: Row) -> list[str]:
    return ["qk", "ov", "qk_and_ov", "ff", *(f"ff_{count}" for count in record["ff_units"])]


def _kind_label(kind: str, part: Row) -> str:
    """`QK (32 eigenvalues)`."""
    if kind == "qk_and_ov":
        return BOTH
    name = KINDS.get(kind) or f"FF, {kind.partition('_')[2]} units"
    return f"{name} ({part[kind]['eigenvalues']} eigenvalues)"


def _labels(sources: Sources) -> dict[str, str]:
    """Run name -> its label, in the order of the record."""
    record = sources.measured["spectra"]
    return {run: sources.label(*record[run]["run"].split("/")) for run in record["names"]}


def _flat(entry: Row) -> Row:
    """Every trend, as `trained_rho_low`."""
    return {
        f"{state}_{name}": value
        for state in STATES
        for name, value in entry[state].items()
        if name not in {"by_seed", "by_step"}
    }


def _interval(entry: Row, name: str, digits: int, scale: float = 1, sign: bool = False) -> str:
    """`mean [low, high]`, times `scale`; the mean alone with one seed; a dash where there is none."""
    values = {"mean": entry.get(name), "low": entry.get(f"{name}_low"), "high": entry.get(f"{name}_high")}
    return say.interval({key: None if x is None else scale * x for key, x in values.items()}, digits, sign)


def spectra_figure(sources: Sources) -> Figure:
    """Largest modulus over depth time above, share of positive real parts below; QK, OV and FF from left to right.

    The untrained largest modulus is drawn from the height of the trained one: it may be ten thousand times smaller.
    """
    record, labels = sources.measured["spectra"], _labels(sources)
    colors = dict(zip(labels, style_colors(len(labels)), strict=True))
    figure = Figure(figsize=(12.8, 7.8 + 0.22 * len(labels)))
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(PANELS), squeeze=False)
    tall = figure.get_figheight()
    head = 1.4 + 0.22 * len(labels)
    figure.subplots_adjust(left=0.065, right=0.985, top=1 - head / tall, bottom=1.15 / tall, wspace=0.2, hspace=0.32)
    for (upper, lower), kind in zip(grid.T, PANELS, strict=True):
        for run, color in colors.items():
            _draw(upper, record[run], kind, "largest", color)
            _draw(lower, record[run], kind, "positive", color)
        _dress(upper, lower, kind)
        for place, run in enumerate(reversed(labels)):
            text, at = _rho_words(run, record[run], kind), (0, 5 + 13 * place)
            upper.annotate(text, (0, 1), at, "axes fraction", "offset points", color=colors[run], size=8.5)
        upper.set_title(PANELS[kind], size=10.5, pad=9 + 13 * len(labels))
    grid[0, 0].set_ylabel("largest modulus (log scale)")
    grid[1, 0].set_ylabel("share of positive real parts")
    figure.text(0.065, 1 - 0.3 / tall, _finding(record), size=12, weight="bold", va="center")
    for place, line in enumerate(_details(record)):
        figure.text(0.065, 1 - (0.57 + 0.22 * place) / tall, line, color=GREY, size=9.5, va="center")
    handles: list[Any] = [Line2D([], [], color=colors[run], label=label) for run, label in labels.items()]
    handles += [
        Line2D([], [], color=DARK, label="median, trained"),
        Patch(color=DARK, alpha=0.16, lw=0, label="middle half, trained"),
        Line2D([], [], color=DARK, lw=0.6, alpha=0.4, label="one head (FF: one seed)"),
        Line2D([], [], color=DARK, lw=1.3, ls=(0, (4, 2)), label="median, untrained"),
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.06, 0), ncols=len(handles), handlelength=2.2)
    return figure


def _draw(axes: Axes, part: Row, kind: str, measure: str, color: str) -> None:
    times = part["times"]
    heads = _heads(part, kind, "trained", measure)
    q1, median, q3 = np.quantile(heads, (0.25, 0.5, 0.75), axis=0)
    axes.plot(times, heads.T, color=color, lw=0.6, alpha=0.3, zorder=2)
    axes.fill_between(times, q1, q3, color=color, alpha=0.16, lw=0)
    axes.plot(times, median, color=color, marker="o", ms=3.5, zorder=4)
    before = np.median(_heads(part, kind, "untrained", measure), axis=0)
    scale = _scale(part, kind) if measure == "largest" else 1
    axes.plot(times, scale * before, color=color, lw=1.3, ls=(0, (4, 2)), zorder=3)


def _scale(part: Row, kind: str) -> float:
    """What brings the untrained largest modulus to the height of the trained one at the first step, in the median."""
    after, before = (part[kind][state]["by_step"]["largest"][0] for state in ("trained", "untrained"))
    return float(after / before) if before > 0 else 1.0


def _heads(part: Row, kind: str, state: str, measure: str) -> NDArray[np.float64]:
    """(seeds x heads, steps)."""
    return np.concatenate([np.array(part[kind][state]["by_seed"][str(seed)][measure]) for seed in part["seeds"]])


def _dress(upper: Axes, lower: Axes, kind: str) -> None:
    upper.set_yscale("log")
    low, high = upper.get_ylim()
    upper.yaxis.set_major_locator(LogLocator(10, subs=(1,) if high > 100 * low else (1, 2, 5)))
    upper.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1e-3 else say.small(value))
    upper.yaxis.set_minor_formatter(NullFormatter())
    lower.axhline(0.5, color=GREY, lw=0.8, zorder=1)
    lower.set_ylim(-0.03, 1.03)
    lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    for axes in (upper, lower):
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("depth time t")


def _rho_words(run: str, part: Row, kind: str) -> str:
    """Run, rho with its interval, rho before training, and in brackets by how much that one is scaled."""
    after, before = (part[kind][state] for state in ("trained", "untrained"))
    rho, scale = say.number(before["rho"], 2, sign=True), say.small(_scale(part, kind))
    return f"{run}: {RHO} = {_interval(after, 'rho', 2, sign=True)}; untrained {rho} ({say.TIMES} {scale})"


def _finding(record: Row) -> str:
    """The rank correlations of QK and OV of every run."""
    runs = []
    for run in record["names"]:
        rho = {kind: record[run][kind]["trained"]["rho"] for kind in ("qk", "ov")}
        runs.append(f"{run} " + ", ".join(f"{KINDS[k]} {say.number(x, 2, sign=True)}" for k, x in rho.items()))
    return f"Do eigenvalues grow with depth? Rank correlation with depth time: {'; '.join(runs)}"


def _details(record: Row) -> list[str]:
    counts = [
        f"{run} {len(part['seeds'])} seeds {say.TIMES} {part['heads']} heads"
        for run, part in ((run, record[run]) for run in record["names"])
    ]
    level = f"{100 * record['confidence']:g} %"
    return [
        f"n: {', '.join(counts)} (FF: one a seed). {RHO}: Spearman's, mean [{level} interval, bootstrap of seeds, then "
        "heads]. Eigenvalues that are 0 by rank are left out.",
        f"Dashed: the untrained model that training started from; above it is scaled, by the number after {say.TIMES}, "
        "to start at the same height.",
    ]


def spectra_values(sources: Sources) -> dict[str, str]:
    """Values for sentences, such as spectra.diffeq.qk.rho, spectra.diffeq.ov.untrained_growth."""
    record = sources.measured["spectra"]
    found = {}
    for run in record["names"]:
        for kind in _kinds(record):
            entry, at = record[run][kind], f"spectra.{run}.{kind}"
            share = "both_positive" if kind == "qk_and_ov" else "positive"
            for state, prefix in (("trained", ""), ("untrained", "untrained_"), ("more", "more_")):
                found[f"{at}.{prefix}rho"] = _interval(entry[state], "rho", 2, sign=True)
                found[f"{at}.{prefix}growth"] = _interval(entry[state], "growth", 2)
                late = _interval(entry[state], f"{share}_late", 0, 100, sign=state == "more")
                found[f"{at}.{prefix}positive_late_percent"] = late
    return found
