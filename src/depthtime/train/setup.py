"""From a configuration to a seeded model on its device."""

from __future__ import annotations

import torch

from depthtime.config import RunConfig
from depthtime.data.dataset import Dataset
from depthtime.errors import TrainingError
from depthtime.models.build import build_model
from depthtime.models.language_model import LanguageModel
from depthtime.seeding import seed_everything


def pick_device(name: str) -> torch.device:
    """The device a recipe asks for; `auto` takes cuda, then mps, then cpu.

    Raises: TrainingError when a named device is not there.
    """
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in has.items() if there)
    if not has[name]:
        raise TrainingError(
            f"train.device = {name!r}, but torch {torch.__version__} finds no such device; use auto or cpu"
        )
    return torch.device(name)


def build_for(config: RunConfig, dataset: Dataset, seed: int) -> LanguageModel:
    """Seed everything, set torch's threads, then build the model a run asks for."""
    torch.set_num_threads(config.train.threads)
    seed_everything(seed)
    model = build_model(
        config.run,
        config.sizes,
        num_classes=dataset.vocabulary_size,
        max_positions=config.dataset.positions,
    )
    if config.train.precision == "float64":
        model = model.double()
    return model.to(pick_device(config.train.device))
