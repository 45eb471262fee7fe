# SPDX-License-Identifier: Apache-2.0
"""A few small numbers of every rank that travel with the gradients, in a bucket of theirs: no message more, and nobody is
woken for them.

Servers take the mean of a bucket, so each rank has elements of its own, in which the others have zeros:

    1, of rank 0 | 1, of rank 1 | ... | first number of rank 0 | first number of rank 1 | ... | second number of rank 0 | ...

A number is an integer below 2**20. The mean of the 1 tells how many ranks it was taken over: what is multiplied by that is an
integer again but for rounding, which is far smaller than one half. So numbers come back as they were."""

from __future__ import annotations

import functools
import struct
from typing import Any, Callable

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
        # put(*numbers): this rank's, when a round begins, for buckets leave as soon as they are full. A function of C, and
        # no NumPy: what is done in every round must not take longer than it has to.
        self.put: Callable[..., Any] = _nowhere
        # as_it_came(): everybody's when a round has ended, as it lies here: what is equal is equal, and no more is known of it.
        self.as_it_came: Callable[[], list[float]] = list
        self._there = memoryview(b"")

    def lie_in(self, elements: np.ndarray) -> None:
        """This memory travels from the next round on."""
        self.is_there = True
        self._there = memoryview(elements)
        self.as_it_came = self._there[self._world:].tolist
        before, behind = self._rank * elements.itemsize, (self._world - self._rank - 1) * elements.itemsize
        mine = f"{before}x{self._there.format}{behind}x"  # x: a zero, where another rank has its own
        self.put = functools.partial(struct.Struct("=" + mine * (1 + self._count)).pack_into, self._there, 0, 1)

    def take(self) -> list[int]:
        """Everybody's when a round has ended, those of rank 0 first; zeros of one that took no part."""
        ranks = round(1 / self._there[self._rank])
        found = [round(number * ranks) for number in self._there[self._world:]]
        return [number for rank in range(self._world) for number in found[rank::self._world]]


def _nowhere(*_: int) -> None:
    raise poseidon.StateError("numbers for a room that lies nowhere yet")
