import pytest

import small_study


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A small study, run to the end with Snakemake and recorded. Do not change it: `small_study.copy` it."""
    workspace = small_study.build(tmp_path_factory.mktemp("small") / "study")
    workspace.snakemake()
    return workspace


@pytest.fixture
def study(finished, tmp_path):
    """A copy of the finished study to spoil."""
    return small_study.copy(finished, tmp_path / "study")
