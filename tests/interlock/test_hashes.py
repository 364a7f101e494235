"""Hashes are DVC's, and the cache never hides a change."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from depthtime.interlock import hashes as module
from depthtime.interlock.hashes import Hashes


@pytest.fixture(autouse=True)
def _in_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text.encode())
    return name


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def test_a_file_is_hashed_byte_for_byte() -> None:
    assert Hashes().of(write("a.txt", "x\r\ny\n")) == md5("x\r\ny\n")
    assert Hashes().of("absent.txt") is None


def test_a_folder_of_two_files_is_worked_out_by_hand() -> None:
    write("d/b/2.txt", "two")
    write("d/a.txt", "one")
    by_hand = f'[{{"md5": "{md5("one")}", "relpath": "a.txt"}}, {{"md5": "{md5("two")}", "relpath": "b/2.txt"}}]'
    assert Hashes().of("d") == md5(by_hand) + ".dir"


def test_files_that_are_not_here_can_count_as_recorded() -> None:
    write("d/a.txt", "one")
    partial = Hashes().folder("d", [("d/b/2.txt", md5("two"))])
    write("d/b/2.txt", "two")
    assert Hashes().of("d") == partial


def test_a_folder_hash_equals_dvcs_with_odd_names_and_ignored_files() -> None:
    Path(".dvcignore").write_text("__pycache__/\n*.pyc\n.snakemake_timestamp\n")
    for name in (
        "é è.txt",
        "B.txt",
        "a.txt",
        "z/ü/deep.txt",
        "a-b.txt",
        "a/b.txt",
        "__pycache__/m.py",
        "n.pyc",
        ".snakemake_timestamp",
    ):
        write(f"d/{name}", name)
    script = (
        "from dvc.repo import Repo\n"
        "repo = Repo.init('.', no_scm=True, force=True)\n"
        "print(repo.add('d')[0].outs[0].hash_info.value)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == Hashes().of("d")


def test_an_old_file_is_read_once_and_a_changed_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_NS", -1)
    write("a.txt", "one")
    first = Hashes()
    assert first.of("a.txt") == md5("one")
    first.save()
    second = Hashes()
    with monkeypatch.context() as patched:
        patched.setattr(module.hashlib, "file_digest", lambda *_: pytest.fail("read again"))
        assert second.of("a.txt") == md5("one")
    before = os.stat("a.txt")
    write("a.txt", "two")
    os.utime("a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: ctime tells
    assert second.of("a.txt") == md5("two")


def test_a_file_just_written_is_not_cached() -> None:
    hashes = Hashes()
    hashes.of(write("a.txt", "one"))
    assert hashes.known == {}


def test_a_damaged_cache_costs_time_only() -> None:
    write(str(module.CACHE), "{broken")
    assert Hashes().of(write("a.txt", "one")) == md5("one")
