"""Shared fixtures: seeds, one thread, and the paths of helper modules."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed(request):
    """Tests run on one thread, seeded, without asking other modules to import torch."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def root():
    """The folder of the repository under test."""
    return ROOT
