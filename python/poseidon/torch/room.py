# SPDX-License-Identifier: Apache-2.0
"""A few small numbers of every rank that travel with the gradients, in a bucket of theirs: no message more, and nobody is
woken for them.

Servers take the mean of a bucket, so each rank has elements of its own, in which the others have zeros:

    1, of rank 0 | 1, of rank 1 | ... | numbers of rank 0 | numbers of rank 1 | ...

A number is an integer below 65,536. The mean of the 1 tells how many ranks it was taken over: what is multiplied by that is an
integer again but for rounding, which is far smaller than one half. So numbers come back as they were."""

from __future__ import annotations

import array
import struct
from typing import Sequence

import numpy as np

import poseidon

CARRIERS = ("float32", "float64")  # types that hold such integers and their means


class Room:
    """For so many numbers of each rank. An engine says where it lies (Engine.reserve)."""

    def __init__(self, count: int):
        self._world, self._rank = poseidon.size(), poseidon.rank()
        self._count = count
        self.elements = self._world * (1 + count)
        self.is_there = False  # what is put here travels
        # What is done in every round goes without NumPy, which takes several times as long for so little.
        self._there = self._numbers = memoryview(b"")
        self._leaves = array.array("f")  # all but this rank's is zero
        self._mine = struct.Struct("")
        self._begin = 0  # of this rank's numbers, in bytes

    def lie_in(self, elements: np.ndarray) -> None:
        """This memory travels from the next round on."""
        self.is_there = True
        self._there = memoryview(elements)
        self._numbers = self._there[self._world:]
        self._leaves = array.array(self._there.format, bytes(elements.nbytes))
        self._leaves[self._rank] = 1
        self._mine = struct.Struct(f"={self._count}{self._there.format}")
        self._begin = (self._world + self._rank * self._count) * elements.itemsize

    def put(self, mine: Sequence[int]) -> None:
        """This rank's, when a round begins: buckets leave as soon as they are full."""
        self._mine.pack_into(self._leaves, self._begin, *mine)
        self._there[:] = self._leaves

    def as_it_came(self) -> bytes:
        """Everybody's when a round has ended, those of rank 0 first: in a form in which what is equal has equal bytes."""
        return self._numbers.tobytes()

    def take(self) -> list[int]:
        """Everybody's when a round has ended, those of rank 0 first; zeros of one that took no part."""
        ranks = round(1 / self._there[self._rank])
        return [round(number * ranks) for number in self._numbers]
