"""Numbers and tables of the README come from results: they stand between markers, and the report fills them in.

    <!-- depthtime:NAME -->      a whole table, on its own lines, NAME as in results/tables
    <!-- /depthtime -->
    <!--=NAME-->value<!--/-->    a value in a sentence, e.g. core.ode.final or core.gap.final_percent

`values` lists every name there is. Filling in twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from depthtime.config import AnyRun, Study, suggest
from depthtime.errors import ConfigError
from depthtime.records import write_bytes
from depthtime.report import wording as say
from depthtime.report.frame import markdown
from depthtime.report.measured_values import measured_values
from depthtime.report.sources import Sources, load_sources
from depthtime.report.tables import BUILDERS

BLOCK = re.compile(
    r"(<!-- depthtime:(?P<name>\S+) -->\n)(?P<old>(?:(?!<!-- depthtime:).)*?)(<!-- /depthtime -->)", re.DOTALL
)
INLINE = re.compile(r"(<!--=(?P<name>\S+?)-->)(?P<old>[^\n]*?)(<!--/-->)")
OPENING = re.compile(r"<!-- depthtime:\S+ -->|<!--=\S+?-->")


def insert_numbers(study: Study, readme: Path) -> bool:
    """Bring every marked table and value of a file up to date; True when something changed.

    Raises: ConfigError naming every unknown name and every marker without an end, with their lines; nothing is
            written then.
    """
    old = _read(readme)
    new, _ = _filled(load_sources(study), readme, old)
    if new == old:
        return False
    write_bytes(readme, new.encode())
    return True


def check_readme(study: Study, readme: Path) -> list[str]:
    """One line for each table or value that differs from the results; empty when all agree.

    Raises: ConfigError as `insert_numbers`.
    """
    return _filled(load_sources(study), readme, _read(readme))[1]


def values(sources: Sources) -> dict[str, str]:
    """Every name a sentence can use, with its text."""
    found: dict[str, str] = {}
    for group, analysis in sources.analyses.items():
        found[f"{group}.seeds"] = str(len(analysis["seeds"]))
        for run, row in analysis["runs"].items():
            at = f"{group}.{run}"
            found[f"{at}.parameters"] = say.count(row["parameters"]["total"])
            found[f"{at}.block_evaluations"] = say.count(row["cost"]["nfe_forward"])
            found[f"{at}.learning_rate"] = f"{row['learning_rate']:g}"
            found[f"{at}.num_scored"] = say.count(row["curve"][-1]["num_scored"])
            for key in ("final", "best", "test"):
                found |= _entry(f"{at}.{key}", row[key], say.number, say.interval)
        for index, pair in enumerate(analysis["pairs"]):
            against = f".{pair['first'].replace('/', '.')}" if "/" in pair["first"] else ""  # a run of another group
            found |= _pair(f"{group}.{pair['second']}{against}", pair)
            found |= _pair(group, pair) if index == 0 else {}
    for dataset, entries in sources.references.items():
        found |= {f"references.{dataset}.{e['name']}": say.number(e["valid"]["perplexity"]) for e in entries}
    for run, curve in sources.published.by_step.items():
        found |= {f"published.{run}.{step}": say.number(value) for step, value in curve.items()}
    for row in sources.cost_ratios():
        found[f"cost.{row['run'].replace('/', '.')}.{row['name']}_ratio"] = say.number(row["ratio"], 2)
    found |= _minutes(sources)
    found |= measured_values(sources)
    for row in sources.bench["rows"]:
        at = f"cost.{row['run'].replace('/', '.')}.step_{row['threads']}_threads_ms"
        found[at] = say.number(1000 * row["median_step_s"], 0)
    return found


def _minutes(sources: Sources) -> dict[str, str]:
    """Minutes that the trainings of a group take on two cores, one thread each, where the bench timed its models."""
    study = sources.study
    step_s: dict[str, float] = {}
    for row in sources.bench["rows"]:
        group, run = row["run"].split("/")
        if row["threads"] == 1:
            step_s.setdefault(_model_of(study.groups[group].runs[run]), row["median_step_s"])
    found = {}
    for name, group in study.groups.items():
        seconds = [step_s.get(_model_of(run)) for run in group.runs.values()]
        known = [value for value in seconds if value is not None]
        if len(known) == len(seconds):
            minutes = sum(known) * len(group.seeds) * group.train.max_steps / 60 / 2
            found[f"{name}.minutes"] = say.number(minutes, 0)
    return found


def _model_of(run: AnyRun) -> str:
    """What makes the step of a run take its time: its row without learning rate and kept weights."""
    return run.model_dump_json(exclude={"learning_rate", "keep_weights"})


def _pair(at: str, pair: dict[str, Any]) -> dict[str, str]:
    """Gap and crossing of one pair."""
    crossing = pair["crossing"]
    over = crossing["over_seeds"]
    found = {
        f"{at}.crossing": "no crossing" if crossing["step"] is None else say.count(crossing["step"]),
        f"{at}.crossing_interval": say.NONE if over["low"] is None else _bounds(over, say.count),
        f"{at}.crossing_seeds": f"{crossing['num_crossing']} of {crossing['num_seeds']}",
    }
    for key in ("final", "best", "test"):
        if pair[key]:
            difference, gap = pair[key]["difference"], pair[key]["percent"]
            found |= _entry(f"{at}.gap.{key}", difference, lambda x: say.number(x, 2, sign=True), say.interval)
            found |= _entry(f"{at}.gap.{key}_percent", gap, lambda x: f"{say.number(x, sign=True)} %", say.percent)
            found[f"{at}.gap.{key}_p"] = say.p_value(difference["p_value"])
            found[f"{at}.gap.{key}_verdict"] = say.verdict(difference, pair["first"], pair["second"])
    return found


def _entry(
    at: str,
    entry: dict[str, Any] | None,
    one: Callable[[float], str],
    whole: Callable[[dict[str, Any]], str],
) -> dict[str, str]:
    """The mean (`at`) and its interval (`at`_interval) of one summary."""
    if entry is None:
        return {}
    mean, has_interval = entry["mean"], entry["low"] is not None
    found = {at: whole(entry) if mean is None else one(mean)}
    return found | {f"{at}_interval": _bounds(entry, one) if has_interval else say.NONE}


def _bounds(entry: dict[str, Any], one: Callable[[float], str]) -> str:
    return f"[{one(entry['low'])}, {one(entry['high'])}]".replace(" %,", ",").replace(" %]", "] %")


def _filled(sources: Sources, readme: Path, text: str) -> tuple[str, list[str]]:
    """The text with every marked place filled in, and what differed."""
    known = values(sources)
    problems = list(_problems(readme, text, known))
    if problems:
        raise ConfigError(problems)
    differences: list[str] = []

    def fill(match: re.Match[str], render: Callable[[str], str]) -> str:
        new, old, name = render(match["name"]), match["old"], match["name"]
        if new != old:
            shown = f"says {old!r}, results give {new!r}" if "\n" not in new else "is not the table of the results"
            differences.append(f"{readme}: line {_line(match.string, match.start())}: {name} {shown}")
        return f"{match[1]}{new}{match[4]}"

    text = INLINE.sub(lambda match: fill(match, lambda name: known[name]), text)
    text = BLOCK.sub(lambda match: fill(match, lambda name: markdown(BUILDERS[name](sources))), text)
    return text, differences


def _problems(readme: Path, text: str, known: dict[str, str]) -> Iterator[str]:
    """Unknown names and markers without an end."""
    whole = {match.start() for pattern in (BLOCK, INLINE) for match in pattern.finditer(text)}
    for match in OPENING.finditer(text):
        if match.start() not in whole:
            end = "<!--/--> on the same line" if match[0].startswith("<!--=") else "a line <!-- /depthtime -->"
            yield f"{readme}: line {_line(text, match.start())}: {match[0]} has no end; close it with {end}"
    for pattern, names, what in ((BLOCK, BUILDERS, "table"), (INLINE, known, "value")):
        for match in pattern.finditer(text):
            if match["name"] not in names:
                hint = suggest(match["name"], names)
                yield f"{readme}: line {_line(text, match.start())}: no {what} is called {match['name']!r}{hint}"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _read(readme: Path) -> str:
    try:
        return Path(readme).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError([f"{readme}: no such file; give the README to fill in"]) from None
