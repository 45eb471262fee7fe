# SPDX-License-Identifier: Apache-2.0
"""Which of several failures is the cause of the others.

When one process of a job is lost, all the others fail, too, and the driver may hear of these first. So a failure that
may be a consequence waits a little for one that explains it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

# How much a failure says, most first, and how long it waits for a better one.
DIED = 0  # Ray: the actor is dead; the actor: its daemon was killed
RAISED = 0  # the function's own exception
LOST = 1  # ps_master: a member is lost
FOLLOWED = 2  # an exception, or an exit code, which says that somebody else was lost
_SETTLE_S = {0: 0.1, LOST: 0.5, FOLLOWED: 2.0}


class Failure(NamedTuple):
    """What happened to a member of the job."""

    weight: int
    member: Any
    text: str
    traceback: str = ""


class Failures:
    """Those that the driver has heard of."""

    def __init__(self) -> None:
        self._heard: list[tuple[float, Failure]] = []

    def add(self, failure: Failure) -> None:
        """Heard now."""
        self._heard.append((time.monotonic(), failure))

    def due_s(self) -> float | None:
        """Until cause() can be told; None while nothing has failed."""
        if not self._heard:
            return None
        return max(0.0, min(heard + _SETTLE_S[failure.weight] for heard, failure in self._heard)
                   - time.monotonic())

    def cause(self) -> Failure:
        """The first of those that say most."""
        return min((failure for _, failure in self._heard), key=lambda failure: failure.weight)
