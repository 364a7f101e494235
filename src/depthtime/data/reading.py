"""Strict reading of text: UTF-8 only, no BOM, LF line ends, a final newline; everything else is refused by name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from depthtime.errors import DataError


def read_file(path: Path) -> str:
    """Text of one UTF-8 file, normalised by `normalise`.

    Raises: DataError when the file is missing, unreadable, empty, binary, or not UTF-8.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path (it is relative to the folder of params.yaml)") from None
    except OSError as error:
        raise DataError(f"{path}: could not be read ({error.strerror}); expected one plain-text file") from None
    return normalise(data, str(path))


def normalise(data: bytes, name: str) -> str:
    """Text of UTF-8 bytes: BOM dropped, CRLF and CR made LF, one final newline. `name` opens every message."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name}: is UTF-16, expected UTF-8; convert it: {_iconv('UTF-16', name)}")
    if (at := data.find(b"\0")) >= 0:
        raise DataError(f"{name}: holds a NUL byte at offset {at:,}, so it is binary; expected plain UTF-8 text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        line = data.count(b"\n", 0, at) + 1
        raise DataError(
            f"{name}: line {line}: byte 0x{data[at]:02x} at offset {at:,} is not UTF-8 ({error.reason}); "
            f"if the file is Latin-1, convert it: {_iconv('LATIN1', name)}"
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise DataError(f"{name}: is empty (no words in {len(data):,} bytes); expected plain text with words")
    return text if text.endswith("\n") else text + "\n"


def sha256_text(text: str) -> str:
    """sha256 of the normalised text, 64 hexadecimal digits: `sha256sum` of an LF file without BOM."""
    return hashlib.sha256(text.encode()).hexdigest()


def _iconv(encoding: str, name: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 {name} > {name}.utf8"
