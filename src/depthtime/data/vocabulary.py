"""From words to class numbers: which words get a class of their own, under the rules of both protocols.

A text is read once into *type numbers*, counted in order of first appearance; everything after is numpy on those.
Classes are numbered by frequency in the training part (ties by word), whatever rule chose the words: numbers in the
order of first appearance would spell out the beginning of a licensed text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthtime.config import ContinuumProtocol
from depthtime.errors import DataError

EOS = "<eos>"
UNKNOWN = "<unk>"  # standard protocol; PTB's own <unk> serves
SOURCE_UNKNOWN = "UNK"  # continuumlm protocol: apart from PTB's <unk>, which is an ordinary word there
SOURCE_DEAD = "<dead>"  # the source's head has one class that no word ever takes
BLOCK_CHARACTERS = 1 << 22


@dataclass(frozen=True)
class Vocabulary:
    """`words[i]` names class i, 0 <= i < V. `unknown`, `dead`, `eos`: class numbers, None where there is none."""

    words: tuple[str, ...]
    unknown: int | None
    dead: int | None
    eos: int | None

    def as_json(self) -> dict[str, Any]:
        return {"words": list(self.words), "unknown": self.unknown, "dead": self.dead, "eos": self.eos}


class Types(dict[str, int]):
    """Word -> type number, given in order of first appearance."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def number_words(text: str, types: Types, eos: bool) -> NDArray[np.uint32]:
    """Type numbers of the words of a text, shape (T,); with `eos`, <eos> opens the stream and ends each line."""
    arrays = [np.array([types[EOS]] if eos else [], dtype=np.uint32)]
    for block in _blocks(text):
        words = (block.replace("\n", f" {EOS} ") if eos else block).split()
        arrays.append(np.fromiter(map(types.__getitem__, words), dtype=np.uint32, count=len(words)))
    return np.concatenate(arrays)


def _blocks(text: str) -> Iterator[str]:
    """Consecutive pieces of whole lines, about BLOCK_CHARACTERS each."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + BLOCK_CHARACTERS) + 1 or len(text)
        yield text[start:end]
        start = end


def continuumlm_vocabulary(
    words: list[str], counts: NDArray[np.int64], config: ContinuumProtocol, at: str
) -> tuple[Vocabulary, NDArray[np.uint32]]:
    """Vocabulary of the source: V - 2 words, UNK (class 0) and one dead class (V - 1); the class of each type.

    words: types in order of first appearance over the whole stream.  counts: in the training chunks, same order.
    Source: ContinuumLM, tokenizer. `frequency` sees the training part only; `first_appearance`, the
    snapshot's rule, sees the validation part too. Raises: DataError when there are fewer than V - 2 words.
    """
    wanted = config.vocabulary_size - 2
    if config.vocabulary == "first_appearance":
        available, where = np.arange(len(words)), "corpus"
    else:
        available, where = np.flatnonzero(counts), "training part of the corpus"
    if len(available) < wanted:
        raise DataError(
            f"params.yaml: {at}.vocabulary_size = {config.vocabulary_size}, but the {where} has only "
            f"{len(available):,} different words; expected at most {len(available) + 2} (words, UNK, an unused class)"
        )
    if config.vocabulary == "first_appearance":
        chosen = by_frequency(words, counts, available[:wanted])
    else:
        chosen = by_frequency(words, counts, available)[:wanted]
    classes = np.zeros(len(words), dtype=np.uint32)
    classes[chosen] = np.arange(1, wanted + 1)
    named = (SOURCE_UNKNOWN, *(words[i] for i in chosen), SOURCE_DEAD)
    return Vocabulary(named, unknown=0, dead=wanted + 1, eos=None), classes


def equal_shares(counts: list[NDArray[np.int64]]) -> NDArray[np.object_]:
    """Sum over corpora of each type's relative frequency, times the product of their lengths.

    Each corpus counts alike, whatever its length. Whole numbers (of any size), so the order of the corpora is no matter
    and ties are ties.
    """
    totals = [int(one.sum()) for one in counts]
    whole = math.prod(totals)
    return np.sum([one.astype(object) * (whole // total) for one, total in zip(counts, totals, strict=True)], axis=0)


def standard_vocabulary(
    words: list[str], counts: NDArray[Any], size: int, at: str
) -> tuple[Vocabulary, NDArray[np.uint32]]:
    """The `size` most frequent words of the training part, <eos> among them; the class of each type.

    words, counts: types, and how often each occurs in the training part (0: held-out text only), or `equal_shares` over
    several. One class is <unk> when a type finds no class of its own; a word <unk> of the text serves. Raises:
    DataError when the training parts have too few words.
    """
    known = np.flatnonzero(counts)
    present = {word: i for i, word in enumerate(words) if word in (EOS, UNKNOWN) and counts[i]}
    needs_unknown = len(known) > size or len(known) < len(words)
    added = 1 if needs_unknown and UNKNOWN not in present else 0
    if len(known) + added < size:
        raise DataError(
            f"params.yaml: {at}.vocabulary_size = {size}, but the training part of the corpus has only {len(known):,} "
            f"different words with <eos>; expected at most {len(known) + added}"
        )
    kept = np.array(sorted(present.values()), dtype=np.int64)  # whatever their frequency
    others = by_frequency(words, counts, np.setdiff1d(known, kept))[: size - added - len(kept)]
    chosen = by_frequency(words, counts, np.concatenate([kept, others]))
    named = tuple(words[i] for i in chosen) + (UNKNOWN,) * added
    unknown = named.index(UNKNOWN) if UNKNOWN in named else None
    classes = np.full(len(words), 0 if unknown is None else unknown, dtype=np.uint32)
    classes[chosen] = np.arange(len(chosen))
    return Vocabulary(named, unknown=unknown, dead=None, eos=named.index(EOS)), classes


def by_frequency(words: list[str], counts: NDArray[Any], among: NDArray[np.int64]) -> NDArray[np.int64]:
    """Type numbers `among`, the most frequent first, ties by word."""
    ordered = sorted(among.tolist(), key=lambda i: (-int(counts[i]), words[i]))
    return np.array(ordered, dtype=np.int64)
