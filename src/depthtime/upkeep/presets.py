"""What the published configurations would take: parameters, memory and operations, from models without storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from depthtime.config import (
    DiffEqFormerRun,
    FormSizes,
    Part,
    Positive,
    Train,
    TransformerRun,
    as_tuples,
    explain,
    misfits,
    read_yaml,
    suggest,
)
from depthtime.errors import ConfigError
from depthtime.models.build import build_model
from depthtime.models.diffeqformer import DiffEqFormer
from depthtime.models.language_model import LanguageModel

PRESETS = Path("presets/diffeqformer.yaml")
STATE_BYTES = 16  # a parameter: itself, its gradient and two Adam moments in float32
BYTES = {"bfloat16": 2, "float32": 4, "float64": 8}
NOTES = (
    "memory: parameters, gradients and Adam moments in float32, 16 bytes a parameter",
    "activations of a batch: B N (L (8 D + 2 F) b + 8 V) bytes with b bytes a number, 10 D + 4 F in the llama form;",
    "logits and their gradient are float32. Generated weights add L (4 D^2 + 2 D F) b, with 3 D F in the llama form.",
    "Nothing is recomputed; the released code keeps one state a step and computes the step again in the backward pass",
    "training: 3 forward passes a step, with what generating the weights takes",
)


class Preset(Part):
    """A published configuration; `model`, `train` and `runs` are those of a group."""

    vocabulary_size: Positive
    window: Positive
    model: FormSizes
    train: Train
    runs: dict[str, Annotated[TransformerRun | DiffEqFormerRun, Field(discriminator="model")]]

    @model_validator(mode="after")
    def _models_fit_sizes(self) -> Preset:
        if problems := list(misfits(self.model, self.runs)):
            raise ValueError("; ".join(problems))
        return self

    def build(self, run: str) -> LanguageModel:
        """The model of a row, freshly drawn on torch's default device."""
        return build_model(self.runs[run], self.model, num_classes=self.vocabulary_size, max_positions=self.window)


PRESET_FILE = TypeAdapter(dict[str, Preset])


@dataclass(frozen=True)
class Needs:
    """What one model takes to train: counts, bytes, and operations (a multiply-add is two)."""

    parameters: int
    state_bytes: int
    activation_bytes: int
    flops_per_token: int
    training_flops: int


def load_presets(path: Path = PRESETS) -> dict[str, Preset]:
    """Every preset by name. Raises: ConfigError with all mistakes of the file."""
    raw = read_yaml(path)
    try:
        return PRESET_FILE.validate_python(as_tuples(raw))
    except ValidationError as error:
        raise ConfigError([f"{path}: {explain(item, raw)}" for item in error.errors(include_url=False)]) from None


def needs(preset: Preset, run: str) -> Needs:
    """What a row of a preset takes, by the formulas of NOTES."""
    row, sizes, recipe = preset.runs[run], preset.model, preset.train
    with torch.device("meta"):
        model = preset.build(run)
    parameters, forward = model.parameter_counts()["total"], model.flops_per_token(preset.window)
    layers = row.layers if isinstance(row, TransformerRun) else row.num_steps
    is_gpt = sizes.form == "gpt"
    of_layer = 8 * sizes.width + 2 * sizes.ff_width if is_gpt else 10 * sizes.width + 4 * sizes.ff_width
    tokens, number = recipe.batch_size * preset.window, BYTES[recipe.precision]
    activations = tokens * (layers * of_layer * number + 8 * preset.vocabulary_size)
    generating = 0
    if isinstance(model.core, DiffEqFormer):
        generating = model.core.generator_flops()
        activations += layers * model.core.num_matrix_entries() * number
    training = 3 * recipe.max_steps * (tokens * forward + generating)
    return Needs(parameters, STATE_BYTES * parameters, activations, forward, training)


def preset_lines(name: str | None, path: Path = PRESETS) -> Iterator[str]:
    """A table of all presets, or of one, with its formulas. Raises: ConfigError for a name that is not there."""
    presets = load_presets(path)
    if name is not None and name not in presets:
        raise ConfigError(
            [f"{path}: no preset is called {name!r}{suggest(name, presets)} (there are: {', '.join(presets)})"]
        )
    yield (
        f"{'preset':20}{'model':14}{'parameters':>12}{'memory':>12}{'activations':>14}{'forward a token':>18}"
        f"{'training':>14}"
    )
    for key in [name] if name else presets:
        for run in presets[key].runs:
            found = needs(presets[key], run)
            yield (
                f"{key:20}{run:14}{found.parameters / 1e6:>10.1f} M{found.state_bytes / 2**30:>8.1f} GiB"
                f"{found.activation_bytes / 2**30:>10.0f} GiB{found.flops_per_token / 1e9:>12.2f} GFLOP"
                f"{found.training_flops / 1e18:>8.1f} EFLOP"
            )
    yield from NOTES
