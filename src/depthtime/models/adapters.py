"""Low-rank adapters: fine-tuning that leaves the matrices of a transformer as they are and learns small changes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from depthtime.config import FineTunedRun
from depthtime.models.transformer_lm import TransformerLM

ADAPTED = ("qkv", "attention_out", "ff_in", "ff_out")  # every matrix of a gpt layer; queries, keys and values as one
FAITHFUL_STD = 1e-6  # of both factors, in the released code


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus a trained product of low rank: its weight is W + (alpha / r) B A, its bias the same.

    A (r, in) and B (out, r). `faithful`: both N(0, 1e-12), so that the first gradients of both are all but 0; Adam,
    which divides by their size, moves all the same, and plain gradient descent would not. `standard`: A uniform as
    torch's own layers, B = 0.
    Source: Hu et al. (2022), LoRA, section 4.1; `faithful` is the modification in the released code of DiffEqFormer.
    """

    def __init__(self, base: nn.Linear, run: FineTunedRun) -> None:
        super().__init__()
        if run.rank is None or run.alpha is None:
            raise ValueError(f"adapt = {run.adapt} has no adapters; they need rank and alpha")
        self.base, self.scale = base.requires_grad_(False), run.alpha / run.rank
        self.down = nn.Parameter(torch.empty(run.rank, base.in_features))  # A
        self.up = nn.Parameter(torch.empty(base.out_features, run.rank))  # B
        if run.lora_init == "faithful":
            nn.init.normal_(self.down, std=FAITHFUL_STD)
            nn.init.normal_(self.up, std=FAITHFUL_STD)
        else:
            nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
            nn.init.zeros_(self.up)

    @property
    def weight(self) -> Tensor:
        return torch.addmm(self.base.weight, self.up, self.down, alpha=self.scale)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias


def add_adapters(model: TransformerLM, run: FineTunedRun) -> None:
    """With `adapt: lora`, freeze a stack but for its embeddings of tokens and positions, and adapt every matrix.

    Norms are frozen too, as in the released code. With `adapt: full` nothing happens: everything is trained.
    """
    if run.adapt == "full":
        return
    model.requires_grad_(False)
    model.embedding.requires_grad_(True)
    if model.position_table is not None:
        model.position_table.requires_grad_(True)
    for block in model.core.blocks:  # type: ignore[union-attr]
        for name in ADAPTED:
            setattr(block, name, AdaptedLinear(getattr(block, name), run))


def under_adapter(module: nn.Module) -> nn.Module:
    """The layer with the weights that an adapter leaves alone; a layer without adapter is itself."""
    return module.base if isinstance(module, AdaptedLinear) else module
