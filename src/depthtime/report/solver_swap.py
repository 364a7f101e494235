"""Trained weights under other solvers, and what adaptive ones leak: two tables and a figure, from one record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, style_colors, title
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

SEEDS = "none: one trained model"
EQUAL = "weights, words scored"
LEAKS = {"later_words": "later words", "other_sentences": "other sentences", "alone": "alone"}
MARKERS = "os^vPDX<>*"
LINEAR = 0.01  # percent: the scale is linear nearer to zero
POWERS = [LINEAR * 10**k for k in range(8)]  # ticks of a change in percent
DASHED = (0, (3, 2))
NOTHING = "No adaptive solver finished"


def solver_swap(sources: Sources) -> Table:
    """One row for each solver: what it costs and the perplexity it gives the trained weights."""
    record = sources.measured["solver_swap"]
    numbers, words = [], []
    for row in record["solvers"]:
        numbers.append({**row, "windows": record["windows"], "num_scored": record["num_scored"]})
        numbers[-1] |= {"seeds": SEEDS, "equal": EQUAL}
        words.append(
            {
                "solver": row["solver"],
                "order": str(row["order"]),
                "steps or tolerance": _setting(row) + (" (trained)" if row["name"] == record["trained_with"] else ""),
                "block evaluations": _evaluations(row, record["max_nfe"]),
                "rejected steps": say.number(row["num_rejected"]),
                "perplexity": say.number(row["perplexity"], 2) if row["status"] != "diverged" else "diverged",
                "ratio to trained": say.number(row["ratio"], 5),
                "seeds": SEEDS,
                "held equal": EQUAL,
            }
        )
    caption = (
        f"**Other solvers on trained weights.** `{record['run']}`, trained with {_name(record['trained_with'])} fixed "
        f"steps, evaluated with other solvers on {say.count(record['num_scored'])} validation words "
        f"({say.count(record['windows'])} windows). Adaptive solvers: rtol = atol = tolerance; evaluations (the first "
        f"step size included) and rejected steps are means over batches of {record['batch_size']} windows "
        "[smallest, largest]."
    )
    return Table(numbers, words, caption, [paths.measured("solver_swap")])


def leaks(sources: Sources) -> Table:
    """One row for each adaptive setting and the trained one: how far words that must not matter move the logits."""
    record = sources.measured["solver_swap"]
    rows = {row["name"]: row for row in record["solvers"]}
    numbers, words = [], []
    for name, leak in record["leak"].items():
        row = rows[name]
        setting = {key: row[key] for key in ("name", "solver", "steps", "tolerance")}
        numbers.append({**setting, **leak, "leak_batches": record["leak_batches"], "seeds": SEEDS, "equal": EQUAL})
        cells = {"solver": row["solver"], "steps or tolerance": _setting(row)}
        for key, what in LEAKS.items():
            cells |= {f"{what}: logit": say.small(leak[key]), f"{what}: nats": say.small(leak[f"{key}_nll"])}
        words.append({**cells, "seeds": SEEDS, "held equal": EQUAL})
    shifts = [abs(leak[f"{key}_percent"] or 0) for leak in record["leak"].values() for key in LEAKS]
    caption = (
        "**What an adaptive solver leaks.** Its steps come from an error norm over the whole batch, so other words "
        "move every logit. Largest absolute change of a logit, and mean absolute change of a word's negative "
        "log-likelihood in nats: before the middle of a window when all words from there on are replaced (later "
        "words); in a sentence when all others of its batch are replaced (other sentences) or taken away (alone; with "
        f"fixed steps, rounding of another batch size). {record['leak_batches']} batches of {record['batch_size']} "
        "windows. Perplexity moves "
        f"by at most {say.small(max(shifts))} %."
    )
    return Table(numbers, words, caption, [paths.measured("solver_swap")])


def solver_swap_figure(sources: Sources) -> Figure:
    """Left: perplexity of the trained weights over block evaluations, by solver. Right: leaks over tolerance."""
    record = sources.measured["solver_swap"]
    figure = Figure(figsize=(11.8, 5.5))
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.85, bottom=0.265, wspace=0.24)
    looks = _looks(record["solvers"])
    _draw_perplexity(left, record, looks)
    _draw_leaks(right, record, looks)
    solvers = [Line2D([], [], label=solver, **look) for solver, look in looks.items()]
    kinds = [
        Line2D([], [], color=DARK, lw=1.6, label="later words replaced"),
        Line2D([], [], color=DARK, lw=1.6, ls=DASHED, label="other sentences replaced"),
        Line2D([], [], color=GREY, lw=0.9, ls=":", label="equal to the tolerance"),
    ]
    for axes, handles, columns, heading in (
        (left, solvers, 5, "full markers: fixed steps; open: adaptive; colour: order"),
        (right, kinds, 1, None),
    ):
        place = {"loc": "upper left", "bbox_to_anchor": (-0.015, -0.14), "ncols": columns, "handlelength": 2.0}
        axes.legend(handles=handles, title=heading, title_fontsize=9, alignment="left", columnspacing=1.2, **place)
    return figure


def _draw_perplexity(axes: Axes, record: Row, looks: dict[str, Row]) -> None:
    """Change of the perplexity in percent of the trained setting's, over mean block evaluations a batch."""
    rows = [row | {"percent": 100 * (row["ratio"] - 1)} for row in record["solvers"] if row["ratio"] is not None]
    axes.axhline(0, color=DARK, lw=1.0, zorder=2)
    for solver, look in looks.items():
        line = sorted((row["nfe"], row["percent"]) for row in rows if row["solver"] == solver)
        axes.plot([x for x, _ in line], [y for _, y in line], **look, zorder=3)
    for row in rows:
        if row["name"] == record["trained_with"]:
            axes.plot([row["nfe"]], [0], "o", ms=14, mfc="none", mec=DARK, mew=1.4, zorder=5)
            away: dict[str, Any] = {"xytext": (-8, -9), "textcoords": "offset points", "ha": "right", "va": "top"}
            axes.annotate("trained", (row["nfe"], 0), size=9, **away)
    _percent_axis(axes, [row["percent"] for row in rows])
    _powers_of_two(axes, [row["nfe"] for row in rows])
    trained = _name(record["trained_with"])
    axes.set_xlabel("block evaluations, mean of a batch (log scale)")
    axes.set_ylabel(f"perplexity beside {trained} (%)")
    tight = min((row["tolerance"] for row in rows if row["tolerance"]), default=None)
    at_tight = [row["percent"] for row in rows if tight and row["tolerance"] == tight]
    others = [row["percent"] for row in rows if row["name"] != record["trained_with"]]
    finding = f"At tolerance {_power(tight)}: perplexity {_range(at_tight)}" if tight else NOTHING
    title(axes, finding, f"All {len(others)} other settings beside {trained}: {_range(others)}")


def _draw_leaks(axes: Axes, record: Row, looks: dict[str, Row]) -> None:
    """Largest change of a logit over the tolerance, both on logarithmic scales."""
    rows = [row | record["leak"][row["name"]] for row in record["solvers"] if row["tolerance"]]
    tolerances = sorted({row["tolerance"] for row in rows})
    axes.plot(tolerances, tolerances, color=GREY, lw=0.9, ls=":", zorder=1)
    for solver, look in looks.items():
        for key, dashes in (("later_words", "-"), ("other_sentences", DASHED)):
            line = sorted((row["tolerance"], row[key]) for row in rows if row["solver"] == solver and row[key])
            axes.plot([x for x, _ in line], [y for _, y in line], **look | {"ls": dashes}, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(tolerances))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda x, _: _power(x)))
    axes.set_xlabel("tolerance, rtol = atol (log scale)")
    axes.set_ylabel("largest change of a logit (log scale)")
    fixed = record["leak"][record["trained_with"]]
    names = ("later_words", "other_sentences")
    zero = {key: "exactly 0" if fixed[key] == 0 else say.small(fixed[key]) for key in names}
    note = f"fixed steps, {_name(record['trained_with'])}:\nlater words {zero['later_words']},"
    note = f"{note}\nother sentences {zero['other_sentences']}"
    axes.text(0.98, 0.04, note, transform=axes.transAxes, ha="right", va="bottom", size=9, color=DARK)
    by_tolerance = {t: [row["later_words"] for row in rows if row["tolerance"] == t] for t in tolerances}
    known = {t: max(found) for t, values in by_tolerance.items() if (found := [v for v in values if v is not None])}
    ends = dict.fromkeys([max(known, key=lambda t: known[t]), min(known)]) if known else {}
    said = ", ".join(f"{say.small(known[t])} at {_power(t)}" for t in ends)
    finding = f"Leak: up to {said}" if said else NOTHING
    title(axes, finding, "Largest change of a logit when words that must not matter are replaced")


def _power(value: float | None) -> str:
    """`1e-3`; what is no power of ten as `small` words it."""
    mantissa, exponent = f"{value or 0:.6e}".split("e")
    return f"1e{int(exponent)}" if float(mantissa) == 1 else say.small(value)


def _setting(row: Row) -> str:
    if row["tolerance"] is not None:
        return _power(row["tolerance"])
    return f"{row['steps']} step{'s' if row['steps'] > 1 else ''}"


def _name(name: str) -> str:
    """`rk4 x 4` for rk4_4."""
    solver, _, steps = name.rpartition("_")
    return f"{solver} {say.TIMES} {steps}"


def _evaluations(row: Row, max_nfe: int) -> str:
    if row["nfe"] is None:
        return f"more than {say.count(max_nfe)}" if row["status"] == "too many evaluations" else row["status"]
    if row["tolerance"] is None:
        return say.count(row["nfe"])
    return f"{say.number(row['nfe'])} [{say.count(row['nfe_min'])}, {say.count(row['nfe_max'])}]"


def _range(percents: Sequence[float]) -> str:
    """`+0.312 to +0.450 %`, or one number where both ends read alike."""
    ends = (say.number(end(percents), 3, sign=True) for end in (min, max)) if percents else ["unknown"]
    return f"{' to '.join(dict.fromkeys(ends))} %"


def _percent_axis(axes: Axes, percents: Sequence[float]) -> None:
    """Both signs on a logarithmic scale, linear near zero, with room for markers."""
    low, high = (side * max([2 * LINEAR, *(2 * side * value for value in percents)]) for side in (-1, 1))
    axes.set_yscale("symlog", linthresh=LINEAR)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator([-p for p in POWERS] + [0.0, *POWERS]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:+g}".replace("-", say.MINUS) if y else "0"))


def _powers_of_two(axes: Axes, evaluations: Iterable[float]) -> None:
    axes.set_xscale("log", base=2)
    top = max(evaluations, default=1.0)
    axes.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(20) if 2**k <= 2 * top]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: say.count(x)))


def _looks(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """How each solver is drawn: its colour is its order, its marker is full where steps are fixed, else open."""
    orders = sorted({row["order"] for row in rows})
    by_order = dict(zip(orders, style_colors(len(orders)), strict=True))
    looks: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["solver"] not in looks:
            color, marker = by_order[row["order"]], MARKERS[len(looks) % len(MARKERS)]
            face = color if row["tolerance"] is None else "white"
            look = {"color": color, "marker": marker, "mfc": face, "mec": color, "ms": 5.5, "lw": 1.6}
            looks[row["solver"]] = look
    return looks
