"""Download of a corpus file from the first mirror that serves exactly the expected text."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from depthtime.data.reading import normalise, sha256_text
from depthtime.errors import DataError

TIMEOUT_S = 30.0
BLOCK_BYTES = 1 << 16


def download(
    mirrors: tuple[str, ...], filename: str, folder: Path, expected: str | None
) -> tuple[str | None, list[str]]:
    """Fetch `filename` into `folder` under a temporary name, check it, rename it.

    Returns: (normalised text, or None when no mirror served it; one reason for each mirror that failed).
    """
    reasons: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{filename}.{os.getpid()}.tmp"
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{filename}"
        try:
            announced = _stream(url, temporary)
            text = _checked(temporary.read_bytes(), url, announced, expected)
            os.replace(temporary, folder / filename)
            return text, reasons
        except DataError as error:
            reasons.append(str(error))
        except (OSError, ValueError) as error:  # URLError, timeouts and refused connections are OSErrors
            why = getattr(error, "reason", None) if isinstance(error, URLError) else None
            reasons.append(f"{url}: no answer ({why or error})")
        finally:
            temporary.unlink(missing_ok=True)
    return None, reasons


def _checked(data: bytes, url: str, announced: int | None, expected: str | None) -> str:
    """The text, when it is the expected one; otherwise a DataError with the mirror, both sums and what looks wrong."""
    short = announced is not None and len(data) < announced
    is_page = data.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    try:
        text = normalise(data, url)
        found = sha256_text(text)
    except DataError as error:
        if not (short or is_page):
            raise DataError(f"{error}; sha256 expected {expected or 'any'}, found {_sum(data)}") from None
        text, found = "", _sum(data)
    if expected == found or (expected is None and not short and not is_page):
        return text
    what = "a changed file"
    if is_page:
        what = "a web page (HTML), not the text: the mirror is gated or the file has moved"
    elif short:
        what = f"a truncated file, {len(data):,} of {announced:,} bytes"
    raise DataError(f"{url}: served {what}; sha256 expected {expected or 'any'}, found {found}")


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _stream(url: str, target: Path) -> int | None:
    """Write the answer's body to `target`; return the announced length in bytes, where there is one."""
    request = Request(url, headers={"User-Agent": "depthtime"})
    with urlopen(request, timeout=TIMEOUT_S) as answer, target.open("wb") as file:
        length = answer.headers.get("Content-Length")
        announced = int(length) if length and length.isdigit() else None
        with _progress() as progress:
            task = progress.add_task(url.rpartition("/")[2], total=announced) if progress else None
            while block := answer.read(BLOCK_BYTES):
                file.write(block)
                if progress and task is not None:
                    progress.update(task, advance=len(block))
    return announced


def _progress() -> AbstractContextManager[Any]:
    """A progress bar with time left on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))
