"""Code dependencies in dvc.yaml are the import graph: what a stage computes with, no more and no less."""

import ast
import posixpath
from pathlib import Path

import pytest

from depthtime.config import load_params
from depthtime.interlock.stages import read_stages

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "depthtime"

# They move, check or print numbers and compute none. `data.dataset` finds `data.prepare` by name to rebuild a missing
# array, and checks what comes back against the hashes of the card.
NOT_COMPUTING = {"config", "records", "errors", "paths", "progress", "provenance"}
ENTRIES = {
    "fetch": ["data.corpus"],
    "prepare": ["data.prepare"],
    "ngram": ["evaluate.references"],
    "train": ["train.run"],
    "select": ["analyse.select"],
    "bench": ["measure.bench"],
    "gradients": ["measure.gradients"],
    "solver_swap": ["measure.solver_swap"],
    "decoding": ["measure.decoding"],
    "clustering": ["measure.clustering"],
    "trained_clustering": ["measure.trained_clustering"],
    "spectra": ["measure.spectra"],
    "sensitivity": ["measure.sensitivity"],
    "downstream": ["measure.downstream"],
    "analyse": ["analyse.aggregate"],
    "report": ["report.tables", "report.figures", "report.sensitivity_page"],
}
NOT_PYTHON = {"report": {"src/depthtime/report/depthtime.mplstyle", "published.yaml"}}


def _imports(module):
    """Modules of ours that a module imports anywhere in its text, type-checking imports left out."""
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _closure(modules):
    found, waiting = set(), list(modules)
    while waiting:
        module = waiting.pop()
        if module in found or module in NOT_COMPUTING:
            continue
        found.add(module)
        for name in _imports(module):
            inner = name.removeprefix("depthtime.")
            if name != inner and (SOURCE / f"{inner.replace('.', '/')}.py").is_file():
                waiting.append(inner)
    return {f"src/depthtime/{module.replace('.', '/')}.py" for module in found}


def _models(study, stage):
    """Model modules, which are found by name: those of the group, or of the runs that are measured."""
    kind, _, group = stage.rule.partition("_")
    measured = {
        "bench": [*study.bench.runs, *study.bench.frontier, study.bench.speed],
        "gradients": [study.gradients.run],
        "solver_swap": [study.solver_swap.run],
        "decoding": study.decoding.runs,
        "spectra": study.spectra.runs,
        "sensitivity": study.sensitivity.runs,
        "downstream": [f"{study.downstream.group}/{run}" for run in study.downstream.runs],
    }
    names = measured.get(stage.rule, [])
    runs = list(study.groups[group].runs.values()) if kind == "train" else []
    runs += [study.groups[group].runs[run] for group, run, *_ in (name.split("/") for name in names)]
    return [f"models.{run.model}" for run in runs]


@pytest.mark.parametrize("rule", sorted(read_stages(ROOT / "params.yaml", ROOT / "dvc.yaml").patterns))
def test_code_dependencies_are_the_import_graph(rule):
    study, stages = load_params(ROOT / "params.yaml"), read_stages(ROOT / "params.yaml", ROOT / "dvc.yaml")
    stage = stages.of_rule(rule)[0]
    verb = stage.cmd.split()[1]
    declared = {dep for dep in stage.deps if dep.startswith("src/") or posixpath.dirname(dep) == ""}
    computed = _closure(ENTRIES[verb] + _models(study, stage)) | NOT_PYTHON.get(verb, set())
    assert declared - computed == set(), "declared, but not imported"
    assert computed - declared == set(), "imported, but not declared"


def test_packages_hold_no_code():
    """An __init__ of a package that computes is never a dependency, so it must hold nothing."""
    packages = "data integrate models baselines evaluate train measure generate analyse report"
    for package in packages.split():
        tree = ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8"))
        assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in tree.body), package
