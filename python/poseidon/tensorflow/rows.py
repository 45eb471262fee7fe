# SPDX-License-Identifier: Apache-2.0
"""Rows of sparse tables in graphs of TensorFlow (docs/sparse.md).

lookup() and push_rows() are operations, for programs that have the gradient of their rows. attached() is for layers: a variable,
a single number that stays 0, is what tapes see of the rows, and backward leaves their gradient with the table. All of these are
calls of Python with a state, so a tf.function runs them one after the other, in the order of the program."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._rows import Learnt, learnt
from .._sparse import SparseTable


def lookup(table: SparseTable, ids: Any) -> tf.Tensor:
    """The rows of these ids, of shape ids.shape + (width,). No tape sees where they come from: watch() them, and give their
    gradient to push_rows()."""
    ids = checked(table, ids)
    kind = tf.as_dtype(table.dtype)
    values = tf.numpy_function(lambda given: learnt(table).lookup(given).view(kind.as_numpy_dtype), [ids], kind)
    return tf.ensure_shape(values, ids.shape + [table.width])


def push_rows(table: SparseTable, ids: Any, gradients: Any) -> tf.Tensor:
    """Gives gradients of rows, perhaps of none, as this worker's part of the table's next step: every worker does so in every
    step. It is under way when this returns; the number of the step in this process."""
    ids = tf.reshape(checked(table, ids), [-1])
    gradients = tf.reshape(tf.cast(gradients, table.dtype), [-1, table.width])
    return tf.numpy_function(learnt(table).push, [ids, gradients], tf.int64)


def checked(table: SparseTable, ids: Any) -> tf.Tensor:
    """As int64. A float cannot tell large ids apart."""
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise TypeError(f"sparse table {table.name}: ids are a tensor of integers, not {ids.dtype.name}")
    return tf.bitcast(ids, tf.int64) if ids.dtype == tf.uint64 else tf.cast(ids, tf.int64)


def attached(rows: Learnt, anchor: tf.Tensor, ids: tf.Tensor, learns: bool) -> tf.Tensor:
    """The rows of these ids, whose gradient goes to the table on the way to that of the anchor, which is 0. learns: a backward
    is to follow, as far as one knows."""
    kind = tf.as_dtype(rows.table.dtype)

    def forward(given: Any) -> tuple[Any, Any]:
        values, number = rows.forward(given, learns)
        return values.view(kind.as_numpy_dtype), number

    @tf.custom_gradient
    def values_of(_: tf.Tensor) -> tuple[tf.Tensor, Any]:
        values, number = tf.numpy_function(forward, [ids], [kind, tf.int64])
        return tf.ensure_shape(values, ids.shape + [rows.table.width]), lambda upstream: _left(rows, number, ids, upstream)

    return values_of(anchor)


def _left(rows: Learnt, number: tf.Tensor, ids: tf.Tensor, upstream: Any) -> tf.Tensor:
    @tf.custom_gradient
    def leave(gradients: tf.Tensor) -> tuple[tf.Tensor, Any]:
        left = tf.numpy_function(rows.leave, [number, ids, gradients], tf.float32)

        def refuse(*_: Any) -> None:
            rows.refuse("a second derivative through the gradient of rows, which goes to the servers and keeps no graph")

        return tf.ensure_shape(left, []), refuse

    return leave(tf.convert_to_tensor(upstream))
