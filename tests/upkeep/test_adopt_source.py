"""Stages that start from stored weights follow them: both in what is up to date and in what is adopted."""

from ruamel.yaml import YAML

import small_study

WANTED = ("fetch", "prepare", "train_transfer", "train_fine_tuning", "conversion")


def _workspace(folder):
    """The small study with the stages that fine-tune; learning rates are not searched for."""
    workspace = small_study.build(folder)
    workspace.edit("params.yaml", "bench:", small_study.FINE_TUNING + "bench:")
    workspace.edit("params.yaml", "conversion:\n  run: core/ode/1", "conversion:\n  run: transfer/diffeq/43")
    yaml = YAML()
    pipeline = yaml.load((small_study.ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    stages = {name: row for name, row in pipeline["stages"].items() if name in WANTED}
    stages["train_transfer"]["deps"].remove("results/records/selection/transfer.json")
    with (folder / "dvc.yaml").open("w", encoding="utf-8") as file:
        yaml.dump({"stages": stages}, file)
    return workspace


def _state(workspace, address):
    return next(line for line in workspace.depthtime("runs", "list").stdout.splitlines() if line.startswith(address))


def test_a_fine_tuned_run_follows_the_weights_it_starts_from(tmp_path):
    workspace = _workspace(tmp_path / "study")
    refused = workspace.depthtime("train", "fine_tuning", "full_2", "43", check=False)
    assert refused.returncode != 0
    for words in (["fetch", "tale"], ["prepare", "tale"], ["train", "transfer", "diffeq", "43"]):
        workspace.depthtime(*words)
    for words in (["train", "transfer", "gpt", "43"], ["train", "fine_tuning", "full_2", "43"], ["conversion"]):
        workspace.depthtime(*words)
    workspace.depthtime("runs", "record")
    for address in ("train_fine_tuning@full_2-43", "conversion"):
        assert _state(workspace, address).endswith("recorded")

    workspace.edit("src/depthtime/models/converted.py", "import torch\n", "import torch\n\n# nothing that counts\n")
    assert "stale" in _state(workspace, "train_fine_tuning@full_2-43")
    workspace.depthtime("runs", "adopt", check=False)  # others have never run
    for address in ("train_fine_tuning@full_2-43", "conversion"):
        assert _state(workspace, address).endswith("recorded")

    workspace.edit("src/depthtime/models/converted.py", "k / len(blocks) for", "(k - 1) / len(blocks) for")
    said = workspace.depthtime("runs", "adopt", check=False).stdout
    assert "refused: train_fine_tuning@full_2-43: fine_tuning/full_2/43: loss at step 1 of the rehearsal" in said
    assert "refused: conversion: " in said
    workspace.edit("src/depthtime/models/converted.py", "(k - 1) / len(blocks) for", "k / len(blocks) for")

    weights = workspace.folder / "results/runs/transfer/diffeq/43/weights.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-4] + bytes(4))
    assert "results/runs/transfer/diffeq/43" in _state(workspace, "train_fine_tuning@full_2-43")
    said = workspace.depthtime("runs", "adopt", check=False).stdout
    assert "refused: train_fine_tuning@full_2-43: " in said
