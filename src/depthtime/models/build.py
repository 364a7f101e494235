"""From a row of params.yaml to a model. The kind is found by its module name, so a new model changes no file here."""

from __future__ import annotations

import importlib

from depthtime.config import FormSizes, ModelSizes, Part
from depthtime.models.language_model import LanguageModel, SinusoidLM


def build_model(run: Part, sizes: ModelSizes | FormSizes, *, num_classes: int, max_positions: int) -> LanguageModel:
    """A freshly initialised model; draws from torch's global generator, so seed it first.

    Args: run: a row with `model`, the name of a module here; num_classes: V; max_positions: longest window N.
    """
    module = importlib.import_module(f"depthtime.models.{run.model}")  # type: ignore[attr-defined]
    if isinstance(sizes, FormSizes):
        return module.build_model(run, sizes, num_classes=num_classes, max_positions=max_positions)
    model = SinusoidLM(
        num_classes=num_classes,
        max_positions=max_positions,
        width=sizes.width,
        embedding_std=sizes.embedding_std,
        trained_positions=sizes.positions == "trained",
    )
    model.core = module.build_core(run, sizes)
    return model
