"""The only definition of perplexity, for n-grams and networks alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Score:
    """Total negative log-likelihood, in nats, of `num_scored` tokens."""

    total_nll_nats: float
    num_scored: int

    @property
    def nll_nats(self) -> float:
        """Mean negative log-likelihood, nats per token."""
        return self.total_nll_nats / self.num_scored

    @property
    def perplexity(self) -> float:
        """exp of the mean; infinite where that overflows."""
        return math.exp(self.nll_nats) if self.nll_nats < 700 else math.inf


def score(nlls: Iterable[NDArray[np.floating]]) -> Score:
    """Sum per-token values (nats, arrays of any shape, one entry a scored token) in float64."""
    total, count = 0.0, 0
    for values in nlls:
        total += float(np.sum(values, dtype=np.float64))
        count += int(np.size(values))
    return Score(total, count)
