"""What every model here shares: a token embedding, a core over depth, and a head; and the one with sinusoids."""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import torch
from torch import Tensor, nn

from depthtime.integrate.fixed import Solution
from depthtime.models.cache import DepthCache


class Core(Protocol):
    """The part of a model between embedding and head: maps a state (B, N, D) over depth and returns its cost."""

    def __call__(self, y: Tensor, cache: DepthCache | None = None) -> Solution: ...

    def parameters(self) -> object: ...

    def flops_per_token(self, positions: int) -> int: ...


class LanguageModel(nn.Module):
    """Interface of next-word models with V classes: logits = head(norm(core(embed(tokens)))).

    `max_positions`: N, the longest window it was built for.
    """

    embedding: nn.Embedding
    core: nn.Module
    norm: nn.Module
    head: nn.Module
    max_positions: int

    def forward(self, tokens: Tensor, cache: DepthCache | None = None) -> Tensor:
        """Word ids (B, N) -> logits (B, N, V)."""
        return self.head(self.solve(tokens, cache).y)

    def solve(self, tokens: Tensor, cache: DepthCache | None = None) -> Solution:
        """Word ids (B, N) -> the state that the head reads, (B, N, D), with its cost.

        With a cache the words follow those it holds, and join them.
        """
        y = self.embed(tokens, 0 if cache is None else cache.length)
        solution: Solution = self.core(y, cache)
        return dataclasses.replace(solution, y=self.norm(solution.y))

    def embed(self, tokens: Tensor, begin: int = 0) -> Tensor:
        """Word ids (B, N) at positions begin ... begin + N - 1 -> the state at the start of depth (B, N, D).

        Raises: ValueError for positions that the model does not have.
        """
        raise NotImplementedError

    def decays(self, name: str) -> bool:
        """Whether weight decay acts on a parameter of this name."""
        return True

    def flops_per_token(self, positions: int) -> int:
        """Forward matrix-product operations a token: core and head."""
        core: Core = self.core  # type: ignore[assignment]
        return core.flops_per_token(positions) + 2 * self.embedding.weight.numel()

    def parameter_counts(self) -> dict[str, int]:
        """Trained parameters by part; a head tied to the embedding has none of its own."""
        parts = {"embedding": self.embedding, "core": self.core, "head": self.head}
        counts = {name: sum(p.numel() for p in part.parameters() if p.requires_grad) for name, part in parts.items()}
        total = sum(p.numel() for p in self.parameters() if p.requires_grad)
        return {**counts, "other": total - sum(counts.values()), "total": total}

    def require_positions(self, end: int) -> None:
        """Raise ValueError for a window of more positions than the model has."""
        if end > self.max_positions:
            raise ValueError(f"window of {end} positions, the model was built for {self.max_positions}")


class SinusoidLM(LanguageModel):
    """Windows of up to N positions, which are sinusoids, or start as such and are trained.

    The head is not tied and nothing is normalised before it. Embedding and head are drawn before the core, so models
    of one seed start from the same ones.
    Source: ContinuumLM, model section; embeddings N(0, embedding_std^2), not scaled by sqrt(D).
    """

    def __init__(
        self, *, num_classes: int, max_positions: int, width: int, embedding_std: float, trained_positions: bool
    ) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.embedding = nn.Embedding(num_classes, width)
        nn.init.normal_(self.embedding.weight, std=embedding_std)
        self.head = nn.Linear(width, num_classes)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        table = sinusoids(max_positions, width)
        if trained_positions:
            self.position_table: Tensor = nn.Parameter(table)
        else:
            self.register_buffer("position_table", table, persistent=False)
        self.core = nn.Identity()  # replaced by the model's module
        self.norm = nn.Identity()

    def embed(self, tokens: Tensor, begin: int = 0) -> Tensor:
        """Word ids (B, N) -> states (B, N, D) with their positions added; as `LanguageModel.embed`."""
        end = begin + tokens.shape[1]
        self.require_positions(end)
        return self.embedding(tokens) + self.position_table[begin:end]


def sinusoids(positions: int, width: int) -> Tensor:
    """Table (N, D): sin(i / 10000^(2j/D)) in even channels, cos of the same in odd ones, i from 0.

    Source: Vaswani et al. (2017), section 3.5, as ContinuumLM uses it.
    """
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * torch.exp(
        torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width)
    )
    table = torch.empty(positions, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table.float()
