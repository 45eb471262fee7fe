# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way: flat arrays, cut into chunks that each say whose gradients are in them.

When a worker dies in the middle of a step, what it gave may be in some chunks and not in others. Everybody sees that, and
gives the step again: the arrays here are not written over before all chunks have the same workers in them."""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np

from .._library import FOREVER
from .._table import Table
from .control import TIMEOUT_S
from .marks import CHUNK, Marks

_CHUNKS = 64  # of a table: 16 MiB of float32


class _Part:
    """A piece of a flat array, and the table that it travels in."""

    def __init__(self, name: str, marks: Marks, begin: int, count: int, context: Any):
        self.begin, self.end = begin, begin + count
        self._marks = marks
        room = CHUNK - marks.elements  # in a chunk
        self._whole, rest = divmod(count, room)
        self._room = room
        size = self._whole * CHUNK + (rest + marks.elements if rest else 0)
        self.table = Table(name, size, marks.dtype, use="sum", reduce="sum", nan_policy="allow", context=context)
        self._memory = context.alloc(size, marks.dtype)
        self._chunks = self._memory[:self._whole * CHUNK].reshape(self._whole, CHUNK)
        self._last = self._memory[self._whole * CHUNK:]
        self._future: Any = None

    def _pieces(self, flat: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """What belongs together: of the flat array and of the memory."""
        mine = flat[self.begin:self.end]
        cut = self._whole * self._room
        pieces = [(mine[:cut].reshape(self._whole, self._room), self._chunks[:, :self._room])]
        return pieces + [(mine[cut:], self._last[:-self._marks.elements])] if len(self._last) else pieces

    def push(self, flat: np.ndarray, weight: float, mark: np.ndarray) -> None:
        """This worker's, times its weight. What counts nothing gives zeros, also where a gradient is not finite."""
        for mine, there in self._pieces(flat):
            if weight == 0:
                there[...] = 0
            else:
                np.multiply(mine, mine.dtype.type(weight), out=there)
        for marks in self._all_marks():
            marks[...] = mark
        address = self._memory.ctypes.data
        self._future = self.table.transfer(address, address, keep=(self._memory,), timeout_ms=FOREVER)

    def wait(self) -> None:
        """Until the sums are there."""
        future, self._future = self._future, None
        future.result(TIMEOUT_S)

    def _all_marks(self) -> list[np.ndarray]:
        last = [self._last[-self._marks.elements:]] if len(self._last) else []
        return [self._chunks[:, self._room:], *last]

    def is_of(self, mark: np.ndarray) -> bool:
        """Whether all chunks are of these workers."""
        return all(bool((marks == mark).all()) for marks in self._all_marks())

    def take(self, flat: np.ndarray, divisor: float) -> None:
        """The sums, divided."""
        for mine, there in self._pieces(flat):
            np.divide(there, there.dtype.type(divisor), out=mine)


class Wire:
    """The tables for flat arrays of these types and lengths, the same on all workers."""

    def __init__(self, context: Any, ranks: int, lengths: dict[str, int]):
        self._rank = context.rank
        self.lengths = dict(lengths)
        self._parts: dict[str, list[_Part]] = {}
        self._marks = {dtype: Marks(ranks, dtype) for dtype in lengths}
        for dtype, length in lengths.items():
            most = _CHUNKS * (CHUNK - self._marks[dtype].elements)
            self._parts[dtype] = [
                _Part(f"poseidon.elastic/gradients/{dtype}/{number}", self._marks[dtype], begin, min(most, length - begin), context)
                for number, begin in enumerate(range(0, length, most))]

    @property
    def tables(self) -> list[Table]:
        """All of them."""
        return [part.table for parts in self._parts.values() for part in parts]

    @property
    def step(self) -> int:
        """The furthest of them."""
        return max((table.step for table in self.tables), default=0)

    def push(self, flats: dict[str, np.ndarray], weight: float) -> None:
        """All of this worker's gradients leave."""
        for dtype, parts in self._parts.items():
            mark = self._marks[dtype].of([self._rank])
            for part in parts:
                part.push(flats[dtype], weight, mark)

    def wait(self, givers: Iterable[int]) -> bool:
        """Until all sums are there; whether each is of these workers, all of them and no other."""
        givers = list(givers)
        for parts in self._parts.values():
            for part in parts:
                part.wait()
        return all(part.is_of(self._marks[dtype].of(givers)) for dtype, parts in self._parts.items() for part in parts)

    def take(self, flats: dict[str, np.ndarray], divisor: float) -> None:
        """The sums of the last round, divided, into the flat arrays."""
        for dtype, parts in self._parts.items():
            for part in parts:
                part.take(flats[dtype], divisor)


def zeros_for(tables: Iterable[Table]) -> np.ndarray:
    """Zeros that are enough for any of these tables."""
    return np.zeros(max((table._bytes for table in tables), default=0), np.uint8)


