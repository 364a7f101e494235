"""A trained DiffEqFormer at depths and under solvers it was not trained with: tables, and a figure with fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, EndLabel, end_labels, style_colors
from depthtime.report.fine_tuning import Tuned, tuned_runs
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

MATRICES = {
    "query": "query", "key": "key", "value": "value", "attention_out": "attention out",
    "ff_in": "FFN in", "ff_out": "FFN out",
}  # fmt: skip
SEEDS = "n = 1"
EQUAL = "W(t), embeddings, windows"
LINES = {("full", None): "all weights", ("lora", "faithful"): "adapters", ("lora", "standard"): "adapters, standard"}


def conversion(sources: Sources) -> Table:
    """One row for each depth and for each solver: perplexity before any fine-tuning, and its ratio to the model's."""
    record = sources.measured["conversion"]
    depth = record["trained_depth"]
    numbers: list[Row] = []
    words: list[Row] = []
    for what, rows in (("layers", _by_depth(record)), ("solver", _by_solver(record))):
        for row in rows:
            solver = row.get("solver", "layers")
            steps, nfe = row.get("num_steps", row.get("depth")), row.get("nfe", row.get("depth"))
            numbers.append(
                {"as": what, "solver": solver, "steps": steps, "evaluations": nfe, "trained_times": row.get("seen")}
                | _values(row) | {"windows": record["windows"], "seeds": 1, "equal": EQUAL}
            )  # fmt: skip
            words.append(
                {
                    "as": "layers" if what == "layers" else f"solve with {solver}",
                    "steps": str(steps),
                    "evaluations": str(nfe),
                    "at trained times": f"{row['seen']} of {steps}" if "seen" in row else say.NONE,
                    "perplexity": _interval(row, "perplexity", 1),
                    "ratio": _interval(row, "ratio", 3),
                    "seeds": SEEDS,
                    "held equal": EQUAL,
                }
            )
    caption = (
        f"**One trained DiffEqFormer at other depths and under other solvers, before any fine-tuning.** "
        f"`{record['run']}`, trained with {depth} right-point Euler steps; its layers W(k/L') at every depth L', then "
        "the same W(t) under solvers. Validation perplexity of the first "
        f"{say.count(record['windows'])} windows ({say.count(record['num_scored'])} tokens) and its ratio to the "
        f"model as trained ({say.number(record['trained']['perplexity'], 1)}), with 95 % percentile bootstrap "
        "intervals over windows. Layers at the trained depth differ from the model by at most "
        f"{say.small(record['conversion']['max_logit_difference_float32'])} in a logit."
    )
    return Table(numbers, words, caption, [paths.measured("conversion")])


def smoothness(sources: Sources) -> Table:
    """One row a matrix: how far it moves between trained times, and how far it leaves the straight line there."""
    record = sources.measured["conversion"]
    numbers: list[Row] = []
    words: list[Row] = []
    for name, label in MATRICES.items():
        row = {key: value for key, value in record["smoothness"][name].items() if key != "curve"}
        numbers.append({"matrix": name, **row, "seeds": 1, "equal": EQUAL})
        words.append(
            {
                "matrix": label,
                "between trained times": _percent(row["trained"]),
                "off the line, middle": _percent(row["middle"]),
                "off the line, largest": _percent(row["largest"]),
                "fine step": _percent(row["neighbours"]),
                "way over straight way": say.number(row["path"], 2),
                "seeds": SEEDS,
                "held equal": EQUAL,
            }
        )
    fine = len(record["smoothness"]["times"])
    caption = (
        f"**How W(t) of `{record['run']}` moves over depth time.** Relative changes (Frobenius norm): from one trained "
        f"time k/L to the next (median); at the middle of these steps and at most, off the straight line between them; "
        f"from one to the next of {fine:,} fine times (median); and the length of the way on the fine grid over that "
        f"of the straight pieces. {100 * record['aliased_share']:.0f} % of the sinusoids of t turn by more than half a "
        "circle in a trained step, so training cannot tell them from slower ones."
    )
    return Table(numbers, words, caption, [paths.measured("conversion")])


def conversion_figure(sources: Sources) -> Figure:
    """Perplexity over depth before fine-tuning, under solvers, after fine-tuning; and weights between trained times."""
    record = sources.measured["conversion"]
    figure = Figure(figsize=(13.2, 9.4))
    FigureCanvasAgg(figure)
    (zero, solve), (tuned, weights) = figure.subplots(2, 2)
    figure.subplots_adjust(left=0.06, right=0.885, top=0.87, bottom=0.1, wspace=0.66, hspace=0.42)
    runs = list(tuned_runs(sources))
    _zero_shot(zero, record)
    _solvers(solve, record)
    _fine_tuned(tuned, runs)
    _weights(weights, record)
    figure.text(0.0601, 0.965, _finding(record, runs), size=13, weight="bold", va="center")
    n = max((len(run.row["best"]["perplexity"]) for run in runs), default=1)
    detail = (
        f"{record['run']}, trained with {record['trained_depth']} steps; before fine-tuning on {record['windows']} "
        f"validation windows of its own corpus, bars 95 % bootstrap over windows; fine-tuning on another one, n = {n}."
    )
    figure.text(0.0601, 0.937, detail, color=GREY, size=9.5, va="center")
    handles = [
        Line2D([], [], color=DARK, marker="o", ls="", label="only trained times k/L"),
        Line2D([], [], color=DARK, marker="o", mfc="white", ls="", label="other times too"),
        Line2D([], [], color=GREY, ls=":", label="trained depth or times"),
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.055, 0.005), ncols=3)
    return figure


def _zero_shot(axes: Axes, record: Row) -> None:
    rows = [row for row in _by_depth(record) if row["perplexity"] is not None]
    color = style_colors(1)[0]
    axes.axvline(record["trained_depth"], color=GREY, ls=":", lw=1.2)
    axes.plot([row["depth"] for row in rows], [row["perplexity"] for row in rows], color=color, lw=1.4)
    for row in rows:
        _mark(axes, row["depth"], row, color, is_full=row["seen"] == row["depth"])
    axes.set_yscale("log")
    _plain_log(axes)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("layers L'")
    axes.set_ylabel("perplexity (log scale)")
    axes.set_title("stored as L' layers, before fine-tuning", size=10.5, pad=8)
    ends = [row for row in rows if row["depth"] in (record["trained_depth"], rows[-1]["depth"])]
    labels = [
        EndLabel(row["perplexity"], f"L' = {row['depth']}: {say.number(row['perplexity'])}", color) for row in ends
    ]
    end_labels(axes, labels)


def _solvers(axes: Axes, record: Row) -> None:
    found = [row for row in _by_solver(record) if row["perplexity"] is not None]
    names = list(dict.fromkeys(row["solver"] for row in found))
    labels = []
    for name, color in zip(names, style_colors(len(names)), strict=True):
        rows = [row for row in found if row["solver"] == name]
        axes.plot([row["nfe"] for row in rows], [row["perplexity"] for row in rows], color=color, lw=1.4)
        for row in rows:
            is_full = name == "euler_right" and record["trained_depth"] % row["num_steps"] == 0
            _mark(axes, row["nfe"], row, color, is_full=is_full)
        labels.append(EndLabel(rows[-1]["perplexity"], f"{name}  {say.number(rows[-1]['perplexity'])}", color))
    axes.axhline(record["trained"]["perplexity"], color=GREY, ls=":", lw=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _plain_log(axes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("evaluations of the field")
    axes.set_ylabel("perplexity (log scale)")
    axes.set_title("the same W(t), other solvers and finer steps", size=10.5, pad=8)
    end_labels(axes, labels)


def _fine_tuned(axes: Axes, runs: Iterable[Tuned]) -> None:
    runs = list(runs)
    labels = []
    for (key, label), color in zip(LINES.items(), style_colors(len(LINES)), strict=True):
        found = sorted(
            (
                run
                for run in runs
                if run.kind == "converted" and (run.adapt, run.init) == key and _best(run) is not None
            ),
            key=lambda run: run.layers,
        )
        if not found:
            continue
        axes.plot([run.layers for run in found], [_best(run) for run in found], color=color, lw=1.4)
        for run in found:
            is_full = run.trained_layers % run.layers == 0
            axes.plot(run.layers, _best(run), "o", color=color, mfc=color if is_full else "white", ms=6, zorder=4)
        labels.append(EndLabel(_best(found[-1]), f"{label}  {say.number(_best(found[-1]))}", color, True))
    for run in runs:
        if run.kind != "converted" and _best(run) is not None:
            axes.axhline(_best(run), color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
            labels.append(EndLabel(_best(run), f"{_name(run)}  {say.number(_best(run))}"))
    depths = [run.trained_layers for run in runs if run.kind == "converted"]
    for depth in sorted(set(depths)):
        axes.axvline(depth, color=GREY, ls=":", lw=1.2)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(FixedLocator(sorted({run.layers for run in runs})))
    axes.set_xlabel("layers L'")
    axes.set_ylabel("best validation perplexity")
    axes.set_title("after fine-tuning on another corpus", size=10.5, pad=8)
    axes.autoscale_view()
    end_labels(axes, labels, size=8.5)


def _weights(axes: Axes, record: Row) -> None:
    times, depth = record["smoothness"]["times"], record["trained_depth"]
    labels = []
    for (name, label), color in zip(MATRICES.items(), style_colors(len(MATRICES)), strict=True):
        curve = [100 * value for value in record["smoothness"][name]["curve"]]
        axes.plot(times, curve, color=color, lw=0.9)
        labels.append(EndLabel(max(curve), f"{label}  {say.number(max(curve), 0)} %", color))
    for k in range(1, depth + 1):
        axes.axvline(k / depth, color=GREY, ls=":", lw=1.0, zorder=1)
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("depth time t")
    axes.set_ylabel("distance from the line, % of |W(t)|")
    axes.set_title("W(t) off the straight lines between trained times (largest)", size=10.5, pad=8)
    end_labels(axes, labels, size=8.5)


def _by_depth(record: Row) -> list[Row]:
    return sorted(record["zero_shot"].values(), key=lambda row: row["depth"])


def _by_solver(record: Row) -> list[Row]:
    return sorted(record["solvers"].values(), key=lambda row: (row["solver"], row["num_steps"]))


def _mark(axes: Axes, x: float, row: Row, color: str, *, is_full: bool) -> None:
    """A point with its interval; full where only trained times are used."""
    axes.plot([x, x], [row["perplexity_low"], row["perplexity_high"]], color=color, lw=2.5, alpha=0.35)
    axes.plot(x, row["perplexity"], "o", color=color, mfc=color if is_full else "white", ms=5.5, zorder=4)


def _plain_log(axes: Axes) -> None:
    low, high = axes.get_ylim()
    digits = (1, 2, 5) if high > 3 * low else (1, 1.5, 2, 3, 5, 7)
    ticks = [10**power * digit for power in range(7) for digit in digits]
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.set_ylim(low, high)


def _best(run: Tuned) -> float:
    return run.row["best"]["mean"]


def _name(run: Tuned) -> str:
    names = {"pretrained": "GPT", "gpt": "GPT, from scratch", "diffeq": "DiffEqFormer, from scratch"}
    return names[run.kind] + (" with adapters" if run.adapt == "lora" else " fine-tuned" if run.adapt else "")


def _finding(record: Row, runs: Iterable[Tuned]) -> str:
    """What twice the depth (or the deepest there is) costs before and after fine-tuning."""
    depth = record["trained_depth"]
    rows = {row["depth"]: row for row in record["zero_shot"].values() if row["ratio"] is not None}
    if not rows:
        return "No depth gives a finite perplexity"
    deep = 2 * depth if 2 * depth in rows else max(rows)
    text = f"Stored as {deep} layers instead of {depth}: perplexity {say.TIMES}{say.number(rows[deep]['ratio'], 2)}"
    tuned = {run.layers: _best(run) for run in runs if run.kind == "converted" and run.adapt == "full"}
    if tuned.get(deep) and tuned.get(depth):
        text += f" at once, {say.TIMES}{say.number(tuned[deep] / tuned[depth], 2)} after fine-tuning both"
    return text


def conversion_values(sources: Sources) -> dict[str, str]:
    """Values for sentences, such as conversion.depth_12.ratio, conversion.rk4_6.ratio and fine_tuning.full_12.best."""
    record = sources.measured["conversion"]
    rows = {**record["zero_shot"], **record["solvers"]}
    found = {f"conversion.{name}.ratio": say.number(row["ratio"], 2) for name, row in rows.items()}
    found["conversion.aliased_percent"] = say.number(100 * record["aliased_share"], 0)
    for name in MATRICES:
        found[f"conversion.{name}.middle_percent"] = _percent(record["smoothness"][name]["middle"])
        found[f"conversion.{name}.path"] = say.number(record["smoothness"][name]["path"], 1)
    for run in tuned_runs(sources):
        found[f"{run.group}.{run.run}.best"] = say.number(run.row["best"]["mean"])
        found[f"{run.group}.{run.run}.last"] = say.number(run.row["final"]["mean"])
    return found


def _values(row: Row) -> Row:
    return {f"{key}{end}": row[f"{key}{end}"] for key in ("perplexity", "ratio") for end in ("", "_low", "_high")}


def _interval(row: Row, key: str, digits: int) -> str:
    if row[key] is None:
        return "not finite"
    low, high = (say.number(row[f"{key}_{end}"], digits) for end in ("low", "high"))
    return f"{say.number(row[key], digits)} [{low}, {high}]"


def _percent(share: float | None) -> str:
    return say.NONE if share is None else f"{say.number(100 * share, 1)} %"
