# SPDX-License-Identifier: Apache-2.0
"""What operations do where workers come and go (poseidon.elastic): they call the group of workers, eagerly and in graphs.

A graph runs them in the order of the program, which is the same on all workers."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy as np
import tensorflow as tf

from .. import _elastic


def _kind(dtype: tf.DType) -> str:
    """What a gradient travels as."""
    return "float64" if dtype == tf.float64 else "float32"


def _lengths(variables: Sequence[Any]) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for variable in variables:
        kind = _kind(tf.as_dtype(variable.dtype))
        lengths[kind] = lengths.get(kind, 0) + math.prod(variable.shape)
    return lengths


def use(variables: Sequence[Any]) -> None:
    """What will be trained."""
    group = _elastic.current()
    if group is not None:
        described = [(tuple(variable.shape), tf.as_dtype(variable.dtype).name) for variable in variables]
        group.use(_lengths(variables), repr(described))


def average(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """The means over the samples of all workers. What has no gradient here (None) has none anywhere."""
    use(variables)
    lengths = _lengths(variables)
    dense = [None if gradient is None else tf.cast(tf.convert_to_tensor(gradient), _kind(tf.as_dtype(variable.dtype)))
             for gradient, variable in zip(gradients, variables)]
    places, ends = [], dict.fromkeys(lengths, 0)
    for variable in variables:
        kind, size = _kind(tf.as_dtype(variable.dtype)), math.prod(variable.shape)
        places.append((kind, ends[kind], ends[kind] + size))
        ends[kind] += size
    there = [number for number, gradient in enumerate(dense) if gradient is not None]

    def here(*arrays: np.ndarray) -> list[np.ndarray]:
        flats = {kind: np.zeros(length, kind) for kind, length in lengths.items()}
        for number, array in zip(there, arrays):
            kind, begin, end = places[number]
            flats[kind][begin:end] = array.reshape(-1)
        if not _elastic.current().average(flats):
            flats = {kind: np.zeros(length, kind) for kind, length in lengths.items()}
        return [flats[kind][begin:end].reshape(array.shape)
                for (kind, begin, end), array in zip((places[number] for number in there), arrays)]

    found = tf.numpy_function(here, [dense[number] for number in there], [dense[number].dtype for number in there])
    out: list[Any] = [None] * len(gradients)
    for number, mean in zip(there, found):
        out[number] = tf.cast(tf.ensure_shape(mean, variables[number].shape), variables[number].dtype)
    return out


def _call(function: Callable[[np.ndarray], np.ndarray], tensor: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(function, [tensor], tensor.dtype), tensor.shape)


def reduce(tensor: tf.Tensor, mean: bool) -> tf.Tensor:
    """The sum, or the mean, over the workers that are here."""

    def here(array: np.ndarray) -> np.ndarray:
        reduced = _elastic.current().reduce(array.astype(np.float64).reshape(-1), mean)
        return reduced.reshape(array.shape).astype(array.dtype)

    return _call(here, tensor)


def broadcast(tensor: tf.Tensor, root: int) -> tf.Tensor:
    """One worker's tensor, on all, bit for bit."""

    def here(array: np.ndarray) -> np.ndarray:
        came = _elastic.current().broadcast(np.ascontiguousarray(array).tobytes(), root)
        return np.frombuffer(came, array.dtype).reshape(array.shape).copy()

    return _call(here, tensor)
