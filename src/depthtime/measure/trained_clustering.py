"""Whether a trained DiffEqFormer draws its tokens together over depth, with weights that change and held constant.

Random words of the vocabulary are embedded and moved by the trained weights: the whole layer, and what is left of it
without feed-forward part, mask, trained norms and any norm. The same weights, averaged over depth, are the control.
Source: the clustering simulation of Neural ODE Transformers (ICLR 2025) starts from random weights; this one does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from depthtime import paths
from depthtime.config import Study, TrainedClustering
from depthtime.errors import ConfigError
from depthtime.generate.stored import load_stored
from depthtime.measure.clustering import components, effective_rank, mean_cosine
from depthtime.measure.particles import standardise
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.language_model import LanguageModel
from depthtime.models.layer_weights import Affine, BlockWeights, Scale
from depthtime.models.pre_norm import attention, normalise, parallel_update
from depthtime.records import write_json

QUANTITIES = ("components", "cosine", "effective_rank")


@dataclass(frozen=True)
class Field:
    """What of the trained layer moves the tokens."""

    has_feed_forward: bool
    is_causal: bool
    norm: str  # trained, plain (no gain and shift), none


FIELDS = {
    "layer": Field(has_feed_forward=True, is_causal=True, norm="trained"),
    "attention": Field(has_feed_forward=False, is_causal=True, norm="trained"),
    "unmasked": Field(has_feed_forward=False, is_causal=False, norm="trained"),
    "plain_norm": Field(has_feed_forward=False, is_causal=False, norm="plain"),
    "no_norm": Field(has_feed_forward=False, is_causal=False, norm="none"),
}
WEIGHTS = ("changing", "constant")


def measure_trained_clustering(study: Study, on_cell: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/trained_clustering.json, see `trained_clustering_record`."""
    write_json(paths.measured("trained_clustering"), trained_clustering_record(study, on_cell))


def trained_clustering_record(
    study: Study, on_cell: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """By field (`layer`) and weights (`changing`): medians over the draws of words, one number for each trained seed.

    `start` and `end` hold components, cosine and effective_rank by seed; `curve` the cosine by depth time and seed;
    `fewest_components` at the end over seeds; of each field `constant_minus_changing` cosine, its smallest over seeds.
    Every cell moves the same words. Tokens are looked at standardised, as `clustering` does.
    Raises: ConfigError for a run that is no gpt-form DiffEqFormer with Euler steps; as `load_stored`.
    """
    settings = study.trained_clustering
    models = _models(study)
    record: dict[str, Any] = {
        "schema": 1,
        **settings.model_dump(mode="json"),
        "model_seeds": list(models),
        "fields": list(FIELDS),
        "weights": list(WEIGHTS),
    }
    total = len(FIELDS) * len(WEIGHTS)
    for number, (name, field) in enumerate(FIELDS.items()):
        record[name] = {}
        for place, weights in enumerate(WEIGHTS, start=1):
            looks = [_course(settings, model, field, weights) for model in models.values()]
            record["times"] = [t for t, _ in looks[0]]
            record[name][weights] = {
                "start": {key: [look[0][1][key] for look in looks] for key in QUANTITIES},
                "end": {key: [look[-1][1][key] for look in looks] for key in QUANTITIES},
                "fewest_components": min(look[-1][1]["components"] for look in looks),
                "curve": [[found["cosine"] for _, found in look] for look in looks],
            }
            on_cell(number * len(WEIGHTS) + place, total)
        changing, constant = (record[name][weights]["end"]["cosine"] for weights in WEIGHTS)
        record[name]["constant_minus_changing"] = min(b - a for a, b in zip(changing, constant, strict=True))
    return record


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: all of it, seconds."""
    return trained_clustering_record(study)


def _models(study: Study) -> dict[int, LanguageModel]:
    """The stored models of the run by seed, in float64."""
    group, _, run = study.trained_clustering.run.partition("/")
    config = study.run(group, run)
    models = {seed: load_stored(study, group, run, seed)[0].double() for seed in config.run.keep_weights}
    torch.set_num_threads(study.trained_clustering.threads)
    if not models or not all(_is_usable(model) for model in models.values()):
        raise ConfigError(
            [f"params.yaml: trained_clustering.run = {group}/{run}: expected a gpt-form run of diffeqformer with Euler"]
        )
    return models


def _is_usable(model: LanguageModel) -> bool:
    core = model.core
    return isinstance(core, DiffEqFormer) and core.sizes.form == "gpt" and core.run.solver in {"euler", "euler_right"}


@torch.no_grad()
def _course(
    settings: TrainedClustering, model: LanguageModel, field: Field, weights: str
) -> list[tuple[float, dict[str, float]]]:
    """(t, medians over draws) at t = 0 and after each step of the model's own Euler grid."""
    core = model.core
    assert isinstance(core, DiffEqFormer)
    generated = core.generate(core.times())
    if weights == "constant":
        generated = [mean_weights(generated)] * len(generated)
    y = model.embed(random_words(settings, model.embedding.num_embeddings))
    h = 1 / core.num_steps
    course = [(0.0, _look(settings, y))]
    for step, layer in enumerate(generated, start=1):
        y = y + h * update(core, layer, y, field)
        course.append((round(step * h, 9), _look(settings, y)))
    return course


def random_words(settings: TrainedClustering, classes: int) -> Tensor:
    """Word ids (draws, tokens), different words in each draw, the same for every model and field."""
    source = np.random.default_rng(0)
    draws = [source.choice(classes, settings.tokens, replace=False) for _ in range(settings.draws)]
    return torch.from_numpy(np.stack(draws))


def update(core: DiffEqFormer, weights: BlockWeights, y: Tensor, field: Field) -> Tensor:
    """The update (B, N, D) of states (B, N, D) by what `field` leaves of the layer."""
    if field.has_feed_forward:
        return parallel_update(core.sizes, weights, y, None, dropout=0.0)
    if field.norm == "none":
        x = y
    else:
        ones, zeros = torch.ones_like(weights.norm1.gain), torch.zeros_like(weights.norm1.gain)
        x = normalise(core.sizes, weights.norm1 if field.norm == "trained" else Scale(ones, zeros), y)
    if field.is_causal:
        return attention(core.sizes, weights, x, None)
    heads, width = core.sizes.heads, core.sizes.width
    q, k, v = (x @ weights.qkv.weight + _bias(weights.qkv)).unflatten(-1, (3, heads, width // heads)).unbind(-3)
    scores = torch.einsum("bihc,bjhc->bhij", q, k) / math.sqrt(width // heads)
    mixed = torch.einsum("bhij,bjhc->bihc", scores.softmax(dim=-1), v).flatten(-2)
    return mixed @ weights.attention_out.weight + _bias(weights.attention_out)


def _bias(map_: Affine) -> Tensor | float:
    return 0.0 if map_.bias is None else map_.bias


def mean_weights(layers: Sequence[BlockWeights]) -> BlockWeights:
    """The entry-wise mean of gpt-form layers: one autonomous field in the place of a changing one."""

    def affine(name: str) -> Affine:
        maps = [getattr(layer, name) for layer in layers]
        return Affine(*(torch.stack(parts).mean(dim=0) for parts in zip(*maps, strict=True)))

    def scale(name: str) -> Scale:
        norms = [getattr(layer, name) for layer in layers]
        return Scale(*(torch.stack(parts).mean(dim=0) for parts in zip(*norms, strict=True)))

    return BlockWeights(
        norm1=scale("norm1"),
        qkv=affine("qkv"),
        attention_out=affine("attention_out"),
        norm2=scale("norm2"),
        ff_in=affine("ff_in"),
        ff_gate=None,
        ff_out=affine("ff_out"),
    )


def _look(settings: TrainedClustering, y: Tensor) -> dict[str, float]:
    """Medians over draws of what standardised tokens (B, N, D) look like."""
    tokens = standardise(y.numpy())
    counts = [components(points, (settings.threshold,))[0] for points in tokens]
    found: dict[str, Any] = {
        "components": counts,
        "cosine": mean_cosine(tokens),
        "effective_rank": effective_rank(tokens),
    }
    return {name: float(np.median(values)) for name, values in found.items()}
