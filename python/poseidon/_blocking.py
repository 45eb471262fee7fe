# SPDX-License-Identifier: Apache-2.0
"""Calls of the library that wait inside, made so that Ctrl-C works meanwhile.

Python runs signal handlers on the main thread only, and only between two of its own steps. So there
the call is made by a thread of its own, and the main thread waits for that one in Python. When
something is raised meanwhile (KeyboardInterrupt), the call goes on alone: `under way` counts those,
because a context must not be ended under a call's feet."""

from __future__ import annotations

import threading
from typing import Any, Callable

from ._errors import Error
from ._library import check


class Calls:
    """The blocking calls of one context."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0

    def under_way(self) -> int:
        """How many were left alone and still run."""
        return self._under_way

    def make(self, function: Callable[..., int], *arguments: Any) -> None:
        """Makes it and waits for it; raises what it failed with."""
        with self._lock:
            self._under_way += 1
        if threading.current_thread() is not threading.main_thread():
            try:
                check(function(*arguments))
            finally:
                self._leave()
            return
        errors: list[Error] = []
        done = threading.Event()
        threading.Thread(target=self._make_elsewhere, daemon=True, name="poseidon call",
                         args=(function, arguments, errors, done)).start()
        done.wait()
        if errors:
            raise errors[0]

    def _make_elsewhere(self, function: Callable[..., int], arguments: tuple,
                        errors: list[Error], done: threading.Event) -> None:
        try:
            check(function(*arguments))  # the message belongs to this thread
        except Error as error:
            errors.append(error)
        finally:
            self._leave()
            done.set()

    def _leave(self) -> None:
        with self._lock:
            self._under_way -= 1
