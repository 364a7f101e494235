"""Step times, measured side by side: one step of each contestant a round, medians over rounds, in one process."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from depthtime import paths
from depthtime.config import RunConfig, Study
from depthtime.data.dataset import load_dataset
from depthtime.provenance import describe_machine
from depthtime.records import write_json
from depthtime.train.loop import train_step
from depthtime.train.optim import build_optimizer
from depthtime.train.setup import build_for, pick_device


def bench(study: Study, on_round: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Measure training and forward steps of the runs that params.yaml names; writes results/records/bench.json.

    Every contestant takes one training step and one forward pass a round, so slow drift of the machine meets all alike.
    Meant for a quiet machine: Snakemake gives this stage all cores.
    """
    settings = study.bench
    contestants = [
        (name, threads, _Contestant(study.run(*name.split("/")), study))
        for name, threads in itertools.product(settings.runs, settings.threads)
    ]
    times: dict[tuple[str, int], list[tuple[float, float]]] = {(name, threads): [] for name, threads, _ in contestants}
    total = settings.warmup_steps + settings.rounds
    for number in range(total):
        for name, threads, contestant in contestants:
            torch.set_num_threads(threads)
            measured = contestant.train_step_s(), contestant.forward_s()
            if number >= settings.warmup_steps:
                times[name, threads].append(measured)
        on_round(number + 1, total)
    device = str(contestants[0][2].device)
    machine = describe_machine(device)
    record = {
        "schema": 1,
        "machine": {key: machine[key] for key in ("cpu", "device", "system", "python", "packages")}
        | {"threads_available": os.cpu_count()},
        "rows": [_row(name, threads, contestant, times[name, threads]) for name, threads, contestant in contestants],
    }
    write_json(paths.bench_record(), record)
    return record


def _row(name: str, threads: int, contestant: _Contestant, times: list[tuple[float, float]]) -> dict[str, Any]:
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
    names = itertools.product(study.bench.runs, study.bench.threads)
    return [
        {"run": name, "threads": threads, **_Contestant(study.run(*name.split("/")), study).counts()}
        for name, threads in names
    ]


class _Contestant:
    """A model with its optimiser and one batch."""

    def __init__(self, config: RunConfig, study: Study) -> None:
        dataset = load_dataset(study, config.group.data)
        seed = config.group.seeds[0]
        self.config = config
        self.device = pick_device(config.train.device)
        self.model = build_for(config, dataset, seed)
        self.optimizer = build_optimizer(self.model, config.train)
        batch = np.arange(config.train.batch_size) % len(dataset.train)
        self.inputs, self.targets = (torch.from_numpy(a).to(self.device) for a in dataset.train.take(batch))

    def counts(self) -> dict[str, int]:
        """Tokens, parameters and operations: what the times belong to."""
        positions = self.config.dataset.positions
        with torch.no_grad():
            nfe = self.model.solve(self.inputs).nfe
        return {
            "tokens_per_step": self.config.train.batch_size * positions,
            "parameters": self.model.parameter_counts()["total"],
            "flops_per_token_forward": self.model.flops_per_token(positions),
            "nfe_forward": nfe,
        }

    def train_step_s(self) -> float:
        began = self._now()
        train_step(self.model, self.optimizer, self.inputs, self.targets, self.config.train)
        return self._now() - began

    def forward_s(self) -> float:
        began = self._now()
        with torch.no_grad():
            self.model(self.inputs)
        return self._now() - began

    def _now(self) -> float:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter()
