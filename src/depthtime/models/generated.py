"""Weights that are functions of depth time: W(t) = P z(t) + C, with z a small network of sinusoids of t.

Weights at several times are computed together, one matrix product for each generator.
Source: Neural ODE Transformers (ICLR 2025); initialisation as in the released code and its library's defaults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthtime.models.layer_weights import Affine, Scale
from depthtime.models.pre_norm import INIT_STD

MAX_PERIOD = 10000.0
BIAS_STD = 1e-4  # of the projection Q to a bias


def time_features(times: Sequence[float], sinusoids: int, time_scale: float) -> Tensor:
    """Depth times (T) -> phi (T, 2s + 1), float64: t, then sin(a_i), then cos(a_i), for i = 0 ... s - 1.

    a_i = time_scale * t * MAX_PERIOD^(-i/s), without a factor 2 pi. The source makes t in bfloat16 where it computes in
    it, which rounds 1000 t to multiples of up to 4; here t is exact.
    """
    t = torch.tensor(times, dtype=torch.float64)[:, None]
    frequencies = torch.exp(torch.arange(sinusoids, dtype=torch.float64) * (-math.log(MAX_PERIOD) / sinusoids))
    angles = time_scale * t * frequencies  # (T, s)
    return torch.cat([t, angles.sin(), angles.cos()], dim=1)


class DepthFeatures(nn.Module):
    """z(t) = B2 silu(B1 phi(t) + b1) + b2: phi (T, 2s + 1) -> (T, e); B1, B2 start N(0, 0.02^2), biases 0."""

    def __init__(self, sinusoids: int, features: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * sinusoids + 1, features)
        self.outer = nn.Linear(features, features)
        for layer in (self.inner, self.outer):
            nn.init.normal_(layer.weight, std=INIT_STD)
            nn.init.zeros_(layer.bias)

    def forward(self, phi: Tensor) -> Tensor:
        return self.outer(functional.silu(self.inner(phi)))


class GeneratedLinear(nn.Module):
    """Weight W(t) = P z(t) + C (in, out) and, with `has_bias`, bias b(t) = Q z(t) (out), from a z of its own.

    P starts N(0, 0.02^2), Q N(0, 1e-8), C at 0. So at the start W(t) is far smaller than an ordinary matrix: about
    0.0009 for s = 128, e = 20, and less for smaller s and e, where z is smaller.
    """

    def __init__(self, in_width: int, out_width: int, *, sinusoids: int, features: int, has_bias: bool) -> None:
        super().__init__()
        self.depth = DepthFeatures(sinusoids, features)
        self.projection = nn.Parameter(torch.empty(features, in_width, out_width).normal_(std=INIT_STD))  # P
        self.constant = nn.Parameter(torch.zeros(in_width, out_width))  # C
        bias = torch.empty(features, out_width).normal_(std=BIAS_STD) if has_bias else None
        self.bias_projection = None if bias is None else nn.Parameter(bias)  # Q

    def forward(self, phi: Tensor) -> list[Affine]:
        """phi (T, 2s + 1) -> weight and bias at each of the T times."""
        z = self.depth(phi)  # (T, e)
        flat = torch.addmm(self.constant.view(1, -1), z, self.projection.flatten(1))  # (T, in * out)
        weights = flat.unflatten(1, self.constant.shape).unbind()
        biases = [None] * len(z) if self.bias_projection is None else (z @ self.bias_projection).unbind()
        return [Affine(weight, bias) for weight, bias in zip(weights, biases, strict=True)]


class GeneratedNorm(nn.Module):
    """Gain 1 + F_w z(t) and shift F_b z(t) (D) of a norm, from a z of its own; F_w and F_b start at 0.

    The llama form has the shift, too: the released code leaves it on.
    """

    def __init__(self, width: int, *, sinusoids: int, features: int) -> None:
        super().__init__()
        self.depth = DepthFeatures(sinusoids, features)
        self.gain_projection = nn.Parameter(torch.zeros(features, width))  # F_w
        self.shift_projection = nn.Parameter(torch.zeros(features, width))  # F_b

    def forward(self, phi: Tensor) -> list[Scale]:
        """phi (T, 2s + 1) -> gain and shift at each of the T times."""
        z = self.depth(phi)
        of_gain, of_shift = z @ self.gain_projection, z @ self.shift_projection
        gains, shifts = 1 + of_gain.to(phi.dtype), of_shift.to(phi.dtype)  # norms stay exact under autocast
        return [Scale(gain, shift) for gain, shift in zip(gains.unbind(), shifts.unbind(), strict=True)]


class ConstantLinear(nn.Module):
    """W = C at every t, the limit e = 0, with an ordinary bias.

    C starts N(0, 0.02^2), as a matrix of a stack does: from C = 0 without P no matrix would get a gradient, since each
    branch is a product of two that are 0. The bias starts at 0.
    """

    def __init__(self, in_width: int, out_width: int, *, has_bias: bool) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.empty(in_width, out_width).normal_(std=INIT_STD))
        self.bias = nn.Parameter(torch.zeros(out_width)) if has_bias else None

    def forward(self, phi: Tensor) -> list[Affine]:
        """phi (T, 2s + 1), whose values are not read -> the same weight and bias T times."""
        return [Affine(self.constant, self.bias)] * len(phi)


class ConstantNorm(nn.Module):
    """Gain and, with `has_shift`, shift (D) at every t, the limit e = 0: an ordinary norm's."""

    def __init__(self, width: int, *, has_shift: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width)) if has_shift else None

    def forward(self, phi: Tensor) -> list[Scale]:
        """phi (T, 2s + 1), whose values are not read -> the same gain and shift T times."""
        return [Scale(self.gain, self.shift)] * len(phi)
