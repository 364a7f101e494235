"""A study of milliseconds on the real Snakefile: same stage names and file layout, stages that are small scripts.

`build(folder)` makes a workspace under git and DVC; `Workspace` runs both tools in it and tells which stages ran.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from small_study import FORMS, MEASUREMENTS

ROOT = Path(__file__).resolve().parents[2]

PARAMS = (
    """
corpora:
  tale: {source: "file:text.txt", local_dir: null, mirrors: [], sha256: null}
datasets:
  small:
    corpus: tale
    protocol: continuumlm
    vocabulary: frequency
    vocabulary_size: 10
    window: 4
    split: hash
    train_fraction: 0.9
    split_seed: 0
    keep_multiple: 1
ngram: {heldout_fraction: 0.1, alphas: [1.0], orders: [2]}
groups:
  core:
    data: small
    seeds: [1, 2]
    model: &model {width: 8, heads: 2, ff_width: 8, positions: fixed, embedding_std: 1.0}
    train: &train
      max_steps: 5
      batch_size: 1
      batch_order: seeded
      optimizer: adam
      learning_rate: 1e-3
      betas: [0.9, 0.999]
      eps: 1e-8
      weight_decay: 0.0
      schedule: constant
      warmup_steps: 1
      final_fraction: 1.0
      clip_norm: null
      eval_every: 5
      eval_batch_size: 1
      precision: float32
      device: cpu
      threads: 1
    runs:
      discrete: {model: discrete, layers: 3, keep_weights: [1]}
      ode: {model: continuous, solver: rk4, num_steps: 4, gradient: direct, t0: 0.0, t1: 1.0, keep_weights: [1]}
"""
    + FORMS.replace("tale", "small").replace("*recipe", "*train").replace("[1, 2]", "[7]")
    + """\
  extra:
    data: small
    seeds: [1]
    model: *model
    train: *train
    runs:
      discrete: {model: discrete, layers: 3, keep_weights: []}
bench: {runs: [core/ode], threads: [1], frontier: [], speed: core/ode, peak_size: 64, warmup_steps: 1, rounds: 3}
"""
    + MEASUREMENTS
)

GROUP = """
  train_NAME:
    matrix: {run: "${groups.NAME.runs}", seed: "${groups.NAME.seeds}"}
    cmd: python src/toy/train.py NAME ${item.run} ${item.seed}
    deps:
      - results/cards/data/${groups.NAME.data}.json
      - results/vocabulary/${groups.NAME.data}.json
      - src/toy/train.py
    params: [groups.NAME.data, groups.NAME.model, groups.NAME.train, "groups.NAME.runs.${item.run}"]
    outs:
      - results/records/NAME/${item.run}/${item.seed}.json: {cache: false}
      - results/runs/NAME/${item.run}/${item.seed}
  analyse_NAME:
    cmd: python src/toy/analyse.py NAME
    deps: [results/records/NAME, src/toy/analyse.py]
    params: [groups.NAME]
    outs:
      - results/analysis/NAME.json: {cache: false}
"""

PIPELINE = (
    """
stages:
  fetch:
    matrix: {corpus: "${corpora}"}
    cmd: python src/toy/fetch.py ${item.corpus}
    deps: [text.txt, src/toy/fetch.py]
    params: ["corpora.${item.corpus}"]
    outs:
      - results/cards/source/${item.corpus}.json: {cache: false}
  prepare:
    matrix: {dataset: "${datasets}"}
    cmd: python src/toy/prepare.py ${item.dataset}
    deps: [results/cards/source, src/toy/prepare.py]
    params: ["datasets.${item.dataset}"]
    outs:
      - results/cards/data/${item.dataset}.json: {cache: false}
      - results/vocabulary/${item.dataset}.json
"""
    + GROUP.replace("NAME", "core")
    + GROUP.replace("NAME", "extra")
    + """
  report:
    cmd: python src/toy/report.py
    deps: [results/analysis/core.json, results/analysis/extra.json, src/toy/report.py]
    params: [groups]
    outs:
      - results/tables/main.md: {cache: false}
"""
)

HEAD = '''
"""A toy stage. TOY_FAIL names one that fails half way, TOY_HANG one that hangs half way; TOY_TRACE lists what ran."""
import hashlib, json, os, sys, time
from pathlib import Path
from depthtime.config import read_yaml
from depthtime.interlock.receipts import receipt

def text_of(*paths):
    return "".join(Path(path).read_text() for path in paths)

def write(path, data):
    text = json.dumps(data, indent=1, sort_keys=True)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    half = os.environ.get("TOY_FAIL") == stage.address or os.environ.get("TOY_HANG") == stage.address
    Path(path).write_text(text[: len(text) // 2] if half else text)
    if os.environ.get("TOY_FAIL") == stage.address:
        sys.exit("toy failure")
    while os.environ.get("TOY_HANG") == stage.address:
        time.sleep(0.05)

command = "python " + " ".join(sys.argv)
params = read_yaml("params.yaml")
'''

BODIES = {
    "fetch": """
write(f"results/cards/source/{sys.argv[1]}.json", {"md5": hashlib.md5(text_of("text.txt").encode()).hexdigest()})
""",
    "prepare": """
name = sys.argv[1]
card = text_of(f"results/cards/source/{params['datasets'][name]['corpus']}.json")
write(f"results/cards/data/{name}.json", [card, params["datasets"][name]])
write(f"results/vocabulary/{name}.json", [card, params["datasets"][name]["vocabulary_size"]])
""",
    "train": """
group, run, seed = sys.argv[1:]
row = params["groups"][group]
seen = text_of(f"results/cards/data/{row['data']}.json", f"results/vocabulary/{row['data']}.json")
digest = hashlib.md5(json.dumps([seen, row["model"], row["train"], row["runs"][run], seed]).encode()).hexdigest()
write(f"results/runs/{group}/{run}/{seed}/history.csv", [digest] * 3)
write(f"results/records/{group}/{run}/{seed}.json", {"digest": digest})
""",
    "analyse": """
group = sys.argv[1]
row = params["groups"][group]
names = [f"results/records/{group}/{run}/{seed}.json" for run in row["runs"] for seed in row["seeds"]]
write(f"results/analysis/{group}.json", [text_of(name) for name in names])
""",
    "report": """
write("results/tables/main.md", [text_of(f"results/analysis/{group}.json") for group in ("core", "extra")])
""",
}

TAIL = """
with open(os.environ.get("TOY_TRACE", os.devnull), "a") as file:
    file.write(stage.address + "\\n")
"""


def script(name: str) -> str:
    """The source of one stage's script."""
    body = "".join(f"    {line}\n" for line in (BODIES[name] + TAIL).strip().splitlines())
    return f"{HEAD}with receipt(command) as stage:\n{body}"


def build(folder: Path) -> Workspace:
    """A fresh workspace under git and DVC; nothing has run yet."""
    folder.mkdir(parents=True)
    for name in ("Snakefile", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "params.yaml").write_text(PARAMS)
    (folder / "dvc.yaml").write_text(PIPELINE)
    (folder / "text.txt").write_text("once upon a time\n")
    (folder / "src/toy").mkdir(parents=True)
    for name in BODIES:
        (folder / f"src/toy/{name}.py").write_text(script(name))
    workspace = Workspace(folder)
    workspace.call("git", "init", "-q")
    workspace.call("git", "config", "user.email", "toy@example.org")
    workspace.call("git", "config", "user.name", "toy")
    workspace.call("dvc", "init", "-q")
    shutil.copy(ROOT / ".dvc/config", folder / ".dvc/config")
    workspace.commit("start")
    return workspace


class Workspace:
    """A folder with a study, and both tools to run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = folder / "trace.tmp"
        self.output = ""

    def path(self, name: str) -> Path:
        return self.folder / name

    def environment(self, **extra: str) -> dict[str, str]:
        tools = str(Path(sys.executable).parent)
        cleared = {key: value for key, value in os.environ.items() if not key.startswith(("SNAKEMAKE", "DVC", "TOY"))}
        return {
            **cleared,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "TOY_TRACE": str(self.trace),
            "DVC_NO_ANALYTICS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **extra,
        }

    def call(self, *command: str, ok: bool = True, **extra: str) -> str:
        """Run a command; its output. `ok`: whether it must succeed or fail."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = done.stdout
        assert (done.returncode == 0) is ok, f"{' '.join(command)} -> {done.returncode}\n{done.stdout}"
        return done.stdout

    def ran(self) -> set[str]:
        """Stages that ran since the last question."""
        lines = self.trace.read_text().split() if self.trace.exists() else []
        self.trace.unlink(missing_ok=True)
        assert len(lines) == len(set(lines)), f"a stage ran twice: {lines}"
        return set(lines)

    def snakemake(self, *options: str, ok: bool = True, **extra: str) -> set[str]:
        self.ran()
        self.call("snakemake", *options, ok=ok, **extra)
        return self.ran()

    def repro(self, *options: str, ok: bool = True, **extra: str) -> set[str]:
        self.ran()
        self.call("dvc", "repro", *options, ok=ok, **extra)
        return self.ran()

    def snakemake_is_clean(self) -> bool:
        return "Nothing to be done" in self.call("snakemake", "-n")

    def dvc_is_clean(self) -> bool:
        """`dvc status`, without the second it takes to start."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from dvc.repo import Repo

            with Repo(str(self.folder)) as repo:
                self.output = str(repo.status())
        return self.output == "{}"

    def commit(self, message: str) -> None:
        self.call("git", "add", "-A")
        self.call("git", "commit", "-q", "--allow-empty", "-m", message)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in a file; it must be there."""
        path = self.path(name)
        text = path.read_text()
        assert old in text, f"{old!r} is not in {name}"
        path.write_text(text.replace(old, new))

    def copy(self, folder: Path) -> Workspace:
        shutil.copytree(self.folder, folder, symlinks=True)
        return Workspace(folder)

    def start(self, *command: str, **extra: str) -> subprocess.Popen[str]:
        """Run a command in its own process group, without waiting."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = self.environment(**extra)
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, start_new_session=True, **quiet)

    def wait_for(self, name: str, timeout_s: float = 30.0) -> None:
        """Until a file is there."""
        end = time.monotonic() + timeout_s
        while not self.path(name).exists():
            assert time.monotonic() < end, f"{name} did not appear"
            time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL a process and all it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
