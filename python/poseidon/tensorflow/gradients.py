# SPDX-License-Identifier: Apache-2.0
"""Gradients of one step, averaged over all workers.

Small gradients of one type share a table and leave as one, when the last of them is computed; each of the
others has a table of its own. First layers have the highest priority: the next forward pass needs them
first."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

import poseidon

from .. import _elastic, _packs
from . import elastic_ops, ops

PRIORITY_MAX = 255


class Averager:
    """The tables of one optimizer or tape. Every worker makes its averagers in the same order and
    gives them the same gradients."""

    def __init__(self, timeout_ms: int = ops.TIMEOUT_MS):
        self._name: str | None = None
        self._timeout_ms = timeout_ms
        self.share: Any = None  # this worker's samples of the step, in batches of the usual size
        self.scale: Any = 1.0  # of the means, where there is a share
        self.digest: Any = None  # a number that is to be compared, where there is a share
        self.factor = 1.0  # of the means where workers come and go
        self.told: Any = None  # sums over all workers: 1, shares, digests, their squares

    def average(self, gradients: Sequence[Any], variables: Sequence[Any] = ()) -> list[Any]:
        """The means. What has no gradient (None) has none on any worker. The shape of a gradient is
        that of its variable, also where a graph does not know it (Dense on three dimensions, say)."""
        if _elastic.current() is not None:
            means = elastic_ops.average(gradients, variables or gradients)
            return means if self.factor == 1 else [None if mean is None else mean * tf.cast(self.factor, mean.dtype) for mean in means]
        if self._name is None:
            self._name = ops._tables.next_name("tensorflow.gradients")
        share = None if self.share is None else self._mean_share()
        shapes = [each.shape for each in variables] or [None] * len(gradients)
        dense = {number: _dense(gradient, shape) for number, (gradient, shape) in enumerate(zip(gradients, shapes))
                 if gradient is not None}
        means: list[Any] = [None] * len(gradients)
        for numbers in _packs.plan((number, each.dtype.name, _bytes_of(each)) for number, each in dense.items()):
            for number, mean in zip(numbers, self._together([dense[number] for number in numbers], numbers[0], share)):
                means[number] = mean
        return means

    def mark_backward(self, begin_ns: int, end_ns: int) -> None:
        """What computed the gradients that will be averaged next, for psd_run trace. In graphs they mark themselves."""
        step = ops._tables.step(f"{self._name}.0")
        if step is not None:  # the first one opens the tables
            poseidon.mark(step, "backward", begin_ns, end_ns)

    def _mean_share(self) -> tf.Tensor:
        """Of all workers. What they compare travels with it."""
        share = tf.cast(self.share, tf.float64)
        digest = tf.zeros_like(share) if self.digest is None else tf.cast(self.digest, tf.float64)
        sums = ops.push_pull(tf.stack([tf.ones_like(share), share, digest, digest * digest]),
                             f"{self._name}.share", reduce="sum", priority=PRIORITY_MAX,
                             timeout_ms=self._timeout_ms)
        if self.digest is not None:
            self.told = sums
        return sums[1] / (sums[0] * self.scale)

    def _average(self, tensor: tf.Tensor, name: Any, priority: int) -> tf.Tensor:
        return ops.average_gradient(tensor, str(self._name), str(name), priority, self._timeout_ms)

    def _together(self, gradients: list[tf.Tensor], number: int, share: Any) -> list[tf.Tensor]:
        """The means of those that share a table."""
        if len(gradients) == 1:
            return [self._scaled(gradients[0], number, share)]
        flat = tf.concat([tf.reshape(each, [-1]) for each in gradients], 0)
        parts = tf.split(self._scaled(flat, number, share), [each.shape.num_elements() for each in gradients])
        return [tf.reshape(part, each.shape) for part, each in zip(parts, gradients)]

    def _scaled(self, dense: tf.Tensor, number: int, share: Any) -> tf.Tensor:
        """Where workers have different numbers of samples, each gradient counts by them."""
        if share is None:
            return self._average(dense, number, max(1, PRIORITY_MAX - number))
        mine = tf.cast(self.share, dense.dtype)
        return self._average(dense * mine, number, max(1, PRIORITY_MAX - number)) \
            / tf.cast(share, dense.dtype)


def _dense(gradient: Any, shape: Any) -> tf.Tensor:
    """Rows of embeddings become the whole."""
    dense = tf.convert_to_tensor(gradient)
    return dense if shape is None or dense.shape.is_fully_defined() else tf.ensure_shape(dense, shape)


def _bytes_of(tensor: tf.Tensor) -> int:
    """As large as can be, where its shape is not known: it is refused by itself, by name."""
    count = tensor.shape.num_elements()
    return _packs.PACK_BYTES if count is None else count * tensor.dtype.size
