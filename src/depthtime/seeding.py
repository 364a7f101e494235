"""Seeds and determinism, set before anything random happens."""

from __future__ import annotations

import os
import random


def prepare_environment() -> None:
    """Settings that CUDA reads once; call before torch is imported."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch, and ask torch for deterministic algorithms."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
