# SPDX-License-Identifier: Apache-2.0
"""Rows of sparse tables in functions of JAX (docs/sparse.md).

A gradient goes back to parameters, and rows are none: init() gives a number to be kept among them. It stays 0. On the way to its
gradient, backward leaves that of the rows. Lookups, gradients and steps are callbacks in the order of the program."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from . import _rows
from ._errors import InvalidError

_HOW_TO_STEP = "Call step() of the embedding after the gradient"
_NUMBER = jax.ShapeDtypeStruct((), np.float32)


class Embedding:
    """Rows by id, looked up in forwards, and learnt by the servers' rule.

    name, width   of the sparse table; every worker makes it with the same arguments
    options       of poseidon.SparseTable: rule, learning_rate, init, capacity_rows, dtype ...

        words = psd.Embedding("words", 16, rule="adagrad", learning_rate=0.1, init="uniform", init_value=0.05)
        params = {"words": words.init(), "top": ...}

        def loss(params, ids, wanted):
            return distance(words(params["words"], ids).mean(1) @ params["top"], wanted)

        gradients = jax.grad(loss)(params, ids, wanted)   # those of rows stay with the embedding
        words.step()                                      # pushes them; every worker does so in every step"""

    def __init__(self, name: str, width: int, **options: Any):
        self._rows = _rows.learnt(_rows.open_table(name, width, **options), _HOW_TO_STEP)
        self._dtype = jax.numpy.dtype(self._rows.table.dtype)
        self._values = jax.jit(self._differentiable())  # jit keeps the order, also where the program is not in one
        self._step = jax.jit(lambda: io_callback(lambda: np.float32(self._rows.step() > 0), _NUMBER, ordered=True))

    def __repr__(self) -> str:
        return f"<poseidon.jax.Embedding {self.table.name}: {self.table.dtype}[*, {self.table.width}]>"

    @property
    def table(self) -> Any:
        """The poseidon.SparseTable."""
        return self._rows.table

    def init(self) -> jax.Array:
        """The parameter that stands for all rows: the number 0."""
        return jax.numpy.zeros((), np.float32)

    def __call__(self, parameter: Any, ids: Any) -> jax.Array:
        """The rows of these ids, of shape ids.shape + (width,)."""
        return self._values(jax.numpy.asarray(parameter, np.float32), self._checked(ids))

    def prefetch(self, ids: Any) -> None:
        """Names the ids of a gradient to come, as early as the data has them, from any thread, and in the order of the gradients.
        Their rows come with the answer to the push of the step before it: earlier they would be old ones."""
        self._rows.ahead.prefetch(np.asarray(ids))

    def step(self) -> None:
        """Pushes what gradients have left since the last step, perhaps nothing. Inside of jax.jit it is a part of the program."""
        self._step()

    def forget(self) -> None:
        """Throws away what gradients have left since the last step. Outside of jax.jit."""
        jax.effects_barrier()
        self._rows.forget()

    def export(self, path: Any, ids: Any) -> int:
        """Writes these ids, each once and sorted, and their rows to a file: tensors `ids` and `values` as safetensors, or arrays
        as npz, by the end of its name. Returns how many they are. Any worker, at any time between steps, outside of jax.jit."""
        jax.effects_barrier()
        return self._rows.export(path, np.asarray(ids))

    def _checked(self, ids: Any) -> jax.Array:
        """JAX cuts integers to 32 bits unless it is told otherwise."""
        array = ids if isinstance(ids, jax.Array) else np.asarray(ids)
        if array.dtype.kind not in "iu":
            raise TypeError(f"sparse table {self.table.name}: ids are integers, not {array.dtype.name}")
        taken = jax.numpy.asarray(array)
        if isinstance(array, np.ndarray) and taken.dtype != array.dtype and array.size > 0 and \
                (array.max() > np.iinfo(taken.dtype).max or array.min() < np.iinfo(taken.dtype).min):
            raise InvalidError(f"sparse table {self.table.name}: JAX would cut ids of {array.dtype.name} to {taken.dtype.name}: "
                               'jax.config.update("jax_enable_x64", True)')
        return taken

    def _differentiable(self) -> Any:
        def found(ids: Any, _: Any) -> tuple[np.ndarray, np.int32]:
            values, number = self._rows.forward(np.array(ids))
            return values.view(self._dtype), np.int32(number)

        def read(ids: Any) -> np.ndarray:
            return self._rows.lookup(np.array(ids)).view(self._dtype)

        once = _once(self._rows)

        def forward(parameter: jax.Array, ids: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            shapes = (jax.ShapeDtypeStruct((*ids.shape, self.table.width), self._dtype), jax.ShapeDtypeStruct((), np.int32))
            values, number = io_callback(found, shapes, ids, once(parameter), ordered=True)
            return values, (ids, number)

        def backward(kept: tuple[jax.Array, jax.Array], gradients: jax.Array) -> tuple[jax.Array, np.ndarray]:
            ids, number = kept
            return _left(self._rows, number, ids, gradients), np.zeros(ids.shape, jax.dtypes.float0)

        def without_gradient(_: jax.Array, ids: jax.Array) -> jax.Array:
            return io_callback(read, jax.ShapeDtypeStruct((*ids.shape, self.table.width), self._dtype), ids, ordered=True)

        values = jax.custom_vjp(without_gradient)
        values.defvjp(forward, backward)
        return values


def _left(rows: _rows.Learnt, number: jax.Array, ids: jax.Array, gradients: jax.Array) -> jax.Array:
    def leave(*given: Any) -> np.float32:
        return rows.leave(*(np.array(each) for each in given))

    return io_callback(leave, _NUMBER, number, ids, _once(rows)(gradients), ordered=True)


def _once(rows: _rows.Learnt) -> Any:
    """The same number or array, which nobody can differentiate: the derivative of rows is with custom_vjp, and this is behind."""

    def refuse(*_: Any) -> None:
        rows.refuse("a second derivative through the gradient of rows, which goes to the servers and keeps no graph")

    same = jax.custom_jvp(lambda given: given)
    same.defjvp(refuse)
    return same
