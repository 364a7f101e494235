"""Which tokens train and which are held out, and where windows start. Pure functions of sizes and configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from depthtime.config import ContinuumProtocol
from depthtime.errors import DataError


def hash64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Julia's 64-bit integer hash with zero seed, all arithmetic modulo 2**64.

    Source: Base.hash_64_64 of Julia 1.10 and 1.11; hash(1) = 0x5bca7c69b794f8ce, hash(2) = 0xb795033f6f2a0674.
    """
    a = np.asarray(values, dtype=np.uint64)

    def shift(bits: int) -> np.uint64:
        return np.uint64(bits)

    a = ~a + (a << shift(21))
    a = a ^ (a >> shift(24))
    a = a + (a << shift(3)) + (a << shift(8))
    a = a ^ (a >> shift(14))
    a = a + (a << shift(2)) + (a << shift(4))
    a = a ^ (a >> shift(28))
    return a + (a << shift(31))


def hash_shuffle(items: NDArray[np.int64]) -> NDArray[np.int64]:
    """The source's deterministic shuffle: for i = n ... 2 swap element i with element hash(i) mod i + 1 (1-based)."""
    n = len(items)
    i = np.arange(n + 1, dtype=np.uint64)
    partner = (hash64(i[1:]) % i[1:]).tolist()  # 0-based partner of 1-based i, at partner[i - 1]
    out = np.asarray(items).tolist()
    for last in range(n - 1, 0, -1):
        other = partner[last]
        out[last], out[other] = out[other], out[last]
    return np.array(out, dtype=np.int64)


@dataclass(frozen=True)
class ChunkSplit:
    """Chunk numbers in the order they are visited, (n,) int64 each; `dropped` fill no batch of keep_multiple."""

    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    dropped: NDArray[np.int64]


def split_chunks(num_tokens: int, config: ContinuumProtocol, at: str) -> ChunkSplit:
    """Split a stream into chunks of `window` tokens (tail dropped), the first floor(train_fraction n) for training.

    split "hash" is the source's: shuffle, cut, and shuffle each part once more (its make_batches); "shuffle" permutes
    with numpy's default_rng(split_seed); "contiguous" keeps the order. Each part is cut to a multiple of
    keep_multiple. `at` names the dataset in messages. Raises: DataError when a part keeps no chunk.
    """
    n = num_tokens // config.window
    order = np.arange(n, dtype=np.int64)
    if config.split == "hash":
        order = hash_shuffle(order)
    elif config.split == "shuffle":
        order = np.random.default_rng(config.split_seed).permutation(n).astype(np.int64)
    cut = math.floor(config.train_fraction * n)
    parts = [order[:cut], order[cut:]]
    if config.split == "hash":
        parts = [hash_shuffle(part) for part in parts]
    kept = [len(part) // config.keep_multiple * config.keep_multiple for part in parts]
    if not all(kept):
        raise DataError(_too_short(num_tokens, n, cut, config, at))
    dropped = np.sort(np.concatenate([part[size:] for part, size in zip(parts, kept, strict=True)]))
    return ChunkSplit(parts[0][: kept[0]], parts[1][: kept[1]], dropped)


def _too_short(num_tokens: int, n: int, cut: int, config: ContinuumProtocol, at: str) -> str:
    need = config.keep_multiple
    enough = 2 * need
    while min(cut_ := math.floor(config.train_fraction * enough), enough - cut_) < need:
        enough += 1
    return (
        f"{at}: the corpus has {num_tokens:,} tokens, which is {n} chunks of window = {config.window} "
        f"({cut} for training, {n - cut} for validation); each part needs at least keep_multiple = {need} chunks, so "
        f"{enough * config.window:,} tokens; use a longer text or a smaller window or keep_multiple"
    )


def split_lines(num_lines: int, at: str) -> dict[str, tuple[int, int]]:
    """Half-open line ranges of a single-file corpus: the last tenth is test, the tenth before it validation."""
    tenth = num_lines // 10
    if tenth == 0:
        raise DataError(f"{at}: the corpus has {num_lines} lines; split = contiguous needs at least 10")
    return {
        "train": (0, num_lines - 2 * tenth),
        "valid": (num_lines - 2 * tenth, num_lines - tenth),
        "test": (num_lines - tenth, num_lines),
    }


def training_starts(num_tokens: int, positions: int, at: str) -> NDArray[np.int64]:
    """Starts of non-overlapping windows of `positions` predictions over a stream, shape (W,); the tail is left out."""
    _require_window(num_tokens, positions, at)
    return np.arange(0, num_tokens - positions, positions, dtype=np.int64)


def scoring_windows(
    num_tokens: int, positions: int, stride: int, at: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Windows that score every token after the first exactly once: (starts, first_scored), each (W,) int64.

    The first window scores all its positions, each further one its last `stride`. The last is moved back so that it
    is full and ends with the stream; it scores what is left.
    """
    _require_window(num_tokens, positions, at)
    targets = num_tokens - 1
    further = math.ceil((targets - positions) / stride)
    starts = np.arange(further + 1, dtype=np.int64) * stride
    first = np.full(further + 1, positions - stride, dtype=np.int64)
    first[0] = 0
    if further:
        starts[-1] = targets - positions
        covered = positions + (further - 1) * stride
        first[-1] = positions - (targets - covered)
    return starts, first


def _require_window(num_tokens: int, positions: int, at: str) -> None:
    if num_tokens < positions + 1:
        raise DataError(
            f"{at} has {num_tokens - 1:,} tokens; one window = {positions} needs at least {positions:,}; "
            "use a longer text or a smaller window"
        )
