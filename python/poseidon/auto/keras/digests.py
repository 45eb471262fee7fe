# SPDX-License-Identifier: Apache-2.0
"""A number for what a batch holds, made of a sample of every row.

Those of the parts of a batch add up to that of the batch (modulo witness.MODULUS), as every row counts by
its place. So workers can see whether they have the same batches, and whether what they train on makes
them up: each row once."""

import tensorflow

from ..common import witness

SUMMED = 1 << 40  # what is left of one for sums over thousands of workers, exact in float64
SQUARED = 1 << 21  # and for sums of squares, of what small() makes of it
_VALUES = 16  # of each row, or a few more
_MASK = 0x7FFFFFFF


def of_rows(parts, first_row=0, element=0):
    """Of these rows, the first of which has this number in its batch, and that this number among the
    batches of the step."""
    total = tensorflow.constant(0, tensorflow.int64)
    for number, tensor in enumerate(tensorflow.nest.flatten(parts)):
        if isinstance(tensor, tensorflow.Tensor) and tensor.shape.rank != 0:
            total += _of_tensor(tensor, tensorflow.cast(first_row, tensorflow.int64),
                                tensorflow.cast(element, tensorflow.int64), number)
    return tensorflow.bitwise.bitwise_and(total, witness.MODULUS - 1)


def small(number):
    """Below SQUARED, and every bit of the number, up to the 48th, has a say in it. Its last bits alone would not do: small
    whole numbers, and powers of two, have as floats nothing but zeros there."""
    low = tensorflow.bitwise.bitwise_and(number, (1 << 24) - 1)
    high = tensorflow.bitwise.bitwise_and(number // (1 << 24), (1 << 24) - 1)
    mixed = low * 0x1B873593CD + high * 0x0CC9E2D51B  # below 1 << 62
    return tensorflow.bitwise.bitwise_and(mixed // SQUARED, SQUARED - 1)


def _of_tensor(tensor, first_row, element, number):
    rows = tensorflow.shape(tensor, tensorflow.int64)[0]
    flat = tensorflow.reshape(tensor, [rows, tensorflow.size(tensor, tensorflow.int64)
                                       // tensorflow.maximum(rows, 1)])
    columns = tensorflow.shape(flat)[1]
    stride = tensorflow.maximum(1, columns // _VALUES)
    values = _as_integers(flat[:, stride // 2::stride])
    places = tensorflow.range(tensorflow.shape(values, tensorflow.int64)[1]) * 7919
    row_places = (tensorflow.range(rows) + first_row) * 104729 + element * 15485863 + number * 611953
    factors = tensorflow.math.floormod(row_places[:, None] + places[None, :], 65521) + 1
    return tensorflow.reduce_sum(values * factors)


def _as_integers(values):
    """Of 31 bits."""
    kind = values.dtype
    if kind == tensorflow.string:
        return tensorflow.strings.to_hash_bucket_fast(values, _MASK)
    if kind.is_complex:
        values = tensorflow.math.real(values)
        kind = values.dtype
    if kind.is_floating:
        values = tensorflow.bitcast(tensorflow.cast(values, tensorflow.float32), tensorflow.int32)
    return tensorflow.bitwise.bitwise_and(tensorflow.cast(values, tensorflow.int64), _MASK)
