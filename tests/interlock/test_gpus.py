"""GPU slots: as many as are visible, one each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from depthtime.interlock import gpus
from depthtime.interlock.gpus import one_gpu, visible_gpus


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpus, "DRIVER", tmp_path / "driver")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("given", "names"), [("", []), ("-1", []), ("2", ["2"]), ("0, 3", ["0", "3"]), ("GPU-ab", ["GPU-ab"])]
)
def test_the_environment_decides_where_set(given: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == names


def test_else_the_driver_is_counted(tmp_path: Path) -> None:
    assert visible_gpus() == []
    with one_gpu() as name:
        assert name is None
    for bus in ("0000:01", "0000:02"):
        (tmp_path / "driver" / bus).mkdir(parents=True)
    assert visible_gpus() == ["0", "1"]


def test_two_stages_take_two_gpus_and_give_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with one_gpu() as first:
        assert (first, os.environ["CUDA_VISIBLE_DEVICES"]) == ("4", "4")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")  # as another process sees it
        with one_gpu() as second:
            assert second == "5"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with one_gpu() as again:
        assert again == "4"
