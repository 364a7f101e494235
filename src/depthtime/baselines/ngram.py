"""n-gram references: maximum likelihood, add-alpha, and interpolated Kneser-Ney, over the targets networks see.

Every scored target is one *event*: a word with its history, nearest word first. History ends where a window may not
look (`within_windows`: at the window's start, else at the stream's); what lies before is one BEGIN symbol. Counts are
sorted arrays of distinct n-gram keys, int64 numbers (context number x base + word), so order and vocabulary can grow
without overflow and a text of 100 million tokens fits in memory. Own code: NLTK counts in dictionaries of tuples, and
KenLM writes tables to disk and pads sentences, which chunks are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from depthtime.data.batching import Windows

Ints = NDArray[np.int64]
Events = NDArray[np.int32]
Floats = NDArray[np.float64]
BLOCK_WINDOWS = 1 << 13


@dataclass(frozen=True)
class Level:
    """Counts of one order m. Contexts (m - 1 words) and grams (context, word) are sorted distinct keys.

    contexts: parent context x base + farther word, (C,); at order 1 the one empty context.
    grams: context number x base + word, (G,).  counts: of each gram, (G,).  totals: of each context, (C,).
    """

    contexts: Ints
    grams: Ints
    counts: Ints
    totals: Ints


@dataclass(frozen=True)
class AddAlpha:
    """P(w | h) = (c(h, w) + alpha) / (c(h) + alpha V), h the previous word (order 2) or nothing (order 1).

    alpha = 0 is maximum likelihood: a target without a count then has probability zero. Source: Lidstone's law; for
    alpha = 1 Laplace's (Manning and Schuetze, 1999, section 6.2).
    """

    levels: tuple[Level, ...]
    classes: int
    alpha: float

    def probabilities(self, events: Events) -> Floats:
        """P of each event's word, (E,). events: (n, E) as `events` gives them."""
        level, order = self.levels[-1], len(self.levels)
        context = _find_contexts(self.levels, events, self.classes + 1)[order - 1]
        count = _gram_counts(level, context, events[0], self.classes + 1)
        total = np.where(context >= 0, level.totals[context], 0)
        with np.errstate(invalid="ignore"):  # 0 / 0: an unseen context without smoothing
            return np.nan_to_num((count + self.alpha) / (total + self.alpha * self.classes), nan=0.0)


@dataclass(frozen=True)
class KneserNey:
    """Interpolated Kneser-Ney with modified discounts (one for counts 1, 2, and 3 or more, at each order).

    P_m(w | h) = max(c(h, w) - D(c), 0) / c(h) + (sum of the discounts of h) / c(h) x P_(m-1)(w | shorter h), down to
    the uniform 1 / V; a history never seen passes P_(m-1) on. The highest order counts events, each lower one the
    distinct words seen before the gram. Source: Chen and Goodman (1999), Computer Speech and Language 13, 359-394,
    section 3; interpolation with the uniform distribution at order 1 as there.
    """

    levels: tuple[Level, ...]
    discounts: tuple[tuple[float, float, float], ...]
    back_off: tuple[Floats, ...]
    classes: int

    def probabilities(self, events: Events) -> Floats:
        """P of each event's word, (E,). events: (n, E) as `events` gives them."""
        base = self.classes + 1
        p = np.full(events.shape[1], 1.0 / self.classes)
        contexts = _find_contexts(self.levels, events, base)
        for level, discount, gamma, context in zip(self.levels, self.discounts, self.back_off, contexts, strict=True):
            count = _gram_counts(level, context, events[0], base)
            kept = count - _discount_of(count, discount)
            p = np.where(context >= 0, kept / level.totals[context] + gamma[context] * p, p)
        return p


def events(windows: Windows, order: int, begin: int, *, within_windows: bool) -> Events:
    """Scored targets with their histories, (order, E) int32: row 0 the word, row k the word k places before.

    begin: number of the BEGIN symbol (V), which stands for every place before the scope of the history.
    """
    out = np.empty((order, windows.num_scored), dtype=np.int32)
    filled = 0
    for block in event_blocks(windows, order, begin, within_windows=within_windows):
        out[:, filled : filled + block.shape[1]] = block
        filled += block.shape[1]
    return out


def event_blocks(windows: Windows, order: int, begin: int, *, within_windows: bool) -> Iterator[Events]:
    """`events`, some thousands of windows at a time."""
    for first in range(0, len(windows), BLOCK_WINDOWS):
        starts = windows.starts[first : first + BLOCK_WINDOWS]
        skipped = windows.first_scored[first : first + BLOCK_WINDOWS]
        scored = np.arange(windows.positions) >= skipped[:, None]  # (W, N)
        at = (starts[:, None] + 1 + np.arange(windows.positions))[scored]
        scope = np.repeat(starts, scored.sum(axis=1)) if within_windows else np.zeros_like(at)
        block = np.empty((order, len(at)), dtype=np.int32)
        for k in range(order):
            block[k] = np.where(at - k >= scope, windows.tokens[np.maximum(at - k, 0)], begin)
        yield block


def fit_add_alpha(train: Events, order: int, classes: int, alpha: float) -> AddAlpha:
    """Count events at order 1 or 2."""
    return AddAlpha(_raw_levels(train, order, classes + 1), classes, alpha)


def fit_kneser_ney(train: Events, order: int, classes: int) -> KneserNey:
    """Count events at the highest order and distinct left neighbours below it; estimate the discounts."""
    base = classes + 1
    levels = list(_raw_levels(train, order, base))
    for m in range(order - 1, 0, -1):
        above, level = levels[m], levels[m - 1]
        parent = above.contexts // base  # of an order m + 1 context: its context without the farthest word
        suffixes = parent[above.grams // base] * base + above.grams % base
        grams, counts = np.unique(suffixes, return_counts=True)
        levels[m - 1] = _level(level.contexts, grams, counts, base)
    discounts = tuple(estimate_discounts(level.counts) for level in levels)
    back_off = tuple(_back_off(level, d, base) for level, d in zip(levels, discounts, strict=True))
    return KneserNey(tuple(levels), discounts, back_off, classes)


def estimate_discounts(counts: Ints) -> tuple[float, float, float]:
    """D1, D2, D3+ from how many grams have count 1, 2, 3 and 4 (Chen and Goodman, 1999, equation 17).

    Small texts may lack one of these, or give a discount outside (0, count): then the single n1 / (n1 + 2 n2) of Ney,
    Essen and Kneser (1994) for all, and 0.5 where that is undefined too.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == k)) for k in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    if n1 and n2 and n3:
        modified = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
        if all(0 < d < k for k, d in zip((1, 2, 3), modified, strict=True)):
            return modified
    return (y, y, y)


def _raw_levels(train: Events, order: int, base: int) -> tuple[Level, ...]:
    """Event counts at each order up to `order`; train: (at least `order`, E)."""
    levels = []
    table = np.zeros(1, dtype=np.int64)
    context = np.zeros(train.shape[1], dtype=np.int64)
    for m in range(1, order + 1):
        if m > 1:
            keys = context * base + train[m - 1]
            table = np.unique(keys)
            context = np.searchsorted(table, keys)
        grams, counts = np.unique(context * base + train[0], return_counts=True)
        levels.append(_level(table, grams, counts, base))
    return tuple(levels)


def _level(contexts: Ints, grams: Ints, counts: Ints, base: int) -> Level:
    totals = np.zeros(len(contexts), dtype=np.int64)
    np.add.at(totals, grams // base, counts)
    return Level(contexts, grams, counts, totals)


def _find_contexts(levels: tuple[Level, ...], events: Events, base: int) -> list[Ints]:
    """Number of each event's context at each order, (E,) each; -1 where it was never seen."""
    found = [np.zeros(events.shape[1], dtype=np.int64)]
    for m, level in enumerate(levels[1:], start=1):
        keys = np.where(found[-1] >= 0, found[-1] * base + events[m], -1)
        found.append(_lookup(level.contexts, keys))
    return found


def _gram_counts(level: Level, context: Ints, word: Events, base: int) -> Ints:
    """Count of (context, word) at one order, (E,); 0 where never seen."""
    at = _lookup(level.grams, np.where(context >= 0, context * base + word, -1))
    return np.where(at >= 0, level.counts[at], 0)


def _lookup(table: Ints, keys: Ints) -> Ints:
    """Place of each key in a sorted table, -1 where it is not there."""
    at = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return np.where(table[at] == keys, at, -1)


def _discount_of(counts: Ints, discounts: tuple[float, float, float]) -> Floats:
    return np.array([0.0, *discounts])[np.minimum(counts, 3)]


def _back_off(level: Level, discounts: tuple[float, float, float], base: int) -> Floats:
    """Share of each context's probability that goes to the order below, (C,)."""
    taken = np.zeros(len(level.contexts))
    np.add.at(taken, level.grams // base, _discount_of(level.counts, discounts))
    return taken / level.totals
