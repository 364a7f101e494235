"""A corpus that is already installed: the docstrings of the pinned numpy and pandas sources.

Read with `ast`, nothing is imported. Tests, and files that differ between builds or Python versions, are left out, so
the text is the same on every Python and platform. Form, after the Penn Treebank's: lower case, numbers as N,
punctuation split from words, one docstring line a line, no blank lines.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from depthtime.errors import DataError

PACKAGES = ("numpy", "pandas")
LEFT_OUT_FOLDERS = {"tests", "distutils"}  # numpy installs distutils on Python < 3.12 only
GENERATED = {"version.py", "_version.py", "_version_meson.py", "__config__.py", "conftest.py"}

TOKEN = re.compile(
    r"(?P<number>0x[0-9a-f]+|(?:\d[\d_]*)(?:[.,]\d+)*(?:e[+-]?\d+)?(?![^\W\d_]))"
    r"|(?P<word>\w+(?:'(?:s|t|re|ve|ll|d|m)\b)?)"
    r"|(?P<mark>[^\w\s])(?P=mark)*"
)
LONGEST_RUN = 3  # marks: a heading's underline is one word, whatever its length


def extract(site: Path | None = None) -> str:
    """The whole corpus, one docstring line a line. `site`: where the packages lie, if not installed."""
    lines = []
    for package in PACKAGES:
        for path in sources(package_folder(package, site)):
            for docstring in docstrings(path):
                lines += [" ".join(words) for line in docstring.split("\n") if (words := tokenise(line))]
    return "\n".join(lines) + "\n"


def package_folder(package: str, site: Path | None = None) -> Path:
    """Folder of an installed package, found without importing it."""
    if site is not None:
        return site / package
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"package {package} is not installed; the docstrings corpus is its source text")
    return Path(next(iter(spec.submodule_search_locations)))


def package_versions() -> dict[str, str]:
    """Installed versions of the packages the corpus is read from."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            raise DataError(f"package {package} is not installed; the docstrings corpus is its source text") from None
    return found


def sources(folder: Path) -> list[Path]:
    """Python files of a package, without tests and per-build files, sorted by relative posix path."""
    kept = []
    for path in folder.rglob("*.py"):
        relative = path.relative_to(folder)
        if LEFT_OUT_FOLDERS.isdisjoint(relative.parts) and relative.name not in GENERATED:
            kept.append((relative.as_posix(), path))
    return [path for _, path in sorted(kept)]


def docstrings(path: Path) -> Iterator[str]:
    """Docstrings of a module, its classes and functions, in source order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        tree = ast.parse(path.read_bytes(), filename=path.name)
    yield from _walk(tree)


def _walk(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield first.value.value
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def tokenise(line: str) -> list[str]:
    """Words of one line: lower case, numbers as N, runs of one mark as one word of at most LONGEST_RUN characters."""
    words = []
    for match in TOKEN.finditer(line.lower().encode("utf-8", "ignore").decode()):
        if match["number"]:
            words.append("N")
        else:
            words.append(match[0] if match["word"] else match[0][:LONGEST_RUN])
    return words
