# SPDX-License-Identifier: Apache-2.0
"""A few bytes of every rank that travel with the gradients, in a bucket of theirs: no message more, and nobody is woken
for them.

Servers take the mean of a bucket, so each rank has elements of its own, in which the others have zeros:

    1, of rank 0 | 1, of rank 1 | ... | bytes of rank 0 | bytes of rank 1 | ...

Two bytes are one element, an integer below 65,536. The mean of the 1 tells how many ranks it was taken over: what is
multiplied by that is an integer again but for rounding, which is far smaller than one half. So bytes come back as they were."""

from __future__ import annotations

import array
import struct

import numpy as np

import poseidon

CARRIERS = ("float32", "float64")  # types that hold such integers and their means


class Room:
    """For `size` bytes of each rank, an even number. An engine says where it lies (Engine.reserve)."""

    def __init__(self, size: int):
        self._world, self._rank = poseidon.size(), poseidon.rank()
        self.elements = self._world * (1 + size // 2)
        self.is_there = False  # what is put here travels
        self._numbers = np.zeros(0)
        # What is done in every round goes without NumPy: for so few bytes it takes several times as long.
        self._there = self._bytes = memoryview(b"")
        self._leaves = array.array("f")  # all but this rank's is zero
        self._pairs = struct.Struct(f"={size // 2}H")
        self._elements = struct.Struct("")
        self._begin = 0  # of this rank's, in bytes

    def lie_in(self, numbers: np.ndarray) -> None:
        """This memory travels from the next round on."""
        self.is_there = True
        self._numbers, self._there = numbers, memoryview(numbers)
        self._bytes = self._there[self._world:]
        self._leaves = array.array(self._there.format, bytes(numbers.nbytes))
        self._leaves[self._rank] = 1
        each = (len(numbers) - self._world) // self._world
        self._elements = struct.Struct(f"={each}{self._there.format}")
        self._begin = (self._world + self._rank * each) * numbers.itemsize

    def put(self, mine: bytes) -> None:
        """This rank's, when a round begins: buckets leave as soon as they are full."""
        self._elements.pack_into(self._leaves, self._begin, *self._pairs.unpack(mine))
        self._there[:] = self._leaves

    def as_it_came(self) -> bytes:
        """Everybody's when a round has ended, those of rank 0 first: in a form in which what is equal has equal bytes."""
        return self._bytes.tobytes()

    def take(self) -> bytes:
        """Everybody's when a round has ended, those of rank 0 first; zeros of one that took no part."""
        ranks = np.rint(1 / self._numbers[self._rank])
        return np.rint(self._numbers[self._world:] * ranks).astype(np.uint16).tobytes()
