"""What the repository as a whole promises: valid files, true numbers in texts, a small store, no licensed text."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from depthtime.config import RESERVED_KEYS, load_params, read_yaml
from depthtime.interlock.stages import read_stages
from depthtime.report.readme import check_readme
from depthtime.upkeep.publish import KEPT_LIMIT, STORE_LIMIT_MB, store_mb

ROOT = Path(__file__).resolve().parents[1]
PARAMS = [ROOT / "params.yaml", ROOT / "demo" / "params.yaml"]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("path", PARAMS, ids=["study", "demo"])
def test_parameters_and_stages_are_valid(path):
    study, stages = load_params(path), read_stages(path, ROOT / "dvc.yaml")
    trained = {stage.cmd for stage in stages.values() if stage.rule.startswith("train_")}
    assert trained == {f"depthtime train {group} {run} {seed}" for group, run, seed in study.all_runs()}


def test_demo_and_study_have_the_same_graph():
    """Groups, and their runs; a search may try fewer learning rates in the demo, at least two for each model."""
    study, demo = (load_params(path) for path in PARAMS)
    assert list(study.groups) == list(demo.groups)
    searched = {row.select.group for row in study.groups.values() if row.select}
    for name, row in study.groups.items():
        runs = set(demo.groups[name].runs)
        assert runs == set(row.runs) or (name in searched and runs < set(row.runs)), name
        if row.select:
            tried = demo.groups[name].select.among
            assert set(tried) == set(row.select.among)
            assert all(len(candidates) >= 2 for candidates in tried.values())


def test_every_yaml_file_reads_as_yaml_1_2():
    for path in [*PARAMS, ROOT / "dvc.yaml", ROOT / "claims.yaml", ROOT / "published.yaml", ROOT / "CITATION.cff"]:
        assert isinstance(read_yaml(path), dict), path


def test_no_parameter_has_a_name_that_the_run_cache_ignores():
    def keys(node):
        if isinstance(node, dict):
            yield from node
            for value in node.values():
                yield from keys(value)

    for path in PARAMS:
        assert not RESERVED_KEYS & set(keys(read_yaml(path)))


@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_numbers_in_texts_are_those_of_the_results(text):
    assert check_readme(load_params(), text) == []


@pytest.mark.usefixtures("in_root")
def test_the_store_stays_small_over_its_whole_history():
    assert store_mb() <= STORE_LIMIT_MB
    kept = [run for row in load_params().groups.values() for run in row.runs.values() if run.keep_weights]
    assert len(kept) <= KEPT_LIMIT


@pytest.mark.usefixtures("in_root")
def test_links_in_texts_lead_somewhere():
    for text in TEXTS:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", text.read_text(encoding="utf-8")):
            assert (text.parent / target).exists(), f"{text.name}: {target}"


@pytest.mark.ptb
@pytest.mark.skipif(not os.environ.get("PTB_DIR"), reason="PTB_DIR is not set: no licensed text to look for")
def test_no_running_text_of_the_corpus_is_in_git_or_in_the_store():
    """Five words in a row of a validation line, in the text's order, in any tracked file or stored object."""
    lines = (Path(os.environ["PTB_DIR"]) / "ptb.valid.txt").read_text(encoding="utf-8").splitlines()
    probes = [" ".join(line.split()[2:9]) for line in lines if len(line.split()) > 25][::40]
    assert len(probes) > 20
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            content = path.read_bytes()
            assert not [probe for probe in probes if probe.encode() in content], name
