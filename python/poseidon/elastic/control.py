# SPDX-License-Identifier: Apache-2.0
"""Rounds in which workers tell each other what they do: a small table in which every rank has numbers of its own.

Every round of gradients, every reduction and every change of the workers is one such round, in the order of the program. So
all who are in it see the same, and decide the same: who has died, who has come, whose samples count."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from .._library import FOREVER
from .._table import Table

PAYLOAD = 512  # numbers that may travel with a round
TIMEOUT_S = 1800.0  # for the slowest worker to come to the same round


class Kind(enum.IntEnum):
    """What a worker is doing, in words that end "worker 2 ..."."""

    RIDE = 1  # has come, and gives nothing until the others take it in
    GRADIENTS = 2
    REDUCE = 3
    MESSAGE = 4
    SYNC = 5
    ALIGN = 6
    READY = 7
    END = 8


WORDS = {Kind.RIDE: "waits to be taken in", Kind.GRADIENTS: "gives gradients", Kind.REDUCE: "reduces a tensor",
         Kind.MESSAGE: "broadcasts", Kind.SYNC: "synchronizes its state (elastic.run)",
         Kind.ALIGN: "synchronizes its state (elastic.run)", Kind.READY: "synchronizes its state (elastic.run)",
         Kind.END: "has ended its training (elastic.run)"}

HAS_STATE, FRESH, LEAVES = 1, 2, 4  # flags


class Slot(NamedTuple):
    """What one rank says in a round. Integers below 2**52."""

    kind: int
    flags: int = 0
    samples: int = 0  # in its gradients; bytes of its message
    batch_size: int = 0
    first: int = 0  # batches of its deal
    end: int = 0
    deal: int = 0
    signature: int = 0  # of its tables
    gradient_step: int = 0  # it gives next
    bulk_step: int = 0


_WIDTH = len(Slot._fields)


class Round(NamedTuple):
    """What came back."""

    slots: dict[int, Slot]  # by rank; whoever is not in it was not there
    payload: np.ndarray

    def those(self, kind: Kind) -> list[int]:
        """The ranks that do this, in order."""
        return [rank for rank, slot in self.slots.items() if slot.kind == kind]


class Control:
    """The table of one job."""

    def __init__(self, context: Any, ranks: int):
        self._rank, self._ranks = context.rank, ranks
        self.table = Table("poseidon.elastic/control", ranks * _WIDTH + PAYLOAD, "float64", use="sum", reduce="sum",
                           nan_policy="allow", priority=255, context=context)

    def begin(self, slot: Slot, payload: np.ndarray | None = None) -> Any:
        """The future of a round."""
        sent = np.zeros(self._ranks * _WIDTH + PAYLOAD, np.float64)
        sent[self._rank * _WIDTH:(self._rank + 1) * _WIDTH] = slot
        if payload is not None:
            sent[self._ranks * _WIDTH:][:len(payload)] = payload
        return self.table.push_pull(sent, np.empty_like(sent), timeout_ms=FOREVER)

    def end(self, future: Any) -> Round:
        """Waits for it."""
        came = future.result(TIMEOUT_S)
        numbers = came[:self._ranks * _WIDTH].reshape(self._ranks, _WIDTH)
        there = np.flatnonzero(numbers[:, 0])
        return Round({int(rank): Slot(*map(int, numbers[rank])) for rank in there}, came[self._ranks * _WIDTH:])
