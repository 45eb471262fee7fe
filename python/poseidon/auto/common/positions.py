# SPDX-License-Identifier: Apache-2.0
"""Digests of positions of samples, the same in every process: in their order, and in any."""

from __future__ import annotations

import array
import itertools
import operator
import zlib
from typing import Any, Sequence

MODULUS = 1 << 48  # digests are numbers below it, exact as a double, and so is the sum of theirs over 32 workers
WAITING_MAX = 4096  # positions that may wait to be looked at


def mixed(*numbers: int) -> int:
    """A digest of integers, the same in every process."""
    return hash(numbers) % MODULUS


def _number(position: Any) -> int:
    """A position as an integer, whatever kind a sampler yields."""
    try:
        return operator.index(position)
    except TypeError:
        return zlib.crc32(repr(position).encode())


def _fitting(position: Any) -> int:
    """A position as an integer of 64 bits."""
    number = _number(position)
    return number if -(1 << 63) <= number < 1 << 63 else hash(number)


def _numbers(positions: Any) -> list[int]:
    if isinstance(positions, (str, bytes, dict)) or not hasattr(positions, "__iter__"):
        return [_number(positions)]
    try:
        return list(map(operator.index, positions))
    except TypeError:
        return list(map(_number, positions))


def copy_of(positions: Any) -> tuple[int, ...]:
    """Of a batch, as integers. Nearly all samplers yield lists of such."""
    is_plain = type(positions) is list and positions and type(positions[0]) is int
    return tuple(positions if is_plain else _numbers(positions))


def in_order(positions: Any) -> int:
    """A digest of positions, which tells their order."""
    return mixed(*_numbers(positions))


def in_order_of_batches(batches: Sequence[Any]) -> int:
    """The same of several batches."""
    return mixed(*map(in_order, batches))


def in_any_order(positions: Any) -> int:
    """A digest of positions, which adds up: that of two parts is the sum of theirs."""
    found = Positions()
    found.add(_numbers(positions))
    return found.digest()


class Positions:
    """Digests (in_any_order) of many positions. They are made of thousands at a time, for one at a time would cost a
    step more than everything else that the witness does in it."""

    def __init__(self) -> None:
        self.count = 0
        self._digest = 0
        self._waiting: list[Sequence[int]] = []
        self._settle_at = WAITING_MAX

    def add(self, *batches: Sequence[int]) -> None:
        """These, too. Nobody may change them any more."""
        self._waiting += batches
        for numbers in batches:
            self.count += len(numbers)
        if self.count >= self._settle_at:
            self._settle()

    def digest(self) -> int:
        """Of all that were added."""
        self._settle()
        return self._digest

    def _settle(self) -> None:
        """Every position counts by a random number of its own (the finalizer of splitmix64)."""
        import numpy

        waiting = list(itertools.chain.from_iterable(self._waiting))
        self._waiting, self._settle_at = [], self.count + WAITING_MAX
        try:
            numbers = array.array("q", waiting)
        except (TypeError, OverflowError):
            numbers = array.array("q", map(_fitting, waiting))
        mixed_up = numpy.array(numbers, "int64").view("uint64") + numpy.uint64(17)
        for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
            mixed_up = (mixed_up ^ (mixed_up >> numpy.uint64(shift))) * numpy.uint64(factor)
        mixed_up ^= mixed_up >> numpy.uint64(31)
        self._digest = (self._digest + int(mixed_up.sum(dtype="uint64"))) % MODULUS
