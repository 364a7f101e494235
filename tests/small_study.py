"""A study of seconds on the real command line: the repository's own code and rules, a made-up text, tiny models.

`build(folder)` copies code and workflow into a workspace of its own, so that tests may edit them; commands run there
import the copy.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("fetch", "prepare", "ngram", "train_core", "bench", "analyse_core")

MEASUREMENTS = """\
gradients: {run: core/ode/1, methods: [direct, adjoint], steps: [1, 2], batch_size: 2, rounds: 3, threads: 1}
solver_swap:
  run: core/ode/1
  fixed: {rk4: [1, 2]}
  adaptive: [dopri5]
  tolerances: [1e-3]
  windows: 8
  batch_size: 4
  leak_batches: 1
  max_nfe: 500
  threads: 1
decoding: {runs: [core/ode/1], splits: 2, batch_size: 2, prefixes: [8], rounds: 3, threads: 1}
clustering:
  dimensions: [3]
  tokens: 6
  seeds: 3
  step_size: 0.1
  num_steps: 4
  record_every: 2
  threshold: 0.1
  tight_threshold: 0.03
  wide_threshold: 0.3
  few: 3
  resamples: 20
trained_clustering: {run: core/ode, tokens: 4, draws: 2, threshold: 0.1, threads: 1}
spectra: {runs: [forms/diffeq, forms/gpt], ff_units: [4], resamples: 50, threads: 1}
sensitivity: {runs: [core/ode], sentences: sentences.yaml, directions: 4, resamples: 20, threads: 1}
downstream:
  group: core
  runs: [discrete, ode]
  seeds: [1]
  pairs: pairs.yaml
  min_words: 4
  not_asked: []
  batch_size: 8
  resamples: 20
  threads: 1
"""
FORMS = """\
  forms:  # no stage trains it: tests that need its weights do
    data: tale
    seeds: [1, 2]
    model: {form: gpt, width: 8, heads: 2, ff_width: 16, dropout: 0.1}
    train: {<<: *recipe, max_steps: 6, warmup_steps: 1, eval_every: 6}
    runs:
      diffeq:
        model: diffeqformer
        num_steps: 3
        solver: euler_right
        sinusoids: 4
        depth_features: 3
        time_scale: 1000.0
        decays_generators: false
        keep_weights: [1, 2]
      gpt:
        model: transformer
        layers: 3
        wiring: sequential
        step_scale: one
        shares_weights: false
        keep_weights: [1, 2]
"""
PARAMS = (
    """\
corpora:
  tale: {source: "file:text.txt", sha256: null}
datasets:
  tale:
    corpus: tale
    protocol: continuumlm
    vocabulary: frequency
    vocabulary_size: 30
    window: 8
    split: hash
    train_fraction: 0.8
    split_seed: 0
    keep_multiple: 4
ngram: {heldout_fraction: 0.1, alphas: [0.1, 1.0], orders: [2]}
groups:
  core:
    data: tale
    seeds: [1, 2]
    model: {width: 16, heads: 2, ff_width: 16, positions: fixed, embedding_std: 1.0}
    train: &recipe
      max_steps: 24
      batch_size: 4
      batch_order: seeded
      optimizer: adamw
      learning_rate: 1e-2
      betas: [0.9, 0.999]
      eps: 1e-8
      weight_decay: 0.1
      schedule: cosine
      warmup_steps: 6
      final_fraction: 0.1
      clip_norm: 0.2
      eval_every: 12
      eval_batch_size: 8
      precision: float32
      device: cpu
      threads: 1
    runs:
      discrete: {model: discrete, layers: 2, keep_weights: [1]}
      ode: {model: continuous, solver: rk4, num_steps: 1, gradient: direct, t0: 0.0, t1: 1.0, keep_weights: [1]}
"""
    + FORMS
    + """\
bench: {runs: [core/ode], threads: [1], frontier: [], speed: core/ode, peak_size: 64, warmup_steps: 1, rounds: 3}
"""
    + MEASUREMENTS
)


def made_up_text(lines: int = 400, seed: int = 3) -> str:
    """Sentences over 40 made-up words, where the next word depends on the last."""
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(40)]
    text, at = [], 0
    for _ in range(lines):
        line = []
        for _ in range(draw.randint(4, 12)):
            at = (at * 7 + 3) % 40 if draw.random() < 0.7 else draw.randrange(40)
            line.append(words[at])
        text.append(" ".join(line))
    return "\n".join(text) + "\n"


class Workspace:
    """A folder with the study; runs commands in it on its own copy of the code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this Python's environment; `check` fails the test with what it said."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(**extra), capture_output=True, text=True, timeout=300
        )
        assert not check or done.returncode == 0, f"{command} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def depthtime(self, *words: str, check: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "depthtime.cli", *words, check=check, **extra)

    def snakemake(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "snakemake", *(words or ("--cores", "2")), check=check)

    def dvc(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "dvc", *words, check=check)

    def environment(self, **extra: str) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {
            "PATH": path,
            "PYTHONPATH": str(self.folder / "src"),
            "OMP_NUM_THREADS": "1",
            "DEPTHTIME_TRACKING": "off",
        }
        return {**os.environ, "DVC_NO_ANALYTICS": "1", **own, **extra}

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file; the text must be there."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} does not hold {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def nothing_to_do(self) -> bool:
        """Both tools agree that all is up to date."""
        dry = self.snakemake("-n")
        status = self.dvc("status")
        return "Nothing to be done" in dry.stdout + dry.stderr and "up to date" in status.stdout


def build(folder: Path, *, git: bool = True) -> Workspace:
    """Copy code and workflow, write text and parameters, set up git and DVC."""
    folder.mkdir(parents=True)
    for name in ("src", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("Snakefile", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    yaml = YAML()
    pipeline = yaml.load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    pipeline["stages"] = {name: row for name, row in pipeline["stages"].items() if name in STAGES}
    bench = pipeline["stages"]["bench"]  # the study's also times runs of groups that are not here
    absent = re.compile(r"groups\.(?!core\.)")
    bench["params"] = [key for key in bench["params"] if not absent.match(key)]
    with (folder / "dvc.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(pipeline, file)
    (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
    (folder / "text.txt").write_text(made_up_text(), encoding="utf-8")
    (folder / ".dvc").mkdir()
    (folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n", encoding="utf-8")
    config = (ROOT / ".dvc" / "config").read_text(encoding="utf-8")
    (folder / ".dvc" / "config").write_text(config if git else config.replace("[core]", "[core]\n    no_scm = True"))
    if git:
        for words in (("init", "--quiet"), ("config", "user.name", "t"), ("config", "user.email", "t@localhost")):
            subprocess.run(["git", *words], cwd=folder, check=True)
    return Workspace(folder)


def copy(workspace: Workspace, folder: Path) -> Workspace:
    """The same workspace elsewhere, with its file times, so that tests can spoil it."""
    shutil.copytree(workspace.folder, folder, symlinks=True)
    return Workspace(folder)
