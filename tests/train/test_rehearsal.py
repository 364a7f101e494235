"""A rehearsal compresses a recipe so that all its parts act, and repeats to the digit."""

import dataclasses
from types import SimpleNamespace

import pytest

from depthtime.data.dataset import Dataset
from depthtime.train.rehearsal import STEPS, compressed, rehearse
from depthtime.train.schedule import learning_rate_at
from small_models import CLASSES, ODE, POSITIONS, RECIPE, SIZES, windows

DATASET = Dataset("made_up", ("w",) * CLASSES, None, CLASSES, windows(), windows(9, seed=1), windows(5, seed=2), {})


def _config(**changes):
    recipe = RECIPE.model_copy(update=changes)
    return SimpleNamespace(run=ODE, train=recipe, sizes=SIZES, dataset=SimpleNamespace(positions=POSITIONS))


def test_the_schedule_keeps_its_shape():
    recipe = RECIPE.model_copy(
        update={"max_steps": 3000, "warmup_steps": 300, "schedule": "cosine", "final_fraction": 0.0}
    )
    short = compressed(recipe)
    assert (short.max_steps, short.warmup_steps) == (STEPS, 2)
    for step in range(2, STEPS + 1):
        whole = learning_rate_at(step * 3000 // STEPS, recipe)
        assert learning_rate_at(step, short) == pytest.approx(whole, abs=1e-12)


def test_a_warm_up_however_short_is_rehearsed():
    assert compressed(RECIPE.model_copy(update={"max_steps": 100_000, "warmup_steps": 10})).warmup_steps == 1
    assert compressed(RECIPE.model_copy(update={"warmup_steps": 0})).warmup_steps == 0


def test_rehearsals_repeat_and_tell_recipes_apart():
    first = rehearse(_config(), DATASET, 1)
    assert first == rehearse(_config(), DATASET, 1)
    assert len(first["losses"]) == STEPS
    assert first["evaluation"] is not None
    assert first["test"] is not None
    for change in (
        {"weight_decay": 0.01}, {"clip_norm": 0.1}, {"schedule": "cosine", "final_fraction": 0.0}, {"eps": 1e-4},
        {"betas": (0.9, 0.99)}, {"learning_rate": 3.001e-3}, {"warmup_steps": 8}, {"batch_order": "source"},
    ):  # fmt: skip
        other = rehearse(_config(**change), DATASET, 1)
        gaps = [abs(a - b) / a for a, b in zip(first["losses"], other["losses"], strict=True)]
        assert max(gaps) > 1e-6, change


def test_other_data_show_in_the_rehearsal():
    first = rehearse(_config(), DATASET, 1)
    swapped = dataclasses.replace(DATASET, valid=windows(9, seed=3))
    assert rehearse(_config(), swapped, 1)["evaluation"] != first["evaluation"]
    assert rehearse(_config(), dataclasses.replace(DATASET, train=windows(seed=4)), 1)["losses"] != first["losses"]
