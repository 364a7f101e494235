"""A trained DiffEqFormer stored as ordinary layers at any depth, to be trained on.

The generators are evaluated at t = k/L', k = 1 ... L', and what they give becomes L' parallel layers with the update
y + (1/L') (Attention(N1(y)) + FFN(N2(y))), whose weights know nothing of each other any more.
Source: Neural ODE Transformers (ICLR 2025), fine-tuning; its released code counts steps as floor(1/dt), which can lose
one by rounding; here L' is a whole number.
"""

from __future__ import annotations

import torch

from depthtime.config import ConvertedRun, FormSizes, TransformerRun
from depthtime.models import transformer
from depthtime.models.adapters import add_adapters, under_adapter
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.layer_weights import Affine, BlockWeights, Scale
from depthtime.models.transformer import TransformerBlock
from depthtime.models.transformer_lm import TransformerLM


def build_model(run: ConvertedRun, sizes: FormSizes, *, num_classes: int, max_positions: int) -> TransformerLM:
    """The shape of the model that a row `model: converted` asks for; `start` fills in its weights.

    Weight decay acts on everything that is trained: the source fine-tunes without the mask that it trains with.
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
    add_adapters(model, run)
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


def _store(block: TransformerBlock, weights: BlockWeights) -> None:
    """Put the weights of one depth time into a layer; under an adapter they become its base."""
    for name, value in weights._asdict().items():
        if value is None:  # no gate in the gpt form
            continue
        own = dict(under_adapter(getattr(block, name)).named_parameters(recurse=False))
        pair: Affine | Scale = value
        own["weight"].copy_(pair[0].t() if isinstance(pair, Affine) else pair[0])
        if pair[1] is not None:
            own["bias"].copy_(pair[1])
