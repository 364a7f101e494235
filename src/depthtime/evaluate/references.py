"""What a model must beat: n-gram perplexities on exactly the targets the networks are scored on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from depthtime import paths
from depthtime.baselines import ngram
from depthtime.baselines.ngram import AddAlpha, Events, KneserNey
from depthtime.config import Study
from depthtime.data.batching import Windows
from depthtime.data.dataset import Dataset, load_dataset
from depthtime.errors import DataError
from depthtime.evaluate.perplexity import Score, score
from depthtime.records import write_json


def score_references(study: Study, name: str) -> None:
    """Fit the references on the training windows of a dataset, score valid and test, write the record.

    Protocol continuumlm: histories end at the chunk, as for the networks. Protocol standard: histories reach back over
    window ends within the stream of a part (a network sees at most its window).
    """
    dataset = load_dataset(study, name)
    within = dataset.card["config"]["protocol"] == "continuumlm"
    order = max(*study.ngram.orders, 2)
    train = ngram.events(dataset.train, order, dataset.vocabulary_size, within_windows=within)
    fit_events = _fit_events(dataset.train, study.ngram.heldout_fraction, name)
    alpha = tune_alpha(train, study.ngram.alphas, fit_events, dataset)
    rows = [_unigram_row(train, dataset, within)]
    for label, value in (("bigram_add_1", 1.0), ("bigram_add_tuned", alpha)):
        model = ngram.fit_add_alpha(train, 2, dataset.vocabulary_size, value)
        rows.append({"name": label, "alpha": value, **_scores(model, dataset, within)})
    for n in study.ngram.orders:
        kneser_ney = ngram.fit_kneser_ney(train[:n], n, dataset.vocabulary_size)
        discounts = [value for of_order in kneser_ney.discounts for value in of_order]  # D1, D2, D3+ of order 1, then 2
        rows.append({"name": f"kneser_ney_{n}", "discounts": discounts, **_scores(kneser_ney, dataset, within)})
    history = "window" if within else "stream"
    write_json(paths.ngram_record(name), {"schema": 1, "dataset": name, "history": history, "references": rows})


def tune_alpha(train: Events, alphas: tuple[float, ...], fit_events: int, dataset: Dataset) -> float:
    """The add-alpha constant of the bigram with the least loss on the events after the first `fit_events`."""
    fit, held = train[:, :fit_events], train[:, fit_events:]
    model = ngram.fit_add_alpha(fit, 2, dataset.vocabulary_size, 1.0)
    losses = {alpha: _nll(replace(model, alpha=alpha), held) for alpha in alphas}
    return min(sorted(losses), key=losses.__getitem__)


def _fit_events(train: Windows, heldout_fraction: float, name: str) -> int:
    """Number of events in the windows that fit the candidates; the rest, at the end, chooses among them."""
    held = max(1, math.floor(heldout_fraction * len(train)))
    if held >= len(train):
        raise DataError(
            f"datasets.{name}: {len(train)} training windows leave none beside "
            f"ngram.heldout_fraction = {heldout_fraction}; use a longer text or a smaller window"
        )
    return int((train.positions - train.first_scored[:-held]).sum())


def _nll(model: AddAlpha | KneserNey, events: Events) -> float:
    return score([-np.log(model.probabilities(events))]).nll_nats


def _unigram_row(train: Events, dataset: Dataset, within: bool) -> dict[str, Any]:
    """Maximum likelihood where every scored token has a count, else add-one, marked."""
    model = ngram.fit_add_alpha(train[:1], 1, dataset.vocabulary_size, 0.0)
    scored = [windows for windows in (dataset.valid, dataset.test) if windows is not None]
    begin = dataset.vocabulary_size
    is_defined = all(
        (model.probabilities(block) > 0).all()
        for windows in scored
        for block in ngram.event_blocks(windows, 1, begin, within_windows=within)
    )
    if not is_defined:
        model = replace(model, alpha=1.0)
    smoothing = "none" if is_defined else "add-one: a scored token has no training count"
    return {"name": "unigram", "alpha": model.alpha, "smoothing": smoothing, **_scores(model, dataset, within)}


def _scores(model: AddAlpha | KneserNey, dataset: Dataset, within: bool) -> dict[str, Any]:
    """Validation scores, and test scores under "test" (None where the protocol has no test part)."""
    test = None if dataset.test is None else _described(score_windows(model, dataset.test, within))
    return {**_described(score_windows(model, dataset.valid, within)), "test": test}


def score_windows(model: AddAlpha | KneserNey, windows: Windows, within: bool) -> Score:
    """Score of a model on the scored targets of some windows."""
    blocks = ngram.event_blocks(windows, len(model.levels), model.classes, within_windows=within)
    return score(-np.log(model.probabilities(block)) for block in blocks)


def _described(result: Score) -> dict[str, Any]:
    return {"nll_nats": result.nll_nats, "perplexity": result.perplexity, "num_scored": result.num_scored}
