"""State of an unfinished run in one file, written whole or not at all, and weights as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from depthtime.errors import RecordError
from depthtime.records import write_bytes


@dataclass
class Progress:
    """Where a run stands. Rows of `history` are (step, loss, learning rate, gradient norm, validation nll or None)."""

    step: int = 0
    history: list[list[float | None]] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    best_step: int = 0
    best_nll: float | None = None
    diverged_at: int | None = None
    elapsed_s: float = 0.0
    started_at: str = ""


def save_state(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, best: Mapping[str, Tensor]
) -> None:
    """Weights, optimiser moments, random state, progress and the best weights so far, as one safetensors file."""
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
    tensors |= {f"best.{name}": t for name, t in best.items()}
    tensors["random.torch"] = torch.get_rng_state()
    meta = {"progress": json.dumps(asdict(progress))}
    write_bytes(path, save_tensors({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, meta))


def load_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Progress, dict[str, Tensor]]:
    """Put a saved state back; returns progress and best weights.

    Raises: RecordError when the file is damaged or belongs to another model.
    """
    data = _read(path)
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        progress = Progress(**json.loads(header["__metadata__"]["progress"]))
        tensors = load_tensors(data)
        model.load_state_dict(_part(tensors, "model."))
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _part(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            slots.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(tensors["random.torch"])
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise RecordError(
            f"{path}: not a state this run can resume from ({error}); delete it to start again"
        ) from error
    return progress, _part(tensors, "best.")


def dump_weights(model: nn.Module) -> bytes:
    """Weights of a model as the bytes of a safetensors file: the same weights give the same bytes."""
    return save_tensors({name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()})


def load_weights(path: Path, model: nn.Module) -> None:
    """Read weights into a model of the same shape.

    Raises: RecordError when the file is missing, is no safetensors file (a pickle is refused), or does not fit.
    """
    try:
        model.load_state_dict(load_tensors(_read(path)))
    except SafetensorError as error:
        raise RecordError(f"{path}: not a safetensors file ({error}); pickles are not read here") from error
    except RuntimeError as error:
        raise RecordError(f"{path}: weights of another model: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file; `dvc pull {path}` fetches published weights") from None


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}
