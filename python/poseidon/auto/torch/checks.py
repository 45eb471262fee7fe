# SPDX-License-Identifier: Apache-2.0
"""Carries the words of the witness (common/witness.py) with every round of gradients; and once more when the script
is over.

A glance at them travels in a bucket of the gradients: a message of its own would cost more than everything else that the
witness does in a step. The words themselves have a table, for rounds in which a glance is not enough. It carries all of
them in the first round, in which there are no buckets yet, and where gradients are of a type that cannot carry a glance.

Weights or learning rates that differ, samples that two workers train on or that nobody does, would train something
that nobody asked for without any other sign of it."""

from __future__ import annotations

import array
import zlib
from typing import TYPE_CHECKING, Any

import poseidon

from ..common import notes
from ..common.witness import COUNT, GLANCE, Word
from .weights import Later, Weights

if TYPE_CHECKING:
    from poseidon.torch.engine import Engine

    from .session import TorchSession

FOREVER = 2**32 - 1
MEASURE_EVERY = 128  # rounds: all weights are looked at, not only a sample; also when an epoch is over, but
MEASURE_APART = 16  # not more often than this
STREAMS_EVERY = 128  # rounds; and in those before that are powers of two


class Checks:
    """Travels with the rounds of one engine (poseidon.torch.engine.Companion)."""

    def __init__(self, session: TorchSession, engine: Engine, timeout: float):
        self._session, self._witness, self._engine, self._timeout = session, session.witness, engine, timeout
        self._world, self._rank = session.world, session.rank
        self._weights = Weights([slot.parameter for slot in engine.slots])
        self._room = engine.reserve(GLANCE)
        size = (GLANCE + COUNT) * self._world
        self._table = poseidon.Table(f"{engine.name}/checks", shape=(size,),
                                     dtype="float64", use="sum", reduce="sum", nan_policy="allow")
        self._numbers = array.array("d", bytes(8 * size))  # in the table: all glances, all words, of worker 0 first
        self._glance: tuple[int, ...] = ()  # of this worker
        self._rounds = 0  # that have ended
        self._begun = 0  # the newest of them
        self._carried = False  # by the gradients of this round
        self._future: Any = None  # else: of the table
        self._rates: tuple[list[float], int] = ([], 0)  # and their digest
        self._sampled: Later | None = None  # of the round before, where they lie on a device
        self._streams_at = 0  # rounds
        self._measured: Later | None = None
        self._measured_at = 0  # rounds
        self._epochs = self._witness.epochs
        self._missing: set[int] = set()  # workers that take part no more

    def begin(self, active: bool) -> None:
        """A round begins: the weights are as the forward saw them. Everybody waits for what is done here."""
        del active
        session, witness, number = self._session, self._witness, self._rounds
        self._begun = number
        if number == 0:
            witness.note(bits=self._weights.digest())
        rates = session.learning_rates()
        if rates != self._rates[0]:
            self._rates = (rates, zlib.crc32(repr(rates).encode()))
        if self._sampled is not None:
            sample, size = self._weights.as_one(self._sampled)
            witness.note(sample=sample, sample_size=size)
        if self._measured is not None:
            length, direction = self._weights.as_vector(self._measured)
            witness.note(norm=length, direction=direction)
            self._measured = None
        if number == self._streams_at:
            self._streams_at += min(max(1, number), STREAMS_EVERY)
            session.seen.note_streams()
        self._give_glance()

    def _give_glance(self, over: bool = False) -> None:
        session, weights = self._session, self._weights
        bits = weights.bits(self._rounds) if weights.lie_here else 0
        self._glance = self._witness.glance(session.share(), session.seen.rows(), self._rates[1], bits, over)
        self._carried = self._room.is_there
        if self._carried:
            self._room.put(self._glance)

    def leave(self) -> None:
        """By the table words go behind the gradients: servers that are awake for them need not be woken twice. What
        takes time to be looked at is told with the next round."""
        if not self._carried:
            self._send()
        if not self._weights.lie_here:
            self._sampled = self._weights.sample(self._rounds)
        since = self._rounds - self._measured_at
        if since % MEASURE_APART == 0:
            self._weights.look_where_they_lie()
        if since >= MEASURE_APART and (since >= MEASURE_EVERY or self._epochs != self._witness.epochs):
            self._measured_at, self._epochs = self._rounds, self._witness.epochs
            self._measured = self._weights.measure()

    def _send(self, over: bool = False) -> None:
        """By the table."""
        told = self._witness.words_behind_glance(over)
        if self._weights.lie_here:
            told[Word.SAMPLE], told[Word.SAMPLE_SIZE] = self._weights.as_one(self._weights.sample(self._begun))
        address, size = self._numbers.buffer_info()
        self._numbers[:] = array.array("d", bytes(8 * size))
        glance, words = GLANCE * self._rank, GLANCE * self._world + COUNT * self._rank
        self._numbers[glance:glance + GLANCE] = array.array("d", self._glance)
        self._numbers[words:words + COUNT] = array.array("d", told)
        self._future = self._table.transfer(address, address, keep=(self._numbers,), timeout_ms=FOREVER, reap=False)

    def _everybodys_words(self) -> list[list[float]]:
        """That came by the table."""
        found = self._numbers[GLANCE * self._world:]
        return [found[at:at + COUNT].tolist() for at in range(0, len(found), COUNT)]

    def end(self, active: bool) -> None:
        """The round has ended: everybody's glances are here."""
        del active
        if not self._carried:
            self._future.result(self._timeout)
        self._rounds += 1
        raw = self._room.as_it_came() if self._carried else self._numbers[:GLANCE * self._world].tobytes()
        if not self._witness.holds_at_a_glance(self._glance, raw):
            if self._carried:
                self._fetch_words()
            self._look_closely(self._everybodys_words())

    def _fetch_words(self, over: bool = False) -> None:
        """All workers have seen the same glances, and so come here together."""
        self._send(over)
        self._future.result(self._timeout)

    def _look_closely(self, rows: list[list[float]]) -> None:
        self._look_for_leavers(rows)
        for rank, row in enumerate(rows):
            if row[Word.OVER] > 0:
                self._refuse_leaver(rank)
        self._witness.hear(rows, self._rates[0])

    def compare_at_end(self, steps: int) -> str:
        """The script is over, here: waits until it is everywhere, and returns what was verified; empty: it is
        not."""
        self._engine.synchronize()  # after a backward that failed
        length, direction = self._weights.as_vector(self._weights.measure())
        self._witness.note(bits=self._weights.digest(), norm=length, direction=direction)
        self._give_glance(over=True)
        if self._carried:
            self._engine.send_room()
        self._fetch_words(over=True)
        rows = self._everybodys_words()
        if any(row[Word.PRESENT] > 0 and row[Word.OVER] == 0 for row in rows):
            self._refuse_leaver(self._rank)
        return self._witness.hear_end(rows, steps)

    def _refuse_leaver(self, rank: int) -> None:
        self._session.refuse(
            f"worker {rank} has ended its training while others go on, and nobody has its part of the data",
            "decide when to stop by nothing that only one worker sees, such as its own loss: the evaluation is the "
            "same on all")

    def _look_for_leavers(self, rows: list[list[float]]) -> None:
        """Nobody trains on the batches of a worker whose script is over, nor on those of one that died while the
        others go on."""
        missing = {rank for rank, row in enumerate(rows) if row[Word.PRESENT] == 0}
        new = missing - self._missing
        if not new:
            return
        self._missing |= new
        left = sorted(node.rank for node in poseidon.nodes()
                      if node.role == "worker" and node.rank in new and node.state == "done")
        if left:
            self._refuse_leaver(left[0])
        if self._rank == min(set(range(self._world)) - missing):
            notes.tell(f"{' and '.join(f'worker {rank}' for rank in sorted(new))} died, and the job goes on without "
                       "(--on_worker_death=continue): nobody trains on its part of each epoch from now on")
