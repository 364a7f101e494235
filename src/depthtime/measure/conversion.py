"""A trained DiffEqFormer stored as layers at other depths, before any fine-tuning, and solved in other ways.

Its weights were trained at t = k/L only. What they are between those times shows in the perplexity of other depths, of
finer steps and of schemes of higher order, and in how W(t) moves (`smoothness`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import bootstrap

from depthtime import paths
from depthtime.config import Conversion, ConvertedRun, DiffEqFormerRun, FormSizes, Study, run_address
from depthtime.data.batching import IGNORED, Windows
from depthtime.data.dataset import load_dataset
from depthtime.errors import ConfigError
from depthtime.evaluate.network import token_nlls
from depthtime.generate.stored import load_stored
from depthtime.measure.smoothness import aliased_share, smoothness
from depthtime.models import converted
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.transformer_lm import TransformerLM
from depthtime.records import write_json

CONFIDENCE = 0.95
Array = NDArray[np.floating]
Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class WindowScores:
    """Sum of negative log-likelihoods (nats) and number of scored tokens of each window, both (W,)."""

    nats: Array
    counts: NDArray[np.int64]


def measure_conversion(study: Study, on_step: Progress = lambda done, total: None) -> None:
    """Write results/records/conversion.json, see `conversion_record`."""
    write_json(paths.measured("conversion"), conversion_record(study, on_step))


def conversion_record(study: Study, on_step: Progress = lambda done, total: None) -> dict[str, Any]:
    """Score the run of `conversion.run` at every depth and with every solver that params.yaml names, on the CPU.

    Raises: ConfigError when the run is no DiffEqFormer in the gpt form; otherwise as `load_stored`.
    """
    settings = study.conversion
    group, run, seed = run_address(settings.run)
    config = study.run(group, run)
    if not isinstance(config.run, DiffEqFormerRun) or not config.sizes.has_learned_positions:
        raise ConfigError(
            [f"params.yaml: conversion.run = {settings.run!r}: expected a run of `model: diffeqformer` in the gpt form"]
        )
    model = cast(TransformerLM, load_stored(study, group, run, seed)[0])
    torch.set_num_threads(settings.threads)
    valid = load_dataset(study, config.group.data).valid
    count = settings.windows
    windows = dataclasses.replace(valid, starts=valid.starts[:count], first_scored=valid.first_scored[:count])
    found = measure_model(model, windows, settings, on_step)
    return {"schema": 1, "run": settings.run, "data": config.group.data, "threads": settings.threads, **found}


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: the first depth, each solver once, all of the smoothness."""
    settings = study.conversion
    part = {"depths": settings.depths[:1], "solvers": {name: steps[:1] for name, steps in settings.solvers.items()}}
    return conversion_record(study.model_copy(update={"conversion": settings.model_copy(update=part)}))


def measure_model(
    model: TransformerLM, windows: Windows, settings: Conversion, on_step: Progress = lambda done, total: None
) -> dict[str, Any]:
    """The part of the record that depends on model and windows alone.

    zero_shot   by depth (`depth_6`): perplexity of the layers W(k/L'), k = 1 ... L'; `seen`, how many of these times
                the model was trained at
    solvers     by scheme and steps (`rk4_6`): perplexity of the same W(t), and evaluations of the field
    Each with the ratio to the model as it was trained. `..._low`, `..._high`: percentile bootstrap over windows, paired
    in ratios; neighbouring windows are of one text, so these intervals are rather too narrow. null: not finite.
    conversion  largest difference of a logit between the model and its layers at its own depth, on the first batch
    """
    core = cast(DiffEqFormer, model.core)
    trained, size = core.run, settings.batch_size
    base = score_windows(model, windows, size)
    wanted = [(solver, steps) for solver, counts in settings.solvers.items() for steps in counts]
    total = len(settings.depths) + len(wanted)
    zero_shot: dict[str, Any] = {}
    for number, depth in enumerate(settings.depths, start=1):
        scores = score_windows(convert(model, depth), windows, size)
        seen = sum(k * trained.num_steps % depth == 0 for k in range(1, depth + 1))
        zero_shot[f"depth_{depth}"] = {"depth": depth, "seen": seen, **compare(scores, base, settings.resamples)}
        on_step(number, total)
    solvers: dict[str, Any] = {}
    try:
        for number, (solver, steps) in enumerate(wanted, start=len(settings.depths) + 1):
            core.run = trained.model_copy(update={"solver": solver, "num_steps": steps})
            nfe = core(torch.zeros(1, 1, model.sizes.width, dtype=model.embedding.weight.dtype)).nfe
            cost = {"solver": solver, "num_steps": steps, "nfe": nfe}
            scores = score_windows(model, windows, size)
            solvers[f"{solver}_{steps}"] = cost | compare(scores, base, settings.resamples)
            on_step(number, total)
    finally:
        core.run = trained
    return {
        "trained_depth": trained.num_steps,
        "windows": len(windows),
        "num_scored": int(base.counts.sum()),
        "resamples": settings.resamples,
        "trained": compare(base, base, settings.resamples),
        "conversion": conversion_error(model, windows, size),
        "zero_shot": zero_shot,
        "solvers": solvers,
        "aliased_share": aliased_share(trained),
        "smoothness": smoothness(core, settings.intervals),
    }


def convert(model: TransformerLM, depth: int) -> TransformerLM:
    """The layers of a trained model at another depth, as fine-tuning starts from them."""
    run = ConvertedRun(model="converted", source="", num_steps=depth, adapt="full", keep_weights=())
    sizes: FormSizes = model.sizes
    classes = model.embedding.num_embeddings
    layers = converted.build_model(run, sizes, num_classes=classes, max_positions=model.max_positions)
    layers.to(model.embedding.weight.dtype)
    converted.start(layers, model)
    return layers.eval()


@torch.no_grad()
def conversion_error(model: TransformerLM, windows: Windows, batch_size: int) -> dict[str, float]:
    """Largest difference of a logit between model and layers at the trained depth, as stored and in float64."""
    tokens = torch.from_numpy(next(windows.batches(batch_size))[0])
    stored, found = model.embedding.weight.dtype, {}
    for name, dtype in (("max_logit_difference_float32", torch.float32), ("max_logit_difference", torch.float64)):
        model.to(dtype)
        layers = convert(model, cast(DiffEqFormer, model.core).num_steps)
        found[name] = float((layers(tokens) - model(tokens)).abs().max())
    model.to(stored)
    return found


def score_windows(model: TransformerLM, windows: Windows, batch_size: int) -> WindowScores:
    """What `score_network` adds up over all windows, by window."""
    nlls = np.concatenate(list(token_nlls(model, windows, batch_size)))
    counts = (windows.take(np.arange(len(windows)))[1] != IGNORED).sum(axis=1)
    return WindowScores(np.add.reduceat(nlls, np.cumsum(counts) - counts), counts)


def compare(scores: WindowScores, base: WindowScores, resamples: int) -> dict[str, float | None]:
    """Perplexity, and its ratio to that of `base` on the same windows, with intervals."""
    return {
        **_interval("perplexity", scores.nats, scores.counts, resamples),
        **_interval("ratio", scores.nats - base.nats, scores.counts, resamples),
    }


def _interval(name: str, nats: Array, counts: NDArray[np.int64], resamples: int) -> dict[str, float | None]:
    """exp of the mean over tokens, with its percentile bootstrap interval over windows (drawn alike every time)."""

    def mean(a: Array, n: Array, axis: int = -1) -> Array:
        return a.sum(axis=axis) / n.sum(axis=axis)

    options = {"paired": True, "method": "percentile", "n_resamples": resamples, "rng": np.random.default_rng(0)}
    found = bootstrap((nats, counts), mean, confidence_level=CONFIDENCE, **options).confidence_interval
    ends = {name: nats.sum() / counts.sum(), f"{name}_low": found.low, f"{name}_high": found.high}
    return {key: math.exp(value) if value < 700 else None for key, value in ends.items()}
