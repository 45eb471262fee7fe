# SPDX-License-Identifier: Apache-2.0
"""What is too large to travel with a control round: bytes of one worker for all, and sums of many numbers.

One table of one chunk, piece after piece. Each piece says who is in it, so that everybody knows when its author has died."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._library import FOREVER
from .._table import Table
from .control import TIMEOUT_S
from .marks import CHUNK, Marks


class Bulk:
    """The table of one job."""

    def __init__(self, context: Any, ranks: int):
        self._rank = context.rank
        self._marks = Marks(ranks, "float64")
        self.elements = CHUNK - self._marks.elements  # of a piece
        self.table = Table("poseidon.elastic/bulk", CHUNK, "float64", use="sum", reduce="sum", nan_policy="allow",
                           context=context)

    def _piece(self, numbers: np.ndarray) -> tuple[np.ndarray, set[int]]:
        """The sum of all workers' numbers, and whose they are."""
        sent = np.zeros(CHUNK, np.float64)
        sent[:len(numbers)] = numbers
        sent[self.elements:] = self._marks.of([self._rank])
        came = self.table.push_pull(sent, np.empty_like(sent), timeout_ms=FOREVER).result(TIMEOUT_S)
        return came[:len(numbers)], self._marks.ranks(came[self.elements:])

    def send(self, words: np.ndarray | None, count: int, root: int) -> np.ndarray | None:
        """The root's words, of 32 bits, for all; None: the root has died meanwhile."""
        pieces = []
        for begin in range(0, count, self.elements):
            size = min(self.elements, count - begin)
            mine = np.zeros(size) if words is None else words[begin:begin + size].astype(np.float64)
            came, givers = self._piece(mine)
            if root not in givers:
                return None
            pieces.append(came.astype(np.uint32))
        return np.concatenate(pieces) if pieces else np.zeros(0, np.uint32)

    def add(self, numbers: np.ndarray, mean: bool) -> np.ndarray:
        """Sums, or means over those who are there."""
        out = np.empty_like(numbers)
        for begin in range(0, len(numbers), self.elements):
            came, givers = self._piece(numbers[begin:begin + self.elements])
            out[begin:begin + self.elements] = came / len(givers) if mean else came
        return out
