"""Trained weights under other solvers: does the perplexity stay, and what does an adaptive solver leak?

An adaptive solver takes its steps from an error norm over the whole batch. So later words and other sentences move the
steps, and with them every logit: the model is causal only up to its tolerance. Both are measured here on validation
windows. The record holds counts and values of the model alone, no times, so the same code gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from depthtime import paths
from depthtime.config import SolverSwap, Study
from depthtime.data.batching import IGNORED, Windows
from depthtime.data.dataset import load_dataset
from depthtime.errors import SolveError
from depthtime.evaluate.network import score_network
from depthtime.generate.stored import load_continuous
from depthtime.integrate.fixed import Solution
from depthtime.integrate.solve import solve
from depthtime.integrate.tableaus import ADAPTIVE, TABLEAUS
from depthtime.models.cache import DepthCache
from depthtime.models.continuous import ContinuousDepth
from depthtime.models.language_model import LanguageModel
from depthtime.records import write_json

SEED = 0  # of the words put in place of others
LEAKS = ("later_words", "other_sentences", "alone")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A solver with its number of steps or, where it is adaptive, its tolerance (rtol = atol)."""

    solver: str
    steps: int | None = None
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """`rk4_16`, `dopri5_1e-6`: no dots, as fields of a record are addressed with them."""
        return f"{self.solver}_{self.steps if self.tolerance is None else power_of_ten(self.tolerance)}"

    @property
    def order(self) -> int:
        return ADAPTIVE[self.solver] if self.steps is None else TABLEAUS[self.solver].order


def power_of_ten(value: float) -> str:
    """`1e-3` for 0.001; `25e-5` for 0.00025."""
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    return f"{''.join(map(str, digits))}e{exponent}"


class SwappedSolver(nn.Module):
    """The trained vector field between its t0 and t1 under another solver; `solves` keeps the cost of every batch."""

    def __init__(self, trained: ContinuousDepth, setting: Setting, max_nfe: int) -> None:
        super().__init__()
        self.trained, self.setting, self.max_nfe = trained, setting, max_nfe
        self.solves: list[tuple[int, int, int]] = []  # nfe, num_steps, num_rejected
        self.calls = 0  # of the field in the present solve

    def forward(self, y: Tensor, cache: DepthCache | None = None) -> Solution:
        """State (B, N, D) at t0 -> Solution at t1. Raises: SolveError as `solve`; ValueError for a cache."""
        if cache is not None:
            raise ValueError("a swapped solver evaluates whole windows; it keeps no cache")
        self.calls, core, setting = 0, self.trained, self.setting
        solution = solve(
            self._counted,
            y,
            solver=setting.solver,
            num_steps=setting.steps,
            rtol=setting.tolerance,
            atol=setting.tolerance,
            t0=core.t0,
            t1=core.t1,
            max_nfe=self.max_nfe,
        )
        self.solves.append((solution.nfe, solution.num_steps, solution.num_rejected))
        return solution

    def _counted(self, t: float, y: Tensor) -> Tensor:
        self.calls += 1
        return self.trained.vector_field(t, y)

    @property
    def failure(self) -> str:
        """Status of a solve that raised."""
        return "too many evaluations" if self.calls >= self.max_nfe else "failed"


def measure_solver_swap(study: Study, on_step: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/solver_swap.json, the record of `solver_swap_record`."""
    write_json(paths.measured("solver_swap"), solver_swap_record(study, on_step))


def solver_swap_record(study: Study, on_step: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Evaluate the run of `solver_swap.run` with every solver that params.yaml names, on the CPU.

    Returns:  perplexity and perplexity_ratio (to the trained setting), by name; solvers: one row each, with mean,
              smallest and largest number of block evaluations a batch; leak: see `leaks_of`, for the trained setting
              and all adaptive ones. What a solver could not finish is null, with its status in `solvers`.
    Raises:   as `load_continuous`.
    """
    settings = study.solver_swap
    model, config = load_continuous(study, settings.run, "solver_swap.run")
    torch.set_num_threads(settings.threads)
    valid = load_dataset(study, config.group.data).valid
    windows = dataclasses.replace(
        valid, starts=valid.starts[: settings.windows], first_scored=valid.first_scored[: settings.windows]
    )
    core = cast(ContinuousDepth, model.core)
    trained = Setting(core.tableau.name, core.num_steps)
    results = measure_model(model, windows, trained, settings, on_step)
    return {"schema": 1, "run": settings.run, "threads": settings.threads, **results}


def remeasure(study: Study) -> dict[str, Any]:
    """The part of the record that adoption measures again: every fixed solver once, two adaptive ones, coarsely."""
    settings = study.solver_swap
    part = {
        "fixed": {solver: steps[:1] for solver, steps in settings.fixed.items()},
        "adaptive": settings.adaptive[-2:],
        "tolerances": (max(settings.tolerances),),
    }
    return solver_swap_record(study.model_copy(update={"solver_swap": settings.model_copy(update=part)}))


def measure_model(
    model: LanguageModel,
    windows: Windows,
    trained: Setting,
    settings: SolverSwap,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The part of the record that depends on model and windows alone; the model's core is exchanged and put back."""
    wanted = all_settings(trained, settings)
    core, rows, leak = model.core, [], {}
    try:
        for number, setting in enumerate(wanted, start=1):
            model.core = swapped = SwappedSolver(core, setting, settings.max_nfe)  # type: ignore[arg-type]
            rows.append(score_row(model, swapped, windows, settings.batch_size))
            if setting == trained or setting.steps is None:
                leak[setting.name] = dict.fromkeys(_leak_fields())
                if rows[-1]["status"] == "completed":
                    leak[setting.name] = leaks_of(model, windows, settings.batch_size, settings.leak_batches)
            on_step(number, len(wanted))
    finally:
        model.core = core
    base = next(row["perplexity"] for row in rows if row["name"] == trained.name)
    for row in rows:
        row["ratio"] = row["perplexity"] / base if row["perplexity"] and base else None
    return {
        "trained_with": trained.name,
        "windows": len(windows),
        "num_scored": windows.num_scored,
        "batch_size": settings.batch_size,
        "leak_batches": min(settings.leak_batches, -(-len(windows) // settings.batch_size)),
        "max_nfe": settings.max_nfe,
        "perplexity": {row["name"]: row["perplexity"] for row in rows},
        "perplexity_ratio": {row["name"]: row["ratio"] for row in rows},
        "solvers": rows,
        "leak": leak,
    }


def all_settings(trained: Setting, settings: SolverSwap) -> list[Setting]:
    """The trained setting first, then those of params.yaml in their order, each once."""
    fixed = [Setting(solver, steps) for solver, counts in settings.fixed.items() for steps in counts]
    adaptive = [Setting(solver, tolerance=t) for solver in settings.adaptive for t in settings.tolerances]
    return list(dict.fromkeys([trained, *fixed, *adaptive]))


def score_row(model: LanguageModel, core: SwappedSolver, windows: Windows, batch_size: int) -> dict[str, Any]:
    """Perplexity and cost of one solver; nfe, num_steps and num_rejected are means over batches."""
    setting, perplexity, status = core.setting, None, "completed"
    try:
        found = score_network(model, windows, batch_size).perplexity
        perplexity, status = (found, status) if math.isfinite(found) else (None, "diverged")
    except SolveError:
        status = core.failure
    row = {"name": setting.name, "solver": setting.solver, "steps": setting.steps, "tolerance": setting.tolerance}
    row |= {"order": setting.order, "perplexity": perplexity, "status": status}
    if status in ("completed", "diverged"):
        nfe, num_steps, num_rejected = zip(*core.solves, strict=True)
        costs = {"nfe": fmean(nfe), "nfe_min": min(nfe), "nfe_max": max(nfe)}
        return row | costs | {"num_steps": fmean(num_steps), "num_rejected": fmean(num_rejected)}
    return row | dict.fromkeys(("nfe", "nfe_min", "nfe_max", "num_steps", "num_rejected"))


@torch.no_grad()
def leaks_of(model: LanguageModel, windows: Windows, batch_size: int, batches: int) -> dict[str, float | None]:
    """How far words that must not matter move the logits, on the first `batches` batches.

    later_words:     all words from the middle j = N // 2 of every window on are replaced: logits at positions before j.
    other_sentences: all words of all other windows of the batch are replaced: logits of window 0.
    alone:           window 0 without the others, a batch of one: its logits.

    Returns:  for each of them the largest absolute change of a logit (NAME), the mean absolute change of the negative
              log-likelihood in nats (NAME_nll) and the change of the perplexity in percent (NAME_percent), the latter
              two over the words scored at those positions. All null where the solver could not finish.
    """
    half = windows.positions // 2
    largest = dict.fromkeys(LEAKS, 0.0)
    changes: dict[str, list[Tensor]] = {name: [] for name in LEAKS}
    try:
        for words, other, targets in islice(_replaced(windows, batch_size, model.embedding.num_embeddings), batches):
            is_later = torch.arange(words.shape[1]) >= half
            is_other = torch.arange(len(words))[:, None] > 0
            logits = model(words)  # (B, N, V)
            before, first = (slice(None), slice(half)), (slice(1), slice(None))
            for name, where, changed in (
                ("later_words", before, torch.where(is_later, other, words)),
                ("other_sentences", first, torch.where(is_other, other, words)),
                ("alone", first, words[:1]),
            ):
                was, now, wanted = logits[where], model(changed)[where], targets[where]
                largest[name] = max(largest[name], float((now - was).abs().max()))
                changes[name].append(_nll(now, wanted) - _nll(was, wanted))
    except SolveError:
        return dict.fromkeys(_leak_fields())
    means = {name: _means(torch.cat(changes[name])) for name in LEAKS}
    return {key: value for name in LEAKS for key, value in zip(_keys(name), (largest[name], *means[name]), strict=True)}


def _replaced(windows: Windows, batch_size: int, classes: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Words, other words at every place, and targets of each batch, each (B, N)."""
    draw = np.random.default_rng(SEED)
    for words, targets in windows.batches(batch_size):
        other: NDArray[np.int64] = (words + draw.integers(1, classes, size=words.shape)) % classes
        yield torch.from_numpy(words), torch.from_numpy(other), torch.from_numpy(targets)


def _nll(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood in nats of the scored targets (B, N) under logits (B, N, V); shape (scored,), float64."""
    is_scored = targets != IGNORED
    return functional.cross_entropy(logits[is_scored].double(), targets[is_scored], reduction="none")


def _means(changes: Tensor) -> tuple[float | None, float | None]:
    """Mean absolute change in nats, and the change of the perplexity in percent; null where no word is scored."""
    if not len(changes):
        return None, None
    return float(changes.abs().mean()), 100 * math.expm1(float(changes.mean()))


def _keys(name: str) -> tuple[str, str, str]:
    return name, f"{name}_nll", f"{name}_percent"


def _leak_fields() -> list[str]:
    return [key for name in LEAKS for key in _keys(name)]
