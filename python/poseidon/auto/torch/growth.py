# SPDX-License-Identifier: Apache-2.0
"""Workers that come while a plain script trains, and those that leave or die (psd_run --max_workers; docs/automatic.md).

An epoch is dealt to so many workers as there are when it begins: at the moment at which a loader is about to be read for training
they are counted anew, and nowhere else. So no sample is dealt twice, every step of an epoch is divided by one number, and
lengths, tails and everything else that follows from the number of workers stay what they are until the next one. What a
worker had not trained on when it died or left is left out of that epoch, and said.

One that comes rides along with the others' rounds (poseidon.elastic) while it runs its script to the same place without
computing (newcomer.py). There it gets from one of them what a checkpoint would have."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, NoReturn

from ..common import notes
from ..common.session import FOR_NEWCOMERS
from ..common.witness import Witness

if TYPE_CHECKING:
    from poseidon.elastic.group import Group

    from .newcomer import Newcomer
    from .rounds import Rounds, Words
    from .session import TorchSession

_READING, _WISH, _CHANGES, _FIRST = 0, 1, 2, 3  # where it is in a payload


class Position(NamedTuple):
    """Where the others are, for one that rides along."""

    reading: int  # of a loader, to train: so many have begun
    worlds: list[list[int]]  # from which reading on there were how many workers


class Growth:
    """Of one script. Thread: that of the script which trains."""

    def __init__(self, session: TorchSession):
        self.session = session
        self.is_on = False
        self.obstacle = ""  # why it is not, although the job has room
        self.group: Group = None  # type: ignore[assignment]
        self.checks: Words = None  # type: ignore[assignment]
        self.worlds: list[list[int]] = []
        self.newcomer: Newcomer | None = None  # this worker comes late, and is not one of the others yet
        self.wish = self.told = 0.0  # the step of the next checkpoint: what worker 0 has heard, and what all know
        self.data = 0  # a fingerprint of what is about to be read
        self._rounds: Rounds | None = None
        self._told_gone: set[int] = set()

    # ---- whether workers may come

    def consider(self, loader: Any) -> None:
        """The script is about to join the job: may others come later? All workers come to the same answer."""
        if self.session.joined or int(os.environ.get("PSD_MAX_WORKERS") or 0) == 0 or os.environ.get("PSD_JOIN") == "off":
            return
        self.obstacle = self._obstacle(loader)
        self.is_on = not self.obstacle

    def _obstacle(self, loader: Any) -> str:
        import torch

        from . import iterables
        from .points import PERSISTENT
        from .variables import Unknown, Variables

        session = self.session
        owners = session._look_up_owners()
        if iterables.is_stream(loader):
            return "it trains on an IterableDataset"
        if loader.persistent_workers:
            return PERSISTENT
        if any(each.dtype not in (torch.float32, torch.float64) for each in session._parameters() if each.requires_grad):
            return "it trains parameters that are neither float32 nor float64"
        if owners.sparse:
            return "it has sparse gradients"
        if owners.has(torch.nn.SyncBatchNorm):
            return "it has SyncBatchNorm"
        if os.environ.get("PSD_TORCH_GRADIENTS", "own") != "own":
            return "its gradients travel in another type (PSD_TORCH_GRADIENTS)"
        try:
            Variables()
        except (Unknown, TypeError) as problem:
            return str(problem)
        return ""

    def declare(self) -> None:
        """Before the worker joins the job."""
        if self.is_on:
            from poseidon import _elastic

            _elastic.declare()
        elif self.obstacle and self.session.rank == 0:
            notes.tell(f"no worker can join {notes.script_name()} while it trains: {self.obstacle}")

    def begin(self) -> None:
        """It is in the job."""
        if not self.is_on:
            return
        from poseidon import _elastic

        group = _elastic.current()
        assert group is not None
        self.group = group
        _leave_when_asked(group)
        if not group.came_late:
            self._count()

    def engine(self, named: list, buffers: list) -> tuple[Rounds, Words]:
        """What averages the gradients, and what compares the workers: no such thing before this one is among them."""
        from poseidon import MismatchError, StateError

        from .rounds import Rounds, Words

        try:
            self._rounds = Rounds(self, named, buffers)
        except StateError:
            self.session.refuse("it makes another optimizer, or trains other parameters than before, while workers may join",
                                "run it without --max_workers, or use poseidon.elastic in the script")
        except MismatchError as error:
            self.decline(str(error))
        if self.group.members:
            self.checks = Words(self, self._rounds)
        return self._rounds, self.checks

    # ---- where they are counted

    def meet(self, data: int) -> None:
        """A loader is about to be read for training. data: a fingerprint of it."""
        if not self.is_on:
            return
        self.data = data
        if self.group.is_alone:
            self._follow()
        elif self.group.change() and self.session.points.replay is None:
            self._count()

    def _follow(self) -> None:
        from .newcomer import Newcomer

        session = self.session
        if self.newcomer is None:
            session._attach()
            self.newcomer = session.points.replay = Newcomer(session, self)
            self.newcomer.find_others()
        if self.newcomer.is_there():
            self._count(self.newcomer.arrive)
            self.newcomer = None

    def _count(self, arrive: Callable[[Callable], Any] | None = None) -> None:
        """Who is here from now on."""
        group, before = self.group, self.group.members
        left, again = set(before) & group.leavers(), set(before) & group.newcomers()
        if arrive is None:
            group.sync(self._pack, _is_of_those_who_began, self.payload())
        else:
            arrive(self._pack)
        session, members = self.session, group.members
        session.world, session.rank = len(members), members.index(group.rank)
        if not self.worlds:
            self.worlds = [[1, session.world]]
        elif self.worlds[-1][1] != session.world:
            self.worlds.append([session.points.next_reading(), session.world])
        if before or arrive is not None:
            self._begin_anew(before, sorted((set(before) - set(members) - left) | again), sorted(left))

    def _begin_anew(self, before: tuple[int, ...], gone: list[int], left: list[int]) -> None:
        """What the workers compare begins anew, for they are others."""
        from .rounds import Words

        session, members, steps = self.session, self.group.members, self.session._steps
        witness = Witness(session.world, session.rank, session.breach)
        if before:
            witness.carry(session.witness)
        for rank in (*gone, *left):
            witness.add_loss(f"worker {rank} {'was lost' if rank in gone else 'left'} before step {steps + 1}: what it had not "
                             "trained on of that epoch was left out")
        if before != members:
            witness.add_fact(f"from step {steps + 1} on {_counted(len(members))}")
        session.witness = witness
        session.seen.begin_anew(witness)
        session.losses.forget()
        session._checks = self.checks = Words(self, self._rounds)
        self._told_gone.clear()
        if session.rank == 0:
            come = [f"worker {rank}" for rank in members if rank not in before or rank in gone]
            notes.tell(f"the epoch that begins behind step {steps} is dealt to {_counted(len(members))}"
                       f"{' (' + ' and '.join(come) + ' came)' if come else ''}")

    def agree(self, mine: Any) -> Any:
        """What the first worker has, where all come together; again where one died in it. A newcomer on its way has only its
        own."""
        from poseidon import LostError
        from poseidon.torch import collectives

        while True:
            if self.newcomer is not None:
                return mine
            try:
                return collectives.broadcast_object(mine)
            except LostError:
                if not self.is_on or not self.group.change():
                    raise
            self._count()

    def is_alone(self) -> bool:
        """Whether this worker came late, and has not met the others yet."""
        return self.is_on and self.group.is_alone

    def comes_late(self) -> bool:
        """Whether the others had begun when this worker came."""
        return self.is_on and self.group.came_late

    def due(self, timeout: float) -> Any:
        """When checkpoints are wanted."""
        from .rounds import Due

        return Due(self, timeout)

    def world_at(self, reading: int) -> int:
        """How many workers there were when a loader was read for the n-th time, to train."""
        return [world for first, world in self.worlds if first <= reading][-1] if self.worlds else self.session.world

    # ---- what newcomers get

    def _pack(self) -> bytes:
        from poseidon.torch import parts

        from .variables import Unknown

        if not self.group.has_state:
            return b""
        problem = ""
        try:
            state = self.session.points.of_newcomers()
            return parts.encode({"data": self.data, **state})
        except (Unknown, TypeError) as error:
            problem = str(error)
        return parts.encode({"refused": problem})

    # ---- what travels with a round

    def payload(self, words: Any = ()) -> Any:
        """This worker's: where the job is, if it speaks for all, and its words."""
        import numpy

        from .rounds import SPACE

        found = numpy.zeros(SPACE + len(words))
        found[SPACE:] = words
        group = self.group
        if group.rank == 0:
            found[_WISH] = self.wish
        if group.members and group.rank == group.first():
            flat = [number for change in self.worlds for number in change][:SPACE - _FIRST]
            found[[_READING, _CHANGES]] = self.session.points.readings(), len(self.worlds)
            found[_FIRST:_FIRST + len(flat)] = flat
        return found

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """Inside, all workers are to do the same."""
        from poseidon import StateError

        try:
            yield
        except StateError as error:
            self.session.refuse(f"its workers do not do the same after the same steps ({error})",
                                "decide, also when to stop, by nothing that only one worker sees, such as its own loss")

    def hear(self, round_: Any) -> None:
        """A round has ended."""
        self.told = float(round_.payload[_WISH])
        gone = set(self.group.lost()) - self._told_gone
        if gone and self.group.rank == self.group.first():
            notes.tell(f"{' and '.join(f'worker {rank}' for rank in sorted(gone))} died, and the job goes on without "
                       "(--on_worker_death=continue): nobody trains on what it had left of this epoch")
        self._told_gone |= gone

    # ---- those who leave

    def look_for_leave(self) -> None:
        """Between two steps: a worker that was asked to leave does, when the others know."""
        if self.is_on and self.group.leaves and self.group.is_told():
            self.leave("as it was asked to")

    def decline(self, reason: str) -> NoReturn:
        """This worker cannot be one of the others, and leaves them in peace."""
        if self.newcomer is not None:
            self.newcomer.give_way()
        notes.tell(f"worker {self.group.rank} cannot join {notes.script_name()} while it trains: {reason}; {FOR_NEWCOMERS}")
        self.leave("it cannot join")

    def leave(self, why: str) -> NoReturn:
        """Ends this process, and the job goes on."""
        print(f"poseidon: worker {self.group.rank} leaves: {why}", file=sys.__stderr__, flush=True)
        self.group.context.close()
        sys.stdout.flush()
        os._exit(0)


def position_in(payload: Any) -> Position | None:
    """What growth.payload() has said of it; None: the workers have changed more often than it can say."""
    from .rounds import SPACE

    end = _FIRST + 2 * int(payload[_CHANGES])
    return None if end > SPACE else Position(int(payload[_READING]), payload[_FIRST:end].astype(int).reshape(-1, 2).tolist())


def _is_of_those_who_began(data: bytes) -> None:
    """Those who begin together have nothing to give: weights are exchanged where they are attached."""
    assert data == b"", "a worker that began with the others has been given the state of one"


def _counted(workers: int) -> str:
    return f"{workers} worker{'' if workers == 1 else 's'}"


def _leave_when_asked(group: Any) -> None:
    """SIGTERM asks a worker to leave, unless the script has a use of its own for it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        group.leaves = True

    signal.signal(signal.SIGTERM, ask)
