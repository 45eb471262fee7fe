# SPDX-License-Identifier: Apache-2.0
"""Sums, means and concatenations over all workers by the names that Horovod's users know, and what
compression= and op= do to gradients.

In a graph every place in the program has a table of its own, whose name is counted. Eagerly, where each
call is over when it returns, calls of one kind share a table: a loop makes no new ones."""

from __future__ import annotations

import json
from typing import Any, Iterable

import numpy as np
import tensorflow as tf

import poseidon

from .. import _elastic, _horovod
from .._errors import InvalidError
from .._horovod import Average, Compression, Max, Min, Product, Sum
from . import ops
from .gradients import Averager

_OFFERED = (Average, Sum, Min, Max, Product)
_OF_ALL = {Average: tf.reduce_mean, Sum: tf.reduce_sum, Min: tf.reduce_min, Max: tf.reduce_max,
           Product: tf.reduce_prod}


def _half(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, tf.float16) if tensor.dtype in (tf.float32, tf.float64) else tensor


class Reducer(Averager):
    """The tables of an optimizer or tape whose gradients travel as float16, or are added."""

    def __init__(self, op: str = Average, half: bool = False, factor: float = 1.0):
        super().__init__()
        if op == Sum and _elastic.is_declared():
            raise InvalidError("op=Sum is not for programs whose workers come and go (elastic): use op=Average")
        self.factor = factor
        self._half, self._factor = half, factor * (poseidon.size() if op == Sum else 1)

    def _average(self, tensor: tf.Tensor, name: Any, priority: int) -> tf.Tensor:
        sent = _half(tensor) if self._half else tensor
        found = tf.cast(super()._average(sent, name, priority), tensor.dtype)
        return found if self._factor == 1 else found * tf.cast(self._factor, found.dtype)


def reducer(what: str, compression: Any = None, op: Any = None, predivide: float = 1.0,
            process_set: Any = None, factor: float = 1.0) -> Averager:
    """What the options of an optimizer or tape ask for; what cannot be had is refused by name."""
    _horovod.check_process_set(what, process_set)
    chosen = _horovod.reduction(what, op)
    _horovod.check_predivide(what, predivide, chosen)
    half = Compression.is_half(what, compression)
    plain = chosen == Average and not half and factor == 1.0
    return Averager() if plain else Reducer(chosen, half, factor)


def _name(kind: str, tensor: tf.Tensor, given: str | None) -> str | None:
    if given is not None or not tf.executing_eagerly():
        return None if given is None else f"{kind}.{given}"
    return f"tensorflow.{kind}.{tensor.dtype.name}{tensor.shape.as_list()}"


def allreduce(tensor: Any, average: bool | None = None, device_dense: str = "",
              device_sparse: str = "", compression: Any = Compression.none, op: str | None = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0, name: str | None = None,
              process_set: Any = None) -> tf.Tensor:
    """The mean (or what op= says) of a tensor over all workers."""
    del device_dense, device_sparse
    what = f"allreduce of {name}" if name else "allreduce"
    _horovod.check_process_set(what, process_set)
    op = _horovod.reduction(what, op, average, _OFFERED)
    tensor = tf.convert_to_tensor(tensor)
    if prescale_factor != 1.0:
        tensor *= tf.cast(prescale_factor, tensor.dtype)
    half = Compression.is_half(what, compression)
    result = _reduced(tensor, what, op, name, half)
    return result if postscale_factor == 1.0 else result * tf.cast(postscale_factor, tensor.dtype)


def _reduced(tensor: tf.Tensor, what: str, op: str, name: str | None, half: bool) -> tf.Tensor:
    if op in (Average, Sum) and tensor.dtype.is_floating:
        sent = _half(tensor) if half else tensor
        found = ops.push_pull(sent, _name(f"allreduce.{op}", sent, name), reduce=op)
        return tf.cast(found, tensor.dtype)
    if op == Average:
        raise InvalidError(f"{what}: the mean of {tensor.dtype.name} is no such number: cast it to "
                           "tf.float32, or use op=Sum")
    return tf.cast(_OF_ALL[op](allgather(tensor[tf.newaxis], name), axis=0), tensor.dtype)


def grouped_allreduce(tensors: Iterable[Any], *args: Any, name: str | None = None,
                      **kwargs: Any) -> list[tf.Tensor]:
    """Several at once."""
    return [allreduce(tensor, *args, name=f"{name}.{number}" if name else None, **kwargs)
            for number, tensor in enumerate(tensors)]


def allgather(tensor: Any, name: str | None = None, process_set: Any = None) -> tf.Tensor:
    """All workers' tensors, one after the other along their first dimension. In a graph that is the same
    everywhere; eagerly it may differ."""
    _horovod.check_process_set("allgather", process_set)
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank == 0:
        raise InvalidError("allgather: a tensor without dimensions cannot be concatenated; use "
                           "tensor[tf.newaxis]")
    if not tf.executing_eagerly():
        return tf.concat([ops.broadcast(tensor, root, f"allgather.{name}.{root}" if name else None)
                          for root in range(_elastic.size())], 0)
    mine = np.ascontiguousarray(tensor.numpy())
    parts = []
    for root in range(_elastic.size()):
        rows = int(poseidon.broadcast(np.array([len(mine)]), root, "rows")[0])
        part = mine if root == _elastic.rank() else np.zeros((rows, *mine.shape[1:]), mine.dtype)
        parts.append(poseidon.broadcast(part, root, name or "allgather"))
    return tf.convert_to_tensor(np.concatenate(parts))


def broadcast(tensor: Any, root_rank: int | None = None, name: str | None = None, *, root: int = 0,
              timeout_ms: int = ops.TIMEOUT_MS) -> tf.Tensor:
    """The root's tensor on every worker, bit for bit, of any numeric type."""
    tensor = tf.convert_to_tensor(tensor)
    root = root if root_rank is None else root_rank
    if name is None and tf.executing_eagerly():
        name = _name(f"broadcast.{root}", tensor, None)
    return ops.broadcast(tensor, root, name, timeout_ms=timeout_ms)


def broadcast_object(value: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's value on every worker: what JSON has (numbers, text, lists, dictionaries). Nothing is
    unpickled."""
    text = np.frombuffer(json.dumps(value).encode(), np.uint8).copy()
    length = poseidon.broadcast(np.array([text.size]), root_rank, "length")
    mine = text if _elastic.rank() == root_rank else np.zeros(int(length[0]), np.uint8)
    return json.loads(bytes(poseidon.broadcast(mine, root_rank, name or "object")))
