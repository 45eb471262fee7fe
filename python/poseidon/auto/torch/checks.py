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
from typing import TYPE_CHECKING, Any

import poseidon

from ..common import notes
from ..common.witness import COUNT, GLANCE, UNKNOWN, Word
from .weights import Later, Weights

if TYPE_CHECKING:
    from poseidon.torch.engine import Engine

    from .session import TorchSession

FOREVER = 2**32 - 1
MEASURE_EVERY = 128  # rounds: all weights are looked at, not only a sample; also when an epoch is over, but
MEASURE_APART = 16  # not more often than this
STREAMS_EVERY = 128  # rounds; and in those before that are powers of two


class Checks:
    """Travels with the rounds of one engine (poseidon.torch.engine.Companion).

    Everybody waits for begin() and end(), so that in nearly every round they do nothing but read a few numbers, and compare
    what came. What can be prepared is, in leave(), while the gradients are under way, and for several rounds at once."""

    # What every step needs comes first, and so lies together.
    __slots__ = ("_session", "_witness", "_carried", "_has_news", "_rates", "_known_rates", "_rows", "_samples", "_glance",
                 "_mine", "_carrier", "_begin", "_rounds", "_is_due", "_room", "_weights", "_sampled", "_streams_at", "_measured", "_measured_at", "_epochs",
                 "_engine", "_timeout", "_world", "_rank", "_table", "_numbers", "_future", "_missing")

    def __init__(self, session: TorchSession, engine: Engine, timeout: float):
        self._session, self._witness, self._engine, self._timeout = session, session.witness, engine, timeout
        self._world, self._rank = session.world, session.rank
        self._weights = Weights([slot.parameter for slot in engine.slots])
        self._open(engine)
        self._glance: tuple[int, ...] = ()  # of this worker
        self._rounds = 0  # that have ended
        self._carried = False  # by the gradients: this round, and from its end on the next one
        self._future: Any = None  # else: of the table
        self._is_due = True  # something is to be done in leave()
        self._rates: list[float] = []  # of this round
        self._known_rates: list[Any] | None = None  # as the script has them, where they are numbers that stay what they are
        self._rows = session.seen.rows
        self._samples = self._weights.samples(0, 1)  # weights that the next rounds tell of, from the last one on
        self._has_news = True  # something is to be told in the next round that is not in every one
        self._sampled: Later | None = None  # of the round before, where they lie on a device
        self._streams_at = 0  # rounds
        self._measured: Later | None = None
        self._measured_at = 0  # rounds
        self._epochs = self._witness.epochs
        self._missing: set[int] = set()  # workers that take part no more

    def _open(self, engine: Engine) -> None:
        """What the words travel in."""
        self._room = engine.reserve(GLANCE)
        self._mine = self._room.mine  # where this worker's glance is written
        self._carrier, self._begin = self._room.bucket, 0  # where everybody's come, and from what place on
        size = (GLANCE + COUNT) * self._world
        self._table = poseidon.Table(f"{engine.name}/checks", shape=(size,),
                                     dtype="float64", use="sum", reduce="sum", nan_policy="allow")
        self._numbers = array.array("d", bytes(8 * size))  # in the table: all glances, by number; all words, by worker

    def begin(self, active: bool, over: bool = False) -> None:
        """A round begins: the weights are as the forward saw them. over: the script has ended."""
        del active
        session, rates = self._session, []
        if self._has_news and not over:
            self._tell_news()
        for groups in session.stepped:
            for group in groups:
                rates.append(group.get("lr", 0.0))
        if rates != self._known_rates:
            self._look_at_rates(rates)
        samples = self._samples
        self._glance = glance = self._witness.glance(
            session.share, session.seen.take_rows() if self._rows else UNKNOWN, self._rates,
            int.from_bytes(samples.pop(), "little"), over)
        if not samples:
            self._is_due = True
        if self._carried:
            mine = self._mine
            mine[0], mine[1], mine[2] = glance

    def _look_at_rates(self, rates: list[Any]) -> None:
        """They are new, or tensors, of which only a look tells what they are."""
        self._rates = [float(rate) for rate in rates]
        self._known_rates = rates if all(type(rate) is float for rate in rates) else None

    def _tell_news(self) -> None:
        witness, number = self._witness, self._rounds
        if number == 0:
            witness.note(bits=self._weights.digest())
        if self._sampled is not None:
            sample, size = self._weights.as_one(self._sampled)
            witness.note(sample=sample, sample_size=size)
        if self._measured is not None:
            length, direction = self._weights.as_vector(self._measured)
            witness.note(norm=length, direction=direction)
            self._measured = None
        if number == self._streams_at:
            self._streams_at += min(max(1, number), STREAMS_EVERY)
            self._session.seen.note_streams()

    def leave(self) -> None:
        """By the table words go behind the gradients: servers that are awake for them need not be woken twice. What
        takes time to be looked at is told with the next round."""
        if self._is_due or self._epochs != self._witness.epochs:
            if not self._carried:
                self._send()
            if not self._samples or self._has_news or self._epochs != self._witness.epochs:
                self._prepare()
            self._is_due = self._has_news or not self._carried

    def _prepare(self) -> None:
        """What the next rounds tell, until something is to be looked at again."""
        number, since = self._rounds + 1, self._rounds - self._measured_at
        if not self._samples:
            self._weights.look_where_they_lie()
            self._witness.catch_up()
            ahead = min(MEASURE_APART, MEASURE_EVERY - since, self._streams_at - number)
            self._samples = self._weights.samples(number, max(1, ahead))
        self._sampled = None if self._weights.lie_here else self._weights.sample(self._rounds)
        if since >= MEASURE_APART and (since >= MEASURE_EVERY or self._epochs != self._witness.epochs):
            self._measured_at, self._epochs = self._rounds, self._witness.epochs
            self._measured = self._weights.measure()
        self._has_news = number == self._streams_at or self._sampled is not None or self._measured is not None

    def _send(self, over: bool = False) -> None:
        """By the table."""
        told = self._words(over)
        address, size = self._numbers.buffer_info()
        self._numbers[:] = array.array("d", bytes(8 * size))
        words = GLANCE * self._world + COUNT * self._rank
        self._numbers[self._rank:GLANCE * self._world:self._world] = array.array("d", self._glance)
        self._numbers[words:words + COUNT] = array.array("d", told)
        self._future = self._table.transfer(address, address, keep=(self._numbers,), timeout_ms=FOREVER, reap=False)

    def _words(self, over: bool) -> list[float]:
        """All of this worker's, of the round that it gave a glance at."""
        told = self._witness.words_behind_glance(over)
        if self._weights.lie_here:
            told[Word.SAMPLE], told[Word.SAMPLE_SIZE] = self._weights.as_one(self._weights.sample(self._rounds))
        return told

    def _everybodys_words(self) -> list[list[float]]:
        """That came by the table."""
        found = self._numbers[GLANCE * self._world:]
        return [found[at:at + COUNT].tolist() for at in range(0, len(found), COUNT)]

    def end(self, active: bool) -> None:
        """The round has ended: everybody's glances are here."""
        del active
        if self._carried:
            if not self._witness.holds_at_a_glance(self._carrier.came, self._begin):
                self._fetch_words()
                self._look_closely(self._everybodys_words())
        else:
            if not self._witness.holds_at_a_glance(self._fetch_glances()):
                self._look_closely(self._everybodys_words())
            self._carry()
        self._rounds += 1

    def _carry(self) -> None:
        """By the gradients, from now on, if they can."""
        room = self._room
        self._carried, self._mine, self._carrier, self._begin = room.is_there, room.mine, room.bucket, room.begin

    def _fetch_glances(self) -> list[float]:
        """By the table, with the words."""
        self._future.result(self._timeout)
        return self._numbers[:GLANCE * self._world].tolist()

    def _fetch_words(self, over: bool = False) -> None:
        """All workers have seen the same glances, and so come here together."""
        self._send(over)
        self._future.result(self._timeout)

    def _look_closely(self, rows: list[list[float]]) -> None:
        self._look_for_leavers(rows)
        for rank, row in enumerate(rows):
            if row[Word.OVER] > 0:
                self._refuse_leaver(rank)
        self._witness.hear(rows, list(self._rates), self._session._steps)

    def compare_at_end(self, steps: int) -> str:
        """The script is over, here: waits until it is everywhere, and returns what was verified; empty: it is
        not."""
        self._engine.synchronize()  # after a backward that failed
        self._begin_end()
        if self._carried:
            self._engine.send_room()
        self._fetch_words(over=True)
        rows = self._everybodys_words()
        if any(row[Word.PRESENT] > 0 and row[Word.OVER] == 0 for row in rows):
            self._refuse_leaver(self._rank)
        return self._witness.hear_end(rows, steps)

    def _begin_end(self) -> None:
        """The last words are of all weights."""
        length, direction = self._weights.as_vector(self._weights.measure())
        self._witness.note(bits=self._weights.digest(), norm=length, direction=direction)
        self.begin(active=True, over=True)

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
