"""Where the time of a continuous model's training step goes: against its parts, torchdiffeq and the machine's peak.

Everything is timed in turns on one thread, twice in a turn, of which the second counts; ratios are taken within a
round, then their median.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from depthtime import paths
from depthtime.config import ContinuousRun, ModelSizes, Study, load_params
from depthtime.errors import ConfigError
from depthtime.integrate.fixed import Solution
from depthtime.integrate.tableaus import RK4
from depthtime.measure.contestant import Contestant
from depthtime.measure.profile import profile
from depthtime.models.block import PostNormBlock
from depthtime.models.cache import DepthCache
from depthtime.models.continuous import ContinuousDepth
from depthtime.models.fused import FusedContinuousDepth

STEPS_SIDE_BY_SIDE = 8
ROUNDS_SIDE_BY_SIDE = 5


class NoDepth(nn.Module):
    """A core that does nothing, so that a step is embedding, head, loss and optimiser."""

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        return Solution(y, nfe=0, num_steps=0)


class TorchdiffeqDepth(ContinuousDepth):
    """The same block through torchdiffeq's fixed-step rk4 (the 3/8 rule: four evaluations a step, as ours)."""

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        h = (self.t1 - self.t0) / self.num_steps
        t = torch.tensor([self.t0, self.t1], device=y.device)
        y1 = odeint(lambda t, state: self.block(state), y, t, method="rk4", options={"step_size": h})[-1]
        return Solution(y1, nfe=4 * self.num_steps, num_steps=self.num_steps)


def measure_speed(study: Study) -> dict[str, Any]:
    """Ratios of the continuous run `bench.speed`, on the CPU.

    Returns: medians over rounds: `step_over_parts` (step over evaluations x block step + head step),
    `step_over_torchdiffeq`, `share_of_peak` (operations a second over those of a large matrix product) for the fused
    step, the same with `plain_` before for the plain one, `discrete_...`, and quartiles under `spread`.
    Raises: ConfigError for a run of another model, or another solver than rk4, which has no twin in torchdiffeq.
    """
    torch.set_num_threads(1)
    goes, flops, nfe = _contestants(study)
    rounds: list[dict[str, float]] = []
    for number in range(study.bench.warmup_steps + study.bench.rounds):
        seconds = {name: _second(go) for name, go in goes.items()}
        if number >= study.bench.warmup_steps:
            rounds.append(seconds)
    ratios = [ratios_of(seconds, flops, nfe) for seconds in rounds]
    quartiles = {name: statistics.quantiles([r[name] for r in ratios], n=4, method="inclusive") for name in ratios[0]}
    return {
        "run": study.bench.speed,
        "threads": 1,
        "rounds": len(rounds),
        "nfe": nfe,
        "flops": flops,
        "median_s": {name: statistics.median(seconds[name] for seconds in rounds) for name in goes},
        "spread": {name: [first, third] for name, (first, _, third) in quartiles.items()},
        **{name: middle for name, (_, middle, _) in quartiles.items()},
        "profile": {name: profile(goes[name]) for name in ("plain", "fused")},
        "side_by_side": side_by_side(study),
    }


def _contestants(study: Study) -> tuple[dict[str, Callable[[], object]], dict[str, float], int]:
    """What is timed, by name; operations of one go; block evaluations of a step."""
    config = study.run(*study.bench.speed.split("/"))
    run, sizes = config.run, config.sizes
    if not isinstance(run, ContinuousRun) or not isinstance(sizes, ModelSizes) or run.solver != "rk4":
        name = study.bench.speed
        raise ConfigError([f"params.yaml: bench.speed = {name!r}: expected `model: continuous`, solver rk4"])
    steps = (RK4, run.num_steps, run.t0, run.t1)
    block = _block(sizes)
    plain = Contestant(config, study, ContinuousDepth(block, *steps), "cpu")
    models = {
        "plain": plain,
        "fused": Contestant(config, study, FusedContinuousDepth(_block(sizes), *steps), "cpu"),
        "torchdiffeq": Contestant(config, study, TorchdiffeqDepth(_block(sizes), *steps), "cpu"),
        "head": Contestant(config, study, NoDepth(), "cpu"),
        "discrete": Contestant(study.run(*study.bench.runs[0].split("/")), study, device="cpu"),
    }
    tokens = plain.inputs.numel()
    size = study.bench.peak_size
    one = torch.randn(size, size)
    flops: dict[str, float] = {
        name: 3.0 * tokens * models[name].model.flops_per_token(plain.inputs.shape[1]) for name in ("plain", "discrete")
    }
    flops |= {"fused": flops["plain"], "torchdiffeq": flops["plain"], "peak": 2.0 * size**3}
    state = torch.randn(*plain.inputs.shape, sizes.width)
    goes: dict[str, Callable[[], object]] = {name: model.train_step for name, model in models.items()}
    goes |= {"block": lambda: _block_step(block, state), "peak": lambda: torch.mm(one, one)}
    return goes, flops, plain.counts()["nfe_forward"]


def _block(sizes: ModelSizes) -> PostNormBlock:
    return PostNormBlock(sizes.width, sizes.heads, sizes.ff_width)


def ratios_of(seconds: dict[str, float], flops: dict[str, float], nfe: int) -> dict[str, float]:
    """The ratios of one round, from seconds and operations by contestant and block evaluations a step."""
    parts = nfe * seconds["block"] + seconds["head"]
    rate = {name: flops[name] / seconds[name] for name in flops}
    found = {}
    for name, prefix in (("fused", ""), ("plain", "plain_")):
        found[f"{prefix}step_over_parts"] = seconds[name] / parts
        found[f"{prefix}step_over_torchdiffeq"] = seconds[name] / seconds["torchdiffeq"]
        found[f"{prefix}share_of_peak"] = rate[name] / rate["peak"]
        found[f"{prefix}step_over_discrete"] = seconds[name] / seconds["discrete"]
    found["fused_over_plain"] = seconds["fused"] / seconds["plain"]
    found["discrete_share_of_peak"] = rate["discrete"] / rate["peak"]
    found["torchdiffeq_share_of_peak"] = rate["torchdiffeq"] / rate["peak"]
    return found


def _block_step(block: nn.Module, state: Tensor) -> None:
    """Forward and backward of one evaluation, gradients of weights and state included."""
    y = state.detach().requires_grad_()
    block.zero_grad(set_to_none=True)
    block(y).backward(state)


def _second(go: Callable[[], object]) -> float:
    """Seconds of the second of two goes."""
    go()
    return _seconds(go)


def _seconds(go: Callable[[], object]) -> float:
    began = time.perf_counter()
    go()
    return time.perf_counter() - began


def side_by_side(study: Study) -> dict[str, Any] | None:
    """Two one-thread trainings at once against the same steps one after the other on two threads; None on one core.

    Returns: seconds of both, by round, and the median ratio; below 1 the workflow's default (side by side) is right.
    """
    if (os.cpu_count() or 1) < 2:
        return None
    root = paths.enter_root()
    rounds = []
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone,
    ):
        for number in range(ROUNDS_SIDE_BY_SIDE + 1):
            at_once = _seconds(lambda: list(pool.map(_steps, [root] * 2, [study.bench.speed] * 2, [1] * 2, [1] * 2)))
            in_turn = _seconds(lambda: alone.submit(_steps, root, study.bench.speed, 2, 2).result())
            if number:  # the first round loads everything
                rounds.append({"at_once_s": at_once, "in_turn_s": in_turn})
    ratio = statistics.median(r["at_once_s"] / r["in_turn_s"] for r in rounds)
    return {"steps": STEPS_SIDE_BY_SIDE, "rounds": rounds, "ratio": ratio}


def _steps(root: Path, name: str, threads: int, times: int) -> None:
    """Some training steps of a run in this process."""
    contestant = _in_this_process(root, name)
    torch.set_num_threads(threads)
    for _ in range(times * STEPS_SIDE_BY_SIDE):
        contestant.train_step()


@cache
def _in_this_process(root: Path, name: str) -> Contestant:
    os.chdir(root)
    study = load_params()
    return Contestant(study.run(*name.split("/")), study, device="cpu")
