"""Which word ends a sentence? Asked of held-out text, with as much text before it as the window holds.

Source: the word prediction task of Paperno et al. (2016), The LAMBADA dataset, section 2, on which DiffEqFormer is
evaluated. LAMBADA's passages were chosen by people so that the last word follows from the passage and not from its
sentence, and it mostly occurs in the passage. We have no such choice: every sentence is asked, and those whose last
word occurred earlier in the window are also counted apart.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from depthtime.models.language_model import LanguageModel


@dataclass(frozen=True)
class Cloze:
    """Last words to predict, S of them.

    inputs: windows of words, (S, N).  places: position in the window whose next word is asked for, (S,).
    targets: that word, (S,).  is_repeated: it is among the words up to its place, (S,).
    excluded: classes that are no answer, for models and baselines alike: <eos>, the unknown word, `not_asked`.
    left_out: how many sentences of the text were not asked, by reason.
    """

    inputs: NDArray[np.int64]
    places: NDArray[np.int64]
    targets: NDArray[np.int64]
    is_repeated: NDArray[np.bool_]
    excluded: tuple[int, ...]
    left_out: dict[str, int]


@dataclass(frozen=True)
class Answers:
    """Of each question: log-probability of the right word in nats, and its rank, 1 where it is the likeliest, (S,)."""

    log_probs: NDArray[np.float64]
    ranks: NDArray[np.float64]

    @property
    def is_right(self) -> NDArray[np.float64]:
        """1.0 where the right word is likelier than every other one, else 0.0."""
        return (self.ranks == 1).astype(np.float64)

    def take(self, chosen: NDArray[np.bool_]) -> Answers:
        return Answers(self.log_probs[chosen], self.ranks[chosen])


def find_cloze(
    stream: NDArray[np.integer],
    *,
    eos: int,
    unknown: int | None,
    not_asked: Collection[int],
    window: int,
    min_words: int,
) -> Cloze:
    """Questions of a stream (T,) that <eos> opens and closes line by line, T > window.

    Asked is the last word before <eos> of every sentence of at least `min_words` words, that one included, unless it is
    the unknown word or one of `not_asked`. Its window holds the N words before it, fewer only at the very start of
    the stream, where the window's later words are behind its place and so are not seen.
    """
    tokens = np.asarray(stream, dtype=np.int64)
    ends = np.flatnonzero(tokens == eos)
    words, asked = np.diff(ends) - 1, ends[1:] - 1  # words of each sentence; index of its last one
    is_long = words >= min_words
    is_unknown = is_long & (tokens[asked] == (-1 if unknown is None else unknown))
    is_excluded = is_long & np.isin(tokens[asked], list(not_asked))
    asked = asked[is_long & ~is_unknown & ~is_excluded]
    starts = np.maximum(0, asked - window)
    inputs, places, targets = tokens[starts[:, None] + np.arange(window)], asked - starts - 1, tokens[asked]
    before = np.arange(window) <= places[:, None]
    left_out = {
        "too_short": int((~is_long).sum()),
        "unknown": int(is_unknown.sum()),
        "not_asked": int(is_excluded.sum()),
    }
    is_repeated = ((inputs == targets[:, None]) & before).any(axis=1)
    excluded = tuple(sorted({eos, *not_asked} | ({unknown} if unknown is not None else set())))
    return Cloze(inputs, places, targets, is_repeated, excluded, left_out)


@torch.no_grad()
def answer(model: LanguageModel, cloze: Cloze, batch_size: int) -> Answers:
    """What a causal model says."""
    device = next(model.parameters()).device
    log_probs: list[NDArray[np.float64]] = []
    ranks: list[NDArray[np.float64]] = []
    for begin in range(0, len(cloze.targets), batch_size):
        rows = slice(begin, begin + batch_size)
        states = model.solve(torch.from_numpy(cloze.inputs[rows]).to(device)).y  # (B, N, D)
        at = torch.from_numpy(cloze.places[rows]).to(device)
        logits = model.head(states[torch.arange(len(at), device=device), at]).cpu().double()  # (B, V)
        for found, values in zip((log_probs, ranks), grade(logits, cloze.targets[rows], cloze.excluded), strict=True):
            found.append(values)
    return Answers(np.concatenate(log_probs), np.concatenate(ranks))


def answer_always(probabilities: NDArray[np.float64], cloze: Cloze) -> Answers:
    """What a model says that has the same probabilities (V,), all above 0, for every question."""
    targets, place = np.unique(cloze.targets, return_inverse=True)
    log_probs, ranks = grade(torch.from_numpy(np.log(probabilities)).repeat(len(targets), 1), targets, cloze.excluded)
    return Answers(log_probs[place], ranks[place])


def grade(
    logits: Tensor, targets: NDArray[np.int64], excluded: Collection[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probabilities and ranks of targets (B,) under logits (B, V) among all classes not excluded, each (B,).

    The rank is 1 and the number of words that are likelier, and half of those that are as likely.
    """
    logits = logits.index_fill(1, torch.tensor(list(excluded), dtype=torch.int64), float("-inf"))
    wanted = torch.from_numpy(targets)[:, None]
    own = logits.gather(1, wanted)
    above, level = (logits > own).sum(dim=1), (logits == own).sum(dim=1) - 1
    log_probs = logits.log_softmax(dim=1).gather(1, wanted)[:, 0]
    return log_probs.numpy(), (1 + above + level / 2).double().numpy()
