# SPDX-License-Identifier: Apache-2.0
"""What layers of all frameworks share whose rows are in a sparse table.

Opened: the same things are refused. Waited for: with a deadline, and by name. Learnt: a forward looks rows up, each backward
leaves their gradients, and all that backwards have left since the last step is one push."""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from . import _elastic
from ._ahead import Ahead
from ._context import context as default_context
from ._errors import InvalidError, StateError, TimeoutError
from ._export import write_rows
from ._library import FOREVER
from ._memory import numpy_dtype
from ._sparse import SparseTable

TIMEOUT_S = 1800.0  # for the slowest worker to push the step
BACKWARDS = 1000  # without a step between them: nobody accumulates so many gradients


def open_table(name: str, width: int, **options: Any) -> SparseTable:
    """A sparse table for one layer."""
    if not isinstance(name, str):
        raise InvalidError(f"a sparse table has a name and a width, and no number of rows: {name!r} is not a name")
    context = default_context()  # before init it says so
    if _elastic.is_declared():
        raise InvalidError("sparse tables are not for programs whose workers come and go (elastic)")
    if options.get("backup_workers"):
        raise InvalidError(f"sparse table {name}: backup_workers is not for layers, which make every step")
    if options.get("use", "update") != "update":
        raise InvalidError(f"sparse table {name}: use is {options['use']!r}: layers need a table that keeps rows")
    if name in context._tables:
        raise StateError(f"this process has a table {name} already: use one layer in both places, or give another name")
    return SparseTable(name, width, **options)


def wait(table: SparseTable, future: Any) -> None:
    """For rows that others may have to push first."""
    try:
        future.result(TIMEOUT_S)
    except TimeoutError as error:
        raise TimeoutError(
            f"rows of sparse table {table.name} did not come within {TIMEOUT_S:g} s ({error}): another worker stands "
            "still, or makes fewer steps. Every worker must make as many") from error


class _Left(NamedTuple):
    """By one backward."""

    number: int  # of its forward
    ids: np.ndarray
    gradients: np.ndarray


class Learnt:
    """Rows of one table, for frameworks that call these from their own threads, in the order of the program. Thread: any, under
    the lock; but none waits under it that another thread could keep waiting."""

    def __init__(self, table: SparseTable, how_to_step: str):
        self.table = table
        self._how_to_step = how_to_step
        self._lock = threading.Lock()
        self._left: list[_Left] = []
        self._forwards = 0
        self._first = 0  # forward since the last step
        self._steps = 0
        self._pushing: Any = None  # the future of the last push
        self.ahead = Ahead(table)
        _all.append(weakref.ref(self))

    def lookup(self, ids: np.ndarray, learns: bool = False) -> np.ndarray:
        """The rows of these ids, after the step that was pushed last."""
        self._finish()
        found = self.ahead.find(ids, learns)
        if found is not None:
            return found.reshape(*np.shape(ids), self.table.width)
        values = np.empty((*np.shape(ids), self.table.width), numpy_dtype(self.table.dtype))
        if values.size > 0:
            wait(self.table, self.table.lookup(ids, values, timeout_ms=FOREVER))
        return values

    def forward(self, ids: np.ndarray, learns: bool = True) -> tuple[np.ndarray, np.int64]:
        """Rows, and the number of this forward, for its backward."""
        with self._lock:
            self._forwards += 1
            number = self._forwards
        if learns:
            self.ahead.take(ids)
        return self.lookup(ids, learns), np.int64(number)

    def leave(self, number: Any, ids: np.ndarray, gradients: np.ndarray) -> np.float32:
        """What a backward found for the rows of that forward. The gradient of what is no number: 0."""
        with self._lock:
            if number <= self._first:
                self.refuse("a backward through rows from before the last step, which the servers have changed since: call forward "
                            "again")
            if len(self._left) == BACKWARDS:
                self.refuse(f"{BACKWARDS} backwards without a step of an optimizer: {self._how_to_step}")
            self._left.append(_Left(int(number), np.array(ids).reshape(-1),
                                    np.array(_bits(gradients)).reshape(-1, self.table.width)))
        return np.float32(0)

    def forget(self) -> None:
        """Throws away what backwards have left since the last step."""
        with self._lock:
            self._left = []

    def step(self) -> np.int64:
        """Pushes what backwards have left, in the order of their forwards. The number of the step in this process."""
        with self._lock:
            left, self._left = sorted(self._left, key=lambda each: each.number), []
        if not left:
            return self.push(np.empty(0, np.int64), np.empty((0, self.table.width), numpy_dtype(self.table.dtype)))
        return self.push(np.concatenate([each.ids for each in left]), np.concatenate([each.gradients for each in left]),
                         len({each.number for each in left}))

    def push(self, ids: np.ndarray, gradients: np.ndarray, forwards: int = 0) -> np.int64:
        """Perhaps of no row: the others wait for that, too. Rows that were named ahead come with the answer. It is under way when
        this returns."""
        self._finish()
        with self._lock:
            self._first = self._forwards
            self._steps += 1
        asked, gradients = self.ahead.asked(forwards), _bits(gradients)
        if asked is None:
            self._pushing = self.table.push(ids, gradients, timeout_ms=FOREVER)
        else:
            values = np.empty((asked.size, self.table.width), numpy_dtype(self.table.dtype))
            self._pushing = self.table.push_lookup(ids, gradients, asked, values, timeout_ms=FOREVER)
            self.ahead.come(values)
        return np.int64(self._steps)

    def export(self, path: Any, ids: Any) -> int:
        """Writes rows to a file, by the end of its name: .safetensors or .npz."""
        self._finish()
        return write_rows(self.table, path, ids, TIMEOUT_S)

    def _finish(self) -> None:
        """The push before has ended."""
        with self._lock:
            pushing, self._pushing = self._pushing, None
        if pushing is not None:
            wait(self.table, pushing)

    def refuse(self, why: str) -> None:
        """By the name of the table."""
        raise StateError(f"sparse table {self.table.name}: {why}")

    def tell_what_is_left(self) -> None:
        """At the end of the process."""
        if self._left and not self._steps:
            print(f"poseidon: sparse table {self.table.name} has learnt nothing: {len(self._left)} backwards, and no step of an "
                  f"optimizer. {self._how_to_step}", file=sys.stderr, flush=True)


def _bits(values: np.ndarray) -> np.ndarray:
    """Of bfloat16, which NumPy does not have."""
    return values.view(np.uint16) if values.dtype.name == "bfloat16" else values


def learnt(table: SparseTable, how_to_step: str = "") -> Learnt:
    """What backwards leave for this table: one for all that use it."""
    if table._learnt is None:
        table._learnt = Learnt(table, how_to_step)
    return table._learnt


_all: list[weakref.ref] = []  # Learnt of this process


@atexit.register
def _tell_what_is_left() -> None:
    for each in _all:
        found = each()
        if found is not None:
            found.tell_what_is_left()
