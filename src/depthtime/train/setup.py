"""From a configuration to a seeded model on its device, with random weights or with those of a trained model."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from depthtime import paths
from depthtime.config import RunConfig, run_address
from depthtime.data.dataset import Dataset, load_dataset
from depthtime.errors import RecordError, TrainingError
from depthtime.models.build import build_model
from depthtime.models.language_model import LanguageModel
from depthtime.records import sha256_file
from depthtime.seeding import seed_everything
from depthtime.train.checkpoint import load_weights


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
    """Seed everything, set torch's threads, then build the model a run asks for, and give it its source's weights.

    Raises: RecordError without the weights of a source; TrainingError where they are of other words or sizes.
    """
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
    if config.source is not None:
        start_from(config, config.source, dataset, model)
    return model.to(pick_device(config.train.device))


def start_from(config: RunConfig, source: str, dataset: Dataset, model: LanguageModel) -> None:
    """Fill a model with what `source` (group/run/seed) learned; how, the module of its kind knows: it is found by name.

    Raises: as `build_for`.
    """
    group, run, _ = run_address(source)
    earlier, path = config.study.run(group, run), source_weights(source)
    words = load_dataset(config.study, earlier.group.data).words
    if words != dataset.words or earlier.dataset.positions != config.dataset.positions:
        raise TrainingError(
            f"{config.group_name}/{config.run_name} starts from {source}, but {earlier.group.data} has other words or "
            f"windows than {config.group.data}; expected two datasets with one vocabulary and one window"
        )
    trained = build_model(
        earlier.run, earlier.sizes, num_classes=len(words), max_positions=earlier.dataset.positions
    ).to(next(model.parameters()).dtype)
    load_weights(path, trained)
    importlib.import_module(f"depthtime.models.{config.run.model}").start(model, trained)


def source_weights(source: str) -> Path:
    """The stored weights of a run (group/run/seed) that others start from.

    Raises: RecordError that says how to get them.
    """
    group, run, seed = run_address(source)
    folder = paths.run_folder(group, run, seed)
    path = folder / "weights.safetensors"
    if not path.exists():
        raise RecordError(
            f"{path}: no such file, and this run starts from it; `dvc pull {folder}` fetches it, or "
            f"`depthtime train {group} {run} {seed}` makes it"
        )
    return path


def describe_source(config: RunConfig) -> dict[str, Any]:
    """What a record keeps of the weights that a run starts from; nothing where it starts from random ones."""
    return {} if config.source is None else {"source": {"weights_sha256": sha256_file(source_weights(config.source))}}
