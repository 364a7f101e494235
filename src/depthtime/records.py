"""How result files are written and read: whole or not at all, and the same bytes for the same content."""

from __future__ import annotations

import errno
import hashlib
import json
import operator
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from depthtime.errors import RecordError


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: to a temporary neighbour, then rename."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        fix = "free some space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "see to the folder"
        raise RecordError(f"{path}: could not be written ({error.strerror}); {fix} and run again") from error


def dump_json(data: Any) -> bytes:
    """Canonical text of plain data: sorted keys, one space of indent, no NaN.

    Raises: RecordError for NaN or infinity (a diverged value is stored as null).
    """
    try:
        text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise RecordError(f"a result holds NaN or infinity, which JSON cannot carry: {error}") from error
    return (text + "\n").encode()


def write_json(path: Path, data: Any) -> None:
    """Write plain data as canonical JSON, atomically."""
    write_bytes(path, dump_json(data))


def read_json(path: Path) -> Any:
    """Plain data of a JSON file.

    Raises: RecordError when it is missing or damaged.
    """
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file; `snakemake {path}` makes it, or `dvc pull` fetches it") from None
    except ValueError as error:
        raise RecordError(f"{path}: damaged ({error}); make it again with `snakemake --forcerun {path}`") from None


def sha256_file(path: Path) -> str:
    """sha256 of a file's bytes, 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(was: Any, now: Any, at: str = "", same: Callable[[Any, Any], bool] = operator.eq) -> Iterator[str]:
    """Where two records differ, as `key.path: old -> new`, in the order of the first; `same` compares two leaves."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*was, *now]):
            yield from differences(was.get(key), now.get(key), f"{at}.{key}" if at else str(key), same)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (old, new) in enumerate(zip(was, now, strict=True)):
            yield from differences(old, new, f"{at}[{number}]", same)
    elif not same(was, now):
        yield f"{at}: {was} -> {now}"
