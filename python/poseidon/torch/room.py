# SPDX-License-Identifier: Apache-2.0
"""A few bytes of every rank that travel with the gradients, in a bucket of theirs: no message more, and nobody is woken
for them.

Servers take the mean of a bucket, so each rank has elements of its own, in which the others have zeros:

    1, of rank 0 | 1, of rank 1 | ... | bytes of rank 0 | bytes of rank 1 | ...

Two bytes are one element, an integer below 65,536. The mean of the 1 tells how many ranks it was taken over: what is
multiplied by that is an integer again but for rounding, which is far smaller than one half. So bytes come back as they were."""

from __future__ import annotations

import numpy as np

import poseidon

CARRIERS = ("float32", "float64")  # types that hold such integers and their means


class Room:
    """For `size` bytes of each rank, an even number. An engine says where it lies (Engine.reserve)."""

    def __init__(self, size: int):
        self._world, self._rank = poseidon.size(), poseidon.rank()
        self.elements = self._world * (1 + size // 2)
        self._numbers: np.ndarray | None = None
        self._mine = np.zeros(0)

    def lie_in(self, numbers: np.ndarray) -> None:
        """This memory travels from the next round on."""
        self._numbers = numbers
        self._mine = numbers[self._world:].reshape(self._world, -1)[self._rank]

    def is_there(self) -> bool:
        """Whether what is put here travels."""
        return self._numbers is not None

    def put(self, mine: bytes) -> None:
        """This rank's, when a round begins: buckets leave as soon as they are full."""
        self._numbers.fill(0)
        self._numbers[self._rank] = 1
        self._mine[:] = np.frombuffer(mine, np.uint16)

    def as_it_came(self) -> bytes:
        """Everybody's when a round has ended, those of rank 0 first: in a form in which what is equal has equal bytes."""
        return self._numbers[self._world:].tobytes()

    def take(self) -> bytes:
        """Everybody's when a round has ended, those of rank 0 first; zeros of one that took no part."""
        ranks = np.rint(1 / self._numbers[self._rank])
        return np.rint(self._numbers[self._world:] * ranks).astype(np.uint16).tobytes()
