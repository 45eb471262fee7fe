# SPDX-License-Identifier: Apache-2.0
"""elastic.run: a training function that is called again whenever the workers have changed."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from types import FrameType
from typing import Any, Callable, Iterator

from .. import _elastic
from .._errors import StateError
from .changes import Ended, HostsUpdatedInterrupt
from .state import State


def run(function: Callable) -> Callable:
    """Makes a training function elastic. Its first argument is a State; what it needs to go on from where it was is in there.

        @elastic.run
        def train(state): ...

    It is called when all workers have the same state, and again, from that state, after each commit() or
    check_host_updates() that finds that workers have come or gone. A worker that gets SIGTERM leaves at its next commit()."""

    @functools.wraps(function)
    def elastic(state: State, *args: Any, **kwargs: Any) -> Any:
        group = _elastic.current()
        if group is None:
            raise StateError("elastic.run: this process is in no elastic job: call init() first, and name poseidon.elastic, or "
                             "hvd.elastic, in the program that does")
        if not isinstance(state, State):
            raise TypeError(f"elastic.run: the first argument of {function.__name__} is a State, not {type(state).__name__}")
        group.resume(state)
        with _leaving_when_asked(group):
            return _run(group, state, lambda: function(state, *args, **kwargs))

    return elastic


def _run(group: Any, state: State, function: Callable[[], Any]) -> Any:
    while True:
        try:
            if state.sync():
                state.on_reset()
            state.save()
            group.running = True
            result = function()
        except Ended as ended:
            group.leave(str(ended), is_awaited=False)
        except HostsUpdatedInterrupt:
            group.running = False
            group.look_for_leave()
        else:
            group.finish()
            return result


@contextlib.contextmanager
def _leaving_when_asked(group: Any) -> Iterator[None]:
    """SIGTERM asks a worker to leave, unless the program has a use of its own for it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        group.leaves = True

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
