"""Eigenvalues of the products of matrices inside one layer: queries with keys, values with outputs, feed-forward.

Matrices act from the right, y @ W, so that of a head
    qk: W_Q W_K^T (D, D), the bilinear form of its scores, without 1/sqrt(D/H) and, in the llama form, without rotation
    ov: W_V W_O (D, D), what it adds for a word that it reads
    ff: W_in W_out (D, D) of the whole layer, or over some of its hidden units; without activation and, in the llama
        form, without the gate
Biases and norms are no part of them. A product of (D, k) and (k, D) has at most k eigenvalues that are not 0, and they
are those of the small product (k, k) the other way round; the D - k zeros are left out here, since they would be most
of all values and say nothing.
Source: Neural ODE Transformers (ICLR 2025), spectral analysis; Horn and Johnson (2013), Matrix Analysis, theorem
1.3.22.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthtime.models.layer_weights import LayerWeights

Array = NDArray[np.float64]
REAL = 1e-9  # an imaginary part this small beside the largest eigenvalue is rounding


def nonzero_eigenvalues(left: Array, right: Array) -> NDArray[np.complex128]:
    """Eigenvalues (..., k) of left @ right, for left (..., D, k) and right (..., k, D), from the smaller product.

    Where k > D they are all D of them.
    """
    small = right @ left if left.shape[-1] <= left.shape[-2] else left @ right
    return np.linalg.eigvals(small).astype(np.complex128)


def layer_eigenvalues(
    weights: LayerWeights, heads: int, units: Mapping[str, NDArray[np.int64]]
) -> dict[str, NDArray[np.complex128]]:
    """By kind, (heads, k): qk and ov with k = D/H; with one head ff, and by name those over hidden `units`.

    Computed in float64 whatever the dtype of the weights.
    """
    query, key, value = (_by_head(_double(part), heads) for part in (weights.query, weights.key, weights.value))
    output = _by_head(_double(weights.attention_out).T, heads).swapaxes(1, 2)  # (H, D/H, D)
    ff_in, ff_out = _double(weights.ff_in), _double(weights.ff_out)
    return {
        "qk": nonzero_eigenvalues(query, key.swapaxes(1, 2)),
        "ov": nonzero_eigenvalues(value, output),
        "ff": nonzero_eigenvalues(ff_in[None], ff_out[None]),
        **{name: nonzero_eigenvalues(ff_in[None][..., own], ff_out[None, own]) for name, own in units.items()},
    }


def describe(values: NDArray[np.complex128]) -> dict[str, Array]:
    """Of eigenvalues (..., k): largest and mean modulus, share with a positive real part, share that is real."""
    size = np.abs(values)
    largest = size.max(axis=-1)
    return {
        "largest": largest,
        "mean": size.mean(axis=-1),
        "positive": (values.real > 0).mean(axis=-1),
        "real": (np.abs(values.imag) <= REAL * largest[..., None]).mean(axis=-1),
    }


def _double(matrix: Any) -> Array:
    return np.asarray(matrix.cpu().double().numpy())


def _by_head(matrix: Array, heads: int) -> Array:
    """(D, D) with the columns of a head side by side -> (H, D, D/H)."""
    return matrix.reshape(len(matrix), heads, -1).transpose(1, 0, 2)
