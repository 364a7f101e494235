"""Rotary position embedding: queries and keys turned by angles that grow with their position."""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10000.0  # angle of pair j at position i is i / BASE^(2j / d)


def rotate(x: Tensor, begin: int) -> Tensor:
    """Queries or keys (B, H, N, d) of positions begin ... begin + N - 1, turned; d is even, dtype and shape are kept.

    Channel j makes a pair with channel j + d/2. A product of a query and a key then depends on the difference of their
    positions only. Source: Su et al. (2021), RoFormer, section 3.2; pairs as in Llama's released code.
    """
    half, dtype = x.shape[-1] // 2, torch.promote_types(x.dtype, torch.float32)
    positions = torch.arange(begin, begin + x.shape[-2], dtype=dtype, device=x.device)
    angles = positions[:, None] * BASE ** (-torch.arange(half, dtype=dtype, device=x.device) / half)  # (N, d/2)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)
