# SPDX-License-Identifier: Apache-2.0
"""Slices of a permutation: `order = torch.randperm(n)`, then `X[order[i:i + B]]`, without a loader.

All workers draw the same permutation (streams.py). The loop makes as many steps as the script says, so it is the batches
that are divided: of each slice a worker gets its part, and whatever it looks up by that is its part, too. Together they
train as one process does with the same batch size. The witness sees the positions, as it does those of a loader.

A permutation may also be for something else. What tells is:

- whether the data of its length, which the script has at hand, are the same on all workers. In reinforcement learning each
  worker has its own, and nothing is divided.
- that something is trained on one slice before the next is taken, from the beginning to the end. Else it is a split of
  the data, say, and the script is stopped before it trains on a part of what it should.

Thread: that of the script which trains."""

from __future__ import annotations

import functools
import random
import sys
import zlib
from typing import TYPE_CHECKING, Any, Callable, Iterator

import torch

from ..common.positions import mixed
from .digests import checksum
from .shards import Delivery, deal
from .streams import permutes_all

if TYPE_CHECKING:
    from .session import TorchSession

FRAMES = 6  # of the script in which its data are looked for
SAMPLE = 256  # rows of them
PART_BYTES = 1 << 16


class Walks:
    """Of one script."""

    def __init__(self, session: TorchSession):
        self._session = session
        self.divides = False  # the batches of the script, at present
        self._walk: Any = None  # the newest
        self._source = -1

    def may_begin(self) -> bool:
        """Whether a permutation that is drawn now may be one to train by."""
        session = self._session
        return session.loose.loaders == 0 and session.can_begin() and torch.is_grad_enabled() and \
            session.is_in_training_mode()

    def drawing(self, draw: Callable, mark: Callable, applies: Callable[..., bool] = lambda *_, **__: True) -> Callable:
        """A function that draws permutations, where that applies."""
        @functools.wraps(draw)
        def draw_and_mark(*args, **kwargs):
            drawn = draw(*args, **kwargs)
            if not self.may_begin() or not applies(*args, **kwargs) or not _is_permutation(drawn):
                return drawn
            return mark(drawn, _Walk(self, drawn))

        return draw_and_mark

    def part_of(self, walk: _Walk, begin: int, end: int) -> tuple[int, int]:
        """The script takes a slice: which part of it is for this worker."""
        session = self._session
        if not self.may_begin():
            return begin, end
        if walk.divides is None:
            session.loose.begin_walk()
            walk.divides = session.all_have(walk.digest())
            self.divides, self._walk = walk.divides, walk
            if walk.divides:
                self._source = self._source if self._source >= 0 else session.witness.add_source("a permutation")
                walk.reading = session.witness.read(self._source)
        if not walk.divides or (begin, end) == walk.last:
            return walk.part if walk.divides else (begin, end)
        self._check(walk, begin)
        positions = list(range(begin, end))
        mine, weight = deal([positions], session.world, session.rank, cuts=True)
        walk.last, walk.part, walk.rounds = (begin, end), (mine[0], mine[-1] + 1), session.rounds()
        walk.stepped.clear()
        walk.reading.drew(positions)
        walk.reading.gave(mine, dealt=True, borrowed=weight == 0.0)
        if end >= walk.length:
            walk.reading.finish(dealt=True)
        session.deliver_by_hand(Delivery(weight, mixed(begin, end), end - begin))
        return walk.part

    def _check(self, walk: _Walk, begin: int) -> None:
        if begin != walk.last[1] or walk.last[1] > 0 and walk.rounds == self._session.rounds():
            self._session.refuse(
                "it takes slices of a permutation, but does not train on one after the other: whether each is a batch, "
                "or a part of its data, cannot be told",
                "split data before the optimizer is made, and take batches in their order; or let a "
                "torch.utils.data.DataLoader hand them out")

    def before_step(self, optimizer: Any) -> None:
        """An optimizer is about to step. Once for each slice: else that may be all that the script has chosen to
        train on."""
        walk = self._walk
        if not self.divides or walk is None or not walk.divides:
            return
        if id(optimizer) in walk.stepped and walk.last[1] < walk.length:
            self._session.refuse(
                "it makes several steps with one slice of a permutation: whether that is a batch, or all that it trains "
                "on, cannot be told",
                "choose what to train on before the optimizer is made, or let a torch.utils.data.DataLoader hand the "
                "batches out")
        walk.stepped.add(id(optimizer))


class _Walk:
    """One permutation, and how far the script has come."""

    def __init__(self, walks: Walks, drawn: Any):
        self._walks = walks
        self.length = len(drawn)
        self._digest = zlib.crc32(repr(drawn[:SAMPLE]).encode())
        self.divides: bool | None = None  # it is not known
        self.last, self.part = (0, 0), (0, 0)  # slice, and this worker's part
        self.rounds = -1  # when it was taken
        self.stepped: set[int] = set()  # optimizers, since then
        self.reading: Any = None

    def part_of(self, place: Any) -> slice | None:
        """Of a slice; None: it is none."""
        if not isinstance(place, slice) or place.step not in (None, 1):
            return None
        begin, end, _ = place.indices(self.length)
        return slice(*self._walks.part_of(self, begin, end)) if begin < end else None

    def digest(self) -> bytes:
        """Of the permutation, and of data of its length that the script has, else of longer ones; empty: it has none."""
        data = sorted(_data_at_hand(), key=lambda each: each[0])
        data = [each for each in data if len(each[1]) == self.length] or \
            [each for each in data if len(each[1]) > self.length and not isinstance(each[1], list)]
        found = 0
        for name, value in data:
            found = zlib.crc32(f"{name}{_content(value)}".encode(), found)
        return b"%d %d" % (self._digest, found) if data else b""


def _is_permutation(drawn: Any) -> bool:
    return hasattr(drawn, "__len__") and (not hasattr(drawn, "ndim") or drawn.ndim == 1) and len(drawn) > 1


def _data_at_hand() -> Iterator[tuple[str, Any]]:
    """What the functions of the script that have called here know by a name."""
    frame, count = sys._getframe(1), 0
    while frame is not None and count < FRAMES:
        if not frame.f_globals.get("__name__", "").startswith(("_poseidon_auto", "torch.", "numpy.")):
            count += 1
            names = {**frame.f_globals, **frame.f_locals}
            owner = names.get("self")
            yield from ((name, value) for name, value in [*names.items(), *_attributes(owner)] if _may_be_data(value))
        frame = frame.f_back


def _attributes(owner: Any) -> list[tuple[str, Any]]:
    return list(vars(owner).items()) if hasattr(owner, "__dict__") else []


def _may_be_data(value: Any) -> bool:
    """Not so are weights, permutations, and lists of losses."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, _KINDS) or isinstance(value, torch.Tensor) and value.requires_grad:
        return False
    if isinstance(value, list):
        return bool(value) and not isinstance(value[0], float)
    array = isinstance(value, torch.Tensor) or numpy is not None and isinstance(value, numpy.ndarray)
    return array and value.ndim > 0


def _content(value: Any) -> int:
    step = max(1, len(value) // SAMPLE)
    if isinstance(value, torch.Tensor):
        return checksum(value.detach()[::step], 0, PART_BYTES)
    return zlib.crc32(repr(value[::step]).encode() if isinstance(value, list) else value[::step].tobytes())


# ---- permutations that know of their walk


class _Order(torch.Tensor):
    """As torch draws it. Whatever is made of it is a tensor like any other."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __getitem__(self, place):
        plain = self.as_subclass(torch.Tensor)
        part = self.walk.part_of(place)
        return plain[place if part is None else part]

    def split(self, size, dim=0):
        """The batches, each when it is asked for."""
        return _Pieces(self, size) if isinstance(size, int) else self.as_subclass(torch.Tensor).split(size, dim)

    def __iter__(self):
        return iter(self.as_subclass(torch.Tensor))


class _Pieces(tuple):
    def __new__(cls, order, size):
        return super().__new__(cls, (slice(at, at + size) for at in range(0, len(order), size)))

    def __init__(self, order, size):
        del size
        self._order = order

    def __getitem__(self, place):
        found = super().__getitem__(place)
        return self._order[found] if isinstance(found, slice) else tuple(self._order[each] for each in found)

    def __iter__(self):
        return (self._order[each] for each in super().__iter__())


class _List(list):
    """As random.sample draws it."""

    walk: Any = None

    def __getitem__(self, place):
        part = None if self.walk is None else self.walk.part_of(place)
        return super().__getitem__(place if part is None else part)


_KINDS: tuple = (_Order, _List)


def _mark_tensor(drawn: torch.Tensor, walk: _Walk) -> torch.Tensor:
    order = drawn.as_subclass(_Order)
    order.walk = walk
    return order


def _mark_list(drawn: list, walk: _Walk) -> list:
    order = _List(drawn)
    order.walk = walk
    return order


def _marking_arrays(numpy: Any) -> Callable:
    class Array(numpy.ndarray):
        """As numpy draws it."""

        walk = None

        def __getitem__(self, place):
            part = None if self.walk is None else self.walk.part_of(place)
            return numpy.asarray(self)[place if part is None else part]

    def mark(drawn, walk):
        order = drawn.view(Array)
        order.walk = walk
        return order

    global _KINDS  # pylint: disable=global-statement
    _KINDS = (*_KINDS, Array)
    return mark


def apply(session: TorchSession) -> None:
    """From now on permutations that are drawn in training know of their walk."""
    walks = session.walks = Walks(session)
    torch.randperm = walks.drawing(torch.randperm, _mark_tensor)
    random.sample = walks.drawing(random.sample, _mark_list, permutes_all)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.permutation = walks.drawing(numpy.random.permutation, _marking_arrays(numpy))
