# SPDX-License-Identifier: Apache-2.0
"""Training whose workers come and go, while it runs.

    from poseidon import elastic

    @elastic.run
    def train(state):
        while state.epoch < 10:
            state.sampler.set_epoch(state.epoch)
            for batch in state.sampler.batches():
                ...                           a step, with elastic.average(gradients)
                state.commit()
            state.epoch += 1

    train(elastic.State(sampler=elastic.ElasticSampler(60000, batch_size=32), weights=weights, epoch=0))

poseidon.torch.elastic and poseidon.tensorflow.elastic have states for models and optimizers. docs/elastic.md is the manual."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _elastic
from .._elastic import rank, size
from .._errors import InvalidError, StateError
from .changes import HostsUpdatedInterrupt, StateLost
from .deal import Deal
from .running import run
from .sampler import ElasticSampler
from .state import ObjectState, State

__all__ = ["Deal", "ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "StateLost", "average", "members", "rank",
           "run", "samples", "size", "use"]

_elastic.declare()


def _group() -> Any:
    group = _elastic.current()
    if group is None:
        raise StateError("poseidon.elastic: this process is in no job: call poseidon.init() first")
    return group


def use(arrays: list[np.ndarray]) -> None:
    """What gradients there will be: before run, by all workers alike. poseidon.torch and poseidon.tensorflow do it by
    themselves."""
    _group().use(_lengths(arrays), _shapes(arrays))


def average(arrays: list[np.ndarray]) -> bool:
    """Makes gradients, each the mean over this worker's batch, the means over the samples of all workers, in place. False: no
    sample is in this step, and there is nothing to step with."""
    group = _group()
    lengths = _lengths(arrays)
    group.use(lengths, _shapes(arrays))
    flats = {dtype: np.concatenate([array.reshape(-1) for array in arrays if array.dtype.name == dtype]) for dtype in lengths}
    if not group.average(flats):
        return False
    at = dict.fromkeys(lengths, 0)
    for array in arrays:
        dtype = array.dtype.name
        array[...] = flats[dtype][at[dtype]:at[dtype] + array.size].reshape(array.shape)
        at[dtype] += array.size
    return True


def _shapes(arrays: list[np.ndarray]) -> str:
    return repr([(array.shape, array.dtype.name) for array in arrays])


def _lengths(arrays: list[np.ndarray]) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for array in arrays:
        if array.dtype.name not in ("float32", "float64"):
            raise InvalidError(f"elastic.average: a gradient of {array.dtype.name}: float32 and float64 travel")
        lengths[array.dtype.name] = lengths.get(array.dtype.name, 0) + array.size
    return lengths


def members() -> tuple[int, ...]:
    """The workers that are here, by poseidon.rank()."""
    return _group().members


def samples() -> int:
    """How many samples were in the last step, of all workers."""
    return _group().samples
