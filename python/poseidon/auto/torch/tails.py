# SPDX-License-Identifier: Apache-2.0
"""How an epoch will end, as far as it can be told when it begins.

A loss that is computed from batches of several loaders cannot be weighed where one of them has fewer samples in its
last step. A script that does so is to hear of it in its first step, not in the last of the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, NamedTuple

from .samplers import drops_last

if TYPE_CHECKING:
    from .shards import Delivery


class Tail(NamedTuple):
    """Of one loader."""

    steps: int
    weights: tuple[float, ...]  # of the workers' batches in the last

    def is_even(self) -> bool:
        """Whether all count alike."""
        return all(abs(weight - 1.0) < 1e-9 for weight in self.weights)


def tail_of(loader: Any, world: int) -> Tail | None:
    """None: it cannot be told."""
    from .shards import deal

    size = loader.batch_size
    if size is None or not hasattr(loader.sampler, "__len__"):
        return None
    count = len(loader.sampler)
    steps, rest = divmod(count, size * world)
    if rest == 0 or drops_last(loader):
        return Tail(steps, ())
    group = [list(range(begin, min(begin + size, rest))) for begin in range(0, rest, size)]
    return Tail(steps + 1, tuple(deal(group, world, rank, cuts=True)[1] for rank in range(world)))


def cannot_be_weighed(sources: Iterable[Delivery]) -> bool:
    """Whether one loss is computed from batches that will not count alike when the shortest of their loaders ends."""
    tails = {each.tail for each in sources if each.tail is not None}
    if len(tails) < 2:
        return False
    shortest = min(tail.steps for tail in tails)
    return any(tail.steps == shortest and not tail.is_even() for tail in tails)
