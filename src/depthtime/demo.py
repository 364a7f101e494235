"""The demo: the study's own graph, made small, in a workspace of its own, on text that the installed packages ship."""

from __future__ import annotations

import filecmp
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from depthtime import paths
from depthtime.errors import DepthtimeError
from depthtime.progress import console

COPIED = (
    "dvc.yaml",
    "Snakefile",
    "published.yaml",
    "claims.yaml",
    ".dvcignore",
    "src",
    "workflow",
    "profiles",
    "sentences",
)
TABLE = paths.RESULTS / "tables" / "perplexity_by_step.md"


def demo(repository: Path, folder: Path, cores: str) -> None:
    """Set the workspace up (or bring it up to date), run the graph with Snakemake, and say what there is to see.

    Raises: DepthtimeError when the run fails; what finished stays recorded and the next call goes on from there.
    """
    console.print(f"demo workspace: {_shown(folder)} (published results are not touched)", markup=False)
    set_up(repository, folder)
    snakemake = [sys.executable, "-m", "snakemake", "--cores", cores, "--quiet", "rules", "host"]
    done = subprocess.run(snakemake, cwd=folder, env=_environment())
    if done.returncode:
        raise DepthtimeError(
            f"the demo stopped (snakemake exit {done.returncode}); logs: {_shown(folder / paths.LOGS)}; "
            "run `make demo` again to go on from what is finished"
        )
    print((folder / TABLE).read_text(encoding="utf-8"))
    for what, where in (("tables", "results/tables"), ("figures", "results/figures"), ("logs", "logs")):
        print(f"{what + ':':9} {_shown(folder / where)}")
    command = shlex.quote(str(Path(sys.executable).parent / "depthtime"))
    print(
        f"runs:     cd {shlex.quote(_shown(folder))} && {command} runs ui    (MLflow, then open http://127.0.0.1:5000)"
    )


def set_up(repository: Path, folder: Path) -> None:
    """Bring a workspace up to date with the repository; files that did not change are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (repository / name).exists():
            _mirror(repository / name, folder / name)
    _mirror(repository / "demo" / "params.yaml", folder / "params.yaml")
    if not (folder / ".dvc").exists():
        _dvc(folder, "init", "--no-scm", "--quiet")
        _dvc(folder, "config", "core.analytics", "false")
        _dvc(folder, "remote", "add", "--default", "store", "store")


def _dvc(folder: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *words], cwd=folder, env=_environment(), capture_output=True, text=True
    )
    if done.returncode:
        raise DepthtimeError(f"{folder}: `dvc {' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}")


def _environment() -> dict[str, str]:
    """This environment with the commands of this Python first, so that stages find `depthtime`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"}


def _mirror(source: Path, target: Path) -> None:
    """Copy a file or folder so that the target equals it, leaving equal files (and their times) alone."""
    if source.is_file():
        if not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        return
    wanted = {path.relative_to(source) for path in _sources(source)}
    for path in _sources(target):
        if path.relative_to(target) not in wanted:
            path.unlink()
    for name in wanted:
        _mirror(source / name, target / name)


def _sources(folder: Path) -> Iterator[Path]:
    return (
        p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts and ".egg-info" not in str(p)
    )


def _shown(path: Path) -> str:
    """A path as seen from here, when that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
