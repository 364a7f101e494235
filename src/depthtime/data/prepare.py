"""From text to token arrays: vocabulary, split, and the data card that pins them all.

Outputs of the stage are the card, the vocabulary and the split; none holds running text. Token arrays go into the local
cache that `dataset` reads.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthtime import paths
from depthtime.config import ContinuumProtocol, SharedVocabularyProtocol, StandardWindows, Study
from depthtime.data import splitting, vocabulary
from depthtime.data.corpus import read_text
from depthtime.data.dataset import Arrays, dataset_config, describe_array, place_windows, store_arrays, windows_sum
from depthtime.data.reading import sha256_text
from depthtime.data.vocabulary import Types, Vocabulary
from depthtime.errors import DataError
from depthtime.records import dump_json, write_json


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
    store_arrays(built.arrays)
    write_json(paths.vocabulary(name), built.vocabulary.as_json())
    write_json(paths.split(name), built.split)
    write_json(paths.data_card(name), built.card)


def build(study: Study, name: str) -> Built:
    """Make a dataset from the text of its corpus, writing nothing (the text is fetched if needed)."""
    config = dataset_config(study, name)
    text = read_text(study, config.corpus)
    at = f"datasets.{name}"
    if isinstance(config, ContinuumProtocol):
        arrays, words, split, unknown_share = _continuumlm(config, text["train"], at)
        tokens = {"all": len(arrays["stream"])}
        sources = {"train": sha256_text(text["train"])}
    else:
        others = _other_texts(study, config) if isinstance(config, SharedVocabularyProtocol) else {}
        arrays, words, split, unknown_share = _standard(config, text, at, others)
        tokens = {part: len(array) - 1 for part, array in arrays.items()}  # without the opening <eos>
        sources = {part: sha256_text(value) for part, value in text.items()}
        for other, pieces in others.items():
            sources |= {f"{other}.{part}": sha256_text(value) for part, value in pieces.items()}
    parts = place_windows(config, arrays, at)
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
        "windows_sha256": {part: windows_sum(windows) for part, windows in parts.items()},
    }
    return Built(arrays, words, split, card)


def _continuumlm(
    config: ContinuumProtocol, text: str, at: str
) -> tuple[Arrays, Vocabulary, dict[str, Any], dict[str, float]]:
    """One stream, chunks, vocabulary from the training chunks. Source: ContinuumLM, data pipeline."""
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


def _other_texts(study: Study, config: SharedVocabularyProtocol) -> dict[str, dict[str, str]]:
    """The texts of the corpora that share the vocabulary, but its own, by name."""
    return {name: read_text(study, name) for name in config.vocabulary_from if name != config.corpus}


def _standard(
    config: StandardWindows, text: dict[str, str], at: str, others: dict[str, dict[str, str]]
) -> tuple[Arrays, Vocabulary, dict[str, Any], dict[str, float]]:
    """One stream a part, opened by <eos>, with <eos> at each line end; vocabulary from the training part.

    With `others`, texts of other corpora by name: from their training parts too, as `vocabulary.equal_shares` says.
    """
    lines, pieces = _standard_parts(config, text, at)
    types = Types()
    streams = {part: vocabulary.number_words(piece, types, eos=True) for part, piece in pieces.items()}
    for part, piece in pieces.items():
        _refuse_eos(streams[part], piece, types, f"{at}: the {part} text")
    counts = _training_counts(streams["train"], types, others, at)
    words, classes = vocabulary.standard_vocabulary(list(types), counts, config.vocabulary_size, at)
    arrays = {part: _compact(classes[stream], len(words.words)) for part, stream in streams.items()}
    share = {
        part: float((array[1:] == words.unknown).mean()) if words.unknown is not None else 0.0
        for part, array in arrays.items()
    }
    tokens = {part: [1, len(array)] for part, array in arrays.items()}  # the opening <eos> is read, not scored
    split = {"protocol": config.protocol, "lines": {part: list(span) for part, span in lines.items()}, "tokens": tokens}
    return arrays, words, split, share


def _training_counts(
    stream: NDArray[np.uint32], types: Types, others: dict[str, dict[str, str]], at: str
) -> NDArray[Any]:
    """How often each type occurs in a training stream; with `others`, its equal share over all training parts.

    `types` takes in every word of the other texts, held-out ones too, so that all datasets that share a vocabulary see
    the same types.
    """
    if not others:
        return np.bincount(stream[1:], minlength=len(types))
    streams = [stream]
    for name, text in others.items():
        pieces = text if "valid" in text else _contiguous(text["train"], f"{at}.vocabulary_from, {name}")[1]
        numbered = {part: vocabulary.number_words(piece, types, eos=True) for part, piece in pieces.items()}
        for part, piece in pieces.items():
            _refuse_eos(numbered[part], piece, types, f"{at}.vocabulary_from: the {part} text of {name}")
        streams.append(numbered["train"])
    return vocabulary.equal_shares([np.bincount(one[1:], minlength=len(types)) for one in streams])


def _refuse_eos(stream: NDArray[np.uint32], text: str, types: Types, which: str) -> None:
    """One <eos> opens a stream and one ends each line; any other is a word of the text."""
    if np.count_nonzero(stream == types[vocabulary.EOS]) != text.count("\n") + 1:
        raise DataError(f"{which} holds the word <eos>, which this protocol adds itself; remove it")


def _standard_parts(
    config: StandardWindows, text: dict[str, str], at: str
) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Half-open line ranges, and the text, of train, valid and test."""
    if config.split == "official":
        if missing := {"train", "valid", "test"} - set(text):
            raise DataError(
                f"params.yaml: {at}.split = official, but corpus {config.corpus} "
                f"has no {' and no '.join(sorted(missing))} text; use split: contiguous"
            )
        return {part: (0, piece.count("\n")) for part, piece in text.items()}, text
    if isinstance(config, SharedVocabularyProtocol) and "valid" in text:
        raise DataError(
            f"params.yaml: {at}.split = contiguous, but corpus {config.corpus} has official parts, which the datasets "
            "that share its words take; use split: official"
        )
    return _contiguous(text["train"], at)


def _contiguous(text: str, at: str) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Half-open line ranges, and the text, of the parts of one text."""
    lines = text.split("\n")[:-1]
    spans = splitting.split_lines(len(lines), at)
    return spans, {part: "\n".join(lines[first:last]) + "\n" for part, (first, last) in spans.items()}


def _compact(tokens: NDArray[np.uint32], classes: int) -> NDArray[np.unsignedinteger]:
    """The smallest of the two stored types: little-endian uint16 where all classes fit, else uint32."""
    return tokens.astype("<u2" if classes <= 1 << 16 else "<u4")


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
