"""Shared fixtures: seeds, one thread, and the paths of helper modules."""

import sys
from pathlib import Path

import pytest

from depthtime.seeding import prepare_environment

prepare_environment()  # CUDA reads it once, before torch is imported
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


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory):
    """A small study, run to the end with Snakemake and recorded. Do not change it: ask for `study`."""
    import small_study

    workspace = small_study.build(tmp_path_factory.mktemp("small") / "study")
    workspace.snakemake()
    return workspace


@pytest.fixture
def study(finished_study, tmp_path):
    """A copy of the finished study to spoil."""
    import small_study

    return small_study.copy(finished_study, tmp_path / "study")
