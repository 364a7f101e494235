"""Two models on tasks: a table of last words and minimal pairs, and a figure of both."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.drawing import GREY, style_colors
from depthtime.report.frame import Row, Table
from depthtime.report.sources import Sources

CLOZE = {"all": "last word, all sentences", "repeated": "last word, occurred before"}
EQUAL = "data, steps, batches, width, depth, sentences"
DODGE = 0.17  # between the marks of two runs in one row
MARKS = {"unigram": "d", "last_words": "|"}


def downstream(sources: Sources) -> Table:
    """One row for each task: both runs, their difference, baselines, and what the source reports."""
    record = sources.measured["downstream"]
    first, second = record["runs"]
    numbers: list[Row] = []
    words: list[Row] = []
    for task, name, key, part in _tasks(record):
        published = sources.published.tasks if name == "repeated" else {}
        gap, seeds = part["difference"], len(record["seeds"])
        numbers.append(
            {"task": name, "score": key, "n": part["n"], "seeds": seeds, "equal": EQUAL}
            | {f"{run}{end}": part[run][f"{key}{end}"] for run in (first, second) for end in ("", "_low", "_high")}
            | {f"difference{end}": gap[f"{key}{end}"] for end in ("", "_low", "_high", "_lowest_seed", "_highest_seed")}
            | {name: part[name][key] for name in ("unigram", "last_words") if name in part}
            | {f"published_{test}": published.get(test) for test in sources.published.tasks}
        )
        words.append(
            {
                "task": task,
                "n": say.count(part["n"]),
                **{run: _percent(part[run], key) for run in (first, second)},
                f"{second} {say.MINUS} {first}": _percent(gap, key, sign=True),
                "by seed": f"{_share(gap[f'{key}_lowest_seed'], True)} to {_share(gap[f'{key}_highest_seed'], True)}",
                "unigram": _share(part["unigram"][key]),
                "last words": _share(part["last_words"][key]) if "last_words" in part else say.NONE,
                "published": _published(published),
                "seeds": f"n = {seeds}",
                "held equal": EQUAL,
            }
        )
    return Table(numbers, words, _caption(record), [paths.measured("downstream")])


def _tasks(record: Row) -> Iterable[tuple[str, str, str, Row]]:
    """(label, name in the record, key of the score, results) of every row."""
    for name, label in CLOZE.items():
        yield label, name, "accuracy", record["cloze"][name]
    yield "all pairs", "all_pairs", "sum", record["pairs"]["all"]
    yield "all pairs, by mean", "all_pairs", "mean", record["pairs"]["all"]
    for name in record["pairs"]["phenomena"]:
        yield _label(name), name, "sum", record["pairs"][name]


def _caption(record: Row) -> str:
    cloze, (first, second) = record["cloze"], record["runs"]
    left = cloze["left_out"]
    logs = {run: cloze["all"][run] for run in (first, second)}
    detail = "; ".join(
        f"{run}: log-probability {say.number(row['log_prob'], 2)} nats, median rank {say.number(row['median_rank'], 0)}"
        for run, row in logs.items()
    )
    return (
        f"**Tasks other than perplexity.** Accuracy in %, group {record['group']}. Last words: the last word before "
        f"`<eos>` of test sentences of at least {record['min_words']} words, predicted from all that the window holds "
        f"before it; {say.count(cloze['asked'])} are asked, {say.count(left['unknown'])} unknown words, "
        f"{say.count(left['not_asked'])} of {say.joined(record['not_asked'] or ['none'])} and "
        f"{say.count(left['too_short'])} shorter sentences are not. ({detail}.) Minimal pairs "
        f"(`{record['pairs_file']}`): the sentence without a fault has the higher log-probability, summed over its "
        "words and `<eos>`; a tie is half, chance is 50 %; by mean: divided by the number of words, which matters "
        "where one is left out. 95 % intervals over sentences (bootstrap) or pairs (Wilson; difference: bootstrap) of "
        "means over seeds; by seed, the lowest and highest difference. Unigram and last words: frequencies in training "
        "text. Not equal: parameters, and the learning rate, which each run took from its own search. Published: the "
        "source's large models, without and with generated weights, zero shot, beside the test most like theirs."
    )


def _published(tests: dict[str, list[float]]) -> str:
    """`lambada openai 37.2, 38.4`: both models on each test of the source."""
    texts = (f"{_label(test)} {', '.join(say.number(value, 1) for value in values)}" for test, values in tests.items())
    return "; ".join(texts) or say.NONE


def _share(value: float, sign: bool = False) -> str:
    return say.number(100 * value, 1, sign)


def _percent(entry: Row, key: str, sign: bool = False) -> str:
    low, high = (_share(entry[f"{key}_{end}"], sign) for end in ("low", "high"))
    return f"{_share(entry[key], sign)} [{low}, {high}]"


def _label(name: str) -> str:
    return name.replace("_", " ")


def downstream_figure(sources: Sources) -> Figure:
    """Accuracies of both runs with intervals: minimal pairs by phenomenon on the left, last words on the right."""
    record = sources.measured["downstream"]
    first, second = record["runs"]
    names = sorted(record["pairs"]["phenomena"], key=lambda name: record["pairs"][name][second]["sum"])
    figure = Figure(figsize=(12.8, 2.5 + 0.36 * (len(names) + 1)))
    FigureCanvasAgg(figure)
    tall = figure.get_figheight()
    pairs, cloze = figure.subplots(1, 2, width_ratios=(2.1, 1))
    figure.subplots_adjust(left=0.17, right=0.95, top=1 - 1.3 / tall, bottom=1.05 / tall, wspace=0.36)
    rows = [(_label(name), record["pairs"][name]) for name in names] + [("all pairs", record["pairs"]["all"])]
    _draw(pairs, rows, (first, second), "sum")
    pairs.axvline(50, color=GREY, lw=1, ls=(0, (4, 3)), zorder=1)
    pairs.set_xlim(0, 100)
    pairs.set_title(f"Minimal pairs (n = {record['pairs']['all']['n']})", size=10.5, pad=8)
    pairs.set_xlabel("pairs whose faultless sentence is likelier (%)")
    parts = [(what, record["cloze"][name]) for what, name in (("occurred\nbefore", "repeated"), ("all", "all"))]
    lasts = [(f"{what} (n = {say.count(part['n'])})", part) for what, part in parts]
    _draw(cloze, lasts, (first, second), "accuracy")
    cloze.set_xlim(left=0)
    cloze.set_title("Last words of sentences", size=10.5, pad=8)
    cloze.set_xlabel("last word is the likeliest (%)")
    figure.text(0.0051, 1 - 0.3 / tall, _finding(record), size=12, weight="bold", va="center")
    detail = (
        f"Group {record['group']}, means of {len(record['seeds'])} seeds. 95 % intervals over pairs (Wilson) and over "
        "sentences (bootstrap); those of the differences above are paired bootstrap intervals."
    )
    figure.text(0.0051, 1 - 0.57 / tall, detail, color=GREY, size=9.5, va="center")
    figure.legend(handles=_handles(first, second), loc="lower left", bbox_to_anchor=(0, 0), ncols=5)
    return figure


def _draw(axes: Axes, rows: list[tuple[str, Row]], runs: tuple[str, str], key: str) -> None:
    """A row each: both runs with intervals, and what models without context reach."""
    for place, (_, part) in enumerate(rows):
        for run, color, shift in zip(runs, style_colors(2), (-DODGE, DODGE), strict=True):
            value, low, high = (100 * part[run][f"{key}{end}"] for end in ("", "_low", "_high"))
            ends = [[max(0.0, value - low)], [max(0.0, high - value)]]  # not below 0 by rounding
            axes.errorbar(value, place + shift, xerr=ends, color=color, fmt="o", ms=4.5)
        for name, mark in MARKS.items():
            if name in part:
                axes.plot(100 * part[name][key], place, mark, color=GREY, ms=10 if mark == "|" else 5, zorder=1)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", alpha=0.3)


def _handles(first: str, second: str) -> list[Line2D]:
    runs = [
        Line2D([], [], color=color, marker="o", ms=4.5, label=run)
        for run, color in zip((first, second), style_colors(2), strict=True)
    ]
    return [
        *runs,
        Line2D([], [], color=GREY, ls=(0, (4, 3)), lw=1, label="chance (pairs)"),
        Line2D([], [], color=GREY, ls="", marker="d", ms=5, label="unigram"),
        Line2D([], [], color=GREY, ls="", marker="|", ms=10, label="frequencies of last words"),
    ]


def _finding(record: Row) -> str:
    """Both differences in points with their intervals."""
    first, second = record["runs"]
    pairs = _percent(record["pairs"]["all"]["difference"], "sum", sign=True)
    lasts = _percent(record["cloze"]["all"]["difference"], "accuracy", sign=True)
    return f"{second} over {first}: {pairs} points on minimal pairs, {lasts} on last words"


def downstream_values(sources: Sources) -> dict[str, str]:
    """Values for sentences, such as downstream.cloze.all.diffeq and downstream.pairs.agreement_near.difference."""
    record = sources.measured["downstream"]
    found = {"downstream.phenomena": str(len(record["pairs"]["phenomena"]))}
    parts = {f"cloze.{name}": (record["cloze"][name], "accuracy") for name in CLOZE}
    parts |= {f"pairs.{name}": (record["pairs"][name], "sum") for name in ("all", *record["pairs"]["phenomena"])}
    for at, (part, key) in parts.items():
        found[f"downstream.{at}.n"] = say.count(part["n"])
        found[f"downstream.{at}.difference"] = _percent(part["difference"], key, sign=True)
        found |= {f"downstream.{at}.{run}": _share(part[run][key]) for run in (*record["runs"], "unigram")}
    return found
