"""Spectra of trained weights over depth time: do they grow, are they positive, and was it so before training?

Beside each trained model stands the untrained one that it started from: what that one shows, training did not bring.
The record holds values of the weights alone, no times, so the same code gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from depthtime import paths
from depthtime.config import FormSizes, RunConfig, Spectra, Study
from depthtime.generate.stored import load_stored
from depthtime.measure.depth_trends import CONFIDENCE, Array, summary, thirds, trends
from depthtime.measure.eigenvalues import describe, layer_eigenvalues
from depthtime.models.build import build_model
from depthtime.models.language_model import LanguageModel
from depthtime.models.layer_weights import LayerWeights
from depthtime.records import write_json

DIGITS = 6  # significant, of what is stored by seed and head; everything else follows from these numbers
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
LEFT_OUT = {
    "gpt": ["norms", "biases", "division by sqrt(D/H)", "activation"],
    "llama": ["norms", "division by sqrt(D/H)", "rotation of queries and keys", "activation", "gate"],
}
Depths = Sequence[LayerWeights]  # the layers of one model, in order


class Kind(NamedTuple):
    """What is kept of one kind of eigenvalues, over all seeds.

    eigenvalues: k, how many a head and step has.  measures: rounded, (S, H, T).  by_step: T numbers each, plain data.
    trends: (S, H).
    """

    eigenvalues: int | None
    measures: dict[str, Array]
    by_step: dict[str, Any]
    trends: dict[str, Array]


def measure_spectra(study: Study, on_model: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/spectra.json, see `spectra_record`.

    Raises: RecordError or DataError for weights that are missing or damaged.
    """
    write_json(paths.measured("spectra"), spectra_record(study, on_model))


def spectra_record(
    study: Study,
    on_model: Callable[[int, int], None] = lambda done, total: None,
    layers_of: Callable[[Study, RunConfig, int], tuple[Depths, Depths]] | None = None,
) -> dict[str, Any]:
    """`run_spectra` of each of `spectra.runs`, over all seeds whose weights are kept, by the run's own name.

    Args: layers_of: where trained and untrained layers of a run and seed come from, `stored_layers` by default.
    """
    settings, layers_of = study.spectra, layers_of or stored_layers
    torch.set_num_threads(settings.threads)
    record: dict[str, Any] = {
        "schema": 1,
        **settings.model_dump(mode="json", exclude={"threads"}),
        "confidence": CONFIDENCE,
        "digits": DIGITS,
        "names": [name.split("/")[1] for name in settings.runs],
    }
    total = sum(len(study.run(*name.split("/")).run.keep_weights) for name in settings.runs)
    done = 0
    for name in settings.runs:
        config = study.run(*name.split("/"))
        trained, untrained = {}, {}
        for seed in config.run.keep_weights:
            trained[seed], untrained[seed] = layers_of(study, config, seed)
            on_model(done := done + 1, total)
        record[config.run_name] = {"run": name} | run_spectra(config, settings, trained, untrained)
    return record


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: all of it, in seconds."""
    return spectra_record(study)


def run_spectra(
    config: RunConfig, settings: Spectra, trained: Mapping[int, Depths], untrained: Mapping[int, Depths]
) -> dict[str, Any]:
    """Of one run, from the layers of its models by seed.

    times, heads, width, third (steps called early and late), left_out (of every product), and by kind (qk, ov, ff,
    ff_N over N hidden units)
      eigenvalues          how many a head and step has, without those that are 0
      trained, untrained   `by_seed`: largest, mean, positive, real by head and step, see `describe`; `by_step`: their
                           median over seeds and heads, and quantiles of the real part over those and eigenvalues;
                           means of the trends with intervals, see `trends` and `summary`
      more                 trained minus untrained trends of each seed and head, alike; for growth, their ratio
    `qk_and_ov` has rho of the mean of both by head, and by step and as a trend the share of heads in which more than
    half of the eigenvalues have a positive real part, of qk and of ov.
    """
    sizes, seeds, layers = cast(FormSizes, config.sizes), list(trained), next(iter(trained.values()))
    times = np.array([weights.t for weights in layers])
    units = {seed: hidden_units(layers[0].ff_in.shape[1], settings.ff_units, seed) for seed in seeds}
    states = {
        name: _kinds(times, [_spectra(models[seed], sizes.heads, units[seed]) for seed in seeds])
        for name, models in (("trained", trained), ("untrained", untrained))
    }
    found: dict[str, Any] = {
        "model": config.run.model,
        "seeds": seeds,
        "times": [round(t, 9) for t in times.tolist()],
        "third": thirds(len(times)),
        "heads": sizes.heads,
        "width": len(layers[0].query),
        "left_out": LEFT_OUT[sizes.form],
    }
    for kind, after in states["trained"].items():
        before = states["untrained"][kind]
        more = {name: after.trends[name] - before.trends[name] for name in after.trends}
        found[kind] = {
            "eigenvalues": after.eigenvalues,
            "trained": _entry(after, seeds, settings.resamples),
            "untrained": _entry(before, seeds, settings.resamples),
            "more": summary(more, settings.resamples),
        }
    return found


def hidden_units(ff_width: int, counts: Sequence[int], seed: int) -> dict[str, NDArray[np.int64]]:
    """Which hidden units each `ff_N` has: N drawn from all of them, the same at every depth, before and after training.

    The source's code draws from the first D of the 4D units only, which would leave three quarters of them out.
    """
    rng = np.random.default_rng(seed)
    return {f"ff_{count}": np.sort(rng.choice(ff_width, count, replace=False)) for count in counts}


def stored_layers(study: Study, config: RunConfig, seed: int) -> tuple[Depths, Depths]:
    """The layers of a stored model, and of the one that its training started from."""
    model, vocabulary = load_stored(study, config.group_name, config.run_name, seed)
    torch.manual_seed(seed)
    start = build_model(
        config.run, config.sizes, num_classes=len(vocabulary.words), max_positions=config.dataset.positions
    )
    return _layers(model), _layers(start)


def _layers(model: LanguageModel) -> Depths:
    return model.core.layer_weights()  # type: ignore[operator,no-any-return]


def _spectra(layers: Depths, heads: int, units: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.complex128]]:
    """By kind, eigenvalues (H, T, k)."""
    found = [layer_eigenvalues(weights, heads, units) for weights in layers]
    return {kind: np.stack([step[kind] for step in found], axis=1) for kind in found[0]}


def _kinds(times: Array, by_seed: Sequence[Mapping[str, NDArray[np.complex128]]]) -> dict[str, Kind]:
    """Every kind of the models of all seeds."""
    found = {kind: _kind(times, np.stack([own[kind] for own in by_seed])) for kind in by_seed[0]}
    return found | {"qk_and_ov": _joint(found["qk"], found["ov"], thirds(len(times)))}


def _kind(times: Array, values: NDArray[np.complex128]) -> Kind:
    """Of eigenvalues (S, H, T, k)."""
    measures = {name: _rounded(entries) for name, entries in describe(values).items()}
    real_part = np.quantile(values.real, list(QUANTILES.values()), axis=(0, 1, 3))
    by_step: dict[str, Any] = {name: np.median(entries, axis=(0, 1)).tolist() for name, entries in measures.items()}
    by_step["real_part"] = {name: _rounded(line).tolist() for name, line in zip(QUANTILES, real_part, strict=True)}
    return Kind(values.shape[-1], measures, by_step, trends(times, measures["largest"], measures["positive"]))


def _joint(qk: Kind, ov: Kind, third: int) -> Kind:
    """qk and ov of the same heads together."""
    both = ((qk.measures["positive"] > 0.5) & (ov.measures["positive"] > 0.5)).astype(float)  # (S, H, T)
    early, late = both[..., :third].mean(axis=-1), both[..., -third:].mean(axis=-1)
    shares = {"both_positive_early": early, "both_positive_late": late, "both_positive_change": late - early}
    rho = (qk.trends["rho"] + ov.trends["rho"]) / 2
    return Kind(None, {}, {"both_positive": both.mean(axis=(0, 1)).tolist()}, {"rho": rho, **shares})


def _entry(kind: Kind, seeds: Sequence[int], resamples: int) -> dict[str, Any]:
    """What the record says of one kind, before or after training."""
    by_seed = {
        str(seed): {name: entries[place].tolist() for name, entries in kind.measures.items()}
        for place, seed in enumerate(seeds)
    }
    return {"by_step": kind.by_step, "by_seed": by_seed, **summary(kind.trends, resamples)}


def _rounded(values: Array) -> Array:
    """Numbers of DIGITS significant digits."""
    return np.vectorize(lambda x: float(f"{x:.{DIGITS - 1}e}"), otypes=[float])(values)
