# SPDX-License-Identifier: Apache-2.0
"""When the gradients of a backward became ready, told to those who watch: psd_run trace draws it beside pushes and rounds.

Each bucket is a bar, from the hook that filled the one before (or the first of all) to the one that filled it; "backward" is from
the first hook to the end."""

from __future__ import annotations

import time
from typing import Any

PAUSE_NS = 5_000_000  # between two backwards that are told: a call for each bucket is much for one that takes no longer


class Times:
    """Of one engine."""

    def __init__(self, context: Any):
        self._context = context
        self._begun = 0  # 0: no backward is followed
        self._ready: list[tuple[str, int]] = []
        self._due = 0

    def begin(self) -> None:
        """The first hook of a backward."""
        now = time.monotonic_ns()
        self._begun = now if now >= self._due else 0
        self._ready.clear()

    def ready(self, name: str) -> None:
        """The last gradient of a bucket is there."""
        if self._begun:
            self._ready.append((name, time.monotonic_ns()))

    def end(self, step: int) -> None:
        """The backward has ended."""
        if not self._begun:
            return
        now, mark, before = time.monotonic_ns(), self._context.mark, self._begun
        self._due = now + PAUSE_NS
        for name, at in self._ready:
            mark(step, name, before, at)
            before = at
        mark(step, "backward", self._begun, now)
        self._begun = 0
