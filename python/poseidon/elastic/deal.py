# SPDX-License-Identifier: Apache-2.0
"""Who trains on which samples: what an epoch has left, dealt to so many workers. Pure: nothing here knows of a job.

What is left is cut into steps of `workers * batch_size` samples, in order, and each step into one batch for each worker. The
last step may have fewer samples: they are spread as evenly as possible, so its batches are smaller, and some may be empty.
Every worker has equally many batches."""

from __future__ import annotations

import numpy as np

from .._errors import InvalidError

_GOLDEN = 0x9E3779B97F4A7C15


def order(length: int, epoch: int, seed: int, shuffle: bool = True) -> np.ndarray:
    """All samples in the order of this epoch: the same with every version of every library, because workers that come
    later must find the same."""
    if not shuffle:
        return np.arange(length)
    start = _mix(np.array([seed * _GOLDEN + epoch & 0xFFFFFFFFFFFFFFFF], np.uint64))[0]
    return np.argsort(_mix(np.arange(length, dtype=np.uint64) + start), kind="stable")


def _mix(numbers: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64: a bijection, so no two keys are equal."""
    with np.errstate(over="ignore"):
        numbers = numbers * np.uint64(_GOLDEN)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Deal:
    """Samples (`left`, in order) for so many workers."""

    def __init__(self, left: np.ndarray, workers: int, batch_size: int, drop_last: bool = False):
        if workers < 1 or batch_size < 1:
            raise InvalidError(f"samples for {workers} workers in batches of {batch_size}: at least 1 of each")
        self.left = left
        self.workers, self.batch_size = workers, batch_size
        whole = workers * batch_size
        self.steps = len(left) // whole if drop_last else -(-len(left) // whole)

    def bounds(self, index: int, step: int) -> tuple[int, int]:
        """Where in `left` the batch of a worker begins and ends."""
        begin = step * self.workers * self.batch_size
        there = min(self.workers * self.batch_size, len(self.left) - begin)
        each, more = divmod(there, self.workers)
        first = begin + index * each + min(index, more)
        return first, first + each + (index < more)

    def batch(self, index: int, step: int) -> np.ndarray:
        """The samples of one worker in one step."""
        begin, end = self.bounds(index, step)
        return self.left[begin:end]

    def samples(self, index: int, first: int, end: int) -> np.ndarray:
        """Those of the steps from `first` on, before `end`."""
        return np.concatenate([self.left[:0], *(self.batch(index, step) for step in range(first, end))])

    def count(self, index: int, first: int, end: int) -> int:
        """How many these are."""
        return sum(stop - begin for begin, stop in (self.bounds(index, step) for step in range(first, end)))
