# SPDX-License-Identifier: Apache-2.0
"""Whether optimizers get what they must: the mean of all workers' gradients, each counting by its samples, or
their sum where the loss is one. And whether workers that were given different batches have different
gradients: if not, they train on something else, all on the same.

It is seen from outside of what averages: of a few gradients each worker tells one number, a projection, before
and after."""

import numpy
import tensorflow

from ..common import witness
from . import digests

TENSORS = 4  # of each optimizer that are looked at
VALUES = 32  # of each of them
TOLERANCE, COARSE_TOLERANCE = 1e-3, 3e-2  # of the whole; for floats of 16 bits


class Means:
    """Of one place at which an optimizer is applied. share, counts, batch: variables that tell of this worker's
    part of the step: its samples, whether they count (0: another worker has the same), a digest of them.
    adds_up: whether the sum is wanted."""

    def __init__(self, share, counts, batch, adds_up):
        self._share, self._counts, self._batch, self._adds_up = share, counts, batch, adds_up
        self._name = None

    def compare(self, before, after):
        """Gradients of this worker, and what the optimizer gets. Returns two numbers: 1 where that is wrong, and
        1 where all workers have the same gradients of different batches."""
        from poseidon.tensorflow import ops
        from poseidon.tensorflow.gradients import PRIORITY_MAX

        pairs = _some([(mine, means) for mine, means in zip(before, after) if mine is not None])
        if not pairs:
            return [tensorflow.constant(0.0, tensorflow.float64)] * 2
        if self._name is None:
            self._name = ops._tables.next_name("keras.means")
        with tensorflow.device("CPU:0"):
            mine, size = _projected([each for each, _ in pairs])
            got, _ = _projected([each for _, each in pairs])
            gradient, batch = _small(_bits(mine)), _small(self._batch)
            count, shares, weighed, added, sizes, *squares = tensorflow.unstack(ops.push_pull(
                tensorflow.stack([tensorflow.ones_like(mine), self._share, self._share * mine,
                                  self._counts * mine, size, gradient, gradient * gradient, batch,
                                  batch * batch]),
                self._name, reduce="sum", priority=PRIORITY_MAX))
            must = tensorflow.where(self._adds_up, added, weighed / shares)
            coarse = any(each.dtype.size < 4 for each, _ in pairs)
            most = (COARSE_TOLERANCE if coarse else TOLERANCE) * sizes
            known = tensorflow.math.is_finite(must)  # a scaled loss may overflow, and the step is left out
            wrong = tensorflow.logical_and(known, tensorflow.logical_not(tensorflow.abs(must - got) <= most))
            alike = (count * squares[1] == squares[0] ** 2) & (count * squares[3] != squares[2] ** 2) & \
                (mine != 0) & known
            return [tensorflow.cast(each, tensorflow.float64) for each in (wrong, alike)]


def _some(pairs):
    """A few of them, the first and the last among these."""
    if len(pairs) <= TENSORS:
        return pairs
    return [pairs[number * (len(pairs) - 1) // (TENSORS - 1)] for number in range(TENSORS)]


def _projected(gradients):
    """One number for them, and one for how large they are."""
    total = size = tensorflow.constant(0.0, tensorflow.float64)
    for number, each in enumerate(gradients):
        some = tensorflow.cast(tensorflow.reshape(each, [-1])[:VALUES], tensorflow.float64)
        factors = tensorflow.constant(numpy.cos(numpy.arange(VALUES) * 7 + number * 3))
        total += tensorflow.reduce_sum(some * factors[:tensorflow.size(some)])
        size += tensorflow.reduce_sum(tensorflow.abs(some))
    return total, size


def _bits(number):
    """Of a float, folded so that its exponent has a say."""
    bits = tensorflow.bitcast(number, tensorflow.int64)
    folded = tensorflow.bitwise.bitwise_xor(bits, tensorflow.bitwise.right_shift(bits, 20))
    return tensorflow.bitwise.bitwise_and(folded, witness.MODULUS - 1)


def _small(number):
    return tensorflow.cast(digests.small(number), tensorflow.float64)
