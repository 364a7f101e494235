"""md5 of files and folders as DVC computes them, with a cache so that an unchanged file is only stat'ed.

md5 is DVC's choice: it names content here and guards against nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from depthtime.errors import RecordError
from depthtime.paths import STATE
from depthtime.records import write_bytes

CACHE = STATE / "hashes.json"
IGNORE = Path(".dvcignore")
SETTLE_NS = 2_000_000_000  # a file younger than this may change again within one tick of the clock: not cached


class Hashes:
    """md5 by path, remembered by (size, mtime, ctime, inode). Losing the cache costs time only."""

    def __init__(self, cache: Path = CACHE) -> None:
        self.cache = cache
        self.known: dict[str, list[Any]] = {}
        self.changed = False
        try:
            self.known = json.loads(cache.read_bytes())
        except (OSError, ValueError):
            self.known = {}
        self._ignored: Any = None

    def file(self, path: str) -> str:
        """md5 of a file's bytes, 32 hexadecimal digits."""
        stat = os.stat(path)
        key = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
        known = self.known.get(path)
        if known is not None and known[:4] == key:
            return str(known[4])
        with open(path, "rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLE_NS:
            self.known[path] = [*key, md5]
            self.changed = True
        return md5

    def folder(self, path: str, recorded: Iterable[tuple[str, str]] = ()) -> str:
        """Hash of a folder as DVC's .dir object: its files (but .dvcignore's) by relative path, with their md5.

        `recorded`: (path, md5) of files that are not here but count as if they were.
        """
        rows = {name: self.file(name) for name in self.walk(path)}
        rows.update((name, md5) for name, md5 in recorded)
        listed = sorted((name[len(path) + 1 :], md5) for name, md5 in rows.items())
        text = json.dumps([{"md5": md5, "relpath": name} for name, md5 in listed])
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() + ".dir"

    def walk(self, folder: str) -> list[str]:
        """Files under a folder that DVC counts."""
        names = [f"{at}/{name}" for at, _, files in os.walk(folder) for name in files]
        return [name for name in names if not self._is_ignored(name)]

    def of(self, path: str) -> str | None:
        """Hash of a file or folder; None where nothing lies there."""
        try:
            return self.folder(path) if os.path.isdir(path) else self.file(path)
        except FileNotFoundError:
            return None

    def save(self) -> None:
        """Keep what was learned for the next process; a full disk or a race costs the cache only."""
        if self.changed:
            self.changed = False
            with suppress(RecordError):
                write_bytes(self.cache, json.dumps(self.known, separators=(",", ":")).encode())

    def _is_ignored(self, name: str) -> bool:
        if self._ignored is None:
            lines = IGNORE.read_text(encoding="utf-8").splitlines() if IGNORE.exists() else []
            from pathspec import PathSpec  # DVC's own matcher; only walks of folders need it

            self._ignored = PathSpec.from_lines("gitignore", lines)
        return bool(self._ignored.match_file(name))
