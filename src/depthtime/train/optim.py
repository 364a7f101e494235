"""Optimisers a recipe can name."""

from __future__ import annotations

from typing import Any

import torch

from depthtime.config import Train
from depthtime.models.language_model import LanguageModel


def build_optimizer(model: LanguageModel, recipe: Train) -> torch.optim.Optimizer:
    """Adam (weight decay added to the gradient) or AdamW (decoupled; Loshchilov and Hutter 2019).

    Where the recipe decays weights and the model exempts some, these make a second group of parameters without decay.
    """
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    exempt = [p for name, p in named if recipe.weight_decay > 0 and not model.decays(name)]
    decayed = [p for name, p in named if recipe.weight_decay == 0 or model.decays(name)]
    groups: list[dict[str, Any]] = [{"params": decayed}] if decayed else []
    groups += [{"params": exempt, "weight_decay": 0.0}] if exempt else []
    return kinds[recipe.optimizer](
        groups,
        lr=recipe.learning_rate,
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
        fused=named[0][1].device.type in {"cpu", "cuda"},
    )
