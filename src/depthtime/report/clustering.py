"""Tokens moved by attention alone: a table of what is left of them, and a figure of their clusters over time."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, EndLabel, end_labels, style_colors
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

LABELS = {
    "identity": "A = V = I",
    "identity_soft": "A = V = I, scores / √d",
    "repelling": f"A = I, V = {say.MINUS}I",
    "hyperplanes": "A = I, V = abs(Gaussian)",
    "random": "A Gaussian, V = abs(Gaussian)",
    "gaussian": "Gaussian, g = 1",
    "gaussian_weak": "Gaussian, g = 1/5",
    "rescaled": "A = V = I, rescaled",
    "g_t": "g = t",
    "g_t2": "g = t²",
    "g_t4": "g = t⁴",
    "g_cos": "g = cos 2πt",
    "g_late": "g = (t/10)⁴",
    "g_abs_cos": "g = abs(cos 2πt)",
}
PANELS = {  # the table has the rest
    "constant weights": ("identity", "gaussian", "repelling", "gaussian_weak", "rescaled", "identity_soft"),
    "Gaussian weights times g(t)": ("g_t", "g_cos", "g_t2", "g_late", "g_t4", "g_abs_cos"),
}
EQUAL = "tokens at t = 0, matrices drawn, steps"
TICKS = [1, 2, 3, 5, 10, 20, 40, 100]


def clustering(sources: Sources) -> Table:
    """One row for each width and choice of weights: components, cosine and effective rank at the end."""
    record = sources.measured["clustering"]
    numbers: list[Row] = []
    words: list[Row] = []
    for width in record["dimensions"]:
        for name in record["choices"]:
            cell = record[f"d{width}"][name]
            numbers.append(
                {"d": width, "weights": name, "total_g": cell["total_g"], **_flat(cell)}
                | {"seeds": record["seeds"], "equal": EQUAL}
            )
            few = cell["few"]
            words.append(
                {
                    "d": str(width),
                    "weights": LABELS[name],
                    "∫ abs(g) dt": say.count(cell["total_g"]),
                    "components": _with_interval(cell["components"], "median", 1),
                    "mean": _with_interval(cell["components"], "mean", 1),
                    f"at most {record['few']} (%)": f"{say.number(100 * few['share'], 0)} "
                    f"[{say.number(100 * few['low'], 0)}, {say.number(100 * few['high'], 0)}]",
                    f"at {record['tight_threshold']}": _short(cell["components_tight"]["median"]),
                    f"at {record['wide_threshold']}": _short(cell["components_wide"]["median"]),
                    "cosine": say.number(cell["cosine"]["median"], 2, sign=True),
                    "effective rank": say.number(cell["effective_rank"]["median"], 2),
                    "minus g = 1": _more(cell, "more"),
                    "minus g = 1/5": _more(cell, "more_than_weak"),
                    "seeds": f"n = {record['seeds']}",
                    "held equal": EQUAL,
                }
            )
    starts = [f"{_short(value)} (d = {d})" for d, value in _starts(record).items()]
    caption = (
        f"**Clusters of tokens moved by attention alone.** {record['tokens']} tokens, uniform in [{say.MINUS}2, 2]^d, "
        f"after {record['num_steps']} Euler steps of {record['step_size']:g}. Each token is standardised over its d "
        "features before each step (not where rescaled); scores (zA)(zA)ᵀ, drift softmax(scores) zV; g(t) multiplies "
        f"A and V. Components: neighbours at most {record['threshold']:g} apart, and at two other distances: median "
        "(and mean) over seeds, 95 % percentile bootstrap intervals; the share with Wilson's. Cosine, mean over pairs, "
        "and effective rank (exp of the entropy of the singular values): medians. Minus g = 1 and minus g = 1/5: "
        "components beyond those of the same Gaussian matrices held constant, mean of the differences by seed. "
        f"At t = 0 there are {say.joined(starts)} components."
    )
    return Table(numbers, words, caption, [paths.measured("clustering")])


def _starts(record: Row) -> dict[int, float]:
    """Components at t = 0 by width, the same for every choice that standardises."""
    return {d: record[f"d{d}"]["identity"]["curve"]["components"]["median"][0] for d in record["dimensions"]}


def _flat(cell: Row) -> Row:
    """Every number of a cell but curves and seeds, as `components_median_low`."""
    parts = {key: value for key, value in cell.items() if isinstance(value, dict) and key != "curve"}
    return {f"{key}_{name}": value for key, part in parts.items() for name, value in part.items()}


def _with_interval(entry: Row, name: str, digits: int, sign: bool = False) -> str:
    low, high = (say.number(entry[f"{name}_{end}"], digits, sign) for end in ("low", "high"))
    return f"{say.number(entry[name], digits, sign)} [{low}, {high}]"


def _more(cell: Row, key: str) -> str:
    return _with_interval(cell[key], "mean", 1, sign=True) if key in cell else say.NONE


def _short(value: float) -> str:
    """A median of whole numbers: `2` or `2.5`."""
    return f"{value:g}"


def clustering_figure(sources: Sources) -> Figure:
    """Components over time, log scale: constant weights left, changing ones right; smallest and largest width."""
    record = sources.measured["clustering"]
    widths = list(dict.fromkeys((record["dimensions"][0], record["dimensions"][-1])))
    figure = Figure(figsize=(12.8, 1.9 + 3.4 * len(widths)))
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(widths), 2, sharey=True, squeeze=False)
    tall = figure.get_figheight()
    figure.subplots_adjust(left=0.055, right=0.845, top=1 - 1.2 / tall, bottom=0.75 / tall, wspace=0.6, hspace=0.36)
    for row, width in zip(grid, widths, strict=True):
        for axes, (heading, names) in zip(row, PANELS.items(), strict=True):
            axes.set_title(f"d = {width}: {heading}", size=10.5, pad=8)
            axes.set_xlabel("time t")
            _draw(axes, record, width, names)
    for axes in grid[:, 0]:
        axes.set_ylabel("components (log scale)")
    figure.text(0.0551, 1 - 0.3 / tall, _finding(record, widths), size=12, weight="bold", va="center")
    detail = (
        f"Clusters of {record['tokens']} tokens moved by attention alone; tokens within {record['threshold']:g} of "
        f"each other share one. In brackets ∫ abs(g) dt, how much the weights move tokens in all."
    )
    figure.text(0.0551, 1 - 0.57 / tall, detail, color=GREY, size=9.5, va="center")
    handles = [
        Line2D([], [], color=DARK, label=f"median of {record['seeds']} seeds"),
        Patch(color=DARK, alpha=0.13, lw=0, label="middle half of the seeds"),
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.05, 0), ncols=2)
    return figure


def _draw(axes: Axes, record: Row, width: int, names: Iterable[str]) -> None:
    names = list(names)
    labels = []
    for name, color in zip(names, style_colors(len(names)), strict=True):
        cell = record[f"d{width}"][name]
        curve = cell["curve"]["components"]
        axes.fill_between(record["times"], curve["q1"], curve["q3"], color=color, alpha=0.13, lw=0)
        axes.plot(record["times"], curve["median"], color=color, clip_on=False, zorder=4)
        text = f"{LABELS[name]}   {_short(curve['median'][-1])}  ({say.number(cell['total_g'], 0)})"
        labels.append(EndLabel(curve["median"][-1], text, color, True))
    axes.set_xlim(0, record["times"][-1])
    axes.set_yscale("log")
    axes.set_ylim(0.9, 1.35 * record["tokens"])
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in TICKS if tick <= record["tokens"]]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.tick_params(labelleft=True)
    end_labels(axes, labels, size=8.5)


def _finding(record: Row, widths: list[int]) -> str:
    """Where Gaussian weights end, constant and changing, at each width."""
    ends = []
    for width in widths:
        at = {name: cell["components"]["median"] for name, cell in record[f"d{width}"].items()}
        changing = [at[name] for name in at if name.startswith("g_")]
        lowest, highest = _short(min(changing)), _short(max(changing))
        ends.append(f"d = {width}, constant: {_short(at['gaussian'])}, changing: {lowest} to {highest}")
    return f"Clusters left by Gaussian weights at {'; at '.join(ends)}"


def clustering_values(sources: Sources) -> dict[str, str]:
    """Values for sentences, such as clustering.d3.g_cos.components."""
    record = sources.measured["clustering"]
    found = {"clustering.seeds": str(record["seeds"])}
    for width, start in _starts(record).items():
        found[f"clustering.d{width}.start"] = _short(start)
        for name in record["choices"]:
            cell, at = record[f"d{width}"][name], f"clustering.d{width}.{name}"
            found[f"{at}.components"] = _short(cell["components"]["median"])
            found[f"{at}.few_percent"] = say.number(100 * cell["few"]["share"], 0)
    return found
