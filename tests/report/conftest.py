"""A made-up study with all its records and analyses in a temporary workspace."""

import pytest

import made_up_study as made_up


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = made_up.load_study(tmp_path)
    made_up.write_study(study)
    return study
