# SPDX-License-Identifier: Apache-2.0
"""A worker that comes while others train: it runs its script to where they are, without computing (replay.py), and takes what
one of them has.

While it is on its way it answers the rounds of the others with nothing, in a thread of its own, so that they need not wait for
it. What it hears there tells it where the others are, and how many they were in each epoch: then its loops make as many steps
as theirs did. If it is there before them, it waits for them; if they are at the end of the epoch before it, they do."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, NoReturn

import poseidon
from poseidon.elastic.changes import Ended
from poseidon.elastic.control import TIMEOUT_S, Kind
from poseidon.elastic.ride import ride
from poseidon.torch import parts

from ..common import notes, resumed
from .replay import Replay
from .variables import Unknown, Variables

if TYPE_CHECKING:
    from .growth import Growth, Position
    from .session import TorchSession


class _Refused(Exception):
    """What came does not fit."""


class Newcomer(Replay):
    """Until it is one of the others. Thread: that of the script which trains; _ride() has its own."""

    def __init__(self, session: TorchSession, growth: Growth):
        super().__init__(session, session.points)
        self._growth, self._group = growth, growth.group
        self._position: Position | None = None
        self._heard = threading.Event()  # the others are somewhere, or have called
        self._problem = ""  # why it cannot join them
        self._error: BaseException | None = None  # of the ride
        self._thread = threading.Thread(target=self._ride, name="poseidon-newcomer", daemon=True)
        self._is_settled = False  # it has been counted, or has declined
        self._target = 0  # the reading before which it joins them

    def find_others(self) -> None:
        """Begins to ride along, until it is known where they are."""
        self._thread.start()
        if not self._heard.wait(TIMEOUT_S):
            self._growth.decline(f"the others made no step for {TIMEOUT_S:g} s")
        self._look_at_ride()
        assert self._position is not None
        self._growth.worlds = self._position.worlds
        self._target = self._position.reading + 1

    def _read(self) -> dict[str, Any]:
        """What it gets, it gets when it is there."""
        return {}

    # ---- with the others

    def _ride(self) -> None:
        try:
            ride(self._group, self._hear)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self._error = error
        self._heard.set()

    def _hear(self, round_: Any) -> None:
        from .growth import position_in

        if self._heard.is_set() or not (round_.those(Kind.GRADIENTS) or round_.those(Kind.SYNC)):
            return
        self._position = position_in(round_.payload)
        if self._position is None:
            self._problem = "the workers of the job have changed too often"
        if {slot.signature for slot in round_.slots.values() if slot.kind != Kind.RIDE} != {self._group.signature}:
            self._problem = "it trains other parameters (their names, shapes or types) than the others"
        self._heard.set()

    def _look_at_ride(self) -> None:
        """If the others have ended, or are gone, there is nothing to go on for."""
        if self._problem:
            self._growth.decline(self._problem)
        if self._error is None:
            return
        error, self._error = self._error, None
        self._end()
        if isinstance(error, Ended):
            self._growth.leave(str(error))
        raise error

    def give_way(self) -> None:
        """It is not to be one of the others: it goes with them to where they are counted, and no further."""
        self._end()
        self._problem = ""
        self._thread.join()
        if self._error is None and not self._is_settled:
            try:
                self._group.settle(bytes, self._leave_it)
            except _Refused:
                pass

    def _leave_it(self, _: bytes) -> NoReturn:
        self._is_settled = True
        raise _Refused

    # ---- on the way

    def generators(self, reading: int, found: Any) -> Any:
        """The loops before made as many steps as there were for so many workers."""
        self.begin()
        self._look_at_ride()
        self._look_back(reading)
        return found

    def _tell_begin(self) -> None:
        notes.tell(f"worker {self._group.rank} joins {notes.script_name()} with the next epoch: what was trained before is passed over")

    def refuse(self, reason: str) -> NoReturn:
        """It cannot go on."""
        self._growth.decline(f"its way to the others cannot be repeated without computing: {reason}")

    def script_failed(self) -> None:
        """The script is over, or has failed, before it came to the others."""
        if self._points.replay is not self:
            return
        error = getattr(sys, "last_value", None)
        self._growth.decline(f"without computing it fails ({type(error).__name__}: {error})" if error is not None else
                             "without computing it ended before it came to where the others are")

    def at_point(self, count: int, way: int) -> None:
        """The script has come to one."""
        self._look_at_ride()

    # ---- there

    def is_there(self) -> bool:
        """Whether this is the place where the others count again."""
        return self._points.next_reading() == self._target

    def arrive(self, pack: Callable[[], bytes]) -> None:
        """It becomes one of them, or leaves."""
        self._thread.join()
        self._look_at_ride()
        try:
            self._group.settle(pack, self._take)
        except _Refused as refused:
            self._is_settled = True
            self._growth.decline(str(refused))
        self._end()

    def _take(self, data: bytes) -> None:
        if data == b"":
            raise _Refused("the others were about to begin")
        self._kept = parts.decode(data)
        if "refused" in self._kept:
            raise _Refused(self._kept["refused"])
        self._check()
        try:
            self._put_back()
        except (Unknown, ValueError, RuntimeError, KeyError) as error:
            raise _Refused(str(error)) from None
        self._growth.worlds = self._kept["worlds"]

    def _check(self) -> None:
        for what, theirs in self._kept["circumstances"].items():
            if resumed.circumstances(self._session, torch=parts.torch.__version__).get(what) != theirs:
                raise _Refused(f"the others have another {what.removesuffix('s')}")
        if self._kept["data"] != self._growth.data:
            raise _Refused("its training data are not those of the others")
        if self._kept["files"] != self._session.private_files:
            raise _Refused("it cannot have a view of files of its own, as the others have")
        if (self._points.count, self._points.way()) != (self._kept["count"], self._kept["way"]):
            raise _Refused(f"it reads its loaders in another order than the others did, and trained on {self._points.count} batches "
                           f"where they did on {self._kept['count']}")

    def _put_back_own(self, found: Variables) -> None:
        """What is each worker's own: variables as one of the others has them, and random numbers that nobody has."""
        found.put_back(parts.decode(self._kept["workers"][0])["values"])
        self._session.streams.unite()
