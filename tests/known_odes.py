"""Equations with known solutions, and a small trainable field, for solvers."""

import math

import torch
from torch import Tensor


def linear_system() -> tuple[Tensor, Tensor, Tensor]:
    """(A, y0, y(1)) of dy/dt = A y, a damped rotation in float64; y(1) from the matrix exponential."""
    a = torch.tensor([[-0.5, 2.0, 0.0], [-2.0, -0.5, 0.3], [0.1, 0.0, -1.0]], dtype=torch.float64)
    y0 = torch.tensor([1.0, -0.4, 0.7], dtype=torch.float64)
    return a, y0, torch.linalg.matrix_exp(a) @ y0


def forced_growth(t: float, y: Tensor) -> Tensor:
    """dy/dt = y + cos t, whose solution only right node times find with the full order."""
    return y + math.cos(t)


def forced_growth_at_1() -> float:
    """y(1) of `forced_growth` from y(0) = 1."""
    return 1.5 * math.e + 0.5 * (math.sin(1) - math.cos(1))


def small_field(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """(y0, weight, bias), all trainable, of dy/dt = tanh(y W + t b)."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator, dtype=dtype) for shape in ((2, 3), (3, 3), (3,))]
    y0, weight, bias = (tensor.requires_grad_() for tensor in tensors)
    return y0, weight, bias


def bend(t: float, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The slope of `small_field`."""
    return torch.tanh(y @ weight + t * bias)
