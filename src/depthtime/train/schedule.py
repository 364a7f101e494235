"""The learning rate as a function of the step."""

from __future__ import annotations

import math

from depthtime.config import Train


def learning_rate_at(step: int, recipe: Train) -> float:
    """Learning rate of optimiser step `step`, counted from 1.

    Linear warm-up, step / warmup_steps of the base rate; then constant, or half a cosine that ends at
    final_fraction of it in the last step. Source: ContinuumLM, training section (constant).
    """
    base = recipe.learning_rate
    if step <= recipe.warmup_steps:
        return base * step / recipe.warmup_steps
    if recipe.schedule == "constant":
        return base
    progress = (step - recipe.warmup_steps) / max(1, recipe.max_steps - recipe.warmup_steps)
    return base * (recipe.final_fraction + (1 - recipe.final_fraction) * 0.5 * (1 + math.cos(math.pi * progress)))
