"""A made-up study with all its records and analyses in a temporary workspace."""

import os
import shutil

import pytest

import made_up_study as made_up


@pytest.fixture(scope="session")
def written_study(tmp_path_factory):
    """The study in a folder that no test may change, written once."""
    folder = tmp_path_factory.mktemp("made_up")
    study = made_up.load_study(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        made_up.write_study(study)
    finally:
        os.chdir(before)
    return study, folder


@pytest.fixture
def study(written_study, tmp_path, monkeypatch):
    """A copy of it, in the current folder."""
    study, folder = written_study
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return study
