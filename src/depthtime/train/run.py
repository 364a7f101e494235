"""One run from its row in params.yaml to its record: rehearsal, training, evaluation, files."""

from __future__ import annotations

import hashlib
import math
import shutil
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from depthtime import paths
from depthtime.config import RunConfig, Study, digest
from depthtime.data.dataset import Dataset, load_dataset
from depthtime.evaluate.network import score_network
from depthtime.models.language_model import LanguageModel
from depthtime.provenance import describe_machine
from depthtime.records import read_json, sha256_file, write_bytes, write_json
from depthtime.train.checkpoint import Progress, dump_weights
from depthtime.train.loop import Fitted, Observer, fit
from depthtime.train.rehearsal import rehearse
from depthtime.train.setup import build_for, pick_device

COLUMNS = "step,loss_nats,learning_rate,grad_norm,valid_nll_nats"


def resolve(study: Study, group: str, run: str) -> RunConfig:
    """A run's configuration, with the learning rate that a selection stage chose where its group has one."""
    config = study.run(group, run)
    if config.group.select is None:
        return config
    return config.with_learning_rate(read_json(paths.selection(group))["chosen"][run]["learning_rate"])


def train_run(
    study: Study, group: str, run: str, seed: int, *, observers: tuple[Observer, ...] = (), root: Path = Path()
) -> dict[str, Any]:
    """Train one seed of one run and write its record, history, weights (where kept) and provenance below `root`.

    Returns the record. A diverged run is a result: its record is complete and says so.
    """
    config = resolve(study, group, run)
    dataset = load_dataset(study, config.group.data)
    rehearsal = rehearse(config, dataset, seed)
    model = build_for(config, dataset, seed)
    state_path = root / paths.RESUME / f"{_state_key(config, dataset, seed)}.safetensors"  # names the code now loaded
    fitted = fit(
        model, dataset.train, dataset.valid, config.train, seed=seed, state_path=state_path, observers=observers
    )

    folder = root / paths.run_folder(group, run, seed)
    files = {"history.csv": _history_csv(fitted.progress)}
    keeps = seed in config.run.keep_weights and fitted.progress.diverged_at is None
    if keeps:
        files["weights.safetensors"] = dump_weights(fitted.model)
    record = {
        "schema": 1,
        "group": group,
        "run": run,
        "seed": seed,
        "digest": config.digest,
        "config": config.described(),
        "data": describe_data(dataset),
        "rehearsal": rehearsal,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        **_results(config, dataset, fitted),
    }
    shutil.rmtree(folder, ignore_errors=True)  # what an earlier run left there is not this run's
    for name, data in files.items():
        write_bytes(folder / name, data)
    write_json(root / paths.provenance(group, run, seed), _provenance(config, fitted.progress))
    write_json(root / paths.record(group, run, seed), record)
    return record


def forget_state(config: RunConfig, seed: int) -> None:
    """Remove the checkpoint of a run that has its record. The last step's state makes a second call instant."""
    dataset = load_dataset(config.study, config.group.data)
    (paths.RESUME / f"{_state_key(config, dataset, seed)}.safetensors").unlink(missing_ok=True)


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """What a record keeps of its data: hashes of token arrays and split, numbers of windows and scored tokens."""
    return {key: dataset.card[key] for key in ("arrays", "split_sha256", "windows", "num_scored")}


def _results(config: RunConfig, dataset: Dataset, fitted: Fitted) -> dict[str, Any]:
    """The measured part of a record; evaluations that a diverged run did not reach are null."""
    progress, recipe, model = fitted.progress, config.train, fitted.model
    due = sorted({*range(recipe.eval_every, recipe.max_steps + 1, recipe.eval_every), recipe.max_steps})
    reached = {entry["step"]: entry for entry in progress.curve}
    missing = {"nll_nats": None, "perplexity": None, "num_scored": None}
    curve = [reached.get(step, {"step": step, **missing}) for step in due]
    diverged = progress.diverged_at is not None
    norms = [row[3] for row in progress.history if row[3] is not None]
    losses = [row[1] for row in progress.history[-100:] if row[1] is not None]
    return {
        "status": "diverged" if diverged else "completed",
        **describe_model(config, dataset, model),
        "curve": curve,
        "final": curve[-1],
        "best": reached.get(progress.best_step, {"step": None, **missing}),
        "test": _test_score(config, dataset, fitted),
        "train": {
            "final_loss_nats": statistics.fmean(losses) if losses and not diverged else None,
            "max_grad_norm": max(norms) if norms else None,
            "diverged_at": progress.diverged_at,
        },
    }


@torch.no_grad()
def describe_model(config: RunConfig, dataset: Dataset, model: LanguageModel) -> dict[str, Any]:
    """Parameters by part, and what a forward pass costs, counted on one validation window."""
    inputs, _ = dataset.valid.take(np.zeros(1, dtype=np.int64))
    solution = model.solve(torch.from_numpy(inputs).to(next(model.parameters()).device))
    return {
        "parameters": model.parameter_counts(),
        "cost": {
            "nfe_forward": solution.nfe,
            "flops_per_token_forward": model.flops_per_token(config.dataset.positions),
        },
    }


def _test_score(config: RunConfig, dataset: Dataset, fitted: Fitted) -> dict[str, Any] | None:
    """Test part, where the protocol has one, under the weights with the lowest validation loss."""
    if dataset.test is None or not fitted.best or fitted.progress.diverged_at is not None:
        return None
    last = {name: t.clone() for name, t in fitted.model.state_dict().items()}
    fitted.model.load_state_dict(fitted.best)
    result = score_network(fitted.model, dataset.test, config.train.eval_batch_size)
    fitted.model.load_state_dict(last)
    if not math.isfinite(result.perplexity):
        return None
    return {
        "step": fitted.progress.best_step,
        "nll_nats": result.nll_nats,
        "perplexity": result.perplexity,
        "num_scored": result.num_scored,
    }


def _history_csv(progress: Progress) -> bytes:
    rows = (",".join(_cell(value) for value in row) for row in progress.history)
    return ("\n".join([COLUMNS, *rows]) + "\n").encode()


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.9g}"


def _state_key(config: RunConfig, dataset: Dataset, seed: int) -> str:
    """Names the checkpoint of an unfinished run: parameters, seed, data and the code that is running."""
    machine = [torch.__version__, str(pick_device(config.train.device))]
    return digest([config.digest, seed, dataset.card, machine, code_digest()])[:32]


def code_digest(packages: Iterable[str] = ("data", "integrate", "models", "evaluate", "train", "seeding")) -> str:
    """sha256 over the loaded source files of the packages that compute numbers; call it when all are loaded."""
    prefixes = tuple(f"depthtime.{name}" for name in packages)
    loaded = sorted((n, m.__file__) for n, m in list(sys.modules.items()) if n.startswith(prefixes) and m.__file__)
    return digest([(name, sha256_file(Path(file))) for name, file in loaded if file])


def _provenance(config: RunConfig, progress: Progress) -> dict[str, Any]:
    return {
        **describe_machine(str(pick_device(config.train.device))),
        "started_at": progress.started_at,
        "elapsed_s": round(progress.elapsed_s, 2),
        "mean_step_s": round(progress.elapsed_s / max(1, progress.step), 5),
        "threads": config.train.threads,
    }
