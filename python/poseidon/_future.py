# SPDX-License-Identifier: Apache-2.0
"""An operation under way: push, pull or push_pull."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from ._errors import ClosedError, Error, TimeoutError, error_of
from ._library import OK, OUTCOMES, PENDING, library

if TYPE_CHECKING:
    from ._context import Context

# A wait looks up that often, so that Python sees Ctrl-C.
SLICE_S = 0.1


class Future:
    """What a transfer will end with. Any thread may use it; the names are those of
    concurrent.futures.

    The memory that the transfer reads and writes is kept alive until it has ended, also when nobody
    keeps the future.
    """

    def __init__(self, context: Context | None, op: int | None, what: str, keep: tuple = (),
                 result: Any = None, finish: Callable[[], None] | None = None):
        self._context = context
        self._pid = os.getpid()
        self._op = op
        self._what = what
        self._keep = keep
        self._result = result
        self._finish = finish  # what is left to do when the bytes are there
        self._lock = threading.Lock()
        self._users = 0  # threads inside the library with our operation: it must not go away
        self._ended = op is None
        self._error: Error | None = None
        self._told = False  # somebody knows of the error
        self._callbacks: list[Callable[[Future], Any]] = []

    def __repr__(self) -> str:
        state = "pending" if not self._ended else "failed" if self._error else "done"
        return f"<poseidon.Future {self._what}: {state}>"

    def __del__(self) -> None:
        if getattr(self, "_error", None) is not None and not self._told:
            logging.getLogger("poseidon").error("%s failed and nobody asked: %s", self._what,
                                                self._error)

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until it has ended and returns result(); raises what it failed with, or
        poseidon.TimeoutError after `timeout` seconds (it goes on then). Ctrl-C works."""
        self._await(timeout)
        return self.result()

    def done(self) -> bool:
        """Whether it has ended, well or not. Never waits."""
        return self._poll(0)

    def result(self, timeout: float | None = None) -> Any:
        """What came: the array of a pull, None for a push. Waits for it like wait()."""
        self._await(timeout)
        self._told = True
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self, timeout: float | None = None) -> Error | None:
        """What it failed with, or None. Waits for it like wait()."""
        self._await(timeout)
        self._told = True
        return self._error

    def add_done_callback(self, function: Callable[[Future], Any]) -> None:
        """Calls function(self) once it has ended: now if it has, else on the thread that notices
        (one of Poseidon's own, or one that waits). It must not wait for other operations."""
        with self._lock:
            self._callbacks.append(function)
        if self._context is not None and not self._ended:
            self._context._watch()
        if self._poll(0):
            self._call_back()

    def _await(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
            if self._poll_noting(max(0, round(left * 1000))):
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._what}: not done within {timeout:g} s; it goes on")

    def _poll_noting(self, milliseconds: int) -> bool:
        """_poll(); the context notes that a wait was broken off, by Ctrl-C say."""
        try:
            ended = self._poll(milliseconds)
        except Error:
            raise
        except BaseException:
            if self._context is not None:
                self._context._interrupted = True
            raise
        if ended and self._context is not None:
            self._context._interrupted = False
        return ended

    def _poll(self, milliseconds: int) -> bool:
        """Waits so long at most; true when it has ended."""
        if self._ended:
            return True
        if self._context is not None and self._pid != os.getpid():
            self._context._check()  # the lock may be held by a thread that a child does not have
        with self._lock:
            if self._ended:
                return True
            op = self._op
            self._users += 1
        status = PENDING
        try:
            status = library().psd_wait(op, milliseconds)
        finally:  # also when a signal handler raises
            with self._lock:
                self._users -= 1
                mine = status != PENDING and not self._ended
                if mine:
                    self._end(op, status)
                if self._ended and self._users == 0 and self._op is not None:
                    library().psd_op_release(self._op)
                    self._op = None
        if mine:
            self._call_back()
        return self._ended

    def _end(self, op: int | None, status: int) -> None:
        """Notes how it ended. With the lock."""
        if status != OK:
            text = library().psd_op_error(op).contents.text.decode(errors="replace")
            self._error = error_of(status, text, OUTCOMES[library().psd_op_outcome(op)])
        elif self._finish is not None:
            self._finish()
        self._settle(op)

    def _settle(self, op: int | None) -> None:
        self._keep = ()
        self._finish = None
        self._ended = True
        if self._context is not None and op is not None:
            self._context._forget(op, self)

    def _close(self) -> None:
        """The context is gone, and the operation with it."""
        with self._lock:
            if self._ended:
                return
            op, self._op = self._op, None
            self._error = ClosedError(f"{self._what}: the context was closed before it ended",
                                      outcome="unknown")
            self._told = True
            self._settle(op)
        self._call_back()

    def _call_back(self) -> None:
        while True:
            with self._lock:
                if not self._callbacks:
                    return
                function = self._callbacks.pop(0)
            try:
                function(self)
            except Exception:  # pylint: disable=broad-exception-caught
                logging.getLogger("poseidon").exception("callback of %s", self._what)
