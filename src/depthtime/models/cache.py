"""Keys and values of earlier positions, so that new positions need no second look at them.

With fixed steps and causal attention every stage state of a position depends on earlier positions only. So the keys and
values that an evaluation of a block computed for a position stay valid while positions are added behind it: one slot
for each evaluation (each layer of a stack; each stage of each step of a solve) makes decoding exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor


class KeyValues:
    """Keys and values (B, H, n, D/H) of the n positions that one evaluation has seen, grown in place."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append those of new positions; returns all so far, the new ones last.

        Raises: ValueError when they exceed the capacity.
        """
        end = self.length + keys.shape[2]
        if end > self.capacity:
            raise ValueError(f"{end} positions exceed the cache, which was made for {self.capacity}")
        if self._keys is None or self._values is None:
            batch, heads, _, width = keys.shape
            self._keys = keys.new_empty(batch, heads, self.capacity, width)
            self._values = values.new_empty(batch, heads, self.capacity, width)
        self._keys[:, :, self.length : end] = keys
        self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]


class DepthCache:
    """What decoding keeps of a window of up to `capacity` positions: one `KeyValues` for each evaluation of a block."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._slots: list[KeyValues] = []

    @property
    def length(self) -> int:
        """Positions cached so far."""
        return self._slots[0].length if self._slots else 0

    def slots(self) -> Iterator[KeyValues]:
        """Slots in the order of evaluations; the first pass makes them."""
        for number in itertools.count():
            if number == len(self._slots):
                self._slots.append(KeyValues(self.capacity))
            yield self._slots[number]


def slots(cache: DepthCache | None) -> Iterator[KeyValues | None]:
    """The slots of a cache, or None for every evaluation where there is none."""
    return itertools.repeat(None) if cache is None else cache.slots()
