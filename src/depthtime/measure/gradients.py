"""How exact the gradient of each method is, what memory it takes and what time: one trained field, one batch.

What is differentiated is the loss with respect to the state y0 that enters the solve and every parameter of the block,
as one vector; embedding and head are not part of it.

Errors are Euclidean norms over that of the reference: float64 direct differentiation of the same scheme in as many
steps (plain for direct, checkpointed and adjoint; the coupled scheme for reversible), from the same weights and y0.

Memory is the most bytes that tensors saved for the backward pass hold at once, from the start of the solve to its
gradient, the loss between them not counted. A storage counts once, in full, from when autograd saves a part of it until
it is freed, whoever holds it. What checkpointing computes again in the backward pass counts; parameters and y0, which
are there anyway, do not, nor do tensors that nobody saves: gradients, cotangents and the slopes of the present step, a
few times states and parameters whatever the steps (a test holds the count against every tensor alive).
"""

from __future__ import annotations

import copy
import itertools
import math
import statistics
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from depthtime import paths
from depthtime.config import Gradients, Study
from depthtime.data.batching import IGNORED
from depthtime.data.dataset import load_dataset
from depthtime.generate.stored import load_continuous
from depthtime.integrate.counting import Cost
from depthtime.integrate.fixed import Solution, VectorField
from depthtime.integrate.reversible import COUPLING, coupled_steps
from depthtime.integrate.solve import solve
from depthtime.models.continuous import ContinuousDepth
from depthtime.models.language_model import LanguageModel
from depthtime.provenance import describe_hardware
from depthtime.records import write_json

Rows = dict[str, dict[str, dict[str, Any]]]  # by method, then steps_N
WARMED = 8  # steps up to which a turn has an untimed go before
FEW, MANY = 4, 64  # steps that memory_ratio_64_over_4 compares


@dataclass(frozen=True)
class Problem:
    """The solve of a trained model and the loss after it.

    core: field, interval and scheme.  y0: embedded words, (B, N, D).  targets: word ids, (B, N).
    """

    core: ContinuousDepth
    head: nn.Module
    y0: Tensor
    targets: Tensor

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(self.core.block.parameters())

    def double(self) -> Problem:
        """The same numbers in float64."""
        core, head = copy.deepcopy((self.core, self.head))
        return Problem(core.double(), head.double(), self.y0.double(), self.targets)

    def solve(
        self, y0: Tensor, method: str, num_steps: int, field: VectorField | None = None, cost: Cost | None = None
    ) -> Solution:
        """The solve with gradients by `method`; `field` in place of the core's."""
        core = self.core
        return solve(
            field or core.vector_field,
            y0,
            solver=core.tableau.name,
            num_steps=num_steps,
            gradient=method,
            parameters=self.parameters,
            t0=core.t0,
            t1=core.t1,
            cost=cost,
        )

    def loss_gradient(self, y1: Tensor) -> Tensor:
        """Gradient (B, N, D) of the mean cross-entropy, in nats, with respect to y1."""
        y1 = y1.detach().requires_grad_()
        logits = self.head(y1)
        loss = functional.cross_entropy(logits.flatten(0, 1), self.targets.flatten(), ignore_index=IGNORED)
        return torch.autograd.grad(loss, y1)[0]


def measure_gradients(study: Study, on_step: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write results/records/gradients.json for the run and settings of `gradients`.

    By method, then steps_N: `relative_error` of float32, `relative_error_float64` of the method itself,
    `scheme_difference`, `peak_saved_bytes`, `nfe_forward`, `nfe_backward`, and seconds `median_s`, `q1_s`, `q3_s` of
    forward pass, loss and gradient. `memory_ratio_64_over_4` is null without both numbers of steps.
    With 64 steps the float64 reference of the reversible scheme takes about 5 GB.
    Raises: as `load_problem`; SolveError from the solver.
    """
    settings = study.gradients
    problem = load_problem(study)
    done, total = itertools.count(1), len(settings.methods) * len(settings.steps) * (settings.rounds + 2)

    def tick() -> None:
        on_step(next(done), total)

    rows = gradient_errors(problem, settings, tick)
    times = gradient_times(problem, settings, tick)
    windows, positions = problem.targets.shape
    record: dict[str, Any] = {
        "schema": 1,
        "run": settings.run,
        "machine": describe_hardware("cpu"),
        "threads": settings.threads,
        "rounds": settings.rounds,
        "coupling": COUPLING,
        "batch": {"windows": windows, "positions": positions},
        "steps": list(settings.steps),
    }
    for method in settings.methods:
        merged = {key: row | times[method].get(key, {}) for key, row in rows[method].items()}
        record[method] = merged | {"memory_ratio_64_over_4": memory_ratio(merged)}
    write_json(paths.measured("gradients"), record)


def load_problem(study: Study) -> Problem:
    """The trained weights of `gradients.run` on the CPU, with the first training windows as the batch; sets threads.

    Raises: as `load_continuous`.
    """
    settings = study.gradients
    model, config = load_continuous(study, settings.run, "gradients.run")
    torch.set_num_threads(settings.threads)
    train = load_dataset(study, config.group.data).train
    words, targets = train.take(np.arange(settings.batch_size) % len(train))
    return make_problem(model.float(), torch.from_numpy(words), torch.from_numpy(targets))


def make_problem(model: LanguageModel, words: Tensor, targets: Tensor) -> Problem:
    """The solve of a continuous model on word ids (B, N) whose next words are `targets` (B, N)."""
    y0 = model.embed(words)
    return Problem(cast(ContinuousDepth, model.core), model.head, y0.detach(), targets)


def gradient_errors(problem: Problem, settings: Gradients, tick: Callable[[], None] = lambda: None) -> Rows:
    """Errors, memory and counts of every method and number of steps: all of the record that is not a time."""
    double = problem.double()
    rows: Rows = {method: {} for method in settings.methods}
    for n in settings.steps:
        plain = gradient(double, _by(double, "direct", n))
        for method in settings.methods:
            reference = plain if method != "reversible" else gradient(double, _coupled(double, n))
            exact = plain if method == "direct" else gradient(double, _by(double, method, n))
            found, counts = _measured(problem, method, n)
            rows[method][f"steps_{n}"] = {
                "relative_error": relative(found, reference),
                "relative_error_float64": relative(exact, reference),
                "scheme_difference": relative(reference, plain) if method == "reversible" else None,
                **counts,
            }
            tick()
    return rows


def remeasure(study: Study) -> Rows:
    """The part of the record that adoption measures again: errors and counts of the first three numbers of steps."""
    few = study.gradients.model_copy(update={"steps": study.gradients.steps[:3]})
    return gradient_errors(load_problem(study), few)


def gradient_times(problem: Problem, settings: Gradients, tick: Callable[[], None] = lambda: None) -> Rows:
    """Seconds of forward pass, loss and gradient, median and quartiles; methods and steps take turns each round.

    The first round is not kept. Few steps are gone twice and the second time counts: after many steps of another method
    the first would pay for memory that was given back.
    """
    times: dict[tuple[int, str], list[float]] = {key: [] for key in itertools.product(settings.steps, settings.methods)}
    for _ in range(settings.rounds + 1):
        for (n, method), seconds in times.items():
            if n <= WARMED:
                gradient(problem, _by(problem, method, n))
            began = time.perf_counter()
            gradient(problem, _by(problem, method, n))
            seconds.append(time.perf_counter() - began)
            tick()
    rows: Rows = {method: {} for method in settings.methods}
    for (n, method), seconds in times.items():
        first, middle, third = statistics.quantiles(seconds[1:], n=4, method="inclusive")
        rows[method][f"steps_{n}"] = {"median_s": middle, "q1_s": first, "q3_s": third}
    return rows


def gradient(
    problem: Problem, run: Callable[[Tensor], Tensor], watch: AbstractContextManager[None] | None = None
) -> Tensor:
    """Gradient of the loss after y1 = run(y0) with respect to y0 and all parameters, one vector.

    Args: watch: a context that solve and gradient run in, and the loss does not; it is entered twice.
    """
    watch = watch or nullcontext()
    y0 = problem.y0.detach().requires_grad_()
    with watch:
        y1 = run(y0)
    cotangent = problem.loss_gradient(y1)
    with watch:
        parts = torch.autograd.grad(y1, (y0, *problem.parameters), cotangent)
    return torch.cat([part.flatten() for part in parts])


def relative(found: Tensor, reference: Tensor) -> float | None:
    """|found - reference| / |reference|; null where it is not finite."""
    value = float((found.double() - reference).norm() / reference.norm())
    return value if math.isfinite(value) else None


def memory_ratio(rows: dict[str, dict[str, Any]]) -> float | None:
    """Saved bytes with 64 steps over those with 4."""
    few, many = (rows.get(f"steps_{n}") for n in (FEW, MANY))
    return many["peak_saved_bytes"] / few["peak_saved_bytes"] if few and many else None


def _by(problem: Problem, method: str, num_steps: int) -> Callable[[Tensor], Tensor]:
    return lambda y0: problem.solve(y0, method, num_steps).y


def _coupled(problem: Problem, num_steps: int) -> Callable[[Tensor], Tensor]:
    """The coupled scheme of the reversible method, for autograd to differentiate."""
    core = problem.core
    scheme: dict[str, Any] = {"tableau": core.tableau, "num_steps": num_steps, "coupling": COUPLING}
    return lambda y0: coupled_steps(core.vector_field, y0, t0=core.t0, t1=core.t1, **scheme)[0]


def _measured(problem: Problem, method: str, num_steps: int) -> tuple[Tensor, dict[str, int]]:
    """The gradient, and peak of saved bytes with the calls of the field."""
    cost, nfe_forward = Cost(), 0
    saved = SavedBytes((problem.y0, *problem.parameters))
    field = saved.watched(problem.core.vector_field)

    def run(y0: Tensor) -> Tensor:
        nonlocal nfe_forward
        solution = problem.solve(y0, method, num_steps, field, cost)
        nfe_forward = solution.nfe
        return solution.y

    found = gradient(problem, run, saved)
    counts = {"peak_saved_bytes": saved.peak, "nfe_forward": nfe_forward, "nfe_backward": cost.nfe_backward}
    return found, counts


class SavedBytes(saved_tensors_hooks):
    """A context that adds up the bytes of tensors saved for a backward pass: `now`, and `peak`, the most at once.

    Storages of `known` tensors do not count. Checkpointing hides what it saves behind hooks of its own, which are the
    innermost ones while it calls the field; so the field has to be `watched`.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__(self._pack, lambda packed: packed)
        self.now = self.peak = 0
        self._storages = {tensor.untyped_storage().data_ptr() for tensor in known}

    def watched(self, f: VectorField) -> VectorField:
        """The field, with whatever hooks are in force when it is called told to count as well."""

        def field(t: float, y: Tensor) -> Tensor:
            pack, unpack = torch._C._autograd._top_saved_tensors_default_hooks(True)
            if pack == self._pack:
                return f(t, y)

            def count_and_pack(tensor: Tensor) -> Any:
                self._count(tensor)
                return pack(tensor)

            with saved_tensors_hooks(count_and_pack, unpack):
                return f(t, y)

        return field

    def _pack(self, tensor: Tensor) -> Tensor:
        self._count(tensor)
        return tensor.detach()  # the tensor itself would keep its graph, and so itself, alive

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, num_bytes = storage.data_ptr(), storage.nbytes()
        if key in self._storages or not num_bytes:
            return
        self._storages.add(key)
        self.now += num_bytes
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, num_bytes)

    def _forget(self, key: int, num_bytes: int) -> None:
        self._storages.discard(key)
        self.now -= num_bytes
