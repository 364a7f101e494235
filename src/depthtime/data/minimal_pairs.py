"""Pairs of sentences of which one is wrong by one word: read from a file, checked, and turned into class numbers.

Source: the method is that of Marvin and Linzen (2018), Targeted syntactic evaluation of language models, and of
Warstadt et al. (2020), BLiMP; the sentences are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from depthtime.config import NAME, read_yaml, suggest
from depthtime.errors import ConfigError

Words = tuple[str, ...]
TAKEN = ("all", "phenomena")  # by the record of the results


@dataclass(frozen=True)
class Pair:
    """A good sentence and a bad one: a word replaced, added or left out, or two neighbours exchanged."""

    good: Words
    bad: Words


def read_pairs(path: str) -> dict[str, list[Pair]]:
    """Pairs by phenomenon, in the order of the file: `phenomenon: {what: text, pairs: [[good, bad], ...]}`.

    Raises: ConfigError with every problem: file, phenomenon, pair, value, expectation.
    """
    raw = read_yaml(path)
    if not isinstance(raw, dict) or not raw:
        raise ConfigError([f"{path}: expected a mapping from a phenomenon to `what` and `pairs`"])
    problems = [f"{path}: {line}" for name, row in raw.items() for line in _problems(name, row)]
    if problems:
        raise ConfigError(problems)
    return {
        name: [Pair(tuple(good.split()), tuple(bad.split())) for good, bad in row["pairs"]] for name, row in raw.items()
    }


def pair_classes(
    path: str, pairs: Mapping[str, list[Pair]], words: tuple[str, ...], dataset: str, most: int
) -> dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Class numbers of each pair's sentences, good first.

    Args: words: the vocabulary of `dataset`; most: words that a sentence may have.
    Raises: ConfigError that names file, phenomenon, pair and every word that is not in the vocabulary, and sentences
            that are too long for the window.
    """
    known = {word: number for number, word in enumerate(words)}
    problems = []
    for name, rows in pairs.items():
        for number, pair in enumerate(rows, start=1):
            at = f"{path}: {name}, pair {number} ({' '.join(pair.good)!r})"
            for word in dict.fromkeys(pair.good + pair.bad):
                if word not in known:
                    problems.append(f"{at}: {word!r} is not in the vocabulary of {dataset}{suggest(word, known)}")
            if max(len(pair.good), len(pair.bad)) > most:
                problems.append(f"{at}: more than the {most} words that fit the window of {dataset}; shorten it")
    if problems:
        raise ConfigError(problems)
    return {
        name: [(tuple(known[word] for word in p.good), tuple(known[word] for word in p.bad)) for p in rows]
        for name, rows in pairs.items()
    }


def _problems(name: Any, row: Any) -> Iterator[str]:
    """What is wrong with one phenomenon."""
    if not (isinstance(name, str) and NAME.fullmatch(name)) or name in TAKEN:
        yield f"{name}: a phenomenon's name takes letters, digits and '_', and is none of {', '.join(TAKEN)}"
    if not isinstance(row, dict) or set(row) != {"what", "pairs"}:
        yield f"{name}: expected a mapping with exactly `what` (text) and `pairs` (a list)"
        return
    rows = row["pairs"] if isinstance(row["pairs"], list) else []
    if len(rows) < 2:
        yield f"{name}.pairs: expected a list of at least 2 pairs"
    seen = set()
    for number, pair in enumerate(rows, start=1):
        at = f"{name}, pair {number}"
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            yield f"{at} = {pair!r}: expected two sentences, [good, bad]"
        elif not differs_little(*(tuple(text.split()) for text in pair)):
            yield f"{at} = {pair!r}: expected one word replaced, added or left out, or two neighbours exchanged"
        elif tuple(pair) in seen:
            yield f"{at} = {pair!r}: is there twice"
        else:
            seen.add(tuple(pair))


def differs_little(good: Words, bad: Words) -> bool:
    """Whether one becomes the other by replacing, adding or leaving out one word, or by exchanging two neighbours."""
    shorter, longer = sorted((good, bad), key=len)
    if len(longer) == len(shorter) + 1:
        return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
    places = [i for i, (a, b) in enumerate(zip(good, bad, strict=False)) if a != b]
    if len(good) != len(bad) or not 1 <= len(places) <= 2:
        return False
    first, last = places[0], places[-1]
    exchanged = last == first + 1 and (good[first], good[last]) == (bad[last], bad[first])
    return len(places) == 1 or exchanged
