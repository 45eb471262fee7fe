# SPDX-License-Identifier: Apache-2.0
"""A few small numbers of every rank that travel with the gradients, in a bucket of theirs: no message more, and nobody is
woken for them.

Servers take the mean of a bucket, so each rank has elements of its own, in which the others have zeros:

    1, of rank 0 | 1, of rank 1 | ... | first number of rank 0 | first number of rank 1 | ... | second number of rank 0 | ...

A number is an integer below 2**20. The mean of the 1 tells how many ranks it was taken over: what is multiplied by that is an
integer again but for rounding, which is far smaller than one half. So numbers come back as they were."""

from __future__ import annotations

import poseidon

from .buckets import Bucket

CARRIERS = ("float32", "float64")  # types that hold such integers and their means


class Room:
    """For so many numbers of each rank. An engine says where it lies (Engine.reserve)."""

    def __init__(self, count: int):
        self._world, self._rank = poseidon.size(), poseidon.rank()
        self.elements = self._world * (1 + count)
        self.is_there = False  # what is put here travels
        # This rank's numbers, to be written when a round begins, for buckets leave as soon as they are full. Item by item:
        # what is done in every round must not take longer than it has to, and functions of modules that nobody else has
        # called in this step are not in the processor's cache.
        self.mine = memoryview(b"")
        # Everybody's when a round has ended are in bucket.came from begin on, first the first number of all ranks, and so on:
        # what is equal is equal, and no more is known of it.
        self.bucket: Bucket | None = None
        self.begin = 0

    def lie_in(self, bucket: Bucket) -> None:
        """In it they travel from the next round on."""
        there = memoryview(bucket.use_room().numpy())
        there[self._rank] = 1.0
        self.mine = there[self._world + self._rank::self._world]
        self.bucket, self.begin = bucket, bucket.room_begin - bucket.marks_begin + self._world
        self.is_there = True

    def put(self, *numbers: int) -> None:
        """All of this rank's."""
        for at, number in enumerate(numbers):
            self.mine[at] = number

    def take(self) -> list[int]:
        """Everybody's as they lie here, those of rank 0 first; zeros of one that took no part."""
        there = self.bucket.host[self.bucket.room_begin:].tolist()
        ranks = round(1 / there[self._rank])
        found = [round(number * ranks) for number in there[self._world:]]
        return [number for rank in range(self._world) for number in found[rank::self._world]]
