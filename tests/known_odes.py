"""Equations with known solutions, for solvers."""

import torch


def linear_system() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(A, y0, y(1)) of dy/dt = A y, a damped rotation in float64; y(1) from the matrix exponential."""
    a = torch.tensor([[-0.5, 2.0, 0.0], [-2.0, -0.5, 0.3], [0.1, 0.0, -1.0]], dtype=torch.float64)
    y0 = torch.tensor([1.0, -0.4, 0.7], dtype=torch.float64)
    return a, y0, torch.linalg.matrix_exp(a) @ y0
