"""How exact cached decoding is, and how much time it saves: no corpus needed, random words serve for both."""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from depthtime import paths
from depthtime.config import Study, run_address
from depthtime.errors import ConfigError
from depthtime.generate.decoder import Decoder, recompute, refuse_adaptive
from depthtime.generate.stored import load_stored
from depthtime.measure.profile import PROFILED_GOES, profile
from depthtime.models.language_model import LanguageModel
from depthtime.provenance import describe_hardware
from depthtime.records import write_json

WARMUP = 3  # rounds that are not kept
SEED = 0  # of words and splits


def measure_decoding(study: Study, on_round: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/decoding.json: what `decoding_differences` finds, and `speed` of each run.

    `speed`: seconds until the logits of the next word after each prefix (`prefix_P`), for one text, and for a batch of
    texts under `speed_batch`. The cached way feeds one word to a cache of the prefix, the other passes prefix and word
    through the model; both apply the head to the last position only. Runs, prefixes and ways take turns in each round,
    so slow drift of the machine meets all alike; `profile` says where a cached step after the longest prefix spends its
    time; each way is gone twice and the second time counts, as in a text, where
    the same way came before. So a prefix P has grown to P + 2r + 1 words in round r, for both ways.
    """
    settings = study.decoding
    rows = decoding_differences(study)
    longest = max(settings.prefixes) + 2 * (WARMUP + settings.rounds) + PROFILED_GOES
    contestants = []
    for name in settings.runs:
        group, run, seed = run_address(name)
        model, _ = load_stored(study, group, run, seed, max_positions=longest)
        torch.set_num_threads(settings.threads)
        for key, count in (("speed", 1), ("speed_batch", settings.batch_size)):
            words = _random_words(model, count, longest)
            contestants += [(run, key, prefix, _Race(model, words, prefix)) for prefix in settings.prefixes]
    times = _race([race for *_, race in contestants], settings.rounds, on_round)
    for (run, key, prefix, race), (cached_s, recompute_s) in zip(contestants, times, strict=True):
        row = rows[run].setdefault(key, {"texts": len(race.words)})
        row[f"prefix_{prefix}"] = _speed(cached_s, recompute_s)
    for run, key, prefix, race in contestants:
        if key == "speed" and prefix == max(settings.prefixes):
            rows[run]["profile"] = profile(race.cached_again)
    about = {
        "machine": describe_hardware("cpu"),
        "threads": settings.threads,
        "rounds": settings.rounds,
        "batch_size": settings.batch_size,
    }
    write_json(paths.measured("decoding"), {"schema": 1, **about, **rows})


def decoding_differences(study: Study) -> dict[str, Any]:
    """By run: the largest difference of a logit between cached decoding and full passes, over random splits.

    `max_logit_difference` in float64 and `max_logit_difference_float32`, over `splits` random ways to feed `batch_size`
    sequences of random words, each two and a half windows long.
    Raises: ConfigError for a run whose positions are trained, which cannot read more of them; DepthtimeError as
    `load_stored` and `refuse_adaptive`.
    """
    settings, rows = study.decoding, {}
    for name in settings.runs:
        group, run, seed = run_address(name)
        refuse_adaptive(study.run(group, run).run, name)
        if study.run(group, run).sizes.has_learned_positions:
            raise ConfigError(
                [f"params.yaml: decoding.runs: {name}: its positions are trained, and no more can be timed"]
            )
        model, _ = load_stored(study, group, run, seed)
        torch.set_num_threads(settings.threads)
        rows[run] = {"run": name, **_differences(model, settings.splits, settings.batch_size)}
    return rows


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: differences over the first two splits."""
    rows = decoding_differences(study.model_copy(update={"decoding": study.decoding.model_copy(update={"splits": 2})}))
    return {run: {key: value for key, value in row.items() if key != "splits"} for run, row in rows.items()}


def _differences(model: LanguageModel, splits: int, batch_size: int) -> dict[str, Any]:
    """Largest difference of logits by dtype; the same words and splits for both."""
    window = model.max_positions
    words = _random_words(model, batch_size, 2 * window + window // 2 + 1)
    largest = {}
    for ending, network in (("", copy.deepcopy(model).double()), ("_float32", copy.deepcopy(model).float())):
        expected = recompute(network, words)
        generator = torch.Generator().manual_seed(SEED)
        found = (cached(network, words, random_lengths(words.shape[1], generator)) for _ in range(splits))
        largest[f"max_logit_difference{ending}"] = max(float((logits - expected).abs().max()) for logits in found)
    return {**largest, "splits": splits, "positions": words.shape[1], "window": window}


def cached(model: LanguageModel, tokens: Tensor, lengths: Iterable[int]) -> Tensor:
    """Logits (B, n, V) of word ids (B, n) that are fed in pieces of these lengths."""
    decoder = Decoder(model)
    return torch.cat([decoder.feed(piece) for piece in tokens.split(list(lengths), dim=1)], dim=1)


def random_lengths(total: int, generator: torch.Generator) -> list[int]:
    """Lengths >= 1 that add up to `total`: a piece of any length first, then words alone and in pieces of up to 20."""
    lengths: list[int] = []
    while (left := total - sum(lengths)) > 0:
        most = total if not lengths else 20 if torch.rand((), generator=generator) < 0.5 else 1
        lengths.append(min(left, int(torch.randint(1, most + 1, (), generator=generator))))
    return lengths


class _Race:
    """One model after one prefix: both ways to the logits of the next word, the same words (B, n) for both."""

    def __init__(self, model: LanguageModel, words: Tensor, prefix: int) -> None:
        self.model, self.words, self.at = model, words, prefix
        self.decoder = Decoder(model)
        self.decoder.feed_last(words[:, :prefix])

    def step(self) -> tuple[float, float]:
        """Seconds of the cached and of the full way to the second of two more words; the prefix grows by both."""
        taken = []
        for way in (self._cached, self._recompute):
            way(self.at)
            began = time.perf_counter()
            way(self.at + 1)
            taken.append(time.perf_counter() - began)
        self.at += 2
        return taken[0], taken[1]

    def cached_again(self) -> None:
        """One more word the cached way."""
        self._cached(self.at)
        self.at += 1

    def _cached(self, at: int) -> Tensor:
        return self.decoder.feed_last(self.words[:, at : at + 1])

    @torch.inference_mode()
    def _recompute(self, at: int) -> Tensor:
        return self.model.head(self.model.solve(self.words[:, : at + 1]).y[:, -1])


def _race(
    races: list[_Race], rounds: int, on_round: Callable[[int, int], None]
) -> list[tuple[list[float], list[float]]]:
    """Seconds of both ways of each contestant, by round."""
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in races]
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(WARMUP + rounds):
            for race, (cached_s, recompute_s) in zip(races, times, strict=True):
                took = race.step()
                if number >= WARMUP:
                    cached_s.append(took[0])
                    recompute_s.append(took[1])
            on_round(number + 1, WARMUP + rounds)
    finally:
        if was_collecting:
            gc.enable()
    return times


def _speed(cached_s: list[float], recompute_s: list[float]) -> dict[str, Any]:
    fast, slow = statistics.median(cached_s), statistics.median(recompute_s)
    return {
        "cached_s": cached_s,
        "recompute_s": recompute_s,
        "median_cached_s": fast,
        "median_recompute_s": slow,
        "ratio": fast / slow,
    }


def _random_words(model: LanguageModel, batch_size: int, length: int) -> Tensor:
    classes = model.embedding.num_embeddings
    return torch.randint(classes, (batch_size, length), generator=torch.Generator().manual_seed(SEED))
