"""A rehearsal: the whole recipe in 20 steps, whose losses a record keeps.

The schedule is compressed so that warm-up, decay, weight decay and clipping all act; half way the state is saved,
loaded into a fresh model and continued; one validation closes it. When code changes but a rehearsal gives the same
losses, the run it belongs to need not be trained again (`depthtime runs adopt`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from depthtime.config import RunConfig, Train
from depthtime.data.batching import Windows
from depthtime.data.dataset import Dataset
from depthtime.evaluate.network import score_network
from depthtime.train.loop import fit
from depthtime.train.setup import build_for

STEPS = 20
VALID_WINDOWS = 32
TEST_WINDOWS = 8


def compressed(recipe: Train) -> Train:
    """The recipe in STEPS steps: same shape of schedule, one validation at the end."""
    warmup = round(recipe.warmup_steps * STEPS / recipe.max_steps)
    if recipe.warmup_steps:
        warmup = max(1, warmup)
    update = {"max_steps": STEPS, "warmup_steps": min(warmup, STEPS), "eval_every": STEPS}
    return recipe.model_copy(update=update)


def rehearse(config: RunConfig, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Losses of the 20 steps (nats) and the validation after them: {"losses": [...], "evaluation": x}."""
    recipe = compressed(config.train)
    valid = first_windows(dataset.valid, VALID_WINDOWS)
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.safetensors"
        kwargs: dict[str, Any] = {"seed": seed, "state_path": state}
        fit(build_for(config, dataset, seed), dataset.train, valid, recipe, stop_at=STEPS // 2, **kwargs)
        fitted = fit(build_for(config, dataset, seed + 1), dataset.train, valid, recipe, **kwargs)
    rehearsal: dict[str, Any] = {
        "losses": [row[1] for row in fitted.progress.history],
        "evaluation": fitted.progress.curve[-1]["nll_nats"] if fitted.progress.curve else None,
    }
    if dataset.test is not None:
        test = score_network(fitted.model, first_windows(dataset.test, TEST_WINDOWS), config.train.eval_batch_size)
        rehearsal["test"] = test.nll_nats if np.isfinite(test.nll_nats) else None
    return rehearsal


def first_windows(windows: Windows, count: int) -> Windows:
    """The first windows of a part."""
    return Windows(windows.tokens, windows.starts[:count], windows.first_scored[:count], windows.positions)
