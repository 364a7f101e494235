"""A tiny study of the standard protocol, with <eos>, a test part and two trained runs: for tasks on sentences."""

from __future__ import annotations

from pathlib import Path

import small_study
from depthtime.config import Study, load_params
from depthtime.data.prepare import prepare
from depthtime.train.run import train_run

PROTOCOL = """\
    protocol: standard
    vocabulary: frequency
    vocabulary_size: 30
    window: 8
    stride: 8
    split: contiguous
"""
PAIRS = """\
replaced:
  what: another word
  pairs:
    - [w16 w35 w8 w19, w16 w35 w8 w16]
    - [w35 w8 w19 w16, w35 w35 w19 w16]
    - [w35 w8, w35 w35]
exchanged:
  what: neighbours
  pairs:
    - [w16 w35 w8 w19, w16 w8 w35 w19]
    - [w35 w8 w19, w8 w35 w19]
left_out:
  what: one word less
  pairs:
    - [w16 w35 w8 w19, w16 w35 w19]
    - [w35 w8 w19 w16, w8 w19 w16]
"""


def params() -> str:
    """The small study's parameters, with the standard protocol."""
    text = small_study.PARAMS.replace("max_steps: 24", "max_steps: 144")  # enough to learn some of the text
    start, end = text.index("    protocol: continuumlm"), text.index("ngram:")
    return text[:start] + PROTOCOL + text[end:]


def build(folder: Path) -> Study:
    """Write it to `folder`, which is the current one, prepare its data and train its runs of seed 1."""
    (folder / "params.yaml").write_text(params(), encoding="utf-8")
    (folder / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    (folder / "text.txt").write_text(small_study.made_up_text(), encoding="utf-8")
    (folder / "pairs.yaml").write_text(PAIRS, encoding="utf-8")
    study = load_params()
    prepare(study, "tale")
    for run in ("discrete", "ode"):
        train_run(study, "core", run, 1)
    return study
