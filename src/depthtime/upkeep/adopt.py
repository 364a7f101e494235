"""Adopt results whose code changed but whose numbers did not, so that cleaning up costs seconds, not hours.

A training is adopted when its record belongs to today's parameters and data, its files are whole, and a rehearsal of
its recipe under today's code (20 steps, save and load, validation) agrees with the record. Any other stage is computed
again and must give the same bytes. Adoption leaves a receipt, which is then recorded like that of a run.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from graphlib import TopologicalSorter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from depthtime import paths
from depthtime.config import Study
from depthtime.errors import AdoptError, DepthtimeError
from depthtime.interlock.receipts import read_side, write_receipt
from depthtime.interlock.recording import read_freshness, record
from depthtime.interlock.stages import Stage, Stages
from depthtime.records import differences, read_json, sha256_file, write_bytes

RELATIVE = 1e-6  # how closely a rehearsal must agree


def adopt(study: Study, on_stage: Callable[[int, int], None] = lambda done, total: None) -> tuple[list[str], list[str]]:
    """Adopt every stale stage that still gives its numbers, in the order of the graph, and record them.

    Returns the addresses adopted, and a line for each stage refused (it and what follows from it stays stale).
    """
    fresh = read_freshness()
    stages = fresh.stages
    order = TopologicalSorter({address: stages.upstream(stages[address]) for address in stages})
    stale = [address for address in order.static_order() if not fresh.is_settled(address)]
    own = [address for address in stale if not fresh.is_recorded(address) and not fresh.has_receipt(address)]
    adopted: list[str] = []
    refused: dict[str, str] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        rehearsals = {
            address: pool.submit(check_training, study, *_run(stages[address]))
            for address in own
            if stages[address].cmd.split()[1] == "train" and not _missing(stages[address])
        }
        for number, address in enumerate(stale, start=1):
            stage = stages[address]
            above = [up for up in stages.upstream(stage) if up in refused]
            try:
                if above:
                    raise AdoptError(f"follows from {above[0]}, which was refused")
                if address in own:
                    _adopt_stage(study, stage, stages, rehearsals.get(address))
                    adopted.append(address)
            except DepthtimeError as error:
                refused[address] = f"{address}: {error}"
            on_stage(number, len(stale))
    record()
    return adopted, list(refused.values())


def _adopt_stage(study: Study, stage: Stage, stages: Stages, rehearsal: Future[None] | None) -> None:
    before = read_side(stage, stages)
    missing = _missing(stage)
    if missing:
        raise AdoptError(f"{missing[0]} is not here; run `dvc pull`, or `snakemake` to make it")
    verb, *arguments = stage.cmd.split()[1:]
    if rehearsal is not None:
        rehearsal.result()
    elif verb == "bench":
        raise AdoptError("step times are measured, not computed; run `snakemake bench` on a quiet machine")
    else:
        _recompute(study, stage, verb, arguments)
    write_receipt(stage, before)


def _missing(stage: Stage) -> list[str]:
    return [out for out in stage.outs if not Path(out).exists()]


def _run(stage: Stage) -> tuple[str, str, int]:
    """Group, run and seed of a training stage."""
    group, run, seed = stage.cmd.split()[2:]
    return group, run, int(seed)


def check_training(study: Study, group: str, run: str, seed: int) -> None:
    """Hold a training record against today's parameters, data, files and code.

    Raises: AdoptError that names the run and the first difference.
    """
    from depthtime.data.dataset import load_dataset
    from depthtime.train.rehearsal import rehearse
    from depthtime.train.run import describe_data, resolve

    name = f"{group}/{run}/{seed}"
    found = read_json(paths.record(group, run, seed))
    config = resolve(study, group, run)
    if found["digest"] != config.digest:
        raise AdoptError(f"{name}: params.yaml changed ({_first_difference(found['config'], config.described())})")
    folder = paths.run_folder(group, run, seed)
    for file, sha256 in found["files"].items():
        if not (folder / file).exists() or sha256_file(folder / file) != sha256:
            raise AdoptError(f"{name}: {folder / file} is missing or not what its record says")
    if ("weights.safetensors" in found["files"]) != (
        seed in config.run.keep_weights and found["status"] == "completed"
    ):
        raise AdoptError(f"{name}: params.yaml asks for other weights to be kept than this run has; train it again")
    dataset = load_dataset(study, config.group.data)
    if found["data"] != describe_data(dataset):
        raise AdoptError(f"{name}: the dataset {config.group.data} changed since the run")
    _compare(name, found["rehearsal"], rehearse(config, dataset, seed))


def _compare(name: str, was: dict[str, Any], now: dict[str, Any]) -> None:
    """Hold two rehearsals against each other, step by step."""
    if len(was["losses"]) != len(now["losses"]):
        raise AdoptError(f"{name}: the rehearsal takes {len(now['losses'])} steps, the record has {len(was['losses'])}")
    steps = zip(was["losses"], now["losses"], strict=True)
    pairs = [(f"loss at step {number} of the rehearsal", a, b) for number, (a, b) in enumerate(steps, start=1)]
    pairs += [(f"{key} after the rehearsal", was.get(key), now.get(key)) for key in ("evaluation", "test")]
    for what, a, b in pairs:
        if a is None and b is None:
            continue
        if a is None or b is None or not math.isclose(a, b, rel_tol=RELATIVE):
            raise AdoptError(f"{name}: {what} is {b}, the record has {a}; train it again with `snakemake`")


def _recompute(study: Study, stage: Stage, verb: str, arguments: list[str]) -> None:
    """Compute a stage again and compare; outputs that differ are put back as they were."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {out: Path(shutil.copy(out, Path(folder) / str(number))) for number, out in enumerate(stage.outs)}
        try:
            _compute(study, verb, arguments)
            changed = [out for out, copy in kept.items() if sha256_file(Path(out)) != sha256_file(copy)]
        except BaseException:
            _put_back(kept)
            raise
        if changed:
            _put_back(kept)
            raise AdoptError(f"{changed[0]} comes out differently; run `snakemake` to accept the new numbers")


def _put_back(kept: dict[str, Path]) -> None:
    for out, copy in kept.items():
        write_bytes(Path(out), copy.read_bytes())


def _compute(study: Study, verb: str, arguments: list[str]) -> None:
    """The function behind a stage verb."""
    if verb == "fetch":
        from depthtime.data.corpus import fetch

        fetch(study, *arguments)
    elif verb == "prepare":
        from depthtime.data.prepare import prepare

        prepare(study, *arguments)
    elif verb == "ngram":
        from depthtime.evaluate.references import score_references

        score_references(study, *arguments)
    elif verb == "select":
        from depthtime.analyse.select import select

        select(study, *arguments)
    elif verb == "analyse":
        from depthtime.analyse.aggregate import analyse

        analyse(study, *arguments)
    elif verb == "report":
        from depthtime.report.figures import write_figures
        from depthtime.report.tables import write_tables

        write_tables(study)
        write_figures(study)
    else:
        raise AdoptError(f"no rule for the verb {verb}; run `snakemake` instead")


def _first_difference(was: Any, now: Any) -> str:
    return next(differences(was, now), "another layout of the configuration")
