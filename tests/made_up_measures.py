"""Made-up records of the stages that only measure, and of the speed in the bench."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

import numpy as np
import torch

from depthtime.data.minimal_pairs import read_pairs
from depthtime.measure.clustering import clustering_record
from depthtime.measure.sensitivity import REFERENCES, SCORES, run_record
from depthtime.measure.spectra import spectra_record as measured_spectra
from depthtime.models.layer_weights import LayerWeights

REPOSITORY = Path(__file__).resolve().parents[1]
MIB = 2**20
COUNTS = {"direct": (4, 0), "checkpointed": (4, 4), "adjoint": (4, 4), "reversible": (8, 8)}  # calls a step
TIMES = {"direct": 1.0, "checkpointed": 1.3, "adjoint": 1.35, "reversible": 2.7}  # over direct
SAVED = {  # MiB with n steps
    "direct": lambda n: 17.0 * n,
    "checkpointed": lambda n: 17 + 0.25 * n,
    "adjoint": lambda n: 4.5,
    "reversible": lambda n: 17.5,
}
ERRORS = {
    "direct": lambda n: 4e-7 * n**0.5,
    "checkpointed": lambda n: 4e-7 * n**0.5,
    "adjoint": lambda n: 30 / n**4 + 1e-6,
    "reversible": lambda n: 6e-7 * n**0.5,
}


def gradients_record(study):
    """A record of gradients with made-up numbers: adjoint of order 4, memory of direct linear in the steps."""
    settings = study.gradients
    record = {
        "schema": 1,
        "run": settings.run,
        "machine": {"cpu": "a made-up machine", "device": "cpu", "threads_available": 2},
        "threads": settings.threads,
        "rounds": settings.rounds,
        "coupling": 0.99,
        "batch": {"windows": settings.batch_size, "positions": 63},
        "steps": list(settings.steps),
    }
    for method in settings.methods:
        cells = {f"steps_{n}": _cell(method, n) for n in settings.steps}
        saved = {key: cell["peak_saved_bytes"] for key, cell in cells.items()}
        both = {"steps_4", "steps_64"} <= saved.keys()
        record[method] = {**cells, "memory_ratio_64_over_4": saved["steps_64"] / saved["steps_4"] if both else None}
    return record


def _cell(method, n):
    seconds = 0.06 * n * TIMES[method]
    own = {"direct": 0.0, "checkpointed": 0.0, "adjoint": 30 / n**4, "reversible": 3e-15}[method]
    return {
        "relative_error": ERRORS[method](n),
        "relative_error_float64": own,
        "scheme_difference": 0.3 / n**4 if method == "reversible" else None,
        "peak_saved_bytes": int(SAVED[method](n) * MIB),
        "median_s": seconds,
        "q1_s": 0.98 * seconds,
        "q3_s": 1.03 * seconds,
        "nfe_forward": COUNTS[method][0] * n,
        "nfe_backward": COUNTS[method][1] * n,
    }


ORDERS = {"euler": 1, "midpoint": 2, "heun2": 2, "rk4": 4, "rk4_38": 4}
ADAPTIVE = {"adaptive_heun": 2, "bosh3": 3, "dopri5": 5, "tsit5": 5, "dopri8": 8}
STEPS = {"euler": (4, 16, 64), "midpoint": (8,), "heun2": (8,), "rk4": (4, 1, 2, 8, 16), "rk4_38": (4,)}
TOLERANCES = ("1e-2", "1e-3", "1e-4", "1e-6")
NONE = dict.fromkeys(("perplexity", "ratio", "nfe", "nfe_min", "nfe_max", "num_steps", "num_rejected"))


def solver_swap_record():
    """A made-up record with the names of params.yaml; one solver needs too many evaluations."""
    rows = [_fixed(solver, steps) for solver, counts in STEPS.items() for steps in counts]
    rows = [next(row for row in rows if row["name"] == "rk4_4"), *(row for row in rows if row["name"] != "rk4_4")]
    rows += [_adaptive(solver, tolerance) for solver in ADAPTIVE for tolerance in TOLERANCES]
    leak = {row["name"]: _leak(row) for row in rows if row["tolerance"] or row["name"] == "rk4_4"}
    return {
        "schema": 1,
        "run": "core/ode/42",
        "trained_with": "rk4_4",
        "threads": 1,
        "windows": 256,
        "num_scored": 16128,
        "batch_size": 8,
        "leak_batches": 4,
        "max_nfe": 2000,
        "perplexity": {row["name"]: row["perplexity"] for row in rows},
        "perplexity_ratio": {row["name"]: row["ratio"] for row in rows},
        "solvers": rows,
        "leak": leak,
    }


def _fixed(solver, steps):
    order = ORDERS[solver]
    ratio = 1.0 if (solver, steps) == ("rk4", 4) else 1.0004 + 0.4 / steps**order
    nfe = steps * {"midpoint": 2, "heun2": 2, "rk4": 4, "rk4_38": 4}.get(solver, 1)
    cost = {"nfe": float(nfe), "nfe_min": nfe, "nfe_max": nfe, "num_steps": float(steps), "num_rejected": 0.0}
    return _row(solver, steps, None, f"{solver}_{steps}", order, ratio) | cost


def _adaptive(solver, tolerance):
    order, name = ADAPTIVE[solver], f"{solver}_{tolerance}"
    row = _row(solver, None, float(tolerance), name, order, 1.0004 + 0.3 * float(tolerance))
    if name == "adaptive_heun_1e-6":
        return row | NONE | {"status": "too many evaluations"}
    steps = 2 + float(tolerance) ** (-1 / order)
    nfe = 2 + steps * (order + 1)
    return row | {
        "nfe": nfe, "nfe_min": int(nfe) - 1, "nfe_max": int(nfe) + 2, "num_steps": steps, "num_rejected": 0.25,
    }  # fmt: skip


def _row(solver, steps, tolerance, name, order, ratio):
    row = {"name": name, "solver": solver, "steps": steps, "tolerance": tolerance, "order": order}
    return row | {"perplexity": 129.3 * ratio, "ratio": ratio, "status": "completed"}


def _leak(row):
    names = ("later_words", "other_sentences", "alone")
    keys = [f"{name}{end}" for name in names for end in ("", "_nll", "_percent")]
    if row["status"] != "completed":
        return dict.fromkeys(keys)
    size = 0.0 if row["tolerance"] is None else 9 * row["tolerance"] / row["order"]
    leak = {f"{name}{end}": size * x for name in names for end, x in (("", 1), ("_nll", 0.1), ("_percent", -0.02))}
    leak |= {key: 1.3 * leak[key] for key in keys if key.startswith("other")}
    return leak if size else leak | {"alone": 4e-6, "alone_nll": 2e-7}


def decoding_record(study):
    """Cached decoding whose time does not depend on the prefix, beside a recomputation that grows with it."""
    settings = study.decoding
    record = {
        "schema": 1,
        "machine": {"cpu": "a made-up machine", "threads_available": 2},
        "threads": settings.threads,
        "rounds": settings.rounds,
        "batch_size": settings.batch_size,
    }
    for number, name in enumerate(settings.runs):
        cached = 0.001 * (1 + 4 * number)
        speed = {"texts": 1}
        for prefix in settings.prefixes:
            slow = 0.0001 * prefix * (1 + 4 * number)
            speed[f"prefix_{prefix}"] = {"median_cached_s": cached, "median_recompute_s": slow, "ratio": cached / slow}
        exact = {"max_logit_difference": 3e-14, "max_logit_difference_float32": 8e-6}
        profile = {"attention": 0.4, "matrix products": 0.3, "other": 0.3}
        about = {"run": name, "profile": profile, "splits": settings.splits, "positions": 158, "window": 63}
        record[name.split("/")[1]] = {
            **about,
            **exact,
            "speed": speed,
            "speed_batch": {**speed, "texts": settings.batch_size},
        }
    return record


def short_clustering_record(study):
    """The measurement itself, with few seeds and a short time: it needs no trained weights."""
    few = {"seeds": 4, "num_steps": 11, "resamples": 20}
    return _measured(study.clustering.model_copy(update=few))


@cache
def _measured(settings):
    return clustering_record(settings)


def trained_clustering_record(study):
    """Cosines that rise over depth, more so under constant weights; three trained seeds."""
    fields, seeds = ("layer", "attention", "unmasked", "plain_norm", "no_norm"), (43, 44, 45)
    times = [step / 6 for step in range(7)]
    record = {"schema": 1, **study.trained_clustering.model_dump(mode="json"), "model_seeds": list(seeds)}
    record |= {"fields": list(fields), "weights": ["changing", "constant"], "times": times}
    for number, name in enumerate(fields):
        record[name] = {}
        for weights, slope in (("changing", 0.1), ("constant", 0.2)):
            rise = [slope * (1 + number) * (1 + 0.05 * place) for place in range(len(seeds))]
            end = {"components": [40.0, 39.0, 40.0], "cosine": rise, "effective_rank": [30 - 20 * r for r in rise]}
            start = {"components": [40.0] * 3, "cosine": [0.0] * 3, "effective_rank": [30.0] * 3}
            record[name][weights] = {"start": start, "end": end, "curve": [[r * t for t in times] for r in rise]}
    return record


def spectra_record(study):
    """The measurement itself on made-up matrices: those of generated weights grow with t, the others do not."""
    few = study.spectra.model_copy(update={"resamples": 50})
    return measured_spectra(study.model_copy(update={"spectra": few}), layers_of=_made_up_layers)


def _made_up_layers(study, config, seed):
    generated = config.run.model == "diffeqformer"
    steps = config.run.num_steps if generated else config.run.layers
    numbers = [(k / steps, seed if generated else seed + 100 * k) for k in range(1, steps + 1)]
    start = [_layer(t, number, 0.01 * t if generated else 0.2) for t, number in numbers]
    return [_layer(t, number, 0.3 + 0.7 * t if generated else 0.5, t) for t, number in numbers], start


def _layer(t, seed, scale, symmetric=0.0):
    """Gaussian matrices of width 16, W_O drawn towards W_V^T."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(16, 16)] * 4 + [(16, 128), (128, 16)]
    query, key, value, out, ff_in, ff_out = (scale * torch.randn(shape, generator=generator) for shape in shapes)
    return LayerWeights(t, query, key, value, out + symmetric * value.T, ff_in, ff_out, None)


def sensitivity_record(study):
    """Scores drawn at random over made-up words, later words higher; the measurement's own statistics of them."""
    return copy.deepcopy(_sensitivity(study.sensitivity))


@cache
def _sensitivity(settings):
    lengths = (5, 7, 6, 9, 8, 6)
    record = {"schema": 1, **settings.model_dump(mode="json"), "resamples": 50}
    record |= {"num_sentences": len(lengths), "num_words": sum(lengths)}
    record["runs"] = [name.split("/")[1] for name in settings.runs]
    for number, run in enumerate(record["runs"]):
        draw = np.random.default_rng(number)
        names = [*(SCORES if run == "diffeq" else SCORES[1:]), *REFERENCES]
        by_seed = {seed: [_scores(draw, names, n) for n in lengths] for seed in (43, 44, 45)}
        texts = [_text(place, scores) for place, scores in enumerate(by_seed[43], start=1)]
        record[run] = run_record(by_seed, 50) | {"texts": texts}
    return record


def _scores(draw, names, n):
    place = np.arange(1.0, n + 1)
    shared = draw.normal(size=n)
    scores = {name: k + 0.1 * place + 0.2 * shared + draw.uniform(0.1, 0.4, n) for k, name in enumerate(names)}
    return scores | {"recency": place}


def _text(place, scores):
    held = {name: [round(value, 6) for value in values] for name, values in scores.items() if name != "recency"}
    words = [f"word{number}" for number in range(len(scores["recency"]) + 1)]
    about = {"name": f"sentence_{place}", "words": words, "prediction": "next", "log_probability": -1.5}
    return about | {"scores": held}


def downstream_record(study):
    """Accuracies that rise from phenomenon to phenomenon, the second run 2 points above the first in all."""
    settings = study.downstream
    phenomena = {name: len(pairs) for name, pairs in read_pairs(str(REPOSITORY / settings.pairs)).items()}
    settings_kept = settings.model_dump(mode="json", exclude={"pairs"})
    rising = {name: 0.5 + 0.4 * i / len(phenomena) for i, name in enumerate(phenomena)}
    pairs = {name: _asked(settings, n, rising[name], 0.49, ("sum", "mean")) for name, n in phenomena.items()}
    pairs["all"] = _asked(settings, sum(phenomena.values()), 0.7, 0.52, ("sum", "mean"))
    cloze = {name: _asked(settings, n, 0.15, 0.01, ("accuracy",)) for name, n in (("all", 2800), ("repeated", 500))}
    for part in cloze.values():
        part["last_words"] = {"accuracy": 0.05}
        for run in settings.runs:
            part[run] |= {"log_prob": -5.1, "median_rank": 37.0}
    left_out = {"too_short": 492, "unknown": 307, "not_asked": 160}
    return {
        "schema": 1,
        **settings_kept,
        "pairs_file": settings.pairs,
        "data": "ptb_standard",
        "cloze": {**cloze, "left_out": left_out, "asked": 2800},
        "pairs": {**pairs, "phenomena": list(phenomena)},
    }


def _asked(settings, n, share, unigram, keys):
    """Results of two runs on n items."""
    part = {"n": n, "unigram": dict.fromkeys(keys, unigram)}
    for run, value in zip(settings.runs, (share, share + 0.02), strict=True):
        part[run] = _ends(keys, value, 0.9 / n**0.5 * (1 - value))
    part["difference"] = _ends(keys, 0.02, 0.4 / n**0.5)
    seeds = {f"{key}_{end}_seed": value for key in keys for end, value in (("lowest", -0.01), ("highest", 0.04))}
    part["difference"] |= seeds | {f"{key}_above": 0.9 for key in keys}
    return part


def _ends(keys, value, half):
    ends = {"": value, "_low": value - half, "_high": value + half}
    return {f"{key}{end}": x for key in keys for end, x in ends.items()}


def speed_record(study):
    """Times of one training step and its parts, in seconds."""
    median = {"plain": 0.21, "fused": 0.17, "torchdiffeq": 0.225, "head": 0.02, "discrete": 0.065}
    median |= {"block": 0.0118, "peak": 0.021}
    flops = {"plain": 11.8e9, "fused": 11.8e9, "torchdiffeq": 11.8e9, "discrete": 3.5e9, "peak": 2.0 * 1024**3}
    ratios = {
        "step_over_parts": 0.81, "step_over_torchdiffeq": 0.76, "share_of_peak": 0.68, "step_over_discrete": 2.6,
        "plain_step_over_parts": 1.0, "plain_step_over_torchdiffeq": 0.93, "plain_share_of_peak": 0.55,
        "plain_step_over_discrete": 3.2, "fused_over_plain": 0.81, "discrete_share_of_peak": 0.53,
        "torchdiffeq_share_of_peak": 0.51,
    }  # fmt: skip
    return {
        "run": study.bench.speed,
        "threads": 1,
        "rounds": study.bench.rounds,
        "nfe": 16,
        "flops": flops,
        "median_s": median,
        "spread": {name: [0.98 * value, 1.02 * value] for name, value in ratios.items()},
        **ratios,
        "profile": {
            "plain": {"matrix products": 0.5, "norms": 0.1, "other": 0.4},
            "fused": {"matrix products": 0.6, "norms": 0.1, "other": 0.3},
        },
        "side_by_side": {"steps": 8, "rounds": [{"at_once_s": 1.9, "in_turn_s": 2.1}], "ratio": 0.905},
    }
