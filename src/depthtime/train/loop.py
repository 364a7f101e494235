"""The training loop: one recipe, one model, one dataset; stops, resumes and diverges without losing what is done."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from depthtime.config import Train
from depthtime.data.batching import IGNORED, BatchOrder, Windows
from depthtime.errors import TrainingError
from depthtime.evaluate.network import score_network
from depthtime.models.language_model import LanguageModel
from depthtime.train.checkpoint import Progress, load_state, save_state
from depthtime.train.optim import build_optimizer
from depthtime.train.schedule import learning_rate_at

SAVE_EVERY_S = 20.0  # how much work a kill may cost; does not change what is computed


class Observer(Protocol):
    """Someone who watches: a progress bar, a tracker. Nothing it does reaches the numbers."""

    def on_step(self, progress: Progress) -> None: ...

    def on_evaluation(self, progress: Progress) -> None: ...


@dataclass
class Fitted:
    """What training left: the model in its last state, the weights with the lowest validation loss, and the course."""

    model: LanguageModel
    progress: Progress
    best: dict[str, Tensor] = field(default_factory=dict)


def fit(
    model: LanguageModel,
    train: Windows,
    valid: Windows,
    recipe: Train,
    *,
    seed: int,
    state_path: Path | None = None,
    stop_at: int | None = None,
    observers: tuple[Observer, ...] = (),
) -> Fitted:
    """Train `model` by `recipe`; resumes from `state_path` when that file is there.

    Args:     seed: of the batch order.  stop_at: return after this step (state saved) as if cut there.
    Returns:  Fitted; a loss or gradient that is not finite ends the run with progress.diverged_at set.
    Raises:   TrainingError when the training windows do not fill one batch.
    """
    order = BatchOrder(len(train), recipe.batch_size, recipe.batch_order, seed)
    if order.batches_per_epoch == 0:
        raise TrainingError(
            f"train.batch_size = {recipe.batch_size}, but the corpus has only {len(train)} training windows; "
            "lower the batch size or take a longer text"
        )
    device = next(model.parameters()).device
    optimizer = build_optimizer(model, recipe)
    progress = Progress(started_at=datetime.now(UTC).isoformat(timespec="seconds"))
    best: dict[str, Tensor] = {}
    if state_path is not None and state_path.exists():
        progress, best = load_state(state_path, model, optimizer)
    model.train()
    began, saved_at = time.monotonic() - progress.elapsed_s, time.monotonic()

    last = min(recipe.max_steps, stop_at or recipe.max_steps)
    while progress.step < last and progress.diverged_at is None:
        step = progress.step + 1
        rate = learning_rate_at(step, recipe)
        for group in optimizer.param_groups:
            group["lr"] = rate

        # one optimiser step
        inputs, targets = (torch.from_numpy(a).to(device) for a in train.take(order.indices(step - 1)))
        loss_nats, grad_norm = train_step(model, optimizer, inputs, targets, recipe)
        if not (math.isfinite(loss_nats) and math.isfinite(grad_norm)):
            progress.diverged_at = step
        progress.step = step
        progress.history.append([step, _finite(loss_nats), rate, _finite(grad_norm), None])

        # validation
        is_due = step % recipe.eval_every == 0 or step == recipe.max_steps
        if is_due and progress.diverged_at is None:
            result = score_network(model, valid, recipe.eval_batch_size)
            if math.isfinite(result.perplexity):
                progress.history[-1][-1] = result.nll_nats
                progress.curve.append(
                    {
                        "step": step,
                        "nll_nats": result.nll_nats,
                        "perplexity": result.perplexity,
                        "num_scored": result.num_scored,
                    }
                )
                if progress.best_nll is None or result.nll_nats < progress.best_nll:
                    progress.best_step, progress.best_nll = step, result.nll_nats
                    best = {name: t.detach().clone() for name, t in model.state_dict().items()}
            else:
                progress.diverged_at = step

        # what is done stays done
        progress.elapsed_s = time.monotonic() - began
        is_last = step == last or progress.diverged_at is not None
        if state_path is not None and (is_due or is_last or time.monotonic() - saved_at > SAVE_EVERY_S):
            save_state(state_path, model, optimizer, progress, best)
            saved_at = time.monotonic()
        for observer in observers:
            observer.on_step(progress)
            if is_due or is_last:
                observer.on_evaluation(progress)
    return Fitted(model, progress, best)


def train_step(
    model: LanguageModel, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor, recipe: Train
) -> tuple[float, float]:
    """One optimiser step on a batch (B, N); weights stay as they are when loss or gradient is not finite.

    Returns: mean loss in nats per token, and the norm of all gradients before clipping.
    """
    optimizer.zero_grad(set_to_none=True)
    with _autocast(recipe, inputs.device):
        logits = model(inputs)
    loss = functional.cross_entropy(_full(logits).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    loss.backward()
    loss_nats, grad_norm = loss.item(), _clip(model, recipe.clip_norm).item()
    if math.isfinite(loss_nats) and math.isfinite(grad_norm):
        optimizer.step()
    return loss_nats, grad_norm


def _autocast(recipe: Train, device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, dtype=torch.bfloat16) if recipe.precision == "bfloat16" else nullcontext()


def _full(logits: Tensor) -> Tensor:
    """Logits as float32 when autocast left them shorter: the loss is never computed in 16 bits."""
    return logits.float() if logits.dtype in {torch.bfloat16, torch.float16} else logits


def _clip(model: LanguageModel, limit: float | None) -> Tensor:
    """Norm of all gradients before clipping; clips to `limit` when there is one."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if limit is not None:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    return norm


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
