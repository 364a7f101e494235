"""A trained DiffEqFormer stored as ordinary layers at any depth, and then trained on: all of it, or low-rank adapters.

The generators are evaluated at t = k/L', k = 1 ... L', and what they give becomes L' parallel layers with the update
y + (1/L') (Attention(N1(y)) + FFN(N2(y))), whose weights know nothing of each other any more.
Source: Neural ODE Transformers (ICLR 2025), fine-tuning; its released code counts steps as floor(1/dt), which can lose
one by rounding; here L' is a whole number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from depthtime.config import ConvertedRun, FormSizes, TransformerRun
from depthtime.models import transformer
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.layer_weights import Affine, BlockWeights, Scale
from depthtime.models.transformer import TransformerBlock
from depthtime.models.transformer_lm import TransformerLM

ADAPTED = ("qkv", "attention_out", "ff_in", "ff_out")  # every matrix of a layer, queries, keys and values as one
FAITHFUL_STD = 1e-6  # of both factors, in the released code


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus a trained product of low rank: its weight is W + (alpha / r) B A, its bias the same.

    A (r, in) and B (out, r). `faithful`: both N(0, 1e-12), so that the first gradients of both are all but 0; Adam,
    which divides by their size, moves all the same, and plain gradient descent would not. `standard`: A uniform as
    torch's own layers, B = 0.
    Source: Hu et al. (2022), LoRA, section 4.1; `faithful` is the modification in the released code of DiffEqFormer.
    """

    def __init__(self, base: nn.Linear, run: ConvertedRun) -> None:
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


def build_model(run: ConvertedRun, sizes: FormSizes, *, num_classes: int, max_positions: int) -> TransformerLM:
    """The shape of the model that a row `model: converted` asks for; `start` fills in its weights.

    With adapters, these and the embeddings of tokens and positions are trained, norms and all else are not. Weight
    decay acts on everything that is trained: the source fine-tunes without the mask that it trains with.
    """
    layers = TransformerRun(
        model="transformer",
        layers=run.num_steps,
        wiring="parallel",
        step_scale="inverse_depth",
        shares_weights=False,
        keep_weights=(),
    )
    model = transformer.build_model(layers, sizes, num_classes=num_classes, max_positions=max_positions)
    model.core.decayed = None  # type: ignore[assignment]
    if run.adapt == "lora":
        _adapt(model, run)
    return model


def start(model: TransformerLM, source: TransformerLM) -> None:
    """Copy embeddings and last norm of a trained DiffEqFormer; layer k takes its weights at depth time k/L'."""
    core: DiffEqFormer = source.core  # type: ignore[assignment]
    blocks: list[TransformerBlock] = list(model.core.blocks)  # type: ignore[arg-type]
    around = {name: t for name, t in source.state_dict().items() if not name.startswith("core.")}
    model.load_state_dict(around, strict=False)
    with torch.no_grad():
        weights = core.generate([k / len(blocks) for k in range(1, len(blocks) + 1)])
        for block, of_step in zip(blocks, weights, strict=True):
            _store(block, of_step)


def _adapt(model: TransformerLM, run: ConvertedRun) -> None:
    """Freeze a model but for its embeddings, and put an adapter on every matrix of every layer."""
    model.requires_grad_(False)
    model.embedding.requires_grad_(True)
    if model.position_table is not None:
        model.position_table.requires_grad_(True)
    for block in model.core.blocks:  # type: ignore[union-attr]
        for name in ADAPTED:
            setattr(block, name, AdaptedLinear(getattr(block, name), run))


def _store(block: TransformerBlock, weights: BlockWeights) -> None:
    """Put the weights of one depth time into a layer; under an adapter they become its base."""
    for name, value in weights._asdict().items():
        if value is None:  # no gate in the gpt form
            continue
        module = getattr(block, name)
        module = module.base if isinstance(module, AdaptedLinear) else module
        pair: Affine | Scale = value
        module.weight.copy_(pair[0].t() if isinstance(pair, Affine) else pair[0])
        module.bias.copy_(pair[1])
