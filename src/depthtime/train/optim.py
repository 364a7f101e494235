"""Optimisers a recipe can name."""

from __future__ import annotations

import torch
from torch import nn

from depthtime.config import Train


def build_optimizer(model: nn.Module, recipe: Train) -> torch.optim.Optimizer:
    """Adam (weight decay added to the gradient) or AdamW (decoupled; Loshchilov and Hutter 2019)."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    parameters = [p for p in model.parameters() if p.requires_grad]
    return kinds[recipe.optimizer](
        parameters,
        lr=recipe.learning_rate,
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
        fused=parameters[0].device.type in {"cpu", "cuda"},
    )
