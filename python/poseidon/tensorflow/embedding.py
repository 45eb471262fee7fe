# SPDX-License-Identifier: Apache-2.0
"""A layer of Keras whose rows are with the servers, by 64-bit id (docs/sparse.md).

Its only weight is a number that stays 0: the anchor. Tapes see the rows through it, and whichever optimizer is given it pushes
what backwards have left when it has made its step."""

from __future__ import annotations

import functools
import json
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from .. import _rows
from .._errors import InvalidError, StateError
from . import rows

_HOW_TO_STEP = "The optimizer that has the layer's weight pushes; without one, call step() of the layer after the gradient"
_LAYER = ("trainable", "activity_regularizer")  # of Keras's own arguments


class Embedding(keras.layers.Layer):
    """As keras.layers.Embedding, for any 64-bit ids.

    table, width   of the sparse table; every worker makes the layer with the same arguments
    row_dtype      of the table: float32, float16, bfloat16. dtype is that of the layer, as everywhere in Keras
    mask_zero      id 0 is padding: layers behind are told so
    options        of poseidon.SparseTable: rule, learning_rate, init, capacity_rows ...

    Model.fit pushes the rows, as does optimizer.apply() with the trainable weights of the model. step() is for loops without an
    optimizer."""

    def __init__(self, table: str, width: int, *, row_dtype: str = "float32", mask_zero: bool = False, name: str | None = None,
                 dtype: Any = None, **options: Any):
        mine = {key: options.pop(key) for key in _LAYER if key in options}
        if keras.backend.backend() != "tensorflow":
            raise InvalidError(f"sparse table {table}: Keras runs on {keras.backend.backend()}; set KERAS_BACKEND=tensorflow")
        _push_after_steps()
        super().__init__(name=name, dtype=dtype, **mine)
        if self.compute_dtype == "float16":
            raise InvalidError(f"sparse table {table}: {self.dtype_policy.name} scales losses, and the gradients of rows would "
                               "keep that scale: use mixed_bfloat16")
        if tf.distribute.has_strategy():
            raise InvalidError(f"sparse table {table}: {type(tf.distribute.get_strategy()).__name__} makes several replicas in a "
                               "process: start a worker for each (psd_run --workers)")
        self._arguments = {"table": table, "width": width, "row_dtype": row_dtype, "mask_zero": mask_zero, **options}
        self._rows = _rows.learnt(_rows.open_table(table, width, dtype=row_dtype, **options), _HOW_TO_STEP)
        self.supports_masking, self.supports_jit, self._mask_zero = mask_zero, False, mask_zero
        self._anchor = self.add_weight(shape=(), initializer="zeros", name="rows", dtype="float32")
        self._anchor._poseidon_rows = self._rows
        self.built = True

    @property
    def table(self) -> Any:
        """The poseidon.SparseTable."""
        return self._rows.table

    def call(self, ids: Any, training: Any = None) -> Any:
        """Shape ids.shape + (width,)."""
        found = rows.attached(self._rows, tf.convert_to_tensor(self._anchor), rows.checked(self.table, ids), training is not False)
        return tf.cast(found, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """As keras.layers.Layer."""
        return (*input_shape, self.table.width)

    def compute_mask(self, ids: Any, mask: Any = None) -> Any:
        """As keras.layers.Embedding."""
        return keras.ops.not_equal(ids, 0) if self._mask_zero else None

    def prefetch(self, ids: Any) -> None:
        """Names the ids of a forward to come that learns, as early as the data has them, from any thread, and in the order of the
        forwards. Their rows come with the answer to the push of the step before it: earlier they would be old ones."""
        self._rows.ahead.prefetch(rows.checked(self.table, ids).numpy())

    def step(self) -> None:
        """Pushes what backwards have left, in loops without an optimizer; in a tf.function as part of it."""
        tf.numpy_function(self._rows.step, [], tf.int64)

    def forget(self) -> None:
        """Throws away what backwards have left since the last step."""
        self._rows.forget()

    def export(self, path: Any, ids: Any) -> int:
        """Writes these ids, each once and sorted, and their rows to a file: tensors `ids` and `values` as safetensors, or arrays
        as npz, by the end of its name. Returns how many they are. Any worker, at any time between steps."""
        return self._rows.export(path, ids)

    def get_config(self) -> dict:
        """As keras.layers.Layer."""
        return {**super().get_config(), **self._arguments}

    # ---- what a saved model has: where the rows are

    def _where(self) -> np.ndarray:
        text = json.dumps({"sparse_table": self.table.name, "width": self.table.width, "dtype": self.table.dtype})
        return np.frombuffer(text.encode(), np.uint8)

    def save_own_variables(self, store: Any) -> None:
        """As keras.layers.Layer."""
        store["where"] = self._where()

    def load_own_variables(self, store: Any) -> None:
        """As keras.layers.Layer: the rows must be those of the saved layer."""
        found = np.asarray(store["where"]) if "where" in store.keys() else np.empty(0, np.uint8)
        if not np.array_equal(found, self._where()):
            whose = found.tobytes().decode(errors="replace") or "a layer with rows of its own"
            raise StateError(f"these weights belong to {whose}, and the layer to {self._where().tobytes().decode()}: the rows are "
                             "with the servers")


def _anchors(optimizer: Any, variables: Any) -> list[_rows.Learnt]:
    """Of the layers whose weight this optimizer is given."""
    given = optimizer._trainable_variables if variables is None else variables
    return [each._poseidon_rows for each in given if hasattr(each, "_poseidon_rows")]


@functools.lru_cache(maxsize=1)
def _push_after_steps() -> None:
    """From the first layer on. Every optimizer of Keras calls this when it applies gradients, in a loop or in Model.fit. While a
    graph is made, the pushes become a part of it, behind all that left gradients."""
    own = BaseOptimizer.apply

    @functools.wraps(own)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = None if trainable_variables is None else list(trainable_variables)
        found = _anchors(self, variables)
        for each in found:
            _refuse_what_changes_gradients(self, each)
        done = own(self, grads, variables)
        for each in found:
            tf.numpy_function(each.step, [], tf.int64)
        return done

    BaseOptimizer.apply = apply
    scaled = keras.optimizers.LossScaleOptimizer
    own_scaled = scaled.apply

    @functools.wraps(own_scaled)
    def apply_scaled(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = None if trainable_variables is None else list(trainable_variables)
        for each in _anchors(self, variables):
            each.refuse("a LossScaleOptimizer would leave its scale in the gradients of rows: use mixed_bfloat16, without one")
        return own_scaled(self, grads, variables)

    scaled.apply = apply_scaled


def _refuse_what_changes_gradients(optimizer: Any, found: _rows.Learnt) -> None:
    if optimizer.gradient_accumulation_steps:
        found.refuse("the optimizer accumulates gradients of several steps (gradient_accumulation_steps, or "
                     "backward_passes_per_step), and rows are pushed in each: use larger batches")
    if optimizer.loss_scale_factor is not None:
        found.refuse("loss_scale_factor would stay in the gradients of rows: leave it out")
