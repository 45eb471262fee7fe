# SPDX-License-Identifier: Apache-2.0
"""What the workers compare in every round, beside the gradients: a few numbers each; and once more when the
script is over.

Weights or learning rates that differ, or batches drawn in different orders, would train something that nobody
asked for without any other sign of it."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any, Iterable

import torch

import poseidon

if TYPE_CHECKING:
    from .session import TorchSession

FOREVER = 2**32 - 1
NORM_EVERY = 128  # rounds
NORM_TOLERANCE = 1e-4  # machines may round differently
# It takes part, weights (first round, end), norm of the weights, batches, learning rates, the script is over, weights
# in one direction (end).
PRESENT, WEIGHTS, NORM, BATCHES, RATES, OVER, DIRECTION = range(7)
FIELDS = 7


class Checks:
    """Travels with the rounds of one engine (poseidon.torch.engine.Companion)."""

    def __init__(self, session: TorchSession, parameters: list[torch.Tensor], name: str,
                 timeout: float):
        self._session, self._parameters, self._timeout = session, parameters, timeout
        self._world, self._rank = session.world, session.rank
        self._table = poseidon.Table(f"{name}/checks", shape=(FIELDS * self._world,),
                                     dtype="float64", use="sum", reduce="sum", nan_policy="allow")
        self._numbers = torch.zeros(FIELDS, self._world, dtype=torch.float64)
        self._rounds = 0
        self._future: Any = None
        self._missing: set[int] = set()  # workers that take part no more

    def begin(self, active: bool) -> None:
        """A round begins: the weights are as the forward saw them."""
        del active
        mine = self._mine()
        if self._rounds == 0:
            mine[WEIGHTS] = digest(self._parameters)
        if self._rounds % NORM_EVERY == 0:
            mine[NORM] = norm(self._parameters)
        self._send()

    def _mine(self) -> torch.Tensor:
        self._numbers.zero_()
        mine = self._numbers[:, self._rank]
        mine[PRESENT] = 1
        mine[BATCHES] = self._session.batches_digest
        mine[RATES] = zlib.crc32(repr(self._session.learning_rates()).encode())
        return mine

    def _send(self) -> None:
        address = self._numbers.data_ptr()
        self._future = self._table.transfer(address, address, keep=(self._numbers,),
                                            timeout_ms=FOREVER)

    def end(self, active: bool) -> None:
        """The round has ended: everybody's numbers are here."""
        del active
        self._future.result(self._timeout)
        self._rounds += 1
        here = self._numbers[PRESENT] > 0  # the job may go on without a worker that died
        self._look_for_leavers(here.tolist())
        over = self._numbers[OVER].nonzero().flatten().tolist()
        if over:
            self._refuse_leaver(over[0])
        weights, norms, batches, rates = self._numbers[WEIGHTS:OVER, here].tolist()
        if not _equal(weights):
            self._session.refuse(
                "the workers' weights differ before the first step",
                "give the model its initial weights before the first batch of the training loader "
                "is read, and change them in the optimizer's step alone")
        if not _near(norms):
            self._session.refuse(
                "the workers' weights have drifted apart",
                "they must change in the optimizer's step alone, and not by anything that is "
                "random or different on each worker")
        if not _equal(rates):
            self._session.refuse(
                f"the workers' learning rates differ: this one has {self._session.learning_rates()}",
                "let a scheduler decide by what is the same on all workers, such as the loss of the evaluation; "
                "each worker's training loss is that of its own samples")
        if not _equal(batches):
            self._session.refuse(
                "the workers draw their batches in different orders, or one has trained on a batch "
                "that another has left out",
                "decide by nothing that only one worker sees, such as its own loss; a sampler must take its "
                "randomness from torch, numpy.random or random, not from a generator of its own that is seeded "
                "differently on each worker")

    def compare_at_end(self) -> str:
        """The script is over, here: waits until it is everywhere, and returns what holds of the weights."""
        mine = self._mine()
        mine[OVER] = 1
        mine[WEIGHTS] = digest(self._parameters)
        mine[NORM], mine[DIRECTION] = norm(self._parameters), direction(self._parameters)
        self._send()
        self._future.result(self._timeout)
        here = self._numbers[PRESENT] > 0
        over = self._numbers[OVER]
        if not bool(over[here].all()):
            self._refuse_leaver(self._rank)
        weights, norms, _, rates, _, directions = self._numbers[WEIGHTS:, here].tolist()
        tolerance = NORM_TOLERANCE * max(norms)
        if not _near(norms) or max(directions) - min(directions) > tolerance:
            self._session.refuse(
                "the workers have ended with different weights",
                "they must change in the optimizer's step alone, by learning rates that are the same everywhere")
        del rates  # whatever a scheduler has done after the last step has changed nothing
        return "equal to the bit" if _equal(weights) else "equal but for rounding"

    def _refuse_leaver(self, rank: int) -> None:
        self._session.refuse(
            f"worker {rank} has ended its training while others go on, and nobody has its part of the data",
            "decide when to stop by nothing that only one worker sees, such as its own loss: the evaluation is the "
            "same on all")

    def _look_for_leavers(self, here: list[bool]) -> None:
        """Nobody trains on the batches of a worker whose script is over. (One that died is psd_run's
        matter: --on_worker_death.)"""
        missing = {rank for rank, takes_part in enumerate(here) if not takes_part}
        if missing <= self._missing:
            return
        self._missing |= missing
        left = sorted(node.rank for node in poseidon.nodes()
                      if node.role == "worker" and node.rank in missing and node.state == "done")
        if left:
            self._refuse_leaver(left[0])


def _equal(values: list[float]) -> bool:
    return all(value == values[0] for value in values)


def _near(values: list[float]) -> bool:
    if _equal(values) or all(math.isnan(value) for value in values):
        return True
    return max(values) - min(values) <= NORM_TOLERANCE * max(map(abs, values))


def digest(tensors: Iterable[torch.Tensor]) -> int:
    """A checksum of their bits."""
    found = 0
    for tensor in tensors:
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found = zlib.crc32(raw.numpy(), found)
    return found


def norm(tensors: Iterable[torch.Tensor]) -> float:
    """The length of all of them as one vector."""
    return math.sqrt(sum(float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)) ** 2
                         for tensor in tensors))


def direction(tensors: Iterable[torch.Tensor]) -> float:
    """All of them as one vector, seen along a direction in which weights that differ hardly agree by chance."""
    return sum(float(torch.dot(flat, torch.linspace(-1, 1, flat.numel(), dtype=torch.float64)))
               for flat in (tensor.detach().cpu().reshape(-1).to(torch.float64) for tensor in tensors))
