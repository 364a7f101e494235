"""Tolerances by dtype, from the square root of machine epsilon where an algorithm may lose half the digits."""

import torch

ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}
HALF_DIGITS = {torch.float32: 3.5e-4, torch.float64: 1.5e-8}
