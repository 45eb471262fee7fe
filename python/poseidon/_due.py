# SPDX-License-Identifier: Apache-2.0
"""When all ranks give their state for a checkpoint of psd_run --checkpoint: after the same step.

Rank 0 hears of it from the master, one step ahead, and tells the others by a table of one number, whose answer is read
a step later: nobody waits for it."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

import numpy as np

import poseidon
from ._context import CHECKPOINT_EPOCH, CHECKPOINT_NONE

AT_EPOCH = -1.0
_PATIENCE_S = 10.0


def wanted() -> bool:
    """Whether checkpoints are written at all."""
    return "PSD_CHECKPOINT" in os.environ


def wish_of(at: int) -> float:
    """What checkpoint_due() has said, as a number that travels: a step, AT_EPOCH, or 0 for none."""
    return {CHECKPOINT_NONE: 0.0, CHECKPOINT_EPOCH: AT_EPOCH}.get(at, float(at))


class Giver:
    """Rank 0's part of checkpoints, written while training goes on."""

    def __init__(self, context: Any, timeout: float):
        self._context, self._timeout = context, timeout
        self._writer: threading.Thread | None = None
        self._context.before_leaving(self._finish)

    def give(self, step: int, data: bytes) -> None:
        """While a disk still has not taken one that was given up, training does not wait for it: the master asks again."""
        if self._writer is not None:
            self._writer.join(_PATIENCE_S)
            if self._writer.is_alive():
                return
        self._writer = threading.Thread(target=self._write, args=(step, data), name="poseidon-checkpoint", daemon=True)
        self._writer.start()

    def _finish(self) -> None:
        """The library may not be left while the writer is inside of it."""
        if self._writer is not None:
            self._writer.join(self._timeout)
            if self._writer.is_alive():
                raise poseidon.TimeoutError(f"the disk has not taken this worker's part of a checkpoint in {self._timeout:g} s")

    def _write(self, step: int, data: bytes) -> None:
        try:
            self._context.checkpoint_part(step, data)
        except poseidon.Error:
            pass  # the master has been told, and says it; or it was given up, or the job is over


class Due(Giver):
    """Of one job. Every rank calls it after the same steps."""

    def __init__(self, timeout: float):
        super().__init__(poseidon.context(), timeout)
        self._table = poseidon.Table("poseidon.checkpoint", shape=(1,), dtype="float64", use="sum", reduce="sum")
        self._future: Any = None
        self._told = 0.0

    def offer(self) -> None:
        """Tells the master that steps will come which can be saved; after() does, too, but the first may take long."""
        if self._context.rank == 0:
            self._context.checkpoint_due(0)

    def after(self, step: int, epoch_ended: Callable[[], bool] = bool) -> bool:
        """Whether the state after so many steps is wanted. epoch_ended: asked where the ends of epochs are wanted."""
        if self._future is not None:
            self._told = float(self._future.result(self._timeout)[0])
        mine = np.zeros(1)
        if self._context.rank == 0:
            at = self._context.checkpoint_due(step)
            mine[0] = wish_of(at)
        self._future = self._table.push_pull(mine, mine)
        return epoch_ended() if self._told == AT_EPOCH else self._told == step
