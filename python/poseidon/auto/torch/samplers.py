# SPDX-License-Identifier: Apache-2.0
"""The samplers of a loader, also those that others wrap."""

from __future__ import annotations

from typing import Any, Iterator

from torch.utils.data import IterableDataset, SequentialSampler


def samplers_of(loader: Any) -> list:
    """Of a loader, from the outermost on."""
    return [*_chain(loader.batch_sampler), *_chain(loader.sampler)]


def _chain(sampler: Any) -> Iterator[Any]:
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None) or getattr(sampler, "batch_sampler", None)


def shuffles(loader: Any) -> bool:
    """Whether it is made for training, by the look of it."""
    if isinstance(loader.dataset, IterableDataset):
        return False
    *_, innermost = None, *_chain(loader.batch_sampler)
    if innermost is None or innermost is loader.batch_sampler:  # of the script's own: it tells nothing
        innermost = loader.sampler
    return not isinstance(innermost, SequentialSampler)


def drops_last(loader: Any) -> bool:
    """Whether incomplete steps are left out."""
    return bool(loader.drop_last or any(getattr(each, "drop_last", False) for each in samplers_of(loader)))


def without_skipping(batches: Any) -> tuple[Any, int]:
    """What a sampler draws from that leaves out the first batches of another one (accelerate's, when a training goes
    on in the middle of an epoch), and how many it leaves out."""
    skipped = 0
    while type(batches).__name__ == "SkipBatchSampler":
        skipped += batches.skip_batches
        batches = batches.batch_sampler
    return batches, skipped
