"""A trained model and its words, from what is published: parameters, card, vocabulary, weights; no text is needed."""

from __future__ import annotations

from pathlib import Path

import torch

from depthtime import paths
from depthtime.config import ContinuousRun, RunConfig, Study, run_address
from depthtime.data.vocabulary import Vocabulary
from depthtime.errors import ConfigError, DataError, RecordError
from depthtime.models.build import build_model
from depthtime.models.language_model import LanguageModel
from depthtime.records import read_json, sha256_file
from depthtime.train.checkpoint import load_weights


def load_stored(
    study: Study, group: str, run: str, seed: int, weights: Path | None = None, *, max_positions: int | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """The model of a row, on the CPU and in evaluation mode, with stored weights; and the vocabulary of its dataset.

    Args: weights: another file than the run's own; max_positions: longest window, by default the trained one.
    Raises: ConfigError for an unknown run, RecordError or DataError for what is missing, damaged or does not fit.
    """
    config = study.run(group, run)
    path = weights or _kept_weights(config, seed)
    vocabulary = load_vocabulary(study, config.group.data)
    torch.set_num_threads(config.train.threads)
    model = build_model(
        config.run,
        config.sizes,
        num_classes=len(vocabulary.words),
        max_positions=max_positions or config.dataset.positions,
    )
    load_weights(path, model)
    return (model.double() if config.train.precision == "float64" else model).eval(), vocabulary


def load_continuous(study: Study, name: str, key: str) -> tuple[LanguageModel, RunConfig]:
    """The trained model of a run of `model: continuous` (group/run/seed), which `key` of params.yaml names.

    Raises: ConfigError for a run of another model; RecordError or DataError as `load_stored`.
    """
    group, run, seed = run_address(name)
    config = study.run(group, run)
    if not isinstance(config.run, ContinuousRun):
        raise ConfigError([f"params.yaml: {key} = {name!r}: expected a run of `model: continuous`"])
    return load_stored(study, group, run, seed)[0], config


def load_vocabulary(study: Study, dataset: str) -> Vocabulary:
    """The stored vocabulary of a dataset, checked against its card."""
    card_path, path = paths.data_card(dataset), paths.vocabulary(dataset)
    card, stored = read_json(card_path), read_json(path)
    if card["config"] != study.datasets[dataset].model_dump(mode="json"):
        raise DataError(
            f"{card_path}: made with another configuration of datasets.{dataset}; run `depthtime prepare {dataset}`"
        )
    if sha256_file(path) != card["vocabulary"]["sha256"]:
        raise DataError(f"{path}: not the vocabulary that {card_path} describes; fetch it again with `dvc pull {path}`")
    return Vocabulary(**{**stored, "words": tuple(stored["words"])})


def _kept_weights(config: RunConfig, seed: int) -> Path:
    """The weights file of a run, or an error that says how to get one."""
    name = f"{config.group_name}/{config.run_name}"
    path = paths.run_folder(config.group_name, config.run_name, seed) / "weights.safetensors"
    if seed not in config.group.seeds:
        seeds = ", ".join(map(str, config.group.seeds))
        raise RecordError(f"params.yaml: groups.{config.group_name}.seeds has no {seed}; there are {seeds}")
    if path.exists():
        return path
    if seed in config.run.keep_weights:
        raise RecordError(f"{path}: no such file; `dvc pull {path.parent}` fetches it, or train the run")
    keep = f"params.yaml: groups.{config.group_name}.runs.{config.run_name}.keep_weights"
    with_weights = runs_with_weights(config.study)
    raise RecordError(
        f"{name}/{seed}: its weights are not kept ({keep}); runs with weights: {', '.join(with_weights) or 'none'}"
    )


def runs_with_weights(study: Study) -> list[str]:
    """group/run/seed of every run whose weights are stored."""
    return [f"{g}/{r}/{seed}" for g, r, seed in study.all_runs() if seed in study.groups[g].runs[r].keep_weights]
