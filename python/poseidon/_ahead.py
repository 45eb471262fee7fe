# SPDX-License-Identifier: Apache-2.0
"""Rows that are asked for before a forward needs them: with the push of the step before it. Earlier they would be old, since
other workers may change them until then."""

from __future__ import annotations

import collections
from typing import Any, Callable, Iterable, Iterator

import numpy as np

from ._errors import StateError
from ._memory import numpy_dtype
from ._sparse import SparseTable

BATCHES = 1000  # told by prefetch(), that no forward has taken
_ROWS, _BYTES = 1 << 20, 15 << 20  # asked for with one push: what a single lane answers. The others are looked up


def _flat(ids: Any) -> np.ndarray:
    """As int64: ids of 64 bits without a sign keep their bits."""
    given = np.asarray(ids).reshape(-1)
    return given.view(np.int64) if given.dtype == np.uint64 else given.astype(np.int64, copy=False)


class Ahead:
    """What is known of forwards to come, and what came for them. A forward is known by its ids, as they are, in their order: so
    nothing is sorted here, and libpsd sends each id once. Thread: prefetch() any, the others the program's, one at a time."""

    def __init__(self, table: SparseTable):
        self._table = table
        self._rows_max = min(_ROWS, _BYTES // (table.width * numpy_dtype(table.dtype).itemsize))
        self._announced: list[np.ndarray] = []  # of forwards behind the next step
        self._told: collections.deque[np.ndarray] = collections.deque()  # of forwards to come, in their order
        self._forwards = 1  # that learnt, in the last step that had any
        self._lists: list[np.ndarray] = []  # that the last push asked for
        self._came: Any = None  # their rows as they are since that step, one list after the other

    def announce(self, ids: Any) -> None:
        """Of a forward behind the next step."""
        self._announced.append(_flat(ids))

    def prefetch(self, ids: Any) -> None:
        """Of a forward that comes after all that were told so far."""
        if len(self._told) >= BATCHES:
            raise StateError(f"sparse table {self._table.name}: prefetch() was told of {BATCHES} batches that no forward has "
                             "taken: tell of each batch once, and of what the forward will be given")
        self._told.append(_flat(ids).copy())  # whose memory the program may use again

    def take(self, ids: Any) -> None:
        """A forward that learns came: what was told of it, and of batches before it that were left out, is over."""
        for place, told in enumerate(list(self._told)):
            if np.array_equal(told, _flat(ids)):
                for _ in range(place + 1):
                    self._told.popleft()
                return

    def asked(self, forwards: int) -> np.ndarray | None:
        """Ids whose rows shall come with this push: those of as many forwards as learnt in the step that ends, or in one before
        it. What came before is over."""
        self._forwards = forwards or self._forwards
        self._lists, left = [], self._rows_max
        for each in (*self._announced, *list(self._told)[:self._forwards]):
            if 0 < each.size <= left:
                self._lists.append(each)
                left -= each.size
        self._announced, self._came = [], None
        return np.concatenate(self._lists) if self._lists else None

    def come(self, values: Any) -> None:
        """The rows that were asked for: as they are since the step that was pushed, once its push has ended."""
        self._came = values

    def find(self, ids: Any, learns: bool) -> Any:
        """The rows of just these ids, if they came; others may get them, too, so nobody changes them. Who only reads may do so
        late: where others' pushes count at any time, these rows would be old by then."""
        if self._came is None or (self._table._staleness != 0 and not learns):
            return None
        begin, given = 0, _flat(ids)
        for known in self._lists:
            if np.array_equal(known, given):
                return self._came[begin:begin + known.size]
            begin += known.size
        return None


def prefetched(loader: Iterable[Any], ids_of: Callable[[Any], dict[Any, Any]]) -> Iterator[Any]:
    """The batches of a loader, each read while the one before it is with the program. ids_of(batch) says which layer will be
    given which ids: {layer: ids}. They are told to the layer's prefetch()."""
    batches = iter(loader)
    for batch in batches:
        for following in batches:
            for layer, ids in ids_of(following).items():
                layer.prefetch(ids)
            yield batch
            batch = following
        yield batch
