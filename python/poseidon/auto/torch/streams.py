# SPDX-License-Identifier: Apache-2.0
"""Two streams of random numbers for each of torch, random and numpy.random.

What decides which sample is trained where has to be drawn alike on all workers: the order of a sampler, a
permutation, initial weights. That is the *common* stream. Noise (dropout, augmentation, the input of a
generator, time steps of a diffusion) has to differ, or W workers would see the same noise W times: that is the
worker's *own* stream, a function of the common one and the rank, so a seed of the script still decides both.

Until training begins there is only the common stream. Afterwards the generators hold the worker's own, and the
functions that walk a set (torch.randperm, shuffles, initial weights, samplers: shards.py) borrow the common one.

A script that keeps the state of a generator gets that of the common stream, so that a run which goes on from it walks
its sets like one process. The worker's own stream goes back with it, to where it was or, when the state comes from a
file, to a place that follows from it and the rank.

Thread: that of the script which trains. A generator that the script made itself is left alone."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import multiprocessing
import random
import sys
from typing import Any, Callable, Iterator

import torch
from torch.utils.data import dataset as torch_dataset

INITIAL_VALUES = ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
                  "kaiming_normal_", "orthogonal_", "sparse_")
KEPT_STATES = 512  # of which it is known where this worker's own stream was


def _numpy_random() -> Any:
    """numpy.random where its generator is the usual one, else None."""
    numpy = sys.modules.get("numpy")
    if numpy is None or _own(numpy.random.get_state)(legacy=True)[0] != "MT19937":
        return None
    return numpy.random


def _as_plain(states: tuple) -> list:
    of_torch, of_python, of_numpy = states
    return [of_torch, of_python, None if of_numpy is None else [of_numpy[0], of_numpy[1], *of_numpy[2:]]]


def _from_plain(kept: list) -> tuple:
    of_torch, of_python, of_numpy = kept
    return of_torch, of_python, None if of_numpy is None else tuple(of_numpy)


def _own(function: Callable) -> Callable:
    """Not ours."""
    return getattr(function, "__wrapped__", function)


def _take_states() -> tuple:
    numpy_random = _numpy_random()
    return (_own(torch.get_rng_state)(), _own(random.getstate)(),
            None if numpy_random is None else _own(numpy_random.get_state)())


def _set_states(states: tuple) -> None:
    _own(torch.set_rng_state)(states[0])
    _own(random.setstate)(states[1])
    numpy_random = _numpy_random()
    if states[2] is not None and numpy_random is not None:
        _own(numpy_random.set_state)(states[2])


def _mixed(source: bytes, rank: int) -> int:
    digest = hashlib.sha256(source + b"%d" % rank).digest()
    return int.from_bytes(digest[:4], "little")


class Streams:
    """Which of the two the generators of this process hold."""

    def __init__(self, rank: int):
        self._rank = rank
        self._apart = False
        self._depth = 0  # of common()
        self._held = False  # the common stream is in force until further notice
        self._other: tuple = ()  # states of the stream that the generators do not hold
        self._manual_seed, self._random_seed = torch.manual_seed, random.seed  # not ours below

    def part(self) -> None:
        """Training begins: from now on this worker's noise is its own. Called inside common()."""
        if self._apart:
            return
        common = _take_states()
        self._seed_own(common[0].numpy().tobytes())
        self._other = _take_states()
        _set_states(common)
        self._apart = True

    def unite(self) -> None:
        """This worker's noise is forgotten; part() makes another, which follows from what all have in common. Called inside
        common()."""
        self._apart, self._other = False, ()

    @contextlib.contextmanager
    def common(self) -> Iterator[None]:
        """What is drawn inside is drawn alike on all workers."""
        if self._apart and self._depth == 0 and not self._held:
            self._swap()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._apart and not self._held:
                self._swap()

    def hold_common(self, wanted: bool) -> None:
        """Everything is drawn alike from now on, or each worker draws for itself again."""
        if wanted != self._held and self._apart and self._depth == 0:
            self._held = wanted
            self._swap()

    def _swap(self) -> None:
        held = _take_states()
        _set_states(self._other)
        self._other = held

    def _seed_own(self, source: bytes) -> None:
        mixed = _mixed(source, self._rank)
        self._manual_seed(mixed)
        self._random_seed(mixed)
        numpy_random = _numpy_random()
        if numpy_random is not None:
            numpy_seed = getattr(numpy_random.seed, "__wrapped__", numpy_random.seed)
            numpy_seed(mixed)

    def apart(self) -> bool:
        """Whether there are two, and the generators hold this worker's own."""
        return self._apart and self._depth == 0 and not self._held

    @staticmethod
    def digest() -> bytes:
        """Of what the generators hold."""
        torch_state, *others = _take_states()
        return hashlib.sha256(torch_state.numpy().tobytes() + repr(others).encode()).digest()

    def began(self) -> bool:
        """Whether there are two."""
        return self._apart

    def states(self) -> list:
        """Of both streams, of this worker, to be kept in a file."""
        return [_as_plain(states) for states in (_take_states(), self._other) if states] + \
            ([[each for each in torch.cuda.get_rng_state_all()]] if torch.cuda.is_initialized() else [])

    def put_states(self, kept: list) -> None:
        """What states() told when as many streams were there."""
        _set_states(_from_plain(kept[0]))
        if self._apart:
            self._other = _from_plain(kept[1])
        if len(kept) > 1 + self._apart:
            torch.cuda.set_rng_state_all(kept[-1])

    @staticmethod
    def held_states() -> tuple:
        """What the generators hold, of torch, random and numpy.random (None: not the usual one)."""
        return _take_states()

    def mixed_with_rank(self, source: bytes) -> int:
        """A seed for this worker's own."""
        return _mixed(source, self._rank)

    # ---- functions of others

    def borrow(self, function: Callable, applies: Callable[..., bool] = lambda *_, **__: True) -> Callable:
        """A function that draws from the common stream where it walks a set."""
        @functools.wraps(function)
        def drawn_alike(*args, **kwargs):
            if not self._apart or self._depth > 0 or self._held or not applies(*args, **kwargs):
                return function(*args, **kwargs)
            with self.common():
                return function(*args, **kwargs)

        return drawn_alike

    def follow_seeds(self, seed: Callable) -> Callable:
        """A function that sets a seed: both streams begin anew, the worker's own with its rank mixed in."""
        @functools.wraps(seed)
        def seed_both(*args, **kwargs):
            if not self._apart or self._depth > 0 or not (args or kwargs) or \
                    (args or tuple(kwargs.values()))[0] is None:
                return seed(*args, **kwargs)
            with self.common():
                result = seed(*args, **kwargs)
            mixed = _mixed(repr((args, sorted(kwargs.items()))).encode(), self._rank)
            held = self._held
            self.hold_common(False)
            seed(mixed)
            self.hold_common(held)
            return result

        return seed_both


class KeptStates:
    """States of one kind of generator that the script keeps: of the common stream, and where this worker's own was."""

    def __init__(self, streams: Streams, take: Callable, put: Callable, seed: Callable):
        self._streams, self._take, self._put, self._seed = streams, take, put, seed
        self._kept: collections.deque = collections.deque(maxlen=KEPT_STATES)

    def taking(self) -> Callable:
        """Instead of the function that tells the state."""
        @functools.wraps(self._take)
        def take(*args, **kwargs):
            if not self._streams.apart():
                return self._take(*args, **kwargs)
            own = self._take()
            with self._streams.common():
                state = self._take(*args, **kwargs)
            self._kept.append((state, _bytes_of(state), own))
            return state

        return take

    def putting(self) -> Callable:
        """Instead of the function that sets it."""
        @functools.wraps(self._put)
        def put(state):
            if not self._streams.apart():
                self._put(state)
                return
            with self._streams.common():
                self._put(state)
            own = self._own_at(state)
            if own is not None:
                self._put(own)
            else:
                self._seed(self._streams.mixed_with_rank(_bytes_of(state)))

        return put

    def _own_at(self, state: Any) -> Any:
        """Where this worker's own stream was; or else where it was last, of several times with equal states."""
        content = _bytes_of(state)
        same = [own for kept, _, own in self._kept if kept is state]
        equal = [own for _, kept, own in self._kept if kept == content]
        return (same or equal or [None])[-1]


def _bytes_of(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(state).encode()


def _is_default(generator: Any) -> bool:
    return generator is None or generator is torch.default_generator


def _in_script(*_: Any) -> bool:
    """Samplers are seeded by what it tells (accelerate). In a process of a loader it is for noise."""
    return multiprocessing.parent_process() is None


def permutes_all(population: Any, k: int, **_: Any) -> bool:
    """random.sample of everything is a permutation; of less, it is a draw."""
    return hasattr(population, "__len__") and k == len(population)


def apply(streams: Streams) -> None:
    """From now on the functions that walk a set, or set a seed, know of the two streams."""
    randperm = streams.borrow(torch.randperm, lambda *_, **kwargs: _is_default(kwargs.get("generator")))
    torch.randperm = torch_dataset.randperm = randperm
    torch.initial_seed = torch.random.initial_seed = streams.borrow(torch.initial_seed, _in_script)
    torch.manual_seed = torch.random.manual_seed = streams.follow_seeds(torch.manual_seed)
    for name in INITIAL_VALUES:
        setattr(torch.nn.init, name, streams.borrow(getattr(torch.nn.init, name)))
    kept = KeptStates(streams, torch.get_rng_state, torch.set_rng_state, torch.default_generator.manual_seed)
    torch.get_rng_state = torch.random.get_rng_state = kept.taking()
    torch.set_rng_state = torch.random.set_rng_state = kept.putting()
    kept = KeptStates(streams, random.getstate, random.setstate, random.seed)
    random.getstate, random.setstate = kept.taking(), kept.putting()
    random.shuffle = streams.borrow(random.shuffle)
    random.sample = streams.borrow(random.sample, permutes_all)
    random.seed = streams.follow_seeds(random.seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        for name in ("shuffle", "permutation"):
            setattr(numpy.random, name, streams.borrow(getattr(numpy.random, name)))
        kept = KeptStates(streams, numpy.random.get_state, numpy.random.set_state, numpy.random.seed)
        numpy.random.get_state, numpy.random.set_state = kept.taking(), kept.putting()
        numpy.random.seed = streams.follow_seeds(numpy.random.seed)
