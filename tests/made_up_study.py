"""A whole made-up study: records of every run in params.yaml, n-grams, selection and bench, all without training.

Curves follow the published ones; seeds shift them by fixed amounts, so that every test sees the same numbers.
"""

from __future__ import annotations

import math
import shutil
from itertools import product
from pathlib import Path
from typing import Any

from depthtime import paths
from depthtime.analyse.aggregate import analyse
from depthtime.analyse.gather import expected_config
from depthtime.config import RunConfig, Study, load_params
from depthtime.records import read_json, write_json
from made_up_measures import (
    decoding_record,
    downstream_record,
    gradients_record,
    sensitivity_record,
    short_clustering_record,
    solver_swap_record,
    spectra_record,
    speed_record,
    trained_clustering_record,
)

REPOSITORY = Path(__file__).resolve().parents[1]
STEPS = (500, 1000, 1500, 2000, 2500, 3000)
CURVES = {
    "discrete": (249.4, 179.3, 150.2, 133.8, 127.0, 119.0),
    "ode": (236.9, 180.7, 156.1, 143.3, 136.6, 129.3),
}
LEVEL = {"core": 1.0, "first_appearance": 0.79, "standard": 1.52, "tuning": 0.95, "tuned": 0.93}
SHIFTS = (0.004, -0.011, 0.007, 0.012, -0.006)  # relative, by position of the seed in its group
COST = {
    "discrete": {"total": 1622816, "embedding": 512000, "core": 594816, "head": 516000, "nfe": 3, "flops": 2.30e6},
    "ode": {"total": 1226272, "embedding": 512000, "core": 198272, "head": 516000, "nfe": 16, "flops": 7.83e6},
}
REFERENCES = {
    "unigram": (432.3, {"alpha": 0.0, "smoothing": "none"}),
    "bigram_add_1": (356.9, {"alpha": 1.0}),
    "bigram_add_tuned": (168.6, {"alpha": 0.01}),
    "kneser_ney_2": (152.4, {"discounts": [0.7, 1.1, 1.4, 0.8, 1.2, 1.5]}),
    "kneser_ney_3": (141.7, {"discounts": [0.7, 1.1, 1.4, 0.8, 1.2, 1.5, 0.9, 1.3, 1.6]}),
}


def load_study(root: Path) -> Study:
    """Copy the repository's params.yaml and published.yaml to `root` and load the study.

    Groups that are compared have at least three seeds here, however many have run; a group that serves a selection
    keeps its own.
    """
    for name in ("params.yaml", "published.yaml"):
        shutil.copy(REPOSITORY / name, root / name)
    study = load_params(root / "params.yaml")
    serving = {row.select.group for row in study.groups.values() if row.select is not None}
    groups = {
        name: row.model_copy(update={"seeds": tuple(range(row.seeds[0], row.seeds[0] + max(3, len(row.seeds))))})
        if name not in serving
        else row
        for name, row in study.groups.items()
    }
    return study.model_copy(update={"groups": groups})


def write_study(study: Study) -> None:
    """Write all records of a study into the current folder, and its analyses."""
    for name in study.datasets:
        write_json(paths.ngram_record(name), ngram_record(name))
    for group, row in study.groups.items():
        if row.select is not None:
            write_json(paths.selection(group), selection(study, group))
    for group, run, seed in study.all_runs():
        write_run(study, group, run, seed)
    write_json(paths.measured("bench"), bench_record(study))
    for name, record in measured_records(study).items():
        write_json(paths.measured(name), record)
    for group in study.groups:
        analyse(study, group)


def write_run(study: Study, group: str, run: str, seed: int, /, **changes: Any) -> None:
    """Write one run's record; `changes` replace its entries."""
    write_json(paths.record(group, run, seed), {**run_record(expected_config(study, group, run), seed), **changes})


def change_run(group: str, run: str, seed: int, /, **changes: Any) -> None:
    """Replace entries of a record that is there."""
    path = paths.record(group, run, seed)
    write_json(path, {**read_json(path), **changes})


def diverge(group: str, run: str, seed: int, at: int) -> None:
    """Turn a record into that of a run that diverged at step `at`."""
    record = read_json(paths.record(group, run, seed))
    none = {"nll_nats": None, "perplexity": None, "num_scored": None}
    curve = [point if point["step"] < at else {"step": point["step"], **none} for point in record["curve"]]
    train = {**record["train"], "diverged_at": at, "final_loss_nats": None}
    change_run(group, run, seed, status="diverged", curve=curve, final=curve[-1], test=None, train=train)


def run_record(config: RunConfig, seed: int) -> dict[str, Any]:
    """A completed record of one run."""
    kind = "discrete" if config.run.model in {"discrete", "transformer"} else "ode"
    place = config.group.seeds.index(seed)
    rate = 1.0 - 0.02 * math.log2(config.train.learning_rate / 1e-3)
    scale = LEVEL.get(config.group_name, 1.0) * rate * (1 + SHIFTS[place % len(SHIFTS)])
    if kind == "ode":
        scale *= 1 + 0.004 * math.sin(3 * place + 1) - 0.02 * (config.group_name == "tuned")
    if config.group.against:
        scale *= 1 + 0.004 * (sum(map(ord, config.run_name)) % 7)
    values = [(s, scale * v) for s, v in zip(STEPS, CURVES[kind], strict=True) if s <= config.train.max_steps]
    values = values or [(config.train.max_steps, scale * CURVES[kind][0])]
    curve = [point(step, value, 87192) for step, value in values]
    counts = COST[kind]
    if kind == "discrete":
        layers = config.run.layers
        counts = {**counts, "core": 198272 * layers, "total": 1028000 + 198272 * layers, "nfe": layers}
    is_standard = config.dataset.protocol != "continuumlm"
    return {
        "schema": 1,
        "group": config.group_name,
        "run": config.run_name,
        "seed": seed,
        "status": "completed",
        "digest": config.digest,
        "config": config.described(),
        "data": {"split_sha256": "0" * 64, "num_scored": {"valid": 87192}},
        "parameters": {key: counts[key] for key in ("total", "embedding", "core", "head")},
        "cost": {"nfe_forward": counts["nfe"], "flops_per_token_forward": counts["flops"]},
        "curve": curve,
        "best": curve[-1],
        "final": curve[-1],
        "test": point(values[-1][0], 0.97 * values[-1][1], 82430) if is_standard else None,
        "train": {"final_loss_nats": 4.7, "max_grad_norm": 3.1, "diverged_at": None},
        "rehearsal": {"losses": [], "evaluation": 0.0},
        "files": {},
    }


def point(step: int, perplexity: float, num_scored: int) -> dict[str, Any]:
    return {"step": step, "nll_nats": math.log(perplexity), "perplexity": perplexity, "num_scored": num_scored}


def selection(study: Study, group: str) -> dict[str, Any]:
    """The choice of the highest learning rate for every run."""
    select = study.groups[group].select
    assert select is not None
    chosen = {}
    for run, candidates in select.among.items():
        rates = {name: study.run(select.group, name).train.learning_rate for name in candidates}
        best = max(rates, key=lambda name: rates[name])
        chosen[run] = {"candidate": best, "learning_rate": rates[best], "trials": []}
    return {"schema": 1, "group": group, "searched": select.group, "chosen": chosen}


def ngram_record(dataset: str) -> dict[str, Any]:
    """References of one dataset."""
    scale = {"ptb_continuumlm": 1.0, "ptb_first_appearance": 0.75}.get(dataset, 1.6)
    rows = []
    for name, (value, constants) in REFERENCES.items():
        scores = {"nll_nats": math.log(scale * value), "perplexity": scale * value, "num_scored": 87192}
        rows.append({"name": name, **constants, **scores, "test": scores if scale == 1.6 else None})
    return {"schema": 1, "dataset": dataset, "history": "window", "references": rows}


def bench_record(study: Study) -> dict[str, Any]:
    """Step times: 62 and 212 ms on one thread, 38 and 115 ms on two."""
    times = {("discrete", 1): 0.062, ("ode", 1): 0.212, ("discrete", 2): 0.038, ("ode", 2): 0.115}
    rows = []
    for name, threads in [
        *product(study.bench.runs, study.bench.threads),
        *((name, 1) for name in study.bench.frontier),
    ]:
        run = study.run(*name.split("/")).run
        t = times["discrete" if run.model == "discrete" else "ode", threads] * (1 + 0.01 * (len(rows) % 5))
        t = times[name.partition("/")[2], threads] if name in study.bench.runs else t
        rows.append(
            {"run": name, "threads": threads, "median_step_s": t, "q1_step_s": 0.98 * t, "q3_step_s": 1.03 * t}
            | {"rounds": study.bench.rounds, "median_forward_s": 0.3 * t}
        )
    machine = {"cpu": "a made-up machine", "threads_available": 2}
    return {"schema": 1, "machine": machine, "rows": rows, "speed": speed_record(study)}


def measured_records(study: Study) -> dict[str, Any]:
    """Records of the stages that only measure, by name."""
    return {
        "gradients": gradients_record(study),
        "solver_swap": solver_swap_record(),
        "decoding": decoding_record(study),
        "clustering": short_clustering_record(study),
        "trained_clustering": trained_clustering_record(study),
        "spectra": spectra_record(study),
        "sensitivity": sensitivity_record(study),
        "downstream": downstream_record(study),
    }
