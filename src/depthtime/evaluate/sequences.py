"""Log-probabilities of given words after given words, in windows that the model was trained on.

A sequence may be longer than the window of N positions. Its scored words are then taken in runs, the first of N and
each further one of `stride`, and each run is read with as many words before it as a window holds. For a whole text that
starts with <eos> these are the windows of the study's own scoring (`data.splitting.scoring_windows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from depthtime.models.language_model import LanguageModel


@dataclass(frozen=True)
class Scored:
    """Of each scored word, in order: `log_probs` in nats, (n,) float64; `is_top`, whether no other word is likelier."""

    log_probs: NDArray[np.float64]
    is_top: NDArray[np.bool_]


@dataclass(frozen=True)
class _Piece:
    """Words [start, end) of sequence `number`, of which those from `scored` on count."""

    number: int
    start: int
    scored: int
    end: int


@torch.no_grad()
def score_sequences(
    model: LanguageModel, sequences: Sequence[tuple[Sequence[int], int]], batch_size: int, stride: int | None = None
) -> list[Scored]:
    """Score the words from index `first` >= 1 on of each sequence (words, first) of class numbers.

    Sequences share batches with those of about their length; that moves results by rounding only (fixed steps).
    """
    window = model.max_positions
    found = [Scored(np.zeros(len(words) - first), np.zeros(len(words) - first, bool)) for words, first in sequences]
    pieces = [
        piece
        for number, (words, first) in enumerate(sequences)
        for piece in _pieces(number, len(words), first, window, stride or window)
    ]
    pieces.sort(key=lambda piece: piece.end - piece.start)
    for begin in range(0, len(pieces), batch_size):
        _score_batch(model, sequences, pieces[begin : begin + batch_size], found)
    return found


def _pieces(number: int, length: int, first: int, window: int, stride: int) -> Iterator[_Piece]:
    """Windows over a sequence that score every word from `first` on once; the last ends with the sequence."""
    scored, end = first, min(first + window, length)
    while scored < end:
        yield _Piece(number, max(0, end - window - 1), scored, end)
        scored, end = end, min(end + stride, length)


def _score_batch(
    model: LanguageModel, sequences: Sequence[tuple[Sequence[int], int]], pieces: list[_Piece], found: list[Scored]
) -> None:
    device = next(model.parameters()).device
    longest = max(piece.end - piece.start for piece in pieces)
    block = torch.zeros(len(pieces), longest, dtype=torch.int64)  # words after the end are not seen: causal
    is_scored = torch.zeros(len(pieces), longest - 1, dtype=torch.bool)
    for row, piece in enumerate(pieces):
        block[row, : piece.end - piece.start] = torch.tensor(sequences[piece.number][0][piece.start : piece.end])
        is_scored[row, piece.scored - piece.start - 1 : piece.end - piece.start - 1] = True
    block, is_scored = block.to(device), is_scored.to(device)
    states = model.solve(block[:, :-1]).y[is_scored]  # (words, D)
    targets = block[:, 1:][is_scored][:, None]
    log_probs = model.head(states).cpu().double().log_softmax(dim=-1)  # (words, V); mps has no float64
    own = log_probs.gather(1, targets.cpu())[:, 0]
    is_top = own >= log_probs.max(dim=1).values
    at = 0
    for piece in pieces:
        first, count = sequences[piece.number][1], piece.end - piece.scored
        place = slice(piece.scored - first, piece.end - first)
        found[piece.number].log_probs[place] = own[at : at + count].numpy()
        found[piece.number].is_top[place] = is_top[at : at + count].numpy()
        at += count


@torch.no_grad()
def log_probs_reference(model: LanguageModel, words: Sequence[int], first: int) -> list[float]:
    """The same for a sequence that fits the window, word by word: the simple twin."""
    logits = [model(torch.tensor([list(words[:i])]))[0, -1].double() for i in range(first, len(words))]
    return [float(row.log_softmax(dim=-1)[word]) for row, word in zip(logits, words[first:], strict=True)]
