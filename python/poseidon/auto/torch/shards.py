# SPDX-License-Identifier: Apache-2.0
"""Which batches of a loader are this worker's.

W consecutive batches of the loader's own sampler make one step of the job: worker r takes the r-th.
That is the batch which one process with W times the batch size would have seen, cut into W pieces,
whatever the sampler is. All workers walk through the same order, which is why they share the state of
the random generators before each epoch, and all take the same number of steps.

The last step of an epoch may have less. Each worker's gradient then counts by its share of the
samples (weight), so that their mean is still the gradient of all of them; a worker without any sample
computes with somebody else's and counts 0."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any, Iterable, Iterator, NamedTuple

from ..common.positions import in_order_of_batches
from .samplers import drops_last, without_skipping

if TYPE_CHECKING:
    from .session import TorchSession
    from .streams import Streams
    from .tails import Tail


class Delivery(NamedTuple):
    """What is known of one batch besides its data."""

    weight: float  # of its gradients
    digest: int  # of the numbers of all samples of the step
    samples: int  # of the step
    tail: Tail | None = None  # of the epoch


# The number of samples of a whole step, as all workers have counted them: a loss that was divided by it is weighed.
COUNTED = Delivery(weight=1.0, digest=-1, samples=0)


def weights_of(sources: Iterable[Delivery]) -> set[float]:
    """How the gradients of a loss count that was computed from these."""
    sources = set(sources)
    if COUNTED not in sources:
        return {each.weight for each in sources}
    return {0.0 if each.weight == 0.0 else 1.0 for each in sources - {COUNTED}}  # 0: borrowed from another worker


def _size(batch: Any) -> int:
    return len(batch) if isinstance(batch, (list, tuple)) else 1


def deal(group: list, world: int, rank: int, cuts: bool) -> tuple[Any, float]:
    """This worker's piece of one step, and the weight of its gradient. cuts: batches may be cut where there are fewer
    than workers."""
    total = sum(_size(batch) for batch in group)
    if len(group) == world and min(map(_size, group)) > 1:
        mine = group[rank]
        return mine, _size(mine) * world / total
    whole = [sample for batch in group for sample in batch] if all(
        isinstance(batch, (list, tuple)) for batch in group) else group
    if (cuts or len(group) == world) and whole is not group and len(whole) >= 2 * world:  # no batch of one: BatchNorm refuses it
        begin, end = (len(whole) * number // world for number in (rank, rank + 1))
        return whole[begin:end], (end - begin) * world / total
    if rank < len(group):
        return group[rank], _size(group[rank]) * world / total
    return group[0], 0.0


class DrawnAlike:
    """An iterator over the batches of a sampler, which draws from the stream that all workers have in
    common. Samplers of torch draw when their first batch is asked for, others perhaps at every one."""

    def __init__(self, streams: Streams, batches: Any):
        self._streams = streams
        self._batches = iter(batches)
        self._draws_once = _is_of_torch(batches) and _is_of_torch(getattr(batches, "sampler", batches))
        self._drawn = False

    def __iter__(self) -> DrawnAlike:
        return self

    def __next__(self) -> Any:
        if self._drawn and self._draws_once:
            return next(self._batches)
        self._drawn = True
        with self._streams.common():
            return next(self._batches)


def _is_of_torch(sampler: Any) -> bool:
    return type(sampler).__module__.startswith("torch.utils.data.")


def deal_rest(group: list, world: int, rank: int, cuts: bool) -> list:
    """What this worker has not got of one step: the pieces of the others."""
    pieces = [deal(group, world, each, cuts) for each in range(world)]
    borrowed = pieces[rank][1] == 0.0  # it has the piece of worker 0 for want of its own
    return [piece for other, (piece, weight) in enumerate(pieces)
            if other != rank and weight > 0 and not (borrowed and other == 0)]


class Shard:
    """An iterator over this worker's batches of indices. deliveries has one entry for each that was
    taken and whose data the script has not got yet: data loaders fetch ahead.

    Whether a loader is read to train or to evaluate is known when something is differentiated, not when the
    reading begins. Until then the pieces of the others are remembered: an evaluation gets them, too, and so sees
    everything."""

    def __init__(self, batches: Iterable, world: int, rank: int, drop_last: bool):
        self._batches = iter(batches)
        self._world, self._rank, self._drop_last = world, rank, drop_last
        self.deliveries: collections.deque[Delivery | None] = collections.deque()
        self.loader: Any = None
        self.reading: Any = None  # of the witness
        self.tail: Tail | None = None
        self.rounds_before = 0  # of the session, when the epoch began
        self.handed_out = 0  # batches that the script has got
        self.trains = False  # it is known
        self.likely_trains = False  # else no batch is cut, so that an evaluation has as many as in one process
        self.evaluates = False  # it is known
        self._others: collections.deque = collections.deque()
        self._are_plain = False  # its batches are lists of ints

    def __iter__(self) -> Shard:
        return self

    def is_over(self) -> bool:
        """Whether the script has got all of it."""
        if self.deliveries:
            return False
        ahead = list(itertools.islice(self._batches, self._world))
        self._batches = itertools.chain(ahead, self._batches)
        return not ahead or self._drop_last and len(ahead) < self._world

    def be_training(self) -> None:
        """Something of it was differentiated."""
        self.trains = True
        self._others.clear()

    def be_evaluation(self, told: int | None) -> bool:
        """Nothing of it was. Says whether there is more to hand out. The script may take as many batches as it was told
        that there are, and no more."""
        if not self.evaluates and told is not None:
            self._fit_into(told - self.handed_out - len(self.deliveries))
        self.evaluates = True
        if not self._others:
            self._others.extend(itertools.islice(self._batches, 1))
        return bool(self._others)

    def _fit_into(self, room: int) -> None:
        """What is left comes in so many batches, larger ones if need be."""
        rest = [*self._others, *self._batches]
        if 0 < room < len(rest) and all(isinstance(batch, list) for batch in rest):
            bounds = [len(rest) * number // room for number in range(room + 1)]
            rest = [list(itertools.chain.from_iterable(rest[begin:end])) for begin, end in itertools.pairwise(bounds)]
        self._others, self._batches = collections.deque(rest), iter(())

    def __next__(self) -> Any:
        if self.evaluates:
            mine = self._others.popleft() if self._others else next(self._batches)
            self.deliveries.append(None)
        else:
            group = list(itertools.islice(self._batches, self._world))
            if not group or self._drop_last and len(group) < self._world:
                if not self.trains:
                    self._others.extend(group)
                raise StopIteration
            cuts = self.trains or self.likely_trains
            mine, weight = deal(group, self._world, self._rank, cuts)
            if not self.trains:
                self._others.extend(deal_rest(group, self._world, self._rank, cuts))
            digest = 0 if self.reading is None else \
                hash(tuple(map(tuple, group))) if self._are_plain else self._digest(group)
            self.deliveries.append(Delivery(weight, digest, sum(map(_size, group)), self.tail))
        if self.reading is not None:
            self.reading.asked.append(mine)
        return mine


    def _digest(self, group: list) -> int:
        """Of positions in their order. Nearly all samplers yield lists of ints, which need no call of Python: from the first
        such ones on."""
        if not all(type(batch) is list and all(type(each) is int for each in batch) for batch in group):
            return in_order_of_batches(group)
        self._are_plain = True
        return hash(tuple(map(tuple, group)))


class Batches:
    """Stands where a loader has its sampler of batches, and decides when it is iterated."""

    def __init__(self, session: TorchSession, loader: Any, batches: Any):
        self._session, self._loader, self._batches = session, loader, batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator:
        from . import iterables
        from .tails import tail_of

        session = self._session
        training = session.may_train(self._loader)
        if training:
            session.begin_epoch(self._loader)
        if not training:
            session.points.read("other")
            drawn = DrawnAlike(session.streams, self._batches)
            return drawn if session.points.replay is not None else session.seen.drawn(self._loader, drawn)
        batches, skipped = without_skipping(self._batches)  # batches of the job, each of W here
        drawn = DrawnAlike(session.streams, batches)
        collections.deque(itertools.islice(drawn, skipped * session.world), maxlen=0)
        if session.points.replay is None:  # what is passed over is nobody's to look at
            drawn = session.seen.drawn(self._loader, drawn)
        kind = iterables.Stream if iterables.is_stream(self._loader) else Shard
        shard = kind(drawn, session.world, session.rank, drops_last(self._loader))
        shard.loader, shard.rounds_before = self._loader, session.rounds()
        shard.tail = tail_of(self._loader, session.world) if kind is Shard else None
        shard.trains = session.expects_training(self._loader)
        shard.likely_trains = session.likely_trains(self._loader)
        shard.reading = getattr(drawn, "reading", None)
        session.points.begun(shard)
        return shard

    def __len__(self) -> int:
        session = self._session
        if not session.length_is_dealt(self._loader):
            return session.tell_length(self._loader, len(self._batches), False)
        batches, skipped = without_skipping(self._batches)
        count, world = len(batches), session.world
        steps = count // world if drops_last(self._loader) else -(-count // world)
        return session.tell_length(self._loader, steps - skipped, True)
