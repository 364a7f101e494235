"""Cached decoding: a table of how exact and how fast it is, and a figure of both ways over the length of the text."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import DARK, EndLabel, end_labels, new_figure, style_colors, title
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources


def decoding_runs(sources: Sources) -> dict[str, tuple[str, dict[str, Any]]]:
    """Run name -> (its label, its part of the record), in the order of params.yaml."""
    record = sources.measured["decoding"]
    names = [name.split("/")[:2] for name in sources.study.decoding.runs]
    return {run: (sources.label(group, run), record[run]) for group, run in names}


def decoding(sources: Sources) -> Table:
    """One row a run and prefix: largest difference of logits, and milliseconds for the next word both ways."""
    record = sources.measured["decoding"]
    numbers: list[Row] = []
    words: list[Row] = []
    for run, (label, part) in decoding_runs(sources).items():
        exact = {key: part[key] for key in ("max_logit_difference", "max_logit_difference_float32")}
        for key, prefix in itertools.product(("speed", "speed_batch"), sources.study.decoding.prefixes):
            texts, speed = part[key]["texts"], part[key][f"prefix_{prefix}"]
            times = {name: speed[name] for name in ("median_cached_s", "median_recompute_s", "ratio")}
            numbers.append(
                {"run": run, "texts": texts, "prefix": prefix, **exact, **times, "splits": part["splits"]}
                | {"seeds": "one trained model", "equal": "weights, words, threads"}
            )
            words.append(
                {
                    "run": label,
                    "texts at once": str(texts),
                    "positions before": str(prefix),
                    "logit difference, float64": f"{exact['max_logit_difference']:.1e}",
                    "float32": f"{exact['max_logit_difference_float32']:.1e}",
                    "cached ms": say.number(1000 * times["median_cached_s"], 2),
                    "recomputed ms": say.number(1000 * times["median_recompute_s"], 2),
                    "ratio": f"1/{say.number(1 / times['ratio'], 1)}",
                    "words a second, cached": say.number(texts / times["median_cached_s"], 0),
                    "seeds": "none: one trained model",
                    "held equal": "weights, words, threads",
                }
            )
    sample = next(iter(decoding_runs(sources).values()))[1]
    caption = (
        "**Cached decoding against full recomputation.** Largest difference of a logit over "
        f"{sample['splits']} random ways to feed {record['batch_size']} random texts of {sample['positions']} words "
        f"(beyond the window of {sample['window']}, both ways start again from the last half window). Times: median "
        f"over {record['rounds']} rounds, both ways in turn, {record['threads']} thread of {record['machine']['cpu']}, "
        "windows made as long as the text."
    )
    spent = "; ".join(f"{run}: {_most(part['profile'])}" for run, (_, part) in decoding_runs(sources).items())
    caption += f" A cached step after the longest prefix spends its time on ({spent})."
    return Table(numbers, words, caption, [paths.measured("decoding")])


def _most(profile: dict[str, float]) -> str:
    """The four largest shares."""
    largest = sorted(profile.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{kind} {say.number(100 * share, 0)} %" for kind, share in largest)


def decoding_figure(sources: Sources) -> Figure:
    """Milliseconds for the next word over the positions before it, cached and recomputed, both axes logarithmic."""
    figure, axes = new_figure(8.2, 4.6)
    figure.subplots_adjust(left=0.09, right=0.70, top=0.83, bottom=0.12)
    runs, prefixes = decoding_runs(sources), sources.study.decoding.prefixes
    labels = []
    for (label, part), color in zip(runs.values(), style_colors(len(runs)), strict=True):
        for key, way, line in (("median_recompute_s", "recomputed", "-"), ("median_cached_s", "cached", (0, (4, 2)))):
            ms = [1000 * part["speed"][f"prefix_{prefix}"][key] for prefix in prefixes]
            fill = color if way == "recomputed" else "white"
            axes.plot(prefixes, ms, color=color, ls=line, marker="o", ms=5, mfc=fill, clip_on=False, zorder=4)
            labels.append(EndLabel(ms[-1], f"{label}, {way}  {say.number(ms[-1])} ms", color, True))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(prefixes[0], prefixes[-1])
    axes.xaxis.set_major_locator(FixedLocator(list(prefixes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("positions before the next word (log scale)")
    axes.set_ylabel("ms for the next word (log scale)")
    end_labels(axes, labels)
    last = prefixes[-1]
    gains = [(run, 1 / part["speed"][f"prefix_{last}"]["ratio"]) for run, (_, part) in runs.items()]
    finding = say.joined(f"{run} {say.number(gain, 0)} {say.TIMES} faster" for run, gain in gains)
    title(axes, f"Cached decoding after {last} positions: {finding}", "The same logits to rounding; one thread")
    handles = [
        Line2D([], [], color=DARK, marker="o", label="full recomputation"),
        Line2D([], [], color=DARK, marker="o", mfc="white", ls=(0, (4, 2)), label="cached"),
    ]
    axes.legend(handles=handles, loc="upper left")
    return figure
