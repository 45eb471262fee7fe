# SPDX-License-Identifier: Apache-2.0
"""Which batches of a stream (IterableDataset) are this worker's.

Samples of a stream have no numbers, so its batches are dealt out when they are there: every worker reads the whole
stream, W batches make one step, worker r trains on the r-th. That is right for every stream which is the same on all
workers, with an end or without, also where the processes of a loader divide it among themselves; whether it is the same
shows in a checksum of every step. What it costs is reading: each worker prepares W batches for one.

A stream draws its random numbers alike on all workers: whatever it shuffles or changes by chance, a sample of a step is
somebody else's on every worker."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any, Callable, Iterable

from torch.utils.data import IterableDataset
from torch.utils.data._utils import fetch

from .digests import checksum
from .lineage import tensors_of
from .shards import Delivery

if TYPE_CHECKING:
    from .streams import Streams

PART_BYTES = 1 << 12  # of a tensor


def is_stream(loader: Any) -> bool:
    """Whether a loader's samples have no numbers."""
    return isinstance(loader.dataset, IterableDataset)


def draw_alike(streams: Streams) -> None:
    """From now on streams take their random numbers from what all workers have in common, in the processes of a
    loader, too."""
    kind = fetch._IterableDatasetFetcher
    for name in ("__init__", "fetch"):
        setattr(kind, name, _in_common(streams, getattr(kind, name)))


def _in_common(streams: Streams, method: Callable) -> Callable:
    @functools.wraps(method)
    def drawn_alike(*args, **kwargs):
        with streams.common():
            return method(*args, **kwargs)

    return drawn_alike


def rows_of(batch: Any) -> int:
    """How many samples a batch has."""
    for tensor in tensors_of(batch):
        if tensor.dim() > 0:
            return len(tensor)
    return len(batch) if isinstance(batch, (list, tuple)) else 1


def _digest(group: list) -> int:
    found = 0
    for tensor in tensors_of(group):
        if tensor.device.type == "cpu":
            found = checksum(tensor, found, PART_BYTES)
    return found


class Stream:
    """Deals out what a loader reads from a stream; to the session it is what a Shard (shards.py) is."""

    def __init__(self, batches: Iterable, world: int, rank: int, drop_last: bool):
        self._batches = iter(batches)  # what a loader is told to fetch, which means nothing to a stream
        self._world, self._rank, self._drop_last = world, rank, drop_last
        self.deliveries: collections.deque[Delivery | None] = collections.deque()
        self.loader: Any = None
        self.rounds_before = 0
        self.handed_out = 0
        self.trains = False
        self.evaluates = False
        self._ended = False
        self._others: collections.deque = collections.deque()  # batches of the others, until it is known to train

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def be_training(self) -> None:
        """Something of it was differentiated."""
        self.trains = True
        self._others.clear()

    def be_evaluation(self, told: int | None) -> bool:
        """Nothing of it was. Says whether there is more to hand out, of what was read: as many batches as there are,
        whatever their number was told to be."""
        del told
        self.evaluates = True
        return bool(self._others)

    def take(self, read: Callable[[], Any]) -> Any:
        """This worker's batch of the next step; read() gets one from the stream."""
        if self.evaluates:
            batch = self._others.popleft() if self._others else self._read(read)
            self.deliveries.append(None)
            return batch
        group = self._read_group(read)
        if not group or (self._drop_last and len(group) < self._world):
            self._keep(group)
            raise StopIteration
        sizes = [rows_of(batch) for batch in group]
        mine = self._rank if self._rank < len(group) else 0
        weight = sizes[mine] * self._world / sum(sizes) if self._rank < len(group) else 0.0
        self._keep(group[:mine] + group[mine + 1:])
        self.deliveries.append(Delivery(weight, _digest(group), sum(sizes)))
        return group[mine]

    def _keep(self, others: list) -> None:
        if not self.trains:
            self._others.extend(others)

    def _read(self, read: Callable[[], Any]) -> Any:
        if self._ended:
            raise StopIteration
        return read()

    def _read_group(self, read: Callable[[], Any]) -> list:
        group: list = []
        while len(group) < self._world and not self._ended:
            try:
                group.append(read())
            except StopIteration:
                self._ended = True
        return group
