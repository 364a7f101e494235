"""From text to token arrays and windows: the data card that pins them, and the cache that holds them.

Outputs of the stage are the card, the vocabulary and the split; none holds running text. Token arrays are a local
cache addressed by hash; whoever needs them calls `load_dataset`, which rebuilds what is missing and checks it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthtime import paths
from depthtime.config import ContinuumProtocol, StandardProtocol, Study
from depthtime.data import splitting, vocabulary
from depthtime.data.batching import Windows
from depthtime.data.corpus import read_text
from depthtime.data.reading import sha256_text
from depthtime.data.vocabulary import Types, Vocabulary
from depthtime.errors import DataError
from depthtime.records import dump_json, read_json, sha256_file, write_json

Config = ContinuumProtocol | StandardProtocol
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


@dataclass(frozen=True)
class Built:
    """A dataset made from text: streams of class numbers (by name), vocabulary, split and card."""

    arrays: Arrays
    vocabulary: Vocabulary
    split: dict[str, Any]
    card: dict[str, Any]


def prepare(study: Study, name: str) -> None:
    """Write the data card, the vocabulary and the split of a dataset, and fill the array cache.

    Raises: DataError that names the dataset, the key, its value, what the corpus offers, and the fix.
    """
    built = build(study, name)
    _store(built)
    write_json(paths.vocabulary(name), built.vocabulary.as_json())
    write_json(paths.split(name), built.split)
    write_json(paths.data_card(name), built.card)


def load_dataset(study: Study, name: str) -> Dataset:
    """The dataset its card describes, arrays memory-mapped; a missing or damaged array is rebuilt from the text.

    Raises: RecordError without a card; DataError when card and configuration or text do not belong together.
    """
    config = _config(study, name)
    path = paths.data_card(name)
    card = read_json(path)
    if card["config"] != config.model_dump(mode="json"):
        raise DataError(f"{path}: made with another configuration of datasets.{name}; run `depthtime prepare {name}`")
    arrays, words = _cached(card), _stored_vocabulary(name, card)
    if arrays is None or words is None:
        built = build(study, name)
        _agree(card, built.card, name)
        _store(built)
        arrays, words = _cached(card), built.vocabulary
    if arrays is None:
        raise DataError(f"{paths.ARRAYS}: arrays of {name} were written but do not read back; check the disk")
    parts = _windows(config, arrays, f"datasets.{name}")
    if {part: _windows_sum(windows) for part, windows in parts.items()} != card["windows_sha256"]:
        raise DataError(f"{path}: the present code places other windows; run `depthtime prepare {name}` again")
    return Dataset(
        name=name,
        words=words.words,
        unknown=words.unknown,
        vocabulary_size=len(words.words),
        train=parts["train"],
        valid=parts["valid"],
        test=parts.get("test"),
        card=card,
    )


def build(study: Study, name: str) -> Built:
    """Make a dataset from the text of its corpus, writing nothing (the text is fetched if needed)."""
    config = _config(study, name)
    text = read_text(study, config.corpus)
    at = f"datasets.{name}"
    if isinstance(config, ContinuumProtocol):
        arrays, words, split, unknown_share = _continuumlm(config, text["train"], at)
        tokens = {"all": len(arrays["stream"])}
        sources = {"train": sha256_text(text["train"])}
    else:
        arrays, words, split, unknown_share = _standard(config, text, at)
        tokens = {part: len(array) - 1 for part, array in arrays.items()}  # without the opening <eos>
        sources = {part: sha256_text(value) for part, value in text.items()}
    parts = _windows(config, arrays, at)
    card = {
        "schema": 1,
        "dataset": name,
        "config": config.model_dump(mode="json"),
        "text_sha256": sources,
        "tokens": tokens,
        "vocabulary": {
            "classes": len(words.words),
            "unknown": words.unknown,
            "dead": words.dead,
            "eos": words.eos,
            "sha256": _sum(dump_json(words.as_json())),
        },
        "unknown_share": unknown_share,
        "split_sha256": _sum(dump_json(split)),
        "arrays": {key: describe_array(array) for key, array in arrays.items()},
        "windows": {part: len(windows) for part, windows in parts.items()},
        "num_scored": {part: windows.num_scored for part, windows in parts.items()},
        "windows_sha256": {part: _windows_sum(windows) for part, windows in parts.items()},
    }
    return Built(arrays, words, split, card)


def _config(study: Study, name: str) -> Config:
    if name not in study.datasets:
        raise DataError(f"params.yaml: no dataset is called {name!r} (there are: {', '.join(study.datasets)})")
    return study.datasets[name]


def _continuumlm(
    config: ContinuumProtocol, text: str, at: str
) -> tuple[Arrays, Vocabulary, dict[str, Any], dict[str, float]]:
    """One stream, chunks, vocabulary from the training chunks. Source: spec/continuumlm.md section 2."""
    types = Types()
    stream = vocabulary.number_words(text, types, eos=False)
    chunks = splitting.split_chunks(len(stream), config, at)
    table = stream[: len(stream) // config.window * config.window].reshape(-1, config.window)  # (chunk, window)
    counts = np.bincount(table[chunks.train].ravel(), minlength=len(types))
    words, classes = vocabulary.continuumlm_vocabulary(list(types), counts, config, at)
    tokens = _compact(classes[stream], len(words.words))
    is_unknown = tokens == words.unknown
    table = is_unknown[: table.size].reshape(table.shape)
    share = {
        "all": float(is_unknown.mean()),
        "train": float(table[chunks.train].mean()),
        "valid": float(table[chunks.valid].mean()),
    }
    split = {
        "protocol": config.protocol,
        "window": config.window,
        "chunks": {part: getattr(chunks, part).tolist() for part in ("train", "valid", "dropped")},
    }
    return {"stream": tokens}, words, split, share


def _standard(
    config: StandardProtocol, text: dict[str, str], at: str
) -> tuple[Arrays, Vocabulary, dict[str, Any], dict[str, float]]:
    """One stream a part, opened by <eos>, with <eos> at each line end; vocabulary from the training part."""
    lines, pieces = _standard_parts(config, text, at)
    types = Types()
    streams = {part: vocabulary.number_words(piece, types, eos=True) for part, piece in pieces.items()}
    for part, piece in pieces.items():
        if np.count_nonzero(streams[part] == types[vocabulary.EOS]) != piece.count("\n") + 1:
            raise DataError(f"{at}: the {part} text holds the word <eos>, which this protocol adds itself; remove it")
    counts = np.bincount(streams["train"][1:], minlength=len(types))
    words, classes = vocabulary.standard_vocabulary(list(types), counts, config.vocabulary_size, at)
    arrays = {part: _compact(classes[stream], len(words.words)) for part, stream in streams.items()}
    share = {
        part: float((array[1:] == words.unknown).mean()) if words.unknown is not None else 0.0
        for part, array in arrays.items()
    }
    tokens = {part: [1, len(array)] for part, array in arrays.items()}  # the opening <eos> is read, not scored
    split = {"protocol": config.protocol, "lines": {part: list(span) for part, span in lines.items()}, "tokens": tokens}
    return arrays, words, split, share


def _standard_parts(
    config: StandardProtocol, text: dict[str, str], at: str
) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Half-open line ranges, and the text, of train, valid and test."""
    if config.split == "official":
        if missing := {"train", "valid", "test"} - set(text):
            raise DataError(
                f"params.yaml: {at}.split = official, but corpus {config.corpus} "
                f"has no {' and no '.join(sorted(missing))} text; use split: contiguous"
            )
        return {part: (0, piece.count("\n")) for part, piece in text.items()}, text
    lines = text["train"].split("\n")[:-1]
    spans = splitting.split_lines(len(lines), at)
    return spans, {part: "\n".join(lines[first:last]) + "\n" for part, (first, last) in spans.items()}


def _windows(config: Config, arrays: Arrays, at: str) -> dict[str, Windows]:
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


def _windows_sum(windows: Windows) -> str:
    """sha256 of where windows start and what they score, as little-endian int64."""
    return _sum(windows.starts.astype("<i8").tobytes() + windows.first_scored.astype("<i8").tobytes())


def _compact(tokens: NDArray[np.uint32], classes: int) -> NDArray[np.unsignedinteger]:
    """The smallest of the two stored types: little-endian uint16 where all classes fit, else uint32."""
    return tokens.astype("<u2" if classes <= 1 << 16 else "<u4")


def describe_array(array: NDArray[np.generic]) -> dict[str, Any]:
    """sha256 of the elements in memory order, dtype and shape: what a card says of an array."""
    digest = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return {"sha256": digest, "dtype": array.dtype.name, "shape": list(array.shape)}


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _store(built: Built) -> None:
    """Put arrays into the cache, each whole or not at all, under the hash of its elements."""
    paths.ARRAYS.mkdir(parents=True, exist_ok=True)
    for key, array in built.arrays.items():
        target = paths.ARRAYS / f"{built.card['arrays'][key]['sha256']}.npy"
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


def _stored_vocabulary(name: str, card: dict[str, Any]) -> Vocabulary | None:
    """The vocabulary file, or None when it is missing or not the one the card names."""
    path = paths.vocabulary(name)
    if not path.is_file() or sha256_file(path) != card["vocabulary"]["sha256"]:
        return None
    return Vocabulary.from_json(read_json(path))


def _agree(card: dict[str, Any], rebuilt: dict[str, Any], name: str) -> None:
    """What was rebuilt is what the card describes, or an error that names the entries that differ."""
    if different := [key for key in {**card, **rebuilt} if card.get(key) != rebuilt.get(key)]:
        raise DataError(
            f"{paths.data_card(name)}: what the text and the present code give differs in {', '.join(different)}; "
            f"run `depthtime prepare {name}` again (results that used the old card are then stale)"
        )
