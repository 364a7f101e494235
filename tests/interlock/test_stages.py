"""Our reading of dvc.yaml is DVC's own, and its mistakes are named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from depthtime.errors import InterlockError
from depthtime.interlock.stages import Stages, is_folder, pick, read_stages, stage_of_command

ROOT = Path(__file__).resolve().parents[2]
DVC_READS = """
import json, sys
from dvc.repo import Repo
with Repo(".") as repo:
    rows = {}
    for stage in repo.index.stages:
        keys = [dep for dep in stage.deps if type(dep).__name__ == "ParamsDependency"]
        rows[stage.addressing] = {
            "cmd": stage.cmd,
            "deps": sorted(dep.def_path for dep in stage.deps if dep not in keys),
            "outs": sorted(out.def_path for out in stage.outs),
            "params": sorted(key for dep in keys for key in dep.params),
            "files": sorted({dep.def_path for dep in keys}),
        }
print(json.dumps(rows))
"""


def dvc_reads(folder: Path) -> dict[str, Any]:
    import json

    done = subprocess.run([sys.executable, "-c", DVC_READS], cwd=folder, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def check_equal(ours: Stages, theirs: dict[str, Any]) -> None:
    assert list(ours) == list(theirs)
    for address, row in theirs.items():
        stage = ours[address]
        assert stage.cmd == row["cmd"], address
        assert sorted(stage.deps) == row["deps"], address
        assert sorted(stage.outs) == row["outs"], address
        assert sorted(stage.params) == row["params"], address
        assert row["files"] in ([], ["params.yaml"]), address


def test_the_study_is_read_as_dvc_reads_it() -> None:
    check_equal(read_stages(ROOT / "params.yaml", ROOT / "dvc.yaml"), dvc_reads(ROOT))


def test_unusual_forms_are_read_as_dvc_reads_them(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(
        "rows: {a: {x: 1}, b: {x: 2}}\nflag: true\nrate: 1e-3\ntiny: 1e-8\nword: on\nlist: [3, [4, 5]]\nempty: null\n"
    )
    (tmp_path / "dvc.yaml").write_text(
        """
stages:
  plain:
    cmd: >-
      make   it
      --flag ${flag} --rate ${rate} --tiny ${tiny} --word ${word} --third ${list[0]} --none ${empty} \\${kept}
    desc: in one line
    deps: [in.txt]
    outs:
      - out.bin: {cache: false, push: false}
    metrics: [score.json]
  grid:
    matrix: {row: "${rows}", flag: [true, false], rate: [1e-3, 2.50, 7], word: [on, "x.y"]}
    cmd: make ${item.row} ${item.flag} ${item.rate} ${item.word} ${key}
    deps: [out.bin]
    params: ["rows.${item.row}", flag, list]
    frozen: true
    outs: ["grid/${item.row}/${item.flag}/${item.rate}/${item.word}"]
"""
    )
    subprocess.run(["dvc", "init", "-q", "--no-scm"], cwd=tmp_path, check=True, env=_tools())
    ours = read_stages(tmp_path / "params.yaml", tmp_path / "dvc.yaml")
    check_equal(ours, dvc_reads(tmp_path))
    assert ours["grid@a-true-0.001-x.y"].frozen
    assert ours.patterns["grid"].outs == ("grid/{row}/{flag}/{rate}/{word}",)
    assert ours["plain"].cmd.endswith("--flag true --rate 0.001 --tiny 1e-08 --word on --third 3 --none None ${kept}")


def _tools() -> dict[str, str]:
    import os

    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
    }


def test_each_stage_has_its_rule_and_each_group_its_target() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "snakemake", "--list-rules", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rules = set(done.stdout.split())
    stages = read_stages(ROOT / "params.yaml", ROOT / "dvc.yaml")
    groups = {rule.removeprefix("train_") for rule in stages.patterns if rule.startswith("train_")}
    assert rules == {*stages.patterns, *groups, "all", "variants"}


PARAMS: dict[str, Any] = {"groups": {"core": {"data": "ptb", "runs": {"ode": {}}, "seeds": [1]}}, "n": 3}


def read(tmp_path: Path, stages: str) -> Stages:
    path = tmp_path / "dvc.yaml"
    path.write_text("stages:\n" + stages)
    return read_stages(PARAMS, path)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            "  a: {cmd: 'run ${groups.cor.data}'}",
            r"stages\.a\.cmd: \$\{groups\.cor\.data\}: params\.yaml has no key groups\.cor; did you mean core\?",
        ),
        (
            "  a: {cmd: run, params: [groups.core.seed]}",
            r"stages\.a\.params: params\.yaml has no key groups\.core\.seed; did you mean seeds\?",
        ),
        (
            "  a: {cmd: run, matrix: {run: '${groups.core.rums}'}}",
            r"stages\.a\.matrix\.run: .* no key groups\.core\.rums; did you mean runs\?",
        ),
        (
            "  a: {cmd: 'run ${item.sed}', matrix: {seed: [1]}}",
            r"stages\.a\.cmd: \$\{item\.sed\}: the matrix has no axis sed; did you mean seed\?",
        ),
        ("  a: {cmd: run, matrix: {seed: '${n}'}}", r"stages\.a\.matrix\.seed: .* neither a list nor a mapping"),
        ("  a: {cmd: 'run ${groups.core.seeds}'}", r"stages\.a\.cmd: .* is a list, expected one value"),
        ("  a: {cmd: run, outs: [./x.json]}", r"stages\.a: './x\.json' is not a plain path"),
        ("  a: {cmd: run, outs: [x/]}", r"stages\.a: 'x/' is not a plain path"),
        ("  a: {cmd: run, wdir: sub}", r"stages\.a\.wdir: not used here"),
        ("  a: {foreach: [1], do: {cmd: run}}", r"stages\.a: .*foreach is not used here, write matrix"),
        ("  a: {cmd: [one, two]}", r"stages\.a\.cmd: expected text"),
        (
            "  a: {cmd: run, outs: [x.json: {persist: true}]}",
            r"stages\.a\.outs: x\.json: option persist is not used here",
        ),
        (
            "  a: {cmd: run, params: [other.yaml: [n]]}",
            r"stages\.a\.params: other\.yaml: expected dotted keys of params\.yaml only",
        ),
        ("  a: {cmd: run, outs: [x.json]}\n  b: {cmd: walk, outs: [x.json]}", r"x\.json is an output of a and of b"),
        (
            "  a: {cmd: run, outs: [x]}\n  b: {cmd: walk, outs: [x/y.json]}",
            r"x/y\.json lies inside x, which is an output too",
        ),
    ],
)
def test_a_mistake_names_file_stage_and_key(stages: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InterlockError, match=message) as caught:
        read(tmp_path, stages)
    assert str(caught.value).startswith(str(tmp_path / "dvc.yaml"))


def test_all_mistakes_arrive_together(tmp_path: Path) -> None:
    with pytest.raises(InterlockError) as caught:
        read(tmp_path, "  a: {cmd: 'run ${x}', params: [y], wdir: z}\n  b: {cmd: 'run ${x}', params: [y]}")
    assert len(str(caught.value).splitlines()) == 3  # a's unknown key; b's two


def test_a_folder_stands_for_the_outputs_declared_in_it(tmp_path: Path) -> None:
    stages = read(
        tmp_path,
        "  a: {matrix: {n: [1, 2]}, cmd: 'run ${item.n}', outs: ['d/${item.n}.json', 'e/${item.n}']}\n"
        "  b: {cmd: walk, deps: [d, e/1/w.bin, code.py], outs: [t.md]}",
    )
    assert stages.files("d") == ("d/1.json", "d/2.json")
    assert stages.files("e/1/w.bin") == ("e/1",)
    assert stages.files("code.py") == ("code.py",)
    assert stages.upstream(stages["b"]) == ["a@1", "a@2"]
    assert stages.upstream(stages["a@1"]) == []


def test_a_command_finds_its_stage() -> None:
    stages = read_stages(ROOT / "params.yaml", ROOT / "dvc.yaml")
    stage = stage_of_command("depthtime  train core ode 42 ", stages)
    assert stage is not None
    assert stage.address == "train_core@ode-42"
    assert stage_of_command("depthtime train core ode 1", stages) is None


def test_an_unknown_address_gets_the_nearest_one() -> None:
    with pytest.raises(InterlockError, match=r"no stage train_core@oed-42; did you mean train_core@ode-42\?"):
        read_stages(ROOT / "params.yaml", ROOT / "dvc.yaml")["train_core@oed-42"]


def test_a_missing_key_is_told_with_its_place() -> None:
    assert pick({"a": [{"b": 1}]}, "a[0].b") == 1
    with pytest.raises(KeyError, match=re.escape("params.yaml has no key a.1")):
        pick({"a": [1]}, "a.1")


def test_outputs_without_a_dot_in_the_last_component_are_folders() -> None:
    assert is_folder("results/runs/v1.2/42")
    assert not is_folder("results/records/42.json")
