# SPDX-License-Identifier: Apache-2.0
"""A thread that notices when operations end, for futures with callbacks."""

from __future__ import annotations

import logging
import os
import select
import threading
from typing import Callable

from ._errors import Error


class Watcher:
    """Calls `look` when the library's descriptor is readable, until stop()."""

    def __init__(self, descriptor: int, look: Callable[[], None]):
        self._descriptor = descriptor
        self._look = look
        self._stopped, self._stop = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="poseidon watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when it looks no more."""
        os.write(self._stop, b"x")  # closing it is not seen while a forked child (of a data loader) has it, too
        os.close(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            os.close(self._stopped)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._stopped, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._stopped in ready:
                return
            try:
                self._look()
            except Error:
                logging.getLogger("poseidon").exception("the end of operations")
                return
