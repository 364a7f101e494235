"""Does a Lyapunov exponent over depth say which words matter? Scores of the words of our own sentences, held together.

Every score ranks the words of a sentence before its last one, at whose position the model predicts the next word; the
opening <eos> and the last word are not ranked, as in the source. Exponents come from `lyapunov`, what is common to
measure importance with from `importance`, and the order of the words alone is a score too.
Source: Neural ODE Transformers (ICLR 2025), section on Lyapunov exponents, and its released code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from depthtime import paths
from depthtime.config import Study
from depthtime.data.vocabulary import Vocabulary
from depthtime.errors import ConfigError
from depthtime.generate.stored import load_stored
from depthtime.measure.agreement import mean_with_interval, partial_rank_correlation, rank_correlation
from depthtime.measure.depth_steps import left_steps, steps_of
from depthtime.measure.importance import prediction, references
from depthtime.measure.lyapunov import (
    flow_jacobian,
    log_largest,
    log_mean,
    orthonormal,
    pair_exponents,
    tangent_flow,
    trajectory,
)
from depthtime.measure.sentences import encode_sentences, read_sentences
from depthtime.models.language_model import LanguageModel
from depthtime.records import write_json

SCORES = ("released", "mended", "tangent", "tangent_few", "tangent_mean", "exponent")
REFERENCES = ("deletion", "gradient", "rollout")
RECENCY = "recency"  # the position: later words first
DIGITS = 8  # significant, of scores in the record

Scores = dict[str, NDArray[np.float64]]  # by name, one value for each ranked word
OnStep = Callable[[int, int], None]


def measure_sensitivity(study: Study, on_sentence: OnStep = lambda done, total: None) -> None:
    """Write results/records/sensitivity.json, see `sensitivity_record`."""
    write_json(paths.measured("sensitivity"), sensitivity_record(study, on_sentence))


def sensitivity_record(study: Study, on_sentence: OnStep = lambda done, total: None) -> dict[str, Any]:
    """What `run_record` finds for each run of `sensitivity.runs`, by the run's name.

    Raises: ConfigError for sentences or runs that do not fit; as `load_stored`.
    """
    settings = study.sensitivity
    sentences = read_sentences(settings.sentences)
    weights = [(name.split("/")[1], name, seed) for name in settings.runs for seed in seeds_of(study, name)]
    found: dict[str, dict[int, list[Scores]]] = {}
    texts: dict[str, list[dict[str, Any]]] = {}
    for number, (run, name, seed) in enumerate(weights):
        model, vocabulary, encoded = _load(study, name, seed, sentences)
        scores = []
        for place, classes in enumerate(encoded, start=1):
            scores.append(score_words(model, classes, settings.directions, skipped=_skipped(vocabulary)))
            on_sentence(number * len(encoded) + place, len(weights) * len(encoded))
        found.setdefault(run, {})[seed] = scores
        texts.setdefault(run, texts_of(model, vocabulary, sentences, encoded, scores))
    return {
        "schema": 1,
        **settings.model_dump(mode="json"),
        "runs": list(found),
        "num_sentences": len(sentences),
        "num_words": sum(len(words) - 1 for words in sentences),
        **{run: run_record(by_seed, settings.resamples) | {"texts": texts[run]} for run, by_seed in found.items()},
    }


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: two sentences, the first seed of each run."""
    settings, part = study.sensitivity, {}
    sentences = read_sentences(settings.sentences)[:2]
    for name in settings.runs:
        model, vocabulary, encoded = _load(study, name, seeds_of(study, name)[0], sentences)
        scores = [score_words(model, classes, settings.directions, _skipped(vocabulary)) for classes in encoded]
        part[name.split("/")[1]] = {"texts": texts_of(model, vocabulary, sentences, encoded, scores)}
    return part


def seeds_of(study: Study, name: str) -> tuple[int, ...]:
    """The seeds of a run (group/run) whose weights are stored."""
    return study.run(*name.split("/")).run.keep_weights


def score_words(model: LanguageModel, classes: Sequence[int], directions: int, skipped: int) -> Scores:
    """All scores of the words of one sequence, without the first `skipped` (<eos>) and the last; float64.

    released      largest of the exponents of `pair_exponents`, as released: Jacobians at the state after each step,
                  with the weights of the step's beginning; a DiffEqFormer's alone
    mended        the same at the state and with the weights that the step uses
    tangent       log of the largest growth of a change of the word's input state, until the output
    tangent_few   the same among `directions` random orthonormal directions
    tangent_mean  log of the root mean square growth over all directions
    exponent      largest QR exponent of the tangent flow of the whole sequence, `directions` directions
    deletion, gradient, rollout, recency: see `importance`; recency is the position
    """
    core, last = model.core, len(classes) - 1
    y = model.embed(torch.tensor([list(classes)]))[0]
    steps, left, seeds = steps_of(core), left_steps(core), orthonormal(y.shape[1], directions).to(y.dtype)
    states = trajectory(steps, y)
    jacobian = flow_jacobian(steps, y, last)  # (N, D, D)
    words = range(skipped, last)
    flow = tangent_flow(steps, states[:-1], seeds, tokens=words, output=last)
    found = {
        "released": [] if left is None else pair_exponents(left, states[1:], last).amax(dim=1)[skipped:last].tolist(),
        "mended": pair_exponents(steps, states[:-1], last).amax(dim=1)[skipped:last].tolist(),
        "tangent": [log_largest(jacobian[token]) for token in words],
        "tangent_few": [log_largest(block) for block in flow.at_output],
        "tangent_mean": [log_mean(jacobian[token]) for token in words],
        "exponent": flow.exponents.amax(dim=1).tolist(),
        **{name: values[skipped:last].tolist() for name, values in references(model, classes, states).items()},
        RECENCY: list(words),
    }
    return {name: np.array(values, dtype=np.float64) for name, values in found.items() if values}


def run_record(by_seed: Mapping[int, Sequence[Scores]], resamples: int) -> dict[str, Any]:
    """One run's scores (by seed, by sentence), held together.

    agreement  [a][b]: mean over sentences of Spearman's rho of the words' scores a and b: `mean`, `low`, `high`, and
               `by_seed`. `partial_...`: rho given the position. `beyond_...`: rho(a, b) - rho(recency, b). A sentence
               counts once, as the mean of its seeds; intervals are bootstraps over sentences.
    gap        [other]: mean over sentences of the median over words of |released - other| / |other|
    distance   [score]: its mean at the words 1, 2, ... before the last one, where at least two sentences have one
    """
    seeds, first = list(by_seed), next(iter(by_seed.values()))
    names = list(first[0])
    agreement: dict[str, Any] = {name: {} for name in names[:-1]}
    for a, b in itertools.combinations(names, 2):
        agreement[a][b] = _agreement(by_seed, a, b, resamples)
    gaps = {}
    if "released" in names:
        for other in ("mended", "tangent", "exponent"):
            gaps[other] = mean_with_interval(_by_sentence(by_seed, _gap, "released", other).mean(axis=0), resamples)
    return {
        "seeds": seeds,
        "scores": names,
        "agreement": agreement,
        "gap": gaps,
        "distance": {name: _by_distance(by_seed, name, resamples) for name in names if name in SCORES},
    }


def texts_of(
    model: LanguageModel,
    vocabulary: Vocabulary,
    sentences: Sequence[tuple[str, ...]],
    encoded: Sequence[Sequence[int]],
    scores: Sequence[Scores],
) -> list[dict[str, Any]]:
    """Each sentence with the word that the model predicts after it and the scores of its ranked words."""
    rows = []
    for number, (words, classes, found) in enumerate(zip(sentences, encoded, scores, strict=True), start=1):
        predicted, log_probability = prediction(model, classes)
        rounded = {name: [_rounded(value) for value in values] for name, values in found.items() if name != RECENCY}
        rows.append(
            {"name": f"sentence_{number}", "words": list(words), "prediction": vocabulary.words[predicted]}
            | {"log_probability": _rounded(log_probability), "scores": rounded}
        )
    return rows


def _load(
    study: Study, name: str, seed: int, sentences: list[tuple[str, ...]]
) -> tuple[LanguageModel, Vocabulary, list[list[int]]]:
    """The model in float64 and without gradients of its own, its vocabulary, and the sentences as it reads them."""
    settings = study.sensitivity
    group, run = name.split("/")
    model, vocabulary = load_stored(study, group, run, seed)
    torch.set_num_threads(settings.threads)
    if settings.directions > (width := model.embedding.embedding_dim):
        raise ConfigError(
            [f"params.yaml: sensitivity.directions = {settings.directions}; {name} has width {width}, expected no more"]
        )
    encoded = encode_sentences(settings.sentences, sentences, vocabulary, study.run(group, run).dataset.positions)
    return model.double().requires_grad_(False), vocabulary, encoded


def _skipped(vocabulary: Vocabulary) -> int:
    return 0 if vocabulary.eos is None else 1


def _by_sentence(
    by_seed: Mapping[int, Sequence[Scores]],
    measure: Callable[..., float],
    *names: str,
) -> NDArray[np.float64]:
    """A measure of scores for each seed and sentence, (S, M)."""
    return np.array([[measure(*(scores[name] for name in names)) for scores in row] for row in by_seed.values()])


def _agreement(by_seed: Mapping[int, Sequence[Scores]], a: str, b: str, resamples: int) -> dict[str, Any]:
    rho = _by_sentence(by_seed, rank_correlation, a, b)
    entry = mean_with_interval(rho.mean(axis=0), resamples) | {"by_seed": rho.mean(axis=1).tolist()}
    if RECENCY in (a, b):
        return entry
    more = {"partial": _by_sentence(by_seed, partial_rank_correlation, a, b, RECENCY)}
    if a in SCORES and b in REFERENCES:
        more["beyond"] = rho - _by_sentence(by_seed, rank_correlation, RECENCY, b)
    for name, values in more.items():
        found = mean_with_interval(values.mean(axis=0), resamples)
        entry |= {f"{name}_{key}": value for key, value in found.items()}
        entry[f"{name}_by_seed"] = values.mean(axis=1).tolist()
    return entry


def _gap(released: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Median over words of |released - other| / |other|."""
    return float(np.median(np.abs(released - other) / np.abs(other)))


def _by_distance(by_seed: Mapping[int, Sequence[Scores]], name: str, resamples: int) -> list[dict[str, Any]]:
    """Mean over sentences of a score at the word 1, 2, ... before the last one."""
    rows = [np.mean([scores[name] for scores in of_seeds], axis=0) for of_seeds in zip(*by_seed.values(), strict=True)]
    found = []
    for distance in range(1, max(map(len, rows)) + 1):
        values = np.array([row[-distance] for row in rows if len(row) >= distance])
        if len(values) >= 2:
            found.append({"distance": distance, "n": len(values), **mean_with_interval(values, resamples)})
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
