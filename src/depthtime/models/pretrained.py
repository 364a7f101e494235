"""A discrete transformer that is trained on: GPT, fine-tuned at its own depth, beside the converted DiffEqFormer."""

from __future__ import annotations

from depthtime.config import FormSizes, PretrainedRun
from depthtime.models import transformer
from depthtime.models.adapters import add_adapters
from depthtime.models.transformer_lm import TransformerLM


def build_model(run: PretrainedRun, sizes: FormSizes, *, num_classes: int, max_positions: int) -> TransformerLM:
    """The shape of the model that a row `model: pretrained` asks for; `start` fills in its weights.

    Weight decay acts on everything that is trained: the source fine-tunes without the mask that it trains with.
    """
    model = transformer.build_model(run, sizes, num_classes=num_classes, max_positions=max_positions)
    model.core.decayed = None  # type: ignore[assignment]
    add_adapters(model, run)
    return model


def start(model: TransformerLM, source: TransformerLM) -> None:
    """Take all weights of a trained model of the same shape; under adapters they become their base."""
    stored = source.state_dict()
    own = {name: name.replace(".base.", ".") for name in model.state_dict()}
    model.load_state_dict({name: stored[plain] for name, plain in own.items() if plain in stored}, strict=False)
