"""A workspace as it is after `dvc pull` on a fresh clone: parameters, card, vocabulary and weights, no text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

import small_study
from depthtime import paths
from depthtime.config import Study, load_params
from depthtime.data.vocabulary import Vocabulary
from depthtime.models.build import build_model
from depthtime.records import dump_json, write_bytes, write_json
from depthtime.train.checkpoint import dump_weights

WORDS = Vocabulary(("UNK", *(f"w{i}" for i in range(27)), "<unk>", "<dead>"), unknown=0, dead=29, eos=None)


def build(folder: Path) -> Study:
    """Write it to `folder`, which is the current one; weights of core/discrete/1 and core/ode/1 are random."""
    (folder / "params.yaml").write_text(small_study.PARAMS, encoding="utf-8")
    (folder / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    study = load_params()
    write_vocabulary(study, "tale", WORDS)
    for run in ("discrete", "ode"):
        config = study.run("core", run)
        torch.manual_seed(0)
        model = build_model(config.run, config.sizes, num_classes=30, max_positions=config.dataset.positions)
        write_bytes(paths.run_folder("core", run, 1) / "weights.safetensors", dump_weights(model))
    return study


def write_vocabulary(study: Study, name: str, vocabulary: Vocabulary) -> None:
    """A vocabulary with a card that fits it."""
    data = dump_json(vocabulary.as_json())
    write_bytes(paths.vocabulary(name), data)
    card = {"config": study.datasets[name].model_dump(mode="json")}
    write_json(paths.data_card(name), card | {"vocabulary": {"sha256": hashlib.sha256(data).hexdigest()}})
