# SPDX-License-Identifier: Apache-2.0
"""The workers that train together now, and what they do together.

All of it is rounds in the order of the program (control.py), so every member sees the same workers come and go at the same
places. A member that dies is missing from the next round; one that comes rides along (ride.py) until all call sync().

Members are known by rank, which is theirs for life. `index` and `size` count those that are here."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Callable

import numpy as np

from .._errors import InvalidError, LostError, MismatchError, RefusedError, StateError
from . import saving
from .bulk import Bulk
from .changes import BEGIN_AGAIN, HostsUpdatedInterrupt, StateLost
from .control import FRESH, HAS_STATE, LEAVES, PAYLOAD, TIMEOUT_S, WORDS, Control, Kind, Round, Slot
from .ride import ride
from .sampler import Share
from .wire import Wire, zeros_for


class Group:
    """Of one job."""

    def __init__(self, context: Any):
        self.context = context
        self.rank = context.rank
        ranks = 256 if context.size <= 64 else 1024  # in all the job's life
        if self.rank >= ranks:
            raise RefusedError(f"worker {self.rank}: an elastic job that began with {context.size} workers has ranks for {ranks} in "
                               "all its life: begin it again from a checkpoint")
        self._ranks = ranks
        self.control = Control(context, ranks)
        self.bulk = Bulk(context, ranks)
        self.wire: Wire | None = None  # when there is something to train
        self.signature = _digest("nothing")  # of what is trained: the same on all workers
        self.resumed = saving.resumed(context)  # what the state is to become first
        first_step = self.resumed[0] if self.resumed is not None else 0
        self.came_late = self.control.table.step > first_step  # the others had begun
        self.saver = saving.saver(context, first_step)
        self.has_state = False
        self.members: tuple[int, ...] = ()  # in order; none before the first sync
        self.sampler: Any = None  # that the next gradients are of
        self.samples = 0  # in the last step of all
        self.givers = 1  # workers in it
        self.running = False  # inside elastic.run
        self.leaves = False  # this worker was asked to leave
        self._told = False  # the others know
        self._newcomers: set[int] = set()
        self._gone: set[int] = set()
        self._leavers: set[int] = set()

    # ---- who is here

    @property
    def index(self) -> int:
        """This worker among the members."""
        return self.members.index(self.rank)

    @property
    def is_alone(self) -> bool:
        """Not taken in yet: nobody waits for what it does, so it does it for itself."""
        return self.came_late and not self.members

    def first(self) -> int:
        """The lowest of the members that have been in every round: it speaks for all."""
        return min(set(self.members) - self._gone - self._newcomers)

    def lost(self) -> list[int]:
        """The members that are in the rounds no more, and were not asked to leave."""
        return sorted(self._gone - self._leavers)

    def newcomers(self) -> set[int]:
        """Those who ride along; one of the members among them has come again."""
        return set(self._newcomers)

    def leavers(self) -> set[int]:
        """Those who have said that they leave."""
        return set(self._leavers)

    def is_told(self) -> bool:
        """Whether the others know that this one leaves."""
        return self._told

    def change(self) -> str:
        """What has changed since the members were counted; empty: nothing."""
        said = ((self._gone - self._leavers, "gone"), (self._leavers, "leaving"), (self._newcomers, "new"))
        return ", ".join(f"{word}: worker {' '.join(map(str, sorted(ranks)))}" for ranks, word in said if ranks)

    def interrupt_if_changed(self) -> None:
        """For places that all members come to after the same rounds."""
        if self.running and self.change():
            raise HostsUpdatedInterrupt(self.change())

    def look_for_leave(self, is_awaited: bool = True) -> None:
        """A worker that was asked to leave does so, as soon as the others know."""
        if self.leaves and (self._told or not is_awaited):
            self.leave("as it was asked to", is_awaited)

    def leave(self, why: str, is_awaited: bool = True) -> None:
        """Ends this process. What is under way of one that only rides along may never end."""
        print(f"poseidon.elastic: worker {self.rank} leaves: {why}", file=sys.stderr, flush=True)
        if is_awaited:
            self.context.close()
        else:
            self.context.abandon()
        sys.exit(0)

    # ---- rounds

    def tables(self) -> list[Any]:
        """Those that a worker which rides along answers in."""
        return [self.bulk.table, *(self.wire.tables if self.wire is not None else ())]

    def begin(self, kind: Kind, payload: np.ndarray | None = None, **numbers: int) -> Any:
        """The future of a control round."""
        flags = HAS_STATE * self.has_state + FRESH * (not self.came_late) + LEAVES * self.leaves
        step = self.wire.step if self.wire is not None else 0
        return self.control.begin(Slot(kind, flags, signature=self.signature, gradient_step=step,
                                       bulk_step=self.bulk.table.step, **numbers), payload)

    def end(self, future: Any, kind: Kind) -> Round:
        """What the others did in it: the same, or the program is not the same."""
        round_ = self.control.end(future)
        for rank, slot in round_.slots.items():
            if slot.kind == Kind.RIDE:
                self._newcomers.add(rank)
            elif slot.kind != kind:
                raise StateError(f"worker {rank} {WORDS[Kind(slot.kind)]}, worker {self.rank} {WORDS[kind]}: all must do the same "
                                 "after the same steps. Does the program decide by its rank, or by time?")
            elif slot.flags & LEAVES:
                self._leavers.add(rank)
                self._told = self._told or rank == self.rank
        self._gone |= set(self.members) - set(round_.slots)
        return round_

    def exchange(self, kind: Kind, payload: np.ndarray | None = None, **numbers: int) -> Round:
        """A control round."""
        return self.end(self.begin(kind, payload, **numbers), kind)

    # ---- gradients

    def use(self, lengths: dict[str, int], content: str = "") -> None:
        """What is trained: flat arrays of these types and lengths. content: what is in them, the same text on all workers."""
        if self.wire is not None and self.wire.lengths != lengths:
            raise StateError("an elastic job has one optimizer: this program makes another, with other parameters")
        if self.wire is None:
            try:
                self.wire = Wire(self.context, self._ranks, lengths)
            except MismatchError as error:
                raise MismatchError(f"worker {self.rank} trains another number of parameters than the job does: all workers must "
                                    f"build the same model ({error})") from None
            self.signature = _digest(repr(sorted(lengths.items())) + content)

    def average(self, flats: dict[str, np.ndarray]) -> bool:
        """Makes the gradients the means over the samples of all workers, in place. False: no sample is in this step. If a
        worker dies in the middle, those who are left give the step again, so a step has all gradients of a worker or none."""
        assert self.wire is not None
        if self.is_alone:
            return True
        share = self.sampler.share() if self.sampler is not None else None
        told = share or Share(0, 0, 1, 1, 0)
        round_ = self.give(flats, told)
        givers = round_.those(Kind.GRADIENTS)
        if share is not None:
            self.sampler.count({rank: _share(round_.slots[rank]) for rank in givers})
        self.givers = len(givers)
        self.samples = sum(round_.slots[rank].samples for rank in givers)
        if self.samples == 0:
            return False
        self.wire.take(flats, sum(round_.slots[rank].samples / round_.slots[rank].batch_size for rank in givers))
        return True

    def give(self, flats: dict[str, np.ndarray], told: Share, payload: np.ndarray | None = None) -> Round:
        """A round whose gradients are those of all its givers: wire.take() has their sums."""
        assert self.wire is not None
        while True:
            future = self.begin(Kind.GRADIENTS, payload, **told._asdict())
            self.wire.push(flats, told.samples / told.batch_size)
            round_ = self.end(future, Kind.GRADIENTS)
            if self.wire.wait(round_.those(Kind.GRADIENTS)):
                return round_

    # ---- other things that all do together

    def reduce(self, numbers: np.ndarray, mean: bool) -> np.ndarray:
        """Sums of float64, or means over the members."""
        if self.is_alone:
            return numbers.copy()
        if len(numbers) > PAYLOAD:
            self.exchange(Kind.REDUCE)
            return self.bulk.add(numbers, mean)
        round_ = self.exchange(Kind.REDUCE, numbers)
        sums = round_.payload[:len(numbers)]
        return sums / len(round_.those(Kind.REDUCE)) if mean else sums.copy()

    def broadcast(self, data: bytes | None, index: int = 0) -> bytes:
        """The bytes of a member, for all."""
        if self.is_alone or not self.members:
            members: tuple[int, ...] = tuple(range(self.context.size)) if not self.came_late else (self.rank,)
        else:
            members = self.members
        if not 0 <= index < len(members):
            raise InvalidError(f"broadcast: root {index}: there are workers 0 to {len(members) - 1}")
        if self.is_alone:
            assert data is not None
            return data
        came = self.message(data if members[index] == self.rank else None, members[index])
        if came is None:
            self.interrupt_if_changed()
            raise LostError(f"broadcast: worker {members[index]} has died")
        return came

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes of all members."""
        count = 1 if self.is_alone else len(self.members) or self.context.size
        return [self.broadcast(data, index) for index in range(count)]

    def message(self, data: bytes | None, root: int) -> bytes | None:
        """A rank's bytes, for all; None: it has died."""
        words = None
        if data is not None:
            words = np.frombuffer(data + bytes(-len(data) % 4), np.uint32)
        round_ = self.exchange(Kind.MESSAGE, None if words is None else words[:PAYLOAD].astype(np.float64),
                               samples=len(data or b""))
        if root not in round_.slots or round_.slots[root].kind != Kind.MESSAGE:
            return None
        length = round_.slots[root].samples
        count = -(-length // 4)
        head = round_.payload[:min(count, PAYLOAD)].astype(np.uint32)
        rest = self.bulk.send(None if words is None else words[PAYLOAD:], max(0, count - PAYLOAD), root)
        if rest is None:
            return None
        return data if data is not None else np.concatenate([head, rest]).tobytes()[:length]

    def barrier(self) -> None:
        """All members have come here."""
        if not self.is_alone:
            self.exchange(Kind.REDUCE)

    def resume(self, state: Any) -> None:
        """The first state of a job that goes on from a checkpoint is what was saved."""
        if self.resumed is not None and not self.came_late:
            saving.load(state, self.resumed[1])
        self.resumed = None

    def finish(self, payload: np.ndarray | None = None) -> Round:
        """The training is over: those who ride along need not wait any longer."""
        round_ = self.exchange(Kind.END, payload)
        self.running = False
        return round_

    # ---- the members change

    def sync(self, pack: Callable[[], bytes], unpack: Callable[[bytes], Any], payload: np.ndarray | None = None) -> bool:
        """Counts the members anew, and gives newcomers the state of a member. True: there were members before. payload: for
        those who ride along."""
        if self.is_alone:
            ride(self)
        else:
            self.exchange(Kind.SYNC, payload)
        return self.settle(pack, unpack, payload)

    def settle(self, pack: Callable[[], bytes], unpack: Callable[[bytes], Any], payload: np.ndarray | None = None) -> bool:
        """The rest of sync(), also of one that has ridden along until the others began it. A newcomer whose unpack() raises
        is none of the members, and leaves."""
        while True:
            found = self._take_in(pack, unpack)
            if found is not None:
                return found
            self.exchange(Kind.SYNC, payload)  # the one with the state has died meanwhile

    def _take_in(self, pack: Callable[[], bytes], unpack: Callable[[bytes], Any]) -> bool | None:
        round_ = self.exchange(Kind.ALIGN)
        there = {rank: round_.slots[rank] for rank in round_.those(Kind.ALIGN)}
        have = [rank for rank, slot in there.items() if slot.flags & HAS_STATE]
        roots = have or [rank for rank, slot in there.items() if slot.flags & FRESH]
        if not roots:
            raise StateLost("the last worker that had the model has died while it gave it to those who have come: "
                            f"{BEGIN_AGAIN}")
        self._align(list(there.values()))
        if len(have) < len(there):
            came = self.message(pack() if self.rank == roots[0] else None, roots[0])
            if came is None:
                return None
            if self.rank not in have and self.rank != roots[0]:
                unpack(came)
        self.has_state = True
        self._newcomers, self._gone, self._leavers = set(), set(), set()
        self.members = tuple(there)
        self.members = tuple(self.exchange(Kind.READY).those(Kind.READY))
        self._gone = set()
        return bool(have)

    def _align(self, slots: list[Slot]) -> None:
        """All tables at one step. A newcomer begins each at a step of its own, up to which the others give zeros."""
        ahead = [(self.bulk.table, max(slot.bulk_step for slot in slots))]
        if self.wire is not None:
            ahead += [(table, max(slot.gradient_step for slot in slots)) for table in self.wire.tables]
        zeros = zeros_for(table for table, _ in ahead)
        futures = []
        for table, step in ahead:
            while table.step < step:
                futures.append(table.transfer(zeros.ctypes.data, keep=(zeros,)))
        for future in futures:
            future.result(TIMEOUT_S)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little")


def _share(slot: Slot) -> Share:
    return Share(slot.first, slot.end, slot.samples, slot.batch_size, slot.deal)
