# SPDX-License-Identifier: Apache-2.0
"""Whose numbers are in a sum: marks that travel at the end of a chunk.

A worker adds one power of two, its own, so the sum of the marks names everybody who is in it, exactly. Servers add a chunk as
a whole: with the mark all of the chunk is there."""

from __future__ import annotations

from typing import Iterable

import numpy as np

CHUNK = 65536  # elements that servers add as a whole (PSD_CHUNK_ELEMENTS)
_BITS = {"float32": 24, "float64": 52}  # that a number holds exactly


class Marks:
    """For ranks below `ranks`, in numbers of one type."""

    def __init__(self, ranks: int, dtype: str):
        self.dtype = dtype
        self._bits = _BITS[dtype]
        self.elements = -(-ranks // self._bits)

    def of(self, ranks: Iterable[int]) -> np.ndarray:
        """The sum of their marks."""
        marks = np.zeros(self.elements, self.dtype)
        for rank in ranks:
            marks[rank // self._bits] += 2.0 ** (rank % self._bits)
        return marks

    def ranks(self, marks: np.ndarray) -> set[int]:
        """Who is in such a sum."""
        return {at * self._bits + bit for at, mark in enumerate(marks.tolist()) for bit in range(self._bits)
                if int(mark) >> bit & 1}
