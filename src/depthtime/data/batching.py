"""Windows over one token stream, and the order in which training visits them.

Both protocols are the same picture: a memory-mapped stream and a list of places where windows start. A window of
N positions reads `tokens[s : s + N]` and predicts `tokens[s + 1 : s + N + 1]`; targets before its `first_scored`
were already scored by an earlier window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

IGNORED = -100  # target of a position that is not scored (torch's ignore_index)


@dataclass(frozen=True)
class Windows:
    """Windows of `positions` predictions over `tokens`.

    tokens: stream of word ids, shape (T,).  starts: first input of each window, shape (W,).
    first_scored: first position of each window whose target counts, shape (W,).
    """

    tokens: NDArray[np.integer]
    starts: NDArray[np.int64]
    first_scored: NDArray[np.int64]
    positions: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_scored(self) -> int:
        """How many targets count, over all windows."""
        return int((self.positions - self.first_scored).sum())

    def take(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets of some windows, each (B, N) int64; targets that do not count are IGNORED."""
        at = self.starts[indices][:, None] + np.arange(self.positions + 1)  # (B, N + 1)
        block = self.tokens[at].astype(np.int64)
        targets = block[:, 1:].copy()
        targets[np.arange(self.positions) < self.first_scored[indices][:, None]] = IGNORED
        return block[:, :-1], targets

    def batches(self, batch_size: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """All windows in order, the last batch possibly smaller."""
        for first in range(0, len(self), batch_size):
            yield self.take(np.arange(first, min(first + batch_size, len(self))))


@dataclass(frozen=True)
class BatchOrder:
    """Which windows make up training batch `step` (0-based): a pure function, so resuming needs no cursor.

    kind "source": the windows in their stored order, the same in every epoch.
    kind "seeded": a fresh permutation for each epoch from (seed, epoch); all models of a seed see the same data.
    A batch never crosses an epoch; the remainder that fills no batch is left out of that epoch.
    """

    num_windows: int
    batch_size: int
    kind: str
    seed: int

    @property
    def batches_per_epoch(self) -> int:
        return self.num_windows // self.batch_size

    def indices(self, step: int) -> NDArray[np.int64]:
        """Window indices of batch `step`, shape (batch_size,)."""
        epoch, batch = divmod(step, self.batches_per_epoch)
        order = np.arange(self.num_windows)
        if self.kind == "seeded":
            order = _permutation(self.num_windows, self.seed, epoch)
        return order[batch * self.batch_size : (batch + 1) * self.batch_size]


@lru_cache(maxsize=2)
def _permutation(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of an epoch, drawn once and kept while it lasts."""
    return np.random.default_rng([seed, epoch]).permutation(count)
