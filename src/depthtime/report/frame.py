"""What a table is, and how it is written: numbers as CSV, the same rows in words as Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.published import PUBLISHED
from depthtime.report.sources import Sources

Row = dict[str, Any]
NUMERIC = re.compile(rf"[\d\s.,%<+\[\]{say.MINUS}{say.NONE}]*")


@dataclass(frozen=True)
class Table:
    """`numbers` go to the CSV, `words` (the same rows, formatted) to the Markdown, under `caption`."""

    numbers: list[Row]
    words: list[Row]
    caption: str
    made_from: list[Path]


def csv(table: Table) -> str:
    """Numbers with 8 significant digits, lists joined by spaces, empty where there is no value."""
    rows = [{key: _plain(value) for key, value in row.items()} for row in table.numbers]
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def markdown(table: Table) -> str:
    """The caption with its command and files, then the table: text to the left, numbers to the right."""
    files = ", ".join(f"`{path.as_posix()}`" for path in dict.fromkeys(table.made_from))
    head = f"{table.caption} Made by `depthtime report` from {files}."
    if not table.words:
        return f"{head}\n\nThis study has no rows for this table.\n"
    frame = pd.DataFrame(table.words, dtype=object)
    align = ["right" if all(_is_number(cell) for cell in frame[column]) else "left" for column in frame]
    return f"{head}\n\n{frame.to_markdown(index=False, disable_numparse=True, colalign=align)}\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else value


def _is_number(cell: str) -> bool:
    return NUMERIC.fullmatch(cell) is not None


def columns(entry: Row, prefix: str) -> Row:
    return {f"{prefix}{key}": entry.get(key) for key in ("mean", "low", "high", "sd") if key in entry}


def seeds(analysis: Row, row: Row) -> str:
    gone = ", ".join(f"{seed} at step {step}" for seed, step in row["diverged_seeds"].items())
    n = len(analysis["seeds"])
    return f"n = {n}" if not gone else f"n = {n}; diverged: {gone}"


def equal_in_all(analysis: Row) -> str:
    """What every pair of a group shares."""
    if not analysis["pairs"]:
        return "one run only"
    first, *rest = analysis["pairs"]
    return say.equal(name for name in first["equal"] if all(name in pair["equal"] for pair in rest))


def not_equal(analysis: Row) -> str:
    return "".join(f"Not equal, {p['second']} to {p['first']}: {say.unequal(p)}. " for p in analysis["pairs"]).rstrip()


def level(analysis: Row) -> str:
    return f"{analysis['confidence']:.0%}".replace("%", " %")


def published_note(sources: Sources) -> str:
    p = sources.published
    return f" Published: {p.name}, {p.num_seeds} seed." if p.group else ""


def with_published(sources: Sources, files: list[Path]) -> list[Path]:
    return files + ([PUBLISHED] if sources.published.group else [])


def files(sources: Sources, groups: list[str]) -> list[Path]:
    return with_published(sources, [paths.analysis(group) for group in groups])
