"""One model in a bench: a seeded model, its optimiser and a batch, and the seconds that a step takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from depthtime.config import RunConfig, Study
from depthtime.data.dataset import load_dataset
from depthtime.train.loop import train_step
from depthtime.train.optim import build_optimizer
from depthtime.train.setup import build_for, pick_device


class Contestant:
    """A model with its optimiser and one batch; `core` and `device`, where given, replace those of its row."""

    def __init__(
        self, config: RunConfig, study: Study, core: nn.Module | None = None, device: str | None = None
    ) -> None:
        dataset = load_dataset(study, config.group.data)
        seed = config.group.seeds[0]
        self.config = config
        self.device = pick_device(device or config.train.device)
        self.model = build_for(config, dataset, seed)
        if core is not None:
            self.model.core = core
        self.model.to(self.device)
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

    def train_step(self) -> None:
        """One optimiser step on the batch."""
        train_step(self.model, self.optimizer, self.inputs, self.targets, self.config.train)

    @torch.no_grad()
    def forward(self) -> None:
        """One forward pass without gradients."""
        self.model(self.inputs)

    def seconds(self, go: Callable[[], None]) -> float:
        """Time of the second of two goes: in a training the step before was of the same model, too."""
        go()
        began = self._now()
        go()
        return self._now() - began

    def _now(self) -> float:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter()
