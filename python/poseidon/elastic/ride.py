# SPDX-License-Identifier: Apache-2.0
"""A worker that has come waits until the others take it in. They do not wait for it: from the step on that it counts from, it
answers every round of theirs at once, and adds nothing.

It cannot know which table they push next, so it has zeros under way in all of them."""

from __future__ import annotations

import threading
from typing import Any, Callable

import numpy as np

from .._errors import MismatchError
from .._library import FOREVER
from .._table import Table
from .changes import BEGIN_AGAIN, Ended, StateLost
from .control import TIMEOUT_S, Kind, Round
from .wire import zeros_for

_LOOK_S = 1.0  # how often a signal is looked for


class _Idle:
    """Zeros for one table."""

    def __init__(self, table: Table, zeros: np.ndarray, wake: threading.Event):
        self.table, self._zeros, self._wake = table, zeros, wake
        self._future: Any = None
        self._step = 0  # that is under way

    def go_on(self) -> None:
        """Another round, when the last one is over."""
        if self._future is not None and not self._future.done():
            return
        if self._future is not None:
            self._future.result()
        self._step = self.table.step
        self._future = self.table.transfer(self._zeros.ctypes.data, keep=(self._zeros,), timeout_ms=FOREVER, step=self._step)
        self._future.add_done_callback(lambda _: self._wake.set())

    def stop_before(self, step: int) -> None:
        """The others have begun no round from this one on. Those before are answered."""
        while True:
            if self._future is not None and self._step < step:
                self._future.result(TIMEOUT_S)
            if self.table.step >= step:
                return
            self.go_on()


def ride(group: Any, hear: Callable[[Round], Any] | None = None) -> None:
    """Returns when the others synchronize, which this worker does, too, then. Raises Ended when they have ended. hear: is told
    of every round of theirs, and looks itself whether they train the same."""
    wake = threading.Event()
    tables = group.tables()
    zeros = zeros_for(tables)
    idle = {table.name: _Idle(table, zeros, wake) for table in tables}
    while True:
        future = group.begin(Kind.RIDE)
        future.add_done_callback(lambda _: wake.set())
        while not future.done():
            for each in idle.values():
                each.go_on()
            wake.wait(_LOOK_S)
            wake.clear()
            group.look_for_leave(is_awaited=False)
        round_ = group.control.end(future)
        _look_for_others(group, round_)
        if hear is None:
            _check(group, round_)
        else:
            hear(round_)
        if round_.those(Kind.SYNC):
            break
    told = round_.slots[round_.those(Kind.SYNC)[0]]
    idle[group.bulk.table.name].stop_before(told.bulk_step)
    for table in group.wire.tables if group.wire is not None else ():
        idle[table.name].stop_before(told.gradient_step)


def _look_for_others(group: Any, round_: Round) -> None:
    others = [rank for rank, slot in round_.slots.items() if slot.kind != Kind.RIDE]
    if round_.those(Kind.END):
        raise Ended("the others have ended their training before they took this worker in")
    if not others:
        states = {node.state for node in group.context.nodes() if node.role == "worker" and node.rank not in round_.slots}
        if states <= {"done"}:
            raise Ended("all other workers have ended before they took this one in")
        raise StateLost(f"all workers that had the model are gone, and this one had not got it yet: {BEGIN_AGAIN}")


def _check(group: Any, round_: Round) -> None:
    for rank in (rank for rank, slot in round_.slots.items() if slot.kind != Kind.RIDE):
        theirs = round_.slots[rank].signature
        if theirs != group.signature:
            raise MismatchError(f"worker {rank} has other parameters to train (their number, shapes or types) than this worker, "
                                f"{group.rank}: all must build the same model before elastic.run")
