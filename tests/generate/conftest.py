import pytest

import fresh_clone


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """The study of a fresh clone with its weights, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return fresh_clone.build(tmp_path)
