"""Speed of a training step: a table of ratios against what they should be, and a figure under the machine's peak."""

from __future__ import annotations

from matplotlib.figure import Figure

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, GREY, new_figure, style_colors, title
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

RATIOS = {  # name in the bench record -> what it is, and the limit that was set before it was measured
    "step_over_parts": ("fused step / (block evaluations x block step + head step)", "at most 1.05"),
    "plain_step_over_parts": ("plain step / the same", ""),
    "step_over_torchdiffeq": ("fused step / torchdiffeq's step, same block", "at most 0.80"),
    "plain_step_over_torchdiffeq": ("plain step / torchdiffeq's step", ""),
    "fused_over_plain": ("fused step / plain step", ""),
    "share_of_peak": ("fused step, share of the peak matrix product", "at least 0.60"),
    "plain_share_of_peak": ("plain step, share of the peak", ""),
    "torchdiffeq_share_of_peak": ("torchdiffeq's step, share of the peak", ""),
    "discrete_share_of_peak": ("discrete step, share of the peak", ""),
    "step_over_discrete": ("fused step / discrete step", "operations: {flops_ratio}"),
    "plain_step_over_discrete": ("plain step / discrete step", "operations: {flops_ratio}"),
}
BARS = {"discrete": "discrete", "torchdiffeq": "ODE, torchdiffeq", "plain": "ODE, plain", "fused": "ODE, fused"}


def speed(sources: Sources) -> Table:
    """Ratios of the continuous run's training step, medians and quartiles over interleaved rounds."""
    record, machine = sources.bench["speed"], sources.bench["machine"]
    flops_ratio = record["flops"]["plain"] / record["flops"]["discrete"]
    numbers: list[Row] = []
    words: list[Row] = []
    for name, (what, limit) in RATIOS.items():
        low, high = record["spread"][name]
        limit = limit.format(flops_ratio=say.number(flops_ratio, 2))
        numbers.append(
            {"ratio": name, "median": record[name], "q1": low, "q3": high, "limit": limit, "rounds": record["rounds"]}
            | {"seeds": "one timed model", "equal": "weights, batch, machine, threads"}
        )
        words.append(
            {
                "ratio": what.replace(" x ", f" {say.TIMES} "),
                "median [quartiles]": say.interval({"mean": record[name], "low": low, "high": high}, 3),
                "set before": limit or say.NONE,
                "seeds": f"none: {record['rounds']} timed rounds",
                "held equal": "weights, batch, machine, threads",
            }
        )
    both = record["side_by_side"]
    if both is not None:
        what = "two one-thread trainings at once / the same steps in turn on two threads"
        numbers.append(
            {"ratio": "side_by_side", "median": both["ratio"], "q1": None, "q3": None, "limit": "below 1"}
            | {"rounds": len(both["rounds"]), "seeds": "one timed model", "equal": "steps, machine, cores"}
        )
        words.append(
            {"ratio": what, "median [quartiles]": say.number(both["ratio"], 3), "set before": "below 1: the default"}
            | {"seeds": f"none: {len(both['rounds'])} timed rounds", "held equal": "steps, machine, cores"}
        )
    caption = (
        f"**Speed of a training step** of {record['run']} on one thread of {machine['cpu']}, every contestant timed in "
        "turn each round. Peak: a square matrix product of "
        f"{round((record['flops']['peak'] / 2) ** (1 / 3))} rows in the same rounds, "
        f"{say.number(record['flops']['peak'] / record['median_s']['peak'] / 1e9, 0)} GFLOP/s; operations of a step "
        "are three forward passes. Fused and plain compute the same gradients to rounding."
    )
    return Table(numbers, words, caption, [paths.measured("bench")])


def speed_profile(sources: Sources) -> Table:
    """Share of a training step's processor time by kind of operation, plain and fused."""
    record = sources.bench["speed"]
    plain, fused = record["profile"]["plain"], record["profile"]["fused"]
    ms = {name: 1000 * record["median_s"][name] for name in ("plain", "fused")}
    about = {"seeds": "one timed model", "equal": "weights, batch, machine, threads"}
    kinds = sorted(plain, key=lambda kind: -plain[kind])
    numbers = [{"operations": kind, "plain": plain[kind], "fused": fused[kind], **about} for kind in kinds]
    words = [
        {
            "operations": kind,
            "plain": f"{say.number(100 * plain[kind])} %, {say.number(ms['plain'] * plain[kind])} ms",
            "fused": f"{say.number(100 * fused[kind])} %, {say.number(ms['fused'] * fused[kind])} ms",
            "seeds": "none: one timed model",
            "held equal": about["equal"],
        }
        for kind in kinds
    ]
    peak = record["flops"]["peak"] / record["median_s"]["peak"]
    floor = 1000 * record["flops"]["plain"] / peak
    caption = (
        f"**Where the time of a training step goes** ({record['run']}, one thread): share of processor time by kind of "
        "operation under torch's profiler, and that share of the median step. The matrix products alone would take "
        f"{say.number(floor, 0)} ms at the peak; what lies beyond them is what keeps a step from it."
    )
    return Table(numbers, words, caption, [paths.measured("bench")])


def speed_figure(sources: Sources) -> Figure:
    """Operations a second of each training step, under the line of the machine's peak matrix product."""
    record = sources.bench["speed"]
    rate = {name: record["flops"][name] / record["median_s"][name] / 1e9 for name in (*BARS, "peak")}
    figure, axes = new_figure(8.2, 3.6)
    figure.subplots_adjust(left=0.2, right=0.95, top=0.76, bottom=0.16)
    colors = style_colors(len(BARS))
    for y, (name, color) in enumerate(zip(BARS, colors, strict=True)):
        axes.barh(y, rate[name], color=color, height=0.6, zorder=3)
        ms = say.number(1000 * record["median_s"][name], 0)
        note = f"{say.number(100 * rate[name] / rate['peak'], 0)} % of peak, {ms} ms a step"
        is_short = rate[name] < 0.55 * rate["peak"]  # then there is room beside the bar, else inside
        x, color = (rate[name], DARK) if is_short else (0, "white")
        axes.annotate(note, (x, y), (6, 0), textcoords="offset points", va="center", color=color, size=9.5, zorder=5)
    axes.axvline(rate["peak"], color=DARK, lw=1.2, zorder=4)
    axes.annotate(
        f"peak matrix product\n{say.number(rate['peak'], 0)} GFLOP/s", (rate["peak"], -0.62), (-6, 0),
        textcoords="offset points", ha="right", va="center", color=GREY, size=9,
    )  # fmt: skip
    axes.set_yticks(range(len(BARS)), list(BARS.values()))
    axes.set_ylim(len(BARS) - 0.4, -1.0)
    axes.set_xlim(0, 1.06 * rate["peak"])
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("GFLOP/s of a training step (matrix products only)")
    share = say.number(100 * record["share_of_peak"], 0)
    title(axes, f"The fused ODE step reaches {share} % of the peak matrix product", f"One thread, {record['run']}")
    return figure
