"""Corpora small enough to work out by hand, and a study over them in a scratch workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from depthtime.config import Corpus, Study, load_params
from depthtime.data.batching import Windows

ROOT = Path(__file__).resolve().parents[1]

TWELVE_WORDS = "the cat sat on the mat the cat sat on the hat\n"
# classes by frequency, ties by word: UNK 0, the 1, cat 2, on 3, sat 4, hat 5, mat 6, dead 7
TWELVE_TOKENS = (1, 2, 4, 3, 1, 6, 1, 2, 4, 3, 1, 5)
TWELVE_CLASSES = 8

CONTINUUMLM: dict[str, Any] = {
    "corpus": "tiny",
    "protocol": "continuumlm",
    "vocabulary": "frequency",
    "vocabulary_size": 8,
    "window": 4,
    "split": "contiguous",
    "train_fraction": 0.7,
    "split_seed": 0,
    "keep_multiple": 1,
}
STANDARD: dict[str, Any] = {
    "corpus": "tiny",
    "protocol": "standard",
    "vocabulary": "frequency",
    "vocabulary_size": 8,
    "window": 4,
    "stride": 2,
    "split": "contiguous",
}
SHARED: dict[str, Any] = {**STANDARD, "protocol": "standard_shared", "vocabulary_from": ("tiny",)}


def twelve_windows() -> Windows:
    """The 12 words as one window of 11 predictions."""
    return Windows(np.array(TWELVE_TOKENS, dtype=np.uint16), np.array([0]), np.array([0]), 11)


def many_lines(lines: int, seed: int = 0) -> str:
    """Lines of three to nine made-up words, skewed like natural text; the same for the same seed."""
    rng = np.random.default_rng(seed)
    words = [a + b for a in ("ba", "ce", "di", "fo", "gu") for b in ("la", "me", "ni", "ro", "su")]
    chance = 1 / np.arange(1, len(words) + 1)
    rows = (rng.choice(words, size=rng.integers(3, 10), p=chance / chance.sum()) for _ in range(lines))
    return "".join(" ".join(row) + "\n" for row in rows)


def study(dataset: dict[str, Any], corpus: dict[str, Any] | None = None, **changes: Any) -> Study:
    """The repository's study with one corpus, `tiny` (the file tiny.txt), and one dataset, `tiny`."""
    base = load_params(ROOT / "params.yaml")
    kind = next(type(row) for row in base.datasets.values() if row.protocol == dataset["protocol"])
    corpora = {"tiny": Corpus(**{"sha256": None, **(corpus or {"source": "file:tiny.txt"})})}
    return base.model_copy(update={"corpora": corpora, "datasets": {"tiny": kind(**{**dataset, **changes})}})
