"""Adopt results whose code changed but whose numbers did not, so that cleaning up costs seconds, not hours.

A training is adopted when its record belongs to today's parameters and data, its files are whole, and a rehearsal of
its recipe under today's code (20 steps, save and load, validation) agrees with the record. Any other stage is computed
again and must give the same bytes. Adoption leaves a receipt, which is then recorded like that of a run.
"""

from __future__ import annotations

import importlib
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
from depthtime.claims import MEASURES
from depthtime.config import Study
from depthtime.errors import AdoptError, DepthtimeError
from depthtime.interlock.lock import Freshness
from depthtime.interlock.receipts import changes_since, read_side, write_receipt
from depthtime.interlock.recording import read_freshness, record
from depthtime.interlock.stages import Stage
from depthtime.records import differences, read_json, sha256_file, write_bytes

RELATIVE = 1e-6  # how closely a rehearsal must agree
ROUNDING = 1e-4  # errors of float32 below this come out anew with every order of sums


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
    try:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            long_first = sorted(own, key=lambda address: address not in MEASURES)  # or the pool ends with one at work
            checks = {address: _Check(study, fresh, stages[address], pool) for address in long_first}
            for number, address in enumerate(stale, start=1):
                above = [up for up in stages.upstream(stages[address]) if up in refused]
                try:
                    if above:
                        raise AdoptError(f"follows from {above[0]}, which was refused")
                    if address in checks:
                        checks[address].finish()
                        adopted.append(address)
                except DepthtimeError as error:
                    refused[address] = f"{address}: {error}"
                on_stage(number, len(stale))
    finally:
        record()
    return adopted, list(refused.values())


class _Check:
    """One stale stage: what it reads is hashed first, its rehearsal runs in the pool, `finish` decides."""

    def __init__(self, study: Study, fresh: Freshness, stage: Stage, pool: ProcessPoolExecutor) -> None:
        self.study, self.stage = study, stage
        self.verb, *self.arguments = stage.cmd.split()[1:]
        self.problem: DepthtimeError | None = None
        self.rehearsal: Future[None] | None = None
        try:
            self.before = read_side(stage, fresh.stages)
            _check_outputs(fresh, stage, only_code_moved=self.verb in {"train", "bench", *MEASURES})
        except DepthtimeError as error:
            self.problem = error
            return
        if self.verb == "train":
            group, run, seed = self.arguments
            self.rehearsal = pool.submit(check_training, study, group, run, int(seed))
        elif self.verb in MEASURES:
            self.rehearsal = pool.submit(check_measured, study, self.verb)

    def finish(self) -> None:
        """Leave a receipt, or raise AdoptError that says what differs."""
        if self.problem is not None:
            raise self.problem
        try:
            if self.rehearsal is not None:
                self.rehearsal.result()
            elif self.verb == "bench":
                _check_bench(self.study)
            else:
                _recompute(self.study, self.stage, self.verb, self.arguments)
        except DepthtimeError:
            raise
        except Exception as error:
            raise AdoptError(f"the present code fails with {type(error).__name__}: {error}") from error
        if changed := changes_since(self.before, self.stage):
            raise AdoptError(f"{', '.join(changed)} changed meanwhile; run `depthtime runs adopt` again")
        write_receipt(self.stage, self.before)


def _check_outputs(fresh: Freshness, stage: Stage, *, only_code_moved: bool) -> None:
    """The outputs are here and are those that were recorded; for a training, so is all it read but code."""
    entry = fresh.lock.get(stage.address) or fresh.receipts.get(stage.address)
    for out in stage.outs:
        if not Path(out).exists():
            raise AdoptError(f"{out} is not here; run `dvc pull`, or `snakemake` to make it")
        if entry is not None and fresh.digest(out) != entry.outs.get(out):
            raise AdoptError(f"{out} is not what was recorded (edited, or cut short); `snakemake {out}` makes it again")
    if not only_code_moved:
        return
    if entry is None:
        raise AdoptError("it was never recorded, so there is nothing to adopt; `snakemake` runs it")
    for dep in stage.deps:
        if not dep.startswith("src/") and fresh.digest(dep) != entry.deps.get(dep):
            raise AdoptError(f"{dep} changed since the run; `snakemake` runs it again")
    names_its_own = stage.address.startswith("train_")  # its record holds the configuration it was made with
    if not names_its_own and (line := next(fresh.moved_parameters(stage, entry), None)):
        raise AdoptError(f"{line}; `snakemake` measures again")


def check_training(study: Study, group: str, run: str, seed: int) -> None:
    """Hold a training record against today's parameters, data, files and code.

    The rehearsal replays the recipe; what a record derives (parameter and operation counts, best and last evaluation)
    is derived again, and kept weights are scored again on the whole validation part. What no rehearsal can see is
    code that acts only later than 20 steps, such as a clipping limit that early gradients do not reach.

    Raises: AdoptError that names the run and the first difference.
    """
    from depthtime.data.dataset import load_dataset
    from depthtime.train.rehearsal import rehearse
    from depthtime.train.run import describe_data, describe_model, resolve
    from depthtime.train.setup import build_for

    name = f"{group}/{run}/{seed}"
    found = read_json(paths.record(group, run, seed))
    config = resolve(study, group, run)
    if found["digest"] != config.digest:
        change = next(differences(found["config"], config.described()), "another layout of the configuration")
        raise AdoptError(f"{name}: params.yaml changed ({change})")
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
    model = build_for(config, dataset, seed)
    derived = describe_model(config, dataset, model) | _derived(found["curve"])
    moved = next(differences({key: found[key] for key in derived}, derived), None)
    if moved is not None:
        raise AdoptError(f"{name}: {moved}")
    _compare(name, found["rehearsal"], rehearse(config, dataset, seed))
    if "weights.safetensors" in found["files"]:
        from depthtime.upkeep.verify import score_weights

        nll = score_weights(config, dataset, seed, folder / "weights.safetensors").nll_nats
        if not math.isclose(nll, found["final"]["nll_nats"], rel_tol=RELATIVE):
            raise AdoptError(f"{name}: its weights score {nll}, the record has {found['final']['nll_nats']}")


def _derived(curve: list[dict[str, Any]]) -> dict[str, Any]:
    """Best and last evaluation of a validation curve."""
    reached = [entry for entry in curve if entry["nll_nats"] is not None]
    nothing = {"step": None, "nll_nats": None, "perplexity": None, "num_scored": None}
    return {"final": curve[-1], "best": min(reached, key=lambda entry: entry["nll_nats"], default=nothing)}


def _check_bench(study: Study) -> None:
    """Times stand as measured; what they belong to must be what the present code builds."""
    from depthtime.measure.bench import bench_counts

    rows = read_json(paths.measured("bench"))["rows"]
    now = bench_counts(study)
    was = [{key: row.get(key) for key in new} for row, new in zip(rows, now, strict=False)]
    if change := next(differences(was, now), None):
        raise AdoptError(f"{change}; run `snakemake bench` on a quiet machine")


def check_measured(study: Study, name: str) -> None:
    """What the measurement's own `remeasure` finds, held against its record: counts equal, values to RELATIVE.

    Errors near rounding are no numbers to hold on to: whatever is below ROUNDING may become anything below it.
    """
    now = importlib.import_module(f"depthtime.measure.{name}").remeasure(study)
    was = _only(_by_name(read_json(paths.measured(name))), _by_name(now))
    if change := next(differences(was, _by_name(now), same=_same), None):
        raise AdoptError(f"{change}; run `snakemake {name}`")


def _by_name(node: Any) -> Any:
    """Plain data with lists of named rows as mappings, so that parts of two lists can be held together."""
    if isinstance(node, list) and node and all(isinstance(row, dict) and "name" in row for row in node):
        node = {row["name"]: row for row in node}
    return {key: _by_name(value) for key, value in node.items()} if isinstance(node, dict) else node


def _only(was: Any, now: Any) -> Any:
    """The part of a record that was measured again."""
    if isinstance(was, dict) and isinstance(now, dict):
        return {key: _only(was[key], now[key]) for key in now if key in was}
    return was


def _same(was: Any, now: Any) -> bool:
    """Numbers that agree to RELATIVE, or are both below ROUNDING; whole numbers and anything else that are equal."""
    numbers = isinstance(was, int | float) and isinstance(now, int | float)
    if numbers and (isinstance(was, float) or isinstance(now, float)):
        return max(abs(was), abs(now)) <= ROUNDING or math.isclose(was, now, rel_tol=RELATIVE)
    return bool(was == now)


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
        from depthtime.report.sensitivity_page import write_page
        from depthtime.report.tables import write_tables

        write_tables(study)
        write_figures(study)
        write_page(study)
    else:
        raise AdoptError(f"no rule for the verb {verb}; run `snakemake` instead")
