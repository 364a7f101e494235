"""The language model around a pre-norm core, in the form of GPT-2 or of Llama."""

from __future__ import annotations

import re
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthtime.config import FormSizes
from depthtime.models.language_model import Core, LanguageModel
from depthtime.models.layer_weights import LayerWeights
from depthtime.models.pre_norm import EPS, INIT_STD

POSITION_STD, LLAMA_EMBEDDING_STD = 0.01, 1.0


class PreNormCore(Core, Protocol):
    """A core of this model. `decayed` matches names of the model's parameters under weight decay; None: all are."""

    @property
    def decayed(self) -> re.Pattern[str] | None: ...

    def layer_weights(self) -> list[LayerWeights]: ...


class TiedHead(nn.Module):
    """y -> y E^T with the token embedding E (V, D), which alone owns the weights."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self._embedding = (embedding,)  # in a tuple: not a module of this one

    def forward(self, y: Tensor) -> Tensor:
        return functional.linear(y, self._embedding[0].weight)


class TransformerLM(LanguageModel):
    """Embedding, core, an ordinary norm, head; no bias in the head.

    gpt: learned positions N(0, 0.01^2) up to `max_positions`, tokens N(0, 0.02^2), head tied to them, LayerNorm.
    llama: tokens N(0, 1), an untied head N(0, 0.02^2), RMS norm, no position table and so no longest window.
    Dropout acts on the embedding in training. Embedding and head are drawn before the core, so models of one seed start
    from the same ones. Source: the released code of DiffEqFormer and its library's defaults.
    """

    def __init__(self, sizes: FormSizes, *, num_classes: int, max_positions: int) -> None:
        super().__init__()
        self.sizes, self.max_positions = sizes, max_positions
        self.embedding = nn.Embedding(num_classes, sizes.width)
        if sizes.form == "gpt":
            nn.init.normal_(self.embedding.weight, std=INIT_STD)
            table = torch.empty(max_positions, sizes.width).normal_(std=POSITION_STD)
            self.position_table: nn.Parameter | None = nn.Parameter(table)
            self.head = TiedHead(self.embedding)
            self.norm = nn.LayerNorm(sizes.width, eps=EPS)
        else:
            nn.init.normal_(self.embedding.weight, std=LLAMA_EMBEDDING_STD)
            self.position_table = None
            self.head = nn.Linear(sizes.width, num_classes, bias=False)
            nn.init.normal_(self.head.weight, std=INIT_STD)
            self.norm = nn.RMSNorm(sizes.width, eps=EPS)
        self.core = nn.Identity()  # replaced by the model's module

    def embed(self, tokens: Tensor, begin: int = 0) -> Tensor:
        """Word ids (B, N) -> states (B, N, D), with positions in the gpt form; as `LanguageModel.embed`."""
        y = self.embedding(tokens)
        if self.position_table is not None:
            end = begin + tokens.shape[1]
            self.require_positions(end)
            y = y + self.position_table[begin:end]
        return functional.dropout(y, self.sizes.dropout, training=self.training)

    def decays(self, name: str) -> bool:
        """Whether weight decay acts on a parameter: what the source's mask for this core says."""
        core: PreNormCore = self.core  # type: ignore[assignment]
        return core.decayed is None or core.decayed.fullmatch(name) is not None
