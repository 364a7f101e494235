"""The dataset that a card describes: token arrays from the local cache, windows over them, and the words.

Arrays, windows and vocabulary are checked against the hashes of the card, so that whatever made them, models read what
the card says. A missing or damaged array is rebuilt from the text; that code is found by name when it is needed, and is
no dependency of what is computed from the dataset.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthtime import paths
from depthtime.config import AnyProtocol, ContinuumProtocol, Study
from depthtime.data import splitting
from depthtime.data.batching import Windows
from depthtime.errors import DataError
from depthtime.records import read_json, sha256_file

Arrays = dict[str, NDArray[np.unsignedinteger]]


@dataclass(frozen=True)
class Dataset:
    """What models and n-grams read. `words[i]` names class i of the `vocabulary_size` = V classes of the head."""

    name: str
    words: tuple[str, ...]
    unknown: int | None
    vocabulary_size: int
    train: Windows
    valid: Windows
    test: Windows | None
    card: dict[str, Any]


def load_dataset(study: Study, name: str) -> Dataset:
    """The dataset its card describes, arrays memory-mapped; a missing or damaged array is rebuilt from the text.

    Raises: RecordError without a card; DataError when card and configuration or text do not belong together.
    """
    config = dataset_config(study, name)
    path = paths.data_card(name)
    card = read_json(path)
    if card["config"] != config.model_dump(mode="json"):
        raise DataError(f"{path}: made with another configuration of datasets.{name}; run `depthtime prepare {name}`")
    arrays, words = _cached(card), _stored_words(name, card)
    if arrays is None or words is None:
        built = importlib.import_module("depthtime.data.prepare").build(study, name)
        _agree(card, built.card, name)
        store_arrays(built.arrays)
        arrays, words = _cached(card), built.vocabulary.as_json()
    if arrays is None:
        raise DataError(f"{paths.ARRAYS}: arrays of {name} were written but do not read back; check the disk")
    parts = place_windows(config, arrays, f"datasets.{name}")
    if {part: windows_sum(windows) for part, windows in parts.items()} != card["windows_sha256"]:
        raise DataError(f"{path}: the present code places other windows; run `depthtime prepare {name}` again")
    return Dataset(
        name=name,
        words=tuple(words["words"]),
        unknown=words["unknown"],
        vocabulary_size=len(words["words"]),
        train=parts["train"],
        valid=parts["valid"],
        test=parts.get("test"),
        card=card,
    )


def dataset_config(study: Study, name: str) -> AnyProtocol:
    if name not in study.datasets:
        raise DataError(f"params.yaml: no dataset is called {name!r} (there are: {', '.join(study.datasets)})")
    return study.datasets[name]


def place_windows(config: AnyProtocol, arrays: Arrays, at: str) -> dict[str, Windows]:
    """Windows of each part over its stream."""
    if isinstance(config, ContinuumProtocol):
        stream = arrays["stream"]
        chunks = splitting.split_chunks(len(stream), config, at)
        starts = {"train": chunks.train * config.window, "valid": chunks.valid * config.window}
        return {part: Windows(stream, s, np.zeros_like(s), config.positions) for part, s in starts.items()}
    n = config.positions
    first = splitting.training_starts(len(arrays["train"]), n, f"{at}: the train text")
    parts = {"train": Windows(arrays["train"], first, np.zeros_like(first), n)}
    for part in ("valid", "test"):
        placed = splitting.scoring_windows(len(arrays[part]), n, config.stride, f"{at}: the {part} text")
        parts[part] = Windows(arrays[part], *placed, n)
    return parts


def windows_sum(windows: Windows) -> str:
    """sha256 of where windows start and what they score, as little-endian int64."""
    return hashlib.sha256(
        windows.starts.astype("<i8").tobytes() + windows.first_scored.astype("<i8").tobytes()
    ).hexdigest()


def describe_array(array: NDArray[np.generic]) -> dict[str, Any]:
    """sha256 of the elements in memory order, dtype and shape: what a card says of an array."""
    digest = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return {"sha256": digest, "dtype": array.dtype.name, "shape": list(array.shape)}


def store_arrays(arrays: Arrays) -> None:
    """Put arrays into the cache, each whole or not at all, under the hash of its elements."""
    paths.ARRAYS.mkdir(parents=True, exist_ok=True)
    for array in arrays.values():
        target = paths.ARRAYS / f"{describe_array(array)['sha256']}.npy"
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                np.save(file, array)
            os.replace(temporary, target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise DataError(f"{target}: could not be written ({error.strerror}); free some space") from error


def _cached(card: dict[str, Any]) -> Arrays | None:
    """The arrays a card names, memory-mapped, or None when one is missing or is not what its name says."""
    found = {}
    for key, row in card["arrays"].items():
        try:
            array = np.asarray(np.load(paths.ARRAYS / f"{row['sha256']}.npy", mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError):
            return None
        if not array.size or describe_array(array) != row:
            return None
        found[key] = array
    return found


def _stored_words(name: str, card: dict[str, Any]) -> dict[str, Any] | None:
    """The vocabulary file, or None when it is missing or not the one the card names."""
    path = paths.vocabulary(name)
    if not path.is_file() or sha256_file(path) != card["vocabulary"]["sha256"]:
        return None
    return read_json(path)


def _agree(card: dict[str, Any], rebuilt: dict[str, Any], name: str) -> None:
    """What was rebuilt is what the card describes, or an error that names the entries that differ."""
    if different := [key for key in {**card, **rebuilt} if card.get(key) != rebuilt.get(key)]:
        raise DataError(
            f"{paths.data_card(name)}: what the text and the present code give differs in {', '.join(different)}; "
            f"run `depthtime prepare {name}` again (results that used the old card are then stale)"
        )
