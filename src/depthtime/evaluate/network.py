"""Perplexity of a network on windows: training validates with this function and final numbers come from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from depthtime.data.batching import IGNORED, Windows
from depthtime.evaluate.perplexity import Score, score
from depthtime.models.language_model import LanguageModel


@torch.no_grad()
def token_nlls(model: LanguageModel, windows: Windows, batch_size: int) -> Iterator[NDArray[np.floating]]:
    """Negative log-likelihood, in nats, of each scored target, batch by batch; arrays of shape (scored,)."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    for inputs, targets in windows.batches(batch_size):
        logits = model(torch.from_numpy(inputs).to(device)).flatten(0, 1)  # (B * N, V)
        wanted = torch.from_numpy(targets).to(device).flatten()
        nll = functional.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="none")
        yield nll[wanted != IGNORED].cpu().double().numpy()  # mps has no float64
    model.train(was_training)


def score_network(model: LanguageModel, windows: Windows, batch_size: int) -> Score:
    """Total nll of all windows; the batch size changes nothing beyond rounding."""
    return score(token_nlls(model, windows, batch_size))
