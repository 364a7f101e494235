"""Two models of each seed on tasks other than perplexity: the last word of held-out sentences, and minimal pairs.

The record holds counts and means only, never a word or a sentence of the corpus. Intervals are over sentences or
pairs: each one's score is averaged over the seeds, and sentences are resampled, so seeds are not taken for more
sentences. What seeds alone move stands beside, by seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from depthtime import paths
from depthtime.config import Downstream, StandardProtocol, Study
from depthtime.data.dataset import Dataset, load_dataset
from depthtime.data.minimal_pairs import pair_classes, read_pairs
from depthtime.errors import ConfigError, DataError
from depthtime.evaluate.cloze import Answers, Cloze, answer, answer_always, find_cloze
from depthtime.evaluate.sequences import score_sequences
from depthtime.generate.stored import load_stored
from depthtime.measure.paired_items import Array, of_items, of_shares, paired
from depthtime.models.language_model import LanguageModel
from depthtime.records import write_json

SUBSETS = ("all", "repeated")  # of the cloze
Sentence = tuple[int, ...]
Pairs = dict[str, list[tuple[Sentence, Sentence]]]


@dataclass(frozen=True)
class Tasks:
    """What models are asked. unigram, last_words: probabilities (V,) of words, and of last words, in training text."""

    dataset: Dataset
    eos: int
    cloze: Cloze
    pairs: Pairs
    unigram: Array
    last_words: Array


def measure_downstream(study: Study, on_model: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/downstream.json, see `downstream_record`."""
    write_json(paths.measured("downstream"), downstream_record(study, on_model))


def downstream_record(study: Study, on_model: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Results of both runs of `downstream.runs`, their difference (second minus first) and the baselines.

    cloze.SUBSET   (`all`, and `repeated`: the word occurred earlier in the window) for each run, for `unigram` and
                   `last_words`: accuracy, log_prob (mean, nats), reciprocal_rank (mean), median_rank
    pairs.NAME     for each phenomenon, and `all` pairs: `sum` and `mean`, the shares of pairs whose good sentence has
                   the higher sum, or mean over its words and <eos>, of log-probabilities; a tie counts as half
    KEY_low, KEY_high  95 % percentile bootstrap over sentences; of shares of pairs Wilson's
    KEY_above      of differences: share of resamples in which the second run is above the first, ties as half; above
                   0.975 or below 0.025 exactly when the interval excludes 0
    by_seed        KEY of each seed; KEY_lowest_seed and KEY_highest_seed are the extremes of a difference
    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13; Wilson (1927).
    Raises: ConfigError, DataError or RecordError for what the tasks or the weights lack.
    """
    settings, tasks = study.downstream, load_tasks(study)
    torch.set_num_threads(settings.threads)
    answers, scores = _run_models(study, tasks, settings.seeds, on_model)
    return {
        "schema": 1,
        **settings.model_dump(mode="json", exclude={"pairs"}),
        "pairs_file": settings.pairs,
        "data": tasks.dataset.name,
        "cloze": _cloze_part(settings, tasks, answers),
        "pairs": _pairs_part(settings, tasks, scores),
    }


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: what the first seed alone found."""
    record = downstream_record(study.model_copy(update={"downstream": first_seed(study.downstream)}))
    runs = study.downstream.runs

    def by_seed(part: Mapping[str, Any]) -> dict[str, Any]:
        names = (*runs, "difference")
        return {key: {name: {"by_seed": row[name]["by_seed"]} for name in names} for key, row in part.items()}

    cloze = {key: record["cloze"][key] for key in SUBSETS}
    pairs = {key: row for key, row in record["pairs"].items() if isinstance(row, dict)}
    return {"cloze": by_seed(cloze), "pairs": by_seed(pairs)}


def first_seed(settings: Downstream) -> Downstream:
    return settings.model_copy(update={"seeds": settings.seeds[:1]})


def load_tasks(study: Study) -> Tasks:
    """Questions and pairs on the dataset of the two runs."""
    settings = study.downstream
    name = study.group(settings.group).data
    config = study.datasets[name]
    if not isinstance(config, StandardProtocol):
        raise ConfigError(
            [
                f"params.yaml: downstream.group = {settings.group!r}: its dataset {name} has no <eos> "
                f"(protocol: {config.protocol}), so no last words; expected a group on data of protocol: standard"
            ]
        )
    pairs = read_pairs(settings.pairs)
    dataset = load_dataset(study, name)
    assert dataset.test is not None  # the standard protocol has one
    eos = dataset.card["vocabulary"]["eos"]
    cloze = find_cloze(
        dataset.test.tokens,
        eos=eos,
        unknown=dataset.unknown,
        not_asked=[dataset.words.index(word) for word in settings.not_asked if word in dataset.words],
        window=config.positions,
        min_words=settings.min_words,
    )
    if cloze.is_repeated.sum() < 2:
        raise DataError(
            f"params.yaml: downstream.min_words = {settings.min_words}: fewer than 2 test sentences of {name} "
            "have so many words and end with one that occurred before; use a lower number or a longer text"
        )
    train = np.asarray(dataset.train.tokens)[1:]
    return Tasks(
        dataset=dataset,
        eos=eos,
        cloze=cloze,
        pairs=pair_classes(settings.pairs, pairs, dataset.words, name, config.positions - 1),
        unigram=_frequencies(train, dataset.vocabulary_size),
        last_words=_frequencies(train[np.flatnonzero(train == eos) - 1], dataset.vocabulary_size),
    )


def _frequencies(words: NDArray[np.integer], classes: int) -> Array:
    """Relative frequencies (V,), with one added to every count: no word is impossible."""
    counts = np.bincount(words, minlength=classes) + 1.0
    return np.asarray(counts / counts.sum())


def _run_models(
    study: Study, tasks: Tasks, seeds: Sequence[int], on_model: Callable[[int, int], None]
) -> tuple[dict[str, list[Answers]], dict[str, list[Array]]]:
    """By run, for each seed: answers to the cloze, and log-probabilities of sentences as of `sentence_scores`."""
    settings = study.downstream
    answers: dict[str, list[Answers]] = {run: [] for run in settings.runs}
    scores: dict[str, list[Array]] = {run: [] for run in settings.runs}
    for number, (run, seed) in enumerate([(run, seed) for run in settings.runs for seed in seeds], start=1):
        model, _ = load_stored(study, settings.group, run, seed)
        torch.set_num_threads(settings.threads)
        answers[run].append(answer(model, tasks.cloze, settings.batch_size))
        scores[run].append(sentence_scores(model, tasks.pairs, tasks.eos, settings.batch_size))
        on_model(number, len(settings.runs) * len(seeds))
    return answers, scores


def sentence_scores(model: LanguageModel, pairs: Pairs, eos: int, batch_size: int) -> Array:
    """Sums of log-probabilities of all pairs' sentences, (P, 2), good first: of its words and of <eos>, after <eos>.

    Equal sentences are scored once, so that they are equal to the last digit.
    """
    sentences = list(dict.fromkeys(sentence for rows in pairs.values() for pair in rows for sentence in pair))
    found = score_sequences(model, [((eos, *sentence, eos), 1) for sentence in sentences], batch_size)
    sums = {sentence: math.fsum(scored.log_probs) for sentence, scored in zip(sentences, found, strict=True)}
    return np.array([[sums[good], sums[bad]] for rows in pairs.values() for good, bad in rows])


def unigram_scores(unigram: Array, pairs: Pairs, eos: int) -> Array:
    """The same for a model without context; exact sums, so that the order of words does not matter."""
    logs = np.log(unigram)
    return np.array([[math.fsum(logs[[*words, eos]]) for words in pair] for rows in pairs.values() for pair in rows])


def preferences(scores: Array) -> Array:
    """1 where the good sentence of (..., 2) has more, 0.5 where both have the same, 0 where the bad one has more."""
    good, bad = scores[..., 0], scores[..., 1]
    return np.asarray((good > bad) + 0.5 * (good == bad))


def _cloze_part(settings: Downstream, tasks: Tasks, answers: dict[str, list[Answers]]) -> dict[str, Any]:
    cloze, (first, second) = tasks.cloze, settings.runs
    part: dict[str, Any] = {"left_out": cloze.left_out, "asked": len(cloze.targets)}
    baselines = {name: answer_always(getattr(tasks, name), cloze) for name in ("unigram", "last_words")}
    for subset in SUBSETS:
        chosen = cloze.is_repeated if subset == "repeated" else np.ones(len(cloze.targets), bool)
        of_runs = {run: _measures([given.take(chosen) for given in rows]) for run, rows in answers.items()}
        part[subset] = {
            "n": int(chosen.sum()),
            **{
                run: of_items(values, settings.seeds, settings.resamples)
                | {"median_rank": _median_ranks(answers[run], chosen)}
                for run, values in of_runs.items()
            },
            "difference": paired(of_runs[first], of_runs[second], settings.seeds, settings.resamples),
            **{
                name: {key: float(values.mean()) for key, values in _measures([given.take(chosen)]).items()}
                | {"median_rank": _median_ranks([given], chosen)}
                for name, given in baselines.items()
            },
        }
    return part


def _measures(rows: Sequence[Answers]) -> dict[str, Array]:
    """What is averaged over questions, of each seed: (S, I)."""
    return {
        "accuracy": np.stack([row.is_right for row in rows]),
        "log_prob": np.stack([row.log_probs for row in rows]),
        "reciprocal_rank": np.stack([1 / row.ranks for row in rows]),
    }


def _median_ranks(rows: Sequence[Answers], chosen: NDArray[np.bool_]) -> float:
    """Mean over seeds of the median rank."""
    return float(np.mean([np.median(row.ranks[chosen]) for row in rows]))


def _pairs_part(settings: Downstream, tasks: Tasks, scores: dict[str, list[Array]]) -> dict[str, Any]:
    lengths = np.array([[len(s) + 1 for s in pair] for rows in tasks.pairs.values() for pair in rows])
    of_runs = {run: _preferences(np.stack(rows), lengths) for run, rows in scores.items()}
    unigram = _preferences(unigram_scores(tasks.unigram, tasks.pairs, tasks.eos)[None], lengths)
    names = np.repeat(list(tasks.pairs), [len(rows) for rows in tasks.pairs.values()])
    part: dict[str, Any] = {"phenomena": list(tasks.pairs)}
    first, second = settings.runs
    for name in ("all", *tasks.pairs):
        chosen = np.ones(len(names), bool) if name == "all" else names == name
        here = {run: {key: rows[:, chosen] for key, rows in values.items()} for run, values in of_runs.items()}
        part[name] = {
            "n": int(chosen.sum()),
            **{run: of_shares(values, settings.seeds) for run, values in here.items()},
            "difference": paired(here[first], here[second], settings.seeds, settings.resamples),
            "unigram": of_shares({key: rows[:, chosen] for key, rows in unigram.items()}, None),
        }
    return part


def _preferences(sums: Array, lengths: NDArray[np.int64]) -> dict[str, Array]:
    """Of sums (S, P, 2) and the same over their numbers of words, each (S, P)."""
    return {"sum": preferences(sums), "mean": preferences(sums / lengths)}
