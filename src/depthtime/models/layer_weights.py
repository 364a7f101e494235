"""The weights of one pre-norm layer as plain tensors: what a stack stores, and what is generated at a depth time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Affine(NamedTuple):
    """y @ weight + bias: weight (in, out), bias (out) or None."""

    weight: Tensor
    bias: Tensor | None


class Scale(NamedTuple):
    """gain * normalised y + shift: gain (D), shift (D) or None."""

    gain: Tensor
    shift: Tensor | None


class BlockWeights(NamedTuple):
    """All weights of one layer. `qkv` (D, 3D) lies query, key, value side by side, each with its H heads side by side.

    `ff_gate` is that of SwiGLU, None in the gpt form.
    """

    norm1: Scale
    qkv: Affine
    attention_out: Affine
    norm2: Scale
    ff_in: Affine
    ff_gate: Affine | None
    ff_out: Affine


@dataclass(frozen=True)
class LayerWeights:
    """The matrices of the layer at depth time t, each as in y @ W; biases and norms are no part of it.

    query, key, value (D, D), the columns of a head side by side; attention_out (D, D); ff_in (D, F); ff_out (F, D);
    ff_gate (D, F), or None where the feed-forward part has no gate. Detached from autograd.
    """

    t: float
    query: Tensor
    key: Tensor
    value: Tensor
    attention_out: Tensor
    ff_in: Tensor
    ff_out: Tensor
    ff_gate: Tensor | None


def matrices_at(t: float, weights: BlockWeights) -> LayerWeights:
    """The matrices of a layer, called by its depth time."""
    query, key, value = weights.qkv.weight.detach().chunk(3, dim=1)
    return LayerWeights(
        t,
        query,
        key,
        value,
        attention_out=weights.attention_out.weight.detach(),
        ff_in=weights.ff_in.weight.detach(),
        ff_out=weights.ff_out.weight.detach(),
        ff_gate=None if weights.ff_gate is None else weights.ff_gate.weight.detach(),
    )
