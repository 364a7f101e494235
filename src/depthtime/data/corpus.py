"""Finding the text of a corpus, and the source card that pins it.

Text is a local cache under data/, never an output: the card holds sums and counts only. A sum is taken over the
text as read (UTF-8 without BOM, LF line ends, final newline), so a copy with CRLF line ends is the same corpus.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from depthtime import paths
from depthtime.config import Corpus, Study
from depthtime.data import docstrings
from depthtime.data.mirrors import download
from depthtime.data.reading import normalise, read_file, sha256_text
from depthtime.errors import DataError
from depthtime.records import read_json, write_bytes, write_json

PTB_PARTS = ("train", "valid", "test")


def fetch(study: Study, corpus_name: str) -> None:
    """Find the text of a corpus (download or extract it if needed) and write its source card.

    Raises: DataError that names the file or mirrors, what was wrong, and the fix.
    """
    corpus = _corpus(study, corpus_name)
    write_json(paths.source_card(corpus_name), _card(corpus_name, corpus, _find(corpus_name, corpus, fresh=True)))


def read_text(study: Study, corpus_name: str) -> dict[str, str]:
    """Text of each part ("train", and "valid" and "test" where the corpus has them), as the source card pins it.

    Fetches what is missing. Raises: DataError when the text is no longer the one on the card.
    """
    corpus = _corpus(study, corpus_name)
    path = paths.source_card(corpus_name)
    if not path.exists():
        fetch(study, corpus_name)
    card = read_json(path)
    pinned = {part: row["sha256"] for part, row in card["parts"].items()}
    text = _find(corpus_name, corpus, fresh=False, pinned=pinned)
    found = {part: sha256_text(value) for part, value in text.items()}
    if found != pinned:
        part = next(p for p in {**pinned, **found} if pinned.get(p) != found.get(p))
        raise DataError(
            f"corpora.{corpus_name}: the {part} text has changed since {path} was written "
            f"(card {pinned.get(part)}, found {found.get(part)}); run `depthtime fetch {corpus_name}` again, "
            "or put the old text back"
        )
    return text


def _corpus(study: Study, name: str) -> Corpus:
    if name not in study.corpora:
        raise DataError(f"params.yaml: no corpus is called {name!r} (there are: {', '.join(study.corpora)})")
    return study.corpora[name]


def _card(name: str, corpus: Corpus, text: dict[str, str]) -> dict[str, Any]:
    """What is published about a text: no words of it, no paths."""
    parts = {part: describe(value) for part, value in text.items()}
    card = {"schema": 1, "corpus": name, "source": corpus.source.partition(":")[0], "parts": parts}
    if corpus.source == "docstrings":
        card["packages"] = docstrings.package_versions()
    return card


def describe(text: str) -> dict[str, Any]:
    """sha256, bytes, lines and words of one normalised text."""
    return {
        "sha256": sha256_text(text),
        "bytes": len(text.encode()),
        "lines": text.count("\n"),
        "words": sum(len(line.split()) for line in text.split("\n")),
    }


def _find(name: str, corpus: Corpus, *, fresh: bool, pinned: dict[str, str] | None = None) -> dict[str, str]:
    """Text by part. `fresh`: extract again even where an extracted copy lies in the cache."""
    if corpus.source == "ptb":
        return {part: _find_ptb(name, corpus, part) for part in PTB_PARTS}
    if corpus.source == "docstrings":
        return {"train": _find_docstrings(name, corpus, None if fresh else (pinned or {}).get("train"))}
    path = Path(corpus.source.removeprefix("file:"))
    if path.is_dir():
        raise DataError(f"corpora.{name}.source = {corpus.source!r}: {path} is a folder; expected one UTF-8 text file")
    text = read_file(path)
    expected = corpus.expected_sum("train")
    if expected not in (None, sha256_text(text)):
        raise DataError(
            f"{path}: is not the text that corpora.{name}.sha256.train names (expected {expected}, found "
            f"{sha256_text(text)}); put the right file there or change the sum"
        )
    return {"train": text}


def _find_ptb(name: str, corpus: Corpus, part: str) -> str:
    """One file of the Penn Treebank: the cache, then PTB_DIR or local_dir, then the mirrors in order."""
    filename, expected = f"ptb.{part}.txt", corpus.expected_sum(part)
    folder = paths.CORPORA / name
    cached = _if_matching(folder / filename, expected)
    if cached is not None:
        return cached
    reasons = []
    setting = "PTB_DIR" if os.environ.get("PTB_DIR") else f"corpora.{name}.local_dir"
    local = os.environ.get("PTB_DIR") or corpus.local_dir
    if local:
        path = Path(local) / filename
        if path.exists():
            return _matching(path, expected, setting)
        reasons.append(f"{setting} = {local}: holds no {filename}")
    text, failures = download(corpus.mirrors, filename, folder, expected)
    if text is not None:
        return text
    reasons += failures or [f"corpora.{name}.mirrors: names no mirror"]
    raise DataError(
        f"{filename} of corpus {name} was found nowhere:\n"
        + "".join(f"  {reason}\n" for reason in reasons)
        + "Fix: set PTB_DIR to a folder that holds ptb.train.txt, ptb.valid.txt and ptb.test.txt."
    )


def _if_matching(path: Path, expected: str | None) -> str | None:
    """Text of a cached file when it is whole, else None (it will be fetched again)."""
    try:
        text = normalise(path.read_bytes(), str(path))
    except (OSError, DataError):
        return None
    return text if expected in (None, sha256_text(text)) else None


def _matching(path: Path, expected: str | None, setting: str) -> str:
    text = read_file(path)
    found = sha256_text(text)
    if expected not in (None, found):
        raise DataError(
            f"{path}: is truncated or altered (sha256 expected {expected}, found {found}); "
            f"put the original file there or unset {setting} to download it"
        )
    return text


def _find_docstrings(name: str, corpus: Corpus, pinned: str | None) -> str:
    """The docstrings corpus: from the cache when it is the pinned text, else extracted again (seconds)."""
    path = paths.CORPORA / name / "docstrings.train.txt"
    cached = _if_matching(path, pinned) if pinned else None
    if cached is not None:
        return cached
    text = docstrings.extract()
    expected = corpus.expected_sum("train")
    if expected not in (None, sha256_text(text)):
        installed = " and ".join(f"{package} {number}" for package, number in docstrings.package_versions().items())
        raise DataError(
            f"corpora.{name}.sha256.train: the docstrings of the installed packages are another text (expected "
            f"{expected}, found {sha256_text(text)}; installed are {installed}). The pins changed: install the "
            "versions in requirements.txt, or put the new sum into params.yaml"
        )
    write_bytes(path, text.encode())
    return text
