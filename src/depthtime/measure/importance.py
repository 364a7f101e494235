"""Three common answers to how much each token of a sequence matters for the word that a model predicts after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from depthtime.measure.depth_steps import attention_maps
from depthtime.models.language_model import LanguageModel


def prediction(model: LanguageModel, classes: Sequence[int]) -> tuple[int, float]:
    """The likeliest next class after a sequence, and its log probability in nats."""
    logs = _log_probabilities(model, torch.tensor([list(classes)]))[0]
    best = int(logs.argmax())
    return best, float(logs[best])


@torch.no_grad()
def deletion_effect(model: LanguageModel, classes: Sequence[int], predicted: int) -> Tensor:
    """|change of log p(predicted)| in nats when one token is left out, for every token: (N).

    What follows moves one position up, as if the token had never been there.
    Source: Li, Monroe, Jurafsky (2016), Understanding neural networks through representation erasure, section 2; here
    without sign, since an exponent has none, and not divided by log p.
    """
    without = [[*classes[:i], *classes[i + 1 :]] for i in range(len(classes))]
    whole = _log_probabilities(model, torch.tensor([list(classes)]))[0, predicted]
    return (_log_probabilities(model, torch.tensor(without))[:, predicted] - whole).abs()


def gradient_times_input(model: LanguageModel, classes: Sequence[int], predicted: int) -> Tensor:
    """|y_0[i] . d log p(predicted) / d y_0[i]| for the state y_0 (token and position) that enters depth: (N).

    Source: Shrikumar et al. (2016), Not just a black box, section 2; summed over features, without sign.
    """
    y = model.embed(torch.tensor([list(classes)])).detach().requires_grad_()
    logits = model.head(model.norm(model.core(y).y))[0, -1]
    (gradient,) = torch.autograd.grad(logits.log_softmax(dim=-1)[predicted], y)
    return (y * gradient)[0].sum(dim=-1).abs().detach()


def attention_rollout(maps: Sequence[Tensor]) -> Tensor:
    """Attention of the last position to each token through all steps: (N), adding up to 1.

    maps: (H, N, N) of each step, first to last. R <- (A + I)/2 R with A the mean over heads.
    Source: Abnar and Zuidema (2020), Quantifying attention flow in transformers, section 3.
    """
    rollout = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype)
    for each in maps:
        rollout = (each.mean(dim=0) + torch.eye(len(rollout), dtype=each.dtype)) / 2 @ rollout
    return rollout[-1]


@torch.no_grad()
def references(model: LanguageModel, classes: Sequence[int], states: Sequence[Tensor]) -> dict[str, Tensor]:
    """All three by name, for the class that the model itself predicts; `states` are those of the steps."""
    predicted, _ = prediction(model, classes)
    with torch.enable_grad():
        gradient = gradient_times_input(model, classes, predicted)
    return {
        "deletion": deletion_effect(model, classes, predicted),
        "gradient": gradient,
        "rollout": attention_rollout(attention_maps(model.core, states)),
    }


def _log_probabilities(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Log probabilities (B, V) of the word after each sequence (B, N)."""
    return model(tokens)[:, -1].log_softmax(dim=-1)
