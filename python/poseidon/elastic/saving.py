# SPDX-License-Identifier: Apache-2.0
"""The state of an elastic program in the checkpoints of psd_run --checkpoint, and where it goes on from (--resume).

All workers have the same state at a commit(), so rank 0 gives its own, and the others need not know of it. While rank 0 is
not in the job nothing is saved, which the master says."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .. import _due
from .._context import CHECKPOINT_EPOCH
from .._errors import MismatchError
from .sampler import ElasticSampler

if TYPE_CHECKING:
    from .state import State

_TIMEOUT_S = 1800.0
_KIND = "poseidon.elastic.State"


def resumed(context: Any) -> tuple[int, bytearray] | None:
    """The step that the job goes on from, and what was saved there; None: it begins anew, or this worker joins one by hand."""
    found = context.checkpoint_resumed()
    if found is None and "PSD_RESUME" in os.environ:
        raise MismatchError(f"the checkpoint in {os.environ['PSD_RESUME']} has no state of poseidon.elastic: it is of another program")
    return found


def load(state: "State", data: bytearray) -> None:
    """The state becomes what was saved."""
    kept = state.parts.decode(data)
    if not isinstance(kept, dict) or kept.get("kind") != _KIND:
        raise MismatchError("the checkpoint that the job goes on from is not of poseidon.elastic")
    there, here = sorted([*kept["values"], *kept["parts"]]), sorted(state.names())
    if there != here:
        raise MismatchError(f"the checkpoint has {', '.join(there)}, the state of this program {', '.join(here)}")
    state.become(kept)


class Saver(_due.Giver):
    """Of one job. Rank 0 asks it at every commit()."""

    def __init__(self, context: Any, step: int):
        super().__init__(context, _TIMEOUT_S)
        self._step = step  # so many commits
        self._can: bool | None = None  # not known yet

    def look(self, state: "State") -> None:
        """Gives the state, if it is wanted now."""
        if self._can is None:
            self._can = self._try(state)
        if not self._can:
            return
        self._step += 1
        at = self._context.checkpoint_due(self._step)
        if at == self._step or (at == CHECKPOINT_EPOCH and _is_epoch_over(state)):
            self.give(self._step, _encode(state))

    def _try(self, state: "State") -> bool:
        """Before the master counts on it."""
        try:
            _encode(state)
        except TypeError as error:
            print(f"poseidon.elastic: no checkpoints are written: {error}", file=sys.stderr, flush=True)
            return False
        return True


def saver(context: Any, step: int) -> Saver | None:
    """None: nothing is to be saved here."""
    return Saver(context, step) if context.rank == 0 and _due.wanted() else None


def _encode(state: "State") -> bytes:
    return state.parts.encode({"kind": _KIND, **state.content()})


def _is_epoch_over(state: "State") -> bool:
    samplers = [thing for thing in state.things() if isinstance(thing, ElasticSampler)]
    return bool(samplers) and all(sampler.is_through() for sampler in samplers)
