"""Step times, measured side by side: one step of each contestant a round, medians over rounds, in one process."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from depthtime import paths
from depthtime.config import Study
from depthtime.measure.contestant import Contestant
from depthtime.measure.speed import measure_speed
from depthtime.provenance import describe_hardware
from depthtime.records import write_json


def bench(study: Study, on_round: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Measure training and forward steps of the runs that params.yaml names; writes results/records/bench.json.

    Every contestant takes its turn in each round, so slow drift of the machine meets all alike; in its turn it goes
    twice and the second time counts, so that caches are filled by its own kind.
    Meant for a quiet machine: Snakemake gives this stage all cores.
    """
    settings = study.bench
    contestants = [(name, threads, Contestant(study.run(*name.split("/")), study)) for name, threads in entries(study)]
    times: dict[tuple[str, int], list[tuple[float, float]]] = {(name, threads): [] for name, threads, _ in contestants}
    total = settings.warmup_steps + settings.rounds
    for number in range(total):
        for name, threads, contestant in contestants:
            torch.set_num_threads(threads)
            measured = contestant.seconds(contestant.train_step), contestant.seconds(contestant.forward)
            if number >= settings.warmup_steps:
                times[name, threads].append(measured)
        on_round(number + 1, total)
    speed = measure_speed(study)
    device = str(contestants[0][2].device)
    record = {
        "schema": 1,
        "machine": describe_hardware(device),
        "rows": [_row(name, threads, contestant, times[name, threads]) for name, threads, contestant in contestants],
        "speed": speed,
    }
    write_json(paths.measured("bench"), record)
    return record


def entries(study: Study) -> list[tuple[str, int]]:
    """(run, threads) of everything timed step by step: the pair on all thread counts, the frontier on one thread."""
    pairs = [*itertools.product(study.bench.runs, study.bench.threads), *((name, 1) for name in study.bench.frontier)]
    return list(dict.fromkeys(pairs))


def _row(name: str, threads: int, contestant: Contestant, times: list[tuple[float, float]]) -> dict[str, Any]:
    steps, forwards = ([pair[k] for pair in times] for k in (0, 1))
    first, middle, third = statistics.quantiles(steps, n=4, method="inclusive")
    return {
        "run": name,
        "threads": threads,
        "rounds": len(steps),
        "step_s": steps,
        "median_step_s": middle,
        "q1_step_s": first,
        "q3_step_s": third,
        "median_forward_s": statistics.median(forwards),
        **contestant.counts(),
    }


def bench_counts(study: Study) -> list[dict[str, Any]]:
    """The part of a bench record that is computed rather than measured, row by row."""
    return [
        {"run": name, "threads": threads, **Contestant(study.run(*name.split("/")), study).counts()}
        for name, threads in entries(study)
    ]
