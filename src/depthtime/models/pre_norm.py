"""A pre-norm transformer layer as a function of its weights, in the gpt and in the llama form.

gpt: LayerNorm, GELU (tanh form), biases. llama: RMS norm, SwiGLU, rotary positions, no biases. Weights are arguments,
so a stack that stores them and a model that generates them compute the same layer.
Source: Radford et al. (2019), GPT-2; Touvron et al. (2023), Llama, section 2.2; Neural ODE Transformers (ICLR 2025).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from depthtime.config import FormSizes
from depthtime.models.attention import attend
from depthtime.models.cache import KeyValues
from depthtime.models.layer_weights import Affine, BlockWeights, Scale
from depthtime.models.rotary import rotate

EPS = 1e-5  # of every norm
INIT_STD = 0.02  # of every matrix; Radford et al. (2018), GPT, section 4.1


def sequential_layer(
    sizes: FormSizes, weights: BlockWeights, y: Tensor, past: KeyValues | None, *, step: float, dropout: float
) -> Tensor:
    """State (B, N, D) -> u + step FFN(N2(u)) with u = y + step Attention(N1(y)): the usual pre-norm layer."""
    mixed = attention(sizes, weights, normalise(sizes, weights.norm1, y), past)
    y = y + step * functional.dropout(mixed, dropout, training=dropout > 0)
    update = feed_forward(weights, normalise(sizes, weights.norm2, y))
    return y + step * functional.dropout(update, dropout, training=dropout > 0)


def parallel_update(
    sizes: FormSizes, weights: BlockWeights, y: Tensor, past: KeyValues | None, *, dropout: float
) -> Tensor:
    """State (B, N, D) -> Attention(N1(y)) + FFN(N2(y)), an update (B, N, D) without the residual.

    In the llama form the second norm reads the output of the first, FFN(N2(N1(y))), as in the released code of
    DiffEqFormer, whose results were published with it; Attention(N1(y)) is the same in both.
    """
    x = normalise(sizes, weights.norm1, y)
    mixed = attention(sizes, weights, x, past)
    update = feed_forward(weights, normalise(sizes, weights.norm2, x if sizes.form == "llama" else y))
    if dropout > 0:
        mixed, update = functional.dropout(mixed, dropout), functional.dropout(update, dropout)
    return mixed + update


def attention(sizes: FormSizes, weights: BlockWeights, x: Tensor, past: KeyValues | None) -> Tensor:
    """Causal self-attention of normalised states (B, N, D), logits scaled by sqrt(H / D); `past` grows by N positions.

    Rotary positions go on from those of `past`.
    """
    batch, positions, width = x.shape
    qkv = _affine(x, weights.qkv).view(batch, positions, 3, sizes.heads, width // sizes.heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, N, D/H)
    if sizes.form == "llama":
        begin = 0 if past is None else past.length
        q, k = rotate(q, begin), rotate(k, begin)
    if past is not None:
        k, v = past.extend(k, v)
    return _affine(attend(q, k, v).transpose(1, 2).reshape(batch, positions, width), weights.attention_out)


def feed_forward(weights: BlockWeights, x: Tensor) -> Tensor:
    """(B, N, D) -> (B, N, D): GELU(x W_in) W_out, or (silu(x W_gate) * x W_in) W_out where there is a gate."""
    hidden = _affine(x, weights.ff_in)
    if weights.ff_gate is None:
        hidden = functional.gelu(hidden, approximate="tanh")
    else:
        hidden = functional.silu(_affine(x, weights.ff_gate)) * hidden
    return _affine(hidden, weights.ff_out)


def normalise(sizes: FormSizes, scale: Scale, y: Tensor) -> Tensor:
    """LayerNorm (gpt) or RMS norm (llama) over features, then gain and shift."""
    if sizes.form == "gpt":
        return functional.layer_norm(y, [sizes.width], scale.gain, scale.shift, EPS)
    x = functional.rms_norm(y, [sizes.width], scale.gain, EPS)
    return x if scale.shift is None else x + scale.shift


def flops_per_token(sizes: FormSizes, positions: int) -> int:
    """Operations of the matrix products of one layer a token, a multiply-add counted as two, in a window of N.

    Attention is counted in full, N keys a query, as the dense product computes it.
    """
    matrices = 4 * sizes.width**2 + (3 if sizes.form == "llama" else 2) * sizes.width * sizes.ff_width
    return 2 * matrices + 4 * positions * sizes.width


def _affine(x: Tensor, map_: Affine) -> Tensor:
    return functional.linear(x, map_.weight.t(), map_.bias)
