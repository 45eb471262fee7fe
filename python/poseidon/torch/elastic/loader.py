# SPDX-License-Identifier: Apache-2.0
"""What a DataLoader with an ElasticSampler hands to the program, and when.

A loader reads ahead, so the sampler cannot know by itself which of its samples the program has; nor does it know how many make
a batch. Both say the loader."""

from __future__ import annotations

import functools
from typing import Any, Iterator

import torch
from torch.utils.data import DataLoader

from ..._errors import InvalidError
from .sampler import ElasticSampler


def count_batches() -> None:
    """From now on loaders tell their samplers. Doing it again does nothing."""
    if hasattr(DataLoader.__init__, "told_by_poseidon"):
        return
    own_init, own_iter = DataLoader.__init__, DataLoader.__iter__

    @functools.wraps(own_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own_init(self, *args, **kwargs)
        if isinstance(self.sampler, ElasticSampler):
            if self.batch_size is None:
                raise InvalidError("a DataLoader without batches (batch_size=None) takes no ElasticSampler: give it a batch_size")
            self.sampler.batch_size, self.sampler.drop_last = self.batch_size, self.drop_last

    @functools.wraps(own_iter)
    def begin(self: Any) -> Iterator:
        found = own_iter(self)
        return _Counting(found, self.sampler) if isinstance(self.sampler, ElasticSampler) else found

    init.told_by_poseidon = True  # type: ignore[attr-defined]
    DataLoader.__init__, DataLoader.__iter__ = init, begin  # type: ignore[method-assign]


class _Counting:
    """An iterator of a loader."""

    def __init__(self, iterator: Iterator, sampler: ElasticSampler):
        self._iterator, self._sampler = iterator, sampler

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._sampler.end_of_loop()
            raise
        self._sampler.hand_out(torch.is_grad_enabled())
        return batch

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)
