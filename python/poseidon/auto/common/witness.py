# SPDX-License-Identifier: Apache-2.0
"""What must hold of a job in every step, whoever deals its data out.

Each worker notes what it sees: which samples it was given to train on and which to evaluate with, how much they
count in the mean, learning rates, samples of the weights, its random numbers. words() is that as a few numbers,
which travel with the gradients; hear() gets those of all workers and knows what must hold. What does not is a
*breach*: it has a kind, a reason and an advice, and the session stops the script, or goes on with one line where
it was told to (--auto warn).

Nothing in here knows how samples are dealt out, nor a framework: a framework has something that carries the words
(auto/torch/checks.py), and calls what is below as the script goes. What it does not know stays unknown, and
nothing is held against it.

The order of calls is that of the script: of two workers at the same round everything before it has been noted.
Where a thread of the script reads ahead, so that this is not so, counts differ and the comparison waits.

Thread: that of the script which trains."""

from __future__ import annotations

import array
import collections
import enum
import itertools
import math
import threading
import zlib
from typing import Any, Callable, Iterable, Iterator, Sequence

from .lost import Lost
from .positions import MODULUS, Positions, copy_of, in_any_order, mixed

UNKNOWN = math.nan
TOLERANCE = 1e-4  # of weights: machines may round differently
SHARE_TOLERANCE = 1e-6
SURE_AFTER = 3  # equal digests of bytes alone may be chance: toy data are often constant
LOOK_CLOSER = 4  # batches of a reading
LOOK_AFTER = 64  # batches that may wait to be looked at: many together take a fraction of the time
STREAMS = 5  # generators of random numbers that are looked at


class Word(enum.IntEnum):
    """Where it is in words(). Those before GIVEN_ALL are the same on all workers when all is well, nearly always: a glance
    has no more than a digest of them."""

    PRESENT = 0  # a worker that died has zeros
    OVER = 1  # the script has ended
    GIVEN = 2  # batches that the script was given while gradients were on
    SOURCE = 3  # where the newest is from
    ORDER = 4  # a digest of all that was drawn for all workers
    EPOCHS = 5  # readings of dealt data that came to their end
    WHOLE = 6  # everybody's samples of them, as each worker has drawn them
    TESTED = 7  # batches that were read whole
    TESTED_ALL = 8  # a digest of them, in any order
    SHARE = 9  # how much this worker's batch counts in the mean
    ROWS = 10  # samples that the model saw
    RATES = 11  # a digest of the learning rates
    SAMPLE_BITS = 12  # a digest of a few weights: where it differs, these are compared
    SAMPLE = 13  # them as one number
    SAMPLE_SIZE = 14  # what it is measured by
    NORM = 15  # of all weights
    DIRECTION = 16  # all weights as one vector, along a direction in which those that differ hardly agree
    BITS = 17  # a digest of all weights: before the first step, and in the end
    MEANS = 18  # what a loss is a mean of, by sample; less than 0: it has weights of its own
    GIVEN_ALL = 19  # a digest of the batches that the script was given
    NEWEST = 20  # that of the newest
    PARTS = 21  # this worker's samples of the readings that came to their end
    STREAM = 22  # and the ones behind it: states of the generators that noise was drawn from


COUNT = Word.STREAM + STREAMS
# A glance is so many numbers of 20 bits: two are a digest of the flags and words that should be equal, one has the low bits of
# NEWEST, which should differ, or of GIVEN_ALL where that is not known. Where these are equal by chance, the words are heard, and
# nothing else happens.
GLANCE, GLANCE_BITS = 3, 20
_CLOSER = 1  # a flag: there is something to hear()
_SAME_DATA = 2  # workers may have been given the same
_NO_NEWS = 4  # the newest batch is not known by its positions
_OVER = 8  # the script has ended
_QUIET = (0, _NO_NEWS)
_LOW = (1 << GLANCE_BITS) - 1
# Those that note() tells: where they are behind SHARE.
_NOTED = {word.name.lower(): word - Word.SHARE for word in Word if Word.SHARE <= word < Word.MEANS}
_NOTHING_NOTED = [UNKNOWN] * len(_NOTED)
_OF_A_STEP = 4  # the first of them, which glance() is told
assert list(_NOTED)[:_OF_A_STEP] == ["share", "rows", "rates", "sample_bits"]
_NOT_NOTED = tuple(_NOTHING_NOTED[_OF_A_STEP:])
_NO_POSITIONS = -1  # in the place of a digest: hash() never returns it
_NO_STREAMS = [UNKNOWN] * STREAMS


def _taken(batches: list) -> list:
    """All of them, which are there no more. Others may be added meanwhile."""
    found = batches[:]
    del batches[:len(found)]
    return found


class Reading:
    """One way through a source of samples with positions, such as an epoch of a loader: what was drawn for all
    workers, and what of it this worker's script was given.

    Nearly every batch is like the one before: gave_another() is all that is done in its step. What can wait is done
    for many at once (look_at_batches), while the workers wait for one another."""

    # What a step needs comes first, and so lies together.
    __slots__ = ("is_steady", "asked", "_size", "_drawn", "_got", "_witness", "_source", "uneven", "_repeats",
                 "_batches_given", "_parted", "_content", "_fingerprint", "_batches", "_full", "_given", "_borrowed",
                 "_seen", "_finished", "_looking")

    def __init__(self, witness: Witness, source: int, fingerprint: int):
        self._witness, self._source, self._fingerprint = witness, source, fingerprint
        self.is_steady = False  # gave_another() may be asked
        self.asked: collections.deque = collections.deque()  # batches whose data the script has not got yet
        self.uneven = False  # batches of different sizes were drawn, or given
        self._size = 0  # of the first
        self._drawn: list[Any] = []  # batches that were not looked at yet; tuples, or as they came (drawing)
        self._got: list[tuple[int, ...]] = []  # likewise, that the script got
        self._batches: list[tuple[int, ...]] = []  # since the last full step
        self._full = Positions()  # of all full steps
        self._given = Positions()  # that the script got
        self._borrowed = Positions()  # that it got in the place of a part of its own
        self._seen: set[int] = set()
        self._repeats = False  # as far as it was looked at
        self._batches_given = 0
        self._content = 0
        self._parted = False  # parts of it were given
        self._finished = False
        self._looking = threading.Lock()  # a thread of the script may read while another one trains

    def is_new(self) -> bool:
        """Whether the script has got only a few batches of it."""
        return self._batches_given < LOOK_CLOSER

    def look_closer(self, content: int) -> None:
        """What is to be compared of the batch that the script gets next, besides its positions, when all read it."""
        self._content = content

    def drawing(self, batches: Iterator, stay: bool) -> Iterator:
        """What the source's own sampler draws, to be handed on. Every worker draws all of it. stay: nobody changes a
        batch after it was drawn, and none but the last is smaller, so that they can be looked at later."""
        if not stay:
            return map(self.drew, batches)
        # append() returns None, so that all of them pass: each is noted on its way, without a call of Python.
        return itertools.filterfalse(self._drawn.append, batches)

    def drew(self, positions: Any) -> Any:
        """One batch of it, which is handed on."""
        numbers = copy_of(positions)
        self._look_at_size(len(numbers))
        self._drawn.append(numbers)
        return positions

    def repeats(self) -> bool:
        """Whether a batch was drawn twice, as samplers with replacement do."""
        self.look_at_batches()
        return self._repeats

    def look_at_batches(self) -> None:
        """All that were drawn, or given to the script, since the last look."""
        if not self._drawn and not self._got:
            return
        with self._looking:
            self._given.add(*_taken(self._got))
            drawn = [each if type(each) is tuple else copy_of(each) for each in _taken(self._drawn)]
            for size in dict.fromkeys(map(len, drawn)):
                self._look_at_size(size)
            for digest in map(hash, drawn):
                self._repeats = self._repeats or digest in self._seen
                self._seen.add(digest)
            self.is_steady = self.is_steady and not self._repeats
            self._batches += drawn
            full = len(self._batches) // self._witness.world * self._witness.world
            if full > 0:
                self._full.add(*self._batches[:full])
                del self._batches[:full]

    def _look_at_size(self, size: int) -> None:
        if size != self._size:
            self.uneven = self.uneven or self._size != 0
            self._size = self._size or size
            self.is_steady = self.is_steady and not self.uneven

    def gave_another(self, positions: Any, step: int) -> bool:
        """The script gets one more part to train on, where is_steady holds. step: see Witness.drew_step. False: there is
        something new about it, and gave() and drew_step() are to be told of it instead."""
        drawn, got, size, witness = self._drawn, self._got, self._size, self._witness
        if len(positions) != size or type(positions) is not list or type(positions[0]) is not int or \
                len(got) >= LOOK_AFTER or drawn and len(drawn[-1]) != size:
            return False
        if witness._reading is not self:
            witness._reading, witness._source = self, self._source
        numbers = tuple(positions)
        got.append(numbers)
        witness._newest = numbers = hash(numbers)
        witness._given += 1
        witness._given_all = hash((witness._given_all, witness._source, numbers))
        witness._order = hash((witness._order, step))
        return True

    def gave(self, positions: Any, dealt: bool, may_train: bool = True, borrowed: bool = False) -> None:
        """The script gets a batch. dealt: it is this worker's part; else everybody gets the same. borrowed: for
        want of a part of its own it has somebody else's, which counts nothing in the mean."""
        if len(self._got) >= LOOK_AFTER or self._drawn and len(self._drawn[-1]) != self._size:
            self.look_at_batches()
        numbers = copy_of(positions)
        digest = hash(numbers)
        self._look_at_size(len(numbers))
        if borrowed:
            self._borrowed.add(numbers)
        else:
            self._got.append(numbers)
        self._batches_given += 1
        if dealt:
            self._parted = True
        elif not self._parted:
            self._witness.tests_on(self._source, mixed(self._fingerprint, digest, self._content))
            self._content = 0
        self.is_steady = dealt and self._size > 0 and not self.uneven and not self._repeats
        if not may_train:
            return
        witness, witness._reading = self._witness, self
        if self._repeats or borrowed:
            witness.is_given(self._source, None)
            return
        witness._given += 1
        witness._given_all = hash((witness._given_all, self._source, digest))
        witness._source, witness._newest = self._source, digest

    def finish(self, dealt: bool, drops_last: bool = False) -> None:
        """It came to its end. drops_last: steps with fewer batches than workers are left out. What began in parts
        may have become an evaluation, to which the parts of the others were given, too (dealt is false then)."""
        if self._finished:
            return
        self._finished = True
        self.look_at_batches()
        if not drops_last:
            self._full.add(*self._batches)
        if dealt:
            self._witness.finish_epoch(self._given.digest(), self._full.digest(), self._full.count)
        elif self._parted:
            read = (self._given.digest() + self._borrowed.digest()) % MODULUS
            self._witness.tests_on(self._source, mixed(self._fingerprint, read))


class Witness:
    """Of one worker. breach(kind, reason, advice) is called for what does not hold."""

    # What a step needs comes first, and so lies together: what takes time in a step is to fetch it from memory.
    __slots__ = ("_given", "_given_all", "_order", "_source", "_newest", "_reading", "means", "unequal_means", "_news",
                 "_usual", "_sample", "_stable", "_is_quiet", "_twice", "_flags", "world", "_settled", "exchanged", "epochs",
                 "_alike", "_before",
                 "_tests_agree", "_sure", "_dealt", "rank", "_noted", "_states", "_told", "_told_states", "_epochs_compared",
                 "_parts", "_whole", "_tested", "_tested_all", "_expects_same", "_breach", "breaches", "_sources",
                 "_bytes", "_epoch_samples", "_each_once", "lost", "_had_lost", "_facts", "_noise_compared")

    def __init__(self, world: int, rank: int, breach: Callable[[str, str, str], None]):
        self.world, self.rank = world, rank
        self._twice = 2 * world
        self._breach = breach
        self._sources: list[str] = []
        self._given = self._given_all = 0
        self._source, self._newest = 0, _NO_POSITIONS  # of the newest batch
        self._reading: Reading | None = None  # that it is from
        self._sure = True  # data are known by their positions
        self._bytes: set[int] = set()  # some digests where they are not
        self._order = 0
        self.epochs = self._parts = self._whole = 0  # epochs: of dealt data, that are over
        self._epoch_samples: set[int] = set()
        self._each_once = True
        self._tested = self._tested_all = 0
        self._tests_agree = True
        self._expects_same = False
        self._noted, self._states = _NOTHING_NOTED[:], _NO_STREAMS
        self._news = True  # something besides batches has happened since the last glance
        # Of the last glance: what stays the same from one step to the next, a digest of it, its flags; and what does not.
        self._usual: tuple = ()
        self._stable = self._flags = 0
        self._sample = 0
        self.means = UNKNOWN  # what a loss of this round is a mean of, by sample; less than 0: it has weights of its own
        self._told, self._told_states = _NOT_NOTED, _NO_STREAMS  # in the round of the last glance
        self.exchanged: dict[int, int] = {}  # optimizer: the rounds before its last step, as the framework has noted them
        self._dealt: set[int] = set()  # sources of which the workers were seen to have different parts
        self._settled = False  # a glance was enough since something was heard
        self._is_quiet = False  # besides, no flag says that there is more to look at
        self._alike = 0  # rounds in which everything that was known of them by their bytes was equal
        self._before: tuple = ()
        self.breaches: set[str] = set()  # kinds
        self.unequal_means = False  # losses are means of other numbers of values on each worker
        self._epochs_compared = 0
        self.lost = Lost(world)
        self._had_lost = False  # when there were other workers
        self._facts: list[str] = []
        self._noise_compared = False

    def carry(self, before: Witness) -> None:
        """The workers are others from here on: what was found of those before stays true of them."""
        self.breaches, self._noise_compared, self._facts = before.breaches, before._noise_compared, before._facts
        self._epoch_samples, self._each_once = before.lost.compared(before._epoch_samples, before._each_once)
        self._had_lost = before._had_lost

    # ---- what the framework tells

    def add_source(self, name: str) -> int:
        """A loader or the like, when it is first read: its number. All workers have the same order."""
        self._sources.append(name)
        return len(self._sources) - 1

    def read(self, source: int, fingerprint: int = 0) -> Reading:
        """Somebody begins to read a source whose samples have positions. fingerprint: of the set of samples, so
        that a position is the same sample everywhere."""
        return Reading(self, source, fingerprint)

    def is_given(self, source: int, digest: int | None) -> None:
        """The script gets a batch that it may train on, of which no positions are known. digest: of its bytes, which
        may be equal by chance; None: nothing can be said of it."""
        self._given += 1
        if digest is None:
            digest = hash((self.rank, self._given))
        else:
            self._sure, self._reading = False, None
            if len(self._bytes) < SURE_AFTER:
                self._bytes.add(digest)
        self._given_all = hash((self._given_all, source, digest))
        self._source, self._newest = source, _NO_POSITIONS

    def add_fact(self, fact: str) -> None:
        """Something that somebody else has compared, for the last line."""
        self._facts.append(fact)

    def add_loss(self, fact: str) -> None:
        """The same of workers that are here no more."""
        self._facts.append(fact)
        self._had_lost = True

    def expect_same_data(self) -> None:
        """All workers may train on the same data: the user has been told, or somebody else looks at it."""
        self._news = self._news or not self._expects_same
        self._expects_same = True

    def tests_on(self, source: int, digest: int) -> None:
        """The script gets a batch that all workers get."""
        self._news = True
        self._tested += 1
        self._tested_all = (self._tested_all + mixed(source, digest)) % MODULUS

    def drew_step(self, digest: int) -> None:
        """What all workers together train on in one step, as each of them has drawn it."""
        self._order = hash((self._order, digest))

    def finish_epoch(self, part: int, whole: int, samples: int, each_once: bool = False) -> None:
        """An epoch of dealt data is over. part, whole: digests (in_any_order) of this worker's samples and of
        everybody's. each_once: these are known to be all samples, where digests are not of their positions."""
        self._news = True
        self.epochs += 1
        self._parts = (self._parts + part) % MODULUS
        self._whole = (self._whole + whole) % MODULUS
        self._epoch_samples.add(samples)
        self._each_once = self._each_once and (each_once or whole == _digest_of_all(samples))

    def forget_means(self) -> None:
        """Something new is trained, perhaps with another loss."""
        self.unequal_means, self._news = False, True

    def note(self, **words: float) -> None:
        """Words of this round by their names in lower case: share, rows, rates, sample_bits, and where they were looked at
        sample and sample_size, norm, direction, bits."""
        self._news = True
        for name, value in words.items():
            self._noted[_NOTED[name]] = value

    def note_streams(self, states: Sequence[float]) -> None:
        """Digests of the states of generators that noise was drawn from since training began; UNKNOWN: none was."""
        self._news = True
        self._states = [*states, *_NO_STREAMS[len(states):]]

    def catch_up(self) -> None:
        """There is time: the workers wait for one another."""
        if self._reading is not None:
            self._reading.look_at_batches()

    # ---- what travels

    def words(self, over: bool = False) -> list[float]:
        """This worker's, for one round. What note() told is forgotten."""
        noted, self._noted = [*self._noted, self.means], _NOTHING_NOTED[:]
        states, self._states = self._states, _NO_STREAMS
        self.means, self._news = UNKNOWN, True
        return self._words(over, noted, states)

    def _words(self, over: bool, noted: Sequence[float], states: Sequence[float]) -> list[float]:
        return [1.0, float(over), self._given, self._source, self._order % MODULUS, self.epochs, self._whole, self._tested,
                self._tested_all, *noted, self._given_all % MODULUS,
                UNKNOWN if self._newest == _NO_POSITIONS else self._newest % MODULUS, self._parts, *states]

    def glance(self, share: float, rows: float, rates: Any, sample: Any, over: bool = False) -> tuple[int, ...]:
        """In nearly every round nothing is new but a batch, and these numbers (GLANCE) are all that travels: not the words,
        but a digest of them. Told is what note() would be told in every round, of rates and sample_bits what they are
        digests of: rates of numbers, a sample of integers. Where holds_at_a_glance() is false, words_behind_glance() follow,
        and hear() decides."""
        newest = self._newest
        has_no_positions = newest == _NO_POSITIONS
        usual = (share, rows, rates, self.means, self._source, has_no_positions, over)
        if self._news or usual != self._usual:
            self._look_around(usual)
        self.means, self._sample = UNKNOWN, sample
        equal = hash((self._stable, self._given, self._order, sample))
        return equal & _LOW, equal >> GLANCE_BITS & _LOW, (self._given_all if has_no_positions else newest) & _LOW

    def _look_around(self, usual: tuple) -> None:
        """At what does not change with a batch: flags, and a digest of it. usual: as glance() found it."""
        self._usual = usual
        share, rows, rates, means, source, has_no_positions, over = usual
        self._told, self._told_states = tuple(self._noted[_OF_A_STEP:]), self._states
        self._noted, self._states = _NOTHING_NOTED[:], _NO_STREAMS
        # What was noted is of one round: the next one has other words again.
        self._news = self._given == 0 or self._told != _NOT_NOTED or self._told_states != _NO_STREAMS
        flags = _SAME_DATA if self._expects_same or self._given == 0 else 0
        if self.epochs != self._epochs_compared or self._told_states != _NO_STREAMS:
            flags |= _CLOSER
        if means != means or self.unequal_means:
            means = -2.0
        elif means < 0:
            flags |= _CLOSER
        if share != 1.0:
            if share == share:
                flags |= _CLOSER
            share = -1.0
        if has_no_positions:
            flags |= _NO_NEWS
        elif not flags & _SAME_DATA and source not in self._dealt:
            flags |= _CLOSER
        if over:
            flags |= _CLOSER | _OVER
        self._flags = flags
        self._is_quiet = self._settled and flags in _QUIET
        told = zlib.crc32(array.array("d", [self.epochs, self._whole, self._tested, self._tested_all, *self._told]))
        # Without NaN, of which each has a hash of its own.
        self._stable = hash((flags, told, share, rows if rows == rows else -1.0, tuple(rates), means, source))

    def words_behind_glance(self, over: bool = False) -> list[float]:
        """This worker's words of the round that it gave a glance at."""
        share, rows, rates, means, *_ = self._usual
        step = share, rows, zlib.crc32(repr(tuple(rates)).encode()), mixed(self._sample)
        return self._words(over, [*step, *self._told, means], self._told_states)

    # ---- what must hold

    def hear(self, rows: Iterable[Sequence[float]], rates: Any = "others", steps: int = 0) -> None:
        """Everybody's words of one round, those of worker 0 first. rates, and the steps that are complete: this worker's,
        for people."""
        self._news, self._settled, self._is_quiet = True, False, False
        columns = self._columns(rows, steps)
        if not columns:
            return
        self._hear_weights(columns)
        self._hear_rates(columns, rates)
        self._hear_order(columns)
        self._hear_data(columns)
        self._hear_epochs(columns)
        self._hear_tests(columns)
        self._hear_shares(columns)
        self._hear_streams(columns)
        means = columns[Word.MEANS]
        self.unequal_means = self.unequal_means or \
            _known(means) and (min(means) < 0 or max(means) - min(means) > 1e-9 * max(means))

    def holds_at_a_glance(self, numbers: Sequence[Any], begin: int = 0) -> bool:
        """Whether everything holds, and nothing has to be looked at closely: as in nearly every round. numbers: everybody's
        glances, first the first number of all workers, then the second, and so on, in any form in which equal ones are
        equal, from begin on. All workers come to the same answer."""
        middle = begin + self._twice
        # Of nearly all rounds: the first two numbers are everybody's, and all others differ.
        if self._is_quiet and len(set(numbers[begin:middle])) == 2 and len(set(numbers[middle:])) == self.world:
            return True
        return self._holds_at_second_glance(numbers[begin:])

    def _holds_at_second_glance(self, numbers: Sequence[Any]) -> bool:
        """The same where something is unusual."""
        world, flags = self.world, self._flags  # and so everybody's, if the first two numbers are
        first, second = numbers[:world], numbers[world:2 * world]
        if not first.count(first[0]) == second.count(second[0]) == world or flags & _CLOSER:
            return False
        if not flags & _SAME_DATA and len(set(numbers[2 * world:])) != world:
            return False
        if not self._settled:
            self._settle(flags)
        return True

    def _settle(self, flags: int) -> None:
        """All is well, as it was not, perhaps, when something was heard last."""
        if not flags & _SAME_DATA:
            self._alike, self._before = 0, ()
        self._tests_agree = self._settled = True
        self._is_quiet = flags in _QUIET

    def hear_end(self, rows: Iterable[Sequence[float]], steps: int) -> str:
        """Everybody's words when the script is over: what was verified, for people; empty: not everything holds."""
        columns = self._columns(rows, steps)
        bits = "equal"
        if columns:
            self._hear_epochs(columns)
            self._hear_tests(columns)
            self._hear_end_of_weights(columns)
            bits = "equal to the bit" if _all_equal(columns[Word.BITS]) else "equal but for rounding"
        return "" if self.breaches else self._verified(bits, steps)

    def heading(self) -> str:
        """What the last line begins with, where hear_end() has found something."""
        return "verified in part" if self.lost or self._had_lost else "verified"

    def nothing_exchanged(self) -> None:
        """An optimizer makes a step, and no round was since its last one (exchanged)."""
        self._say("nothing exchanged", "its optimizer makes a step, and nothing has been exchanged with the other "
                  "workers: each trains by itself",
                  "let an optimizer have the parameters that the loss depends on before the training data are "
                  "read, or use --auto off")

    def say(self, kind: str, reason: str, advice: str) -> None:
        """Something that a framework has seen by itself does not hold."""
        self._say(kind, reason, advice)

    def _columns(self, rows: Iterable[Sequence[float]], steps: int) -> list[tuple[float, ...]]:
        """By word, of the workers that take part."""
        rows = list(rows)
        self.lost.look((row[Word.PRESENT] > 0 for row in rows), steps)
        here = [row for row in rows if row[Word.PRESENT] > 0]
        return list(zip(*here)) if len(here) > 1 else []

    def _say(self, kind: str, reason: str, advice: str) -> None:
        if kind not in self.breaches:
            self.breaches.add(kind)
            self._breach(kind, reason, advice)

    def _hear_weights(self, columns: list) -> None:
        if not _all_equal(columns[Word.BITS]):
            self._say("weights", "the workers' weights differ before the first step",
                      "give the model its initial weights before the first batch of the training loader is read, and "
                      "change them in the optimizer's step alone")
        if not _near(columns[Word.SAMPLE], columns[Word.SAMPLE_SIZE]) or not _same_vector(columns):
            self._say("weights", "the workers' weights have drifted apart",
                      "they must change in the optimizer's step alone, and not by anything that is random or "
                      "different on each worker")

    def _hear_end_of_weights(self, columns: list) -> None:
        if not _same_vector(columns):
            self._say("weights", "the workers have ended with different weights",
                      "they must change in the optimizer's step alone, by learning rates that are the same everywhere")

    def _hear_rates(self, columns: list, rates: Any) -> None:
        if _known(columns[Word.RATES]) and not _all_equal(columns[Word.RATES]):
            self._say("learning rates", f"the workers' learning rates differ: this one has {rates}",
                      "let a scheduler decide by what is the same on all workers, such as the loss of the evaluation; "
                      "each worker's training loss is that of its own samples")

    def _hear_order(self, columns: list) -> None:
        if _all_equal(columns[Word.ORDER]):
            return
        given = columns[Word.GIVEN]
        if not _all_equal(given) and len(given) == self.world:
            self._say("order", f"worker {given.index(max(given))} has left out a batch that others have trained on",
                      "leave out, and decide, by nothing that only one worker sees, such as the loss of its own samples")
        else:
            self._say("order", "the workers draw their batches in different orders",
                      "let samplers take their randomness from torch, numpy.random or random, not from a generator of "
                      "their own that is seeded differently on each worker")

    def _hear_data(self, columns: list) -> None:
        """Whether two workers train on the same. It is certain when they were given the same ever since the job
        began; and when they have got the same of what they had different parts of before."""
        given = columns[Word.GIVEN]
        if self._expects_same or given[0] == 0 or not _all_equal(given):
            return
        ever, news = columns[Word.GIVEN_ALL], columns[Word.NEWEST]
        if _all_different(ever):
            self._alike = 0
        elif (*given, *ever) != self._before:
            self._alike += 1
        self._before = (*given, *ever)
        same = self._alike >= (1 if self._sure else SURE_AFTER) and (self._sure or len(self._bytes) >= SURE_AFTER)
        if _all_equal(columns[Word.SOURCE]) and _known(news):
            source = int(columns[Word.SOURCE][0])
            if _all_different(news):
                self._dealt.add(source)
            else:
                same = same or source in self._dealt
        if same and not (self._reading is not None and self._reading.repeats()):
            name = self._sources[self._source] if self._source < len(self._sources) else "its data"
            self._say("same data", f"several workers train on the same samples of {name} in one step",
                      "read the training data by one loader with its own loop; please report the script, which should "
                      "have been dealt out; or run it with --auto off and one worker")

    def _hear_epochs(self, columns: list) -> None:
        epochs = columns[Word.EPOCHS]
        if not _all_equal(epochs) or epochs[0] == self._epochs_compared:
            return
        self._epochs_compared = epochs[0]
        if len(epochs) < self.world:  # nobody has trained on the part of a worker that died
            return
        whole = columns[Word.WHOLE]
        if not _all_equal(whole) or sum(map(int, columns[Word.PARTS])) % MODULUS != whole[0]:
            self._say("samples", "in an epoch some samples were left out, or trained on more often than one process "
                      "would",
                      "read every epoch to its end in the same way on all workers, by one loader and with no more than "
                      "its own sampler; please report the script")
        self.lost.compared_epochs(self._epoch_samples, self._each_once)

    def _hear_tests(self, columns: list) -> None:
        self._tests_agree = _all_equal(columns[Word.TESTED])
        if self._tests_agree and not _all_equal(columns[Word.TESTED_ALL]):
            self._say("evaluation", "the workers do not evaluate with the same data",
                      "set a seed (torch, numpy.random and random) before data are made or split, and do not depend "
                      "on the order of directories")

    def _hear_shares(self, columns: list) -> None:
        shares, rows = columns[Word.SHARE], columns[Word.ROWS]
        if len(shares) < self.world or not _known(shares):
            return
        right = abs(sum(shares) - self.world) <= SHARE_TOLERANCE * self.world
        if right and _known(rows) and sum(rows) > 0:
            right = all(share == 0 or abs(share - count * self.world / total) <= SHARE_TOLERANCE * self.world
                        for total in [sum(count for count, share in zip(rows, shares) if share > 0)]
                        for share, count in zip(shares, rows))
        if not right:
            self._say("shares", "the workers' batches do not count in the mean by their samples: "
                      f"{_listed(shares)} for {_listed(rows)} samples",
                      "make the loader with drop_last=True; please report the script")

    def _hear_streams(self, columns: list) -> None:
        for states in columns[Word.STREAM:]:
            self._noise_compared = self._noise_compared or _known(states)
            if _known(states) and not _all_different(states):
                self._say("random numbers", "several workers draw the same random numbers, so that noise, dropout or "
                          "augmentation are W times the same",
                          "set seeds by torch.manual_seed, random.seed and numpy.random.seed, and no states of "
                          "generators that were stored")

    def _verified(self, bits: str, steps: int) -> str:
        lost, found = self.lost, self._facts[:]
        until_then = lost.until_then() if lost.is_alone() else ""
        claims = lost.claims(self._epoch_samples, self._each_once)
        found += [f"but for that, {claims[-1]}"] if self._had_lost and not lost and claims else claims
        found.append(lost.weights(bits, steps))
        found.append(f"{until_then}learning rates equal in every step")
        if self._tested > 0:
            found.append(f"{until_then}evaluation with the same data everywhere" if self._tests_agree else
                         "evaluations differ in number between workers")
        if self._noise_compared:
            found.append(f"{until_then}random numbers different on every worker")
        return "; ".join(found)


def _digest_of_all(samples: int) -> int:
    """Of the positions of a set, each once. Found once for each size."""
    if samples not in _ALL:
        _ALL[samples] = in_any_order(range(samples))
    return _ALL[samples]


_ALL: dict[int, int] = {}


def _known(values: Iterable[float]) -> bool:
    return not any(map(math.isnan, values))


def _all_equal(values: Sequence[float]) -> bool:
    return values.count(values[0]) == len(values) or all(map(math.isnan, values))


def _all_different(values: Sequence[Any]) -> bool:
    return len(set(values)) == len(values)


def _near(values: Sequence[float], sizes: Sequence[float]) -> bool:
    """Equal but for rounding. A value that is no number is equal to none, unless everybody has it."""
    return _all_equal(values) or \
        all(map(math.isfinite, values)) and max(values) - min(values) <= TOLERANCE * max(sizes)


def _same_vector(columns: list) -> bool:
    norms = columns[Word.NORM]
    return _near(norms, norms) and _near(columns[Word.DIRECTION], norms)


def _listed(values: Iterable[float]) -> str:
    return ", ".join("?" if math.isnan(value) else f"{value:g}" for value in values)
