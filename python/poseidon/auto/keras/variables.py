# SPDX-License-Identifier: Apache-2.0
"""The variables of a script of Keras, as common/variables.py has them: with models, optimizers, callbacks and tensors."""

import functools
import sys
import types
import zlib

import keras
import numpy
import tensorflow

from ..common import variables
from ..common.variables import Unknown, is_of_script

__all__ = ["Unknown", "Variables"]

_PLAIN = (bool, int, float, str, bytes, type(None), numpy.generic)
_OF_CALLBACKS = {"_model", "params", "validation_data"}  # Keras sets them
_RIGHT = (tensorflow.data.Dataset, tensorflow.data.Iterator, tensorflow.TensorSpec, tensorflow.dtypes.DType, tensorflow.TensorShape)


class Variables(variables.Variables):
    """Of a script, now, and of the callbacks of its fit. made_by_python: reading its data runs Python, ahead of training: what
    that changes is right when the data have been read as far as they were."""

    libraries = ("keras", "tensorflow", "ml_dtypes")

    def __init__(self, callbacks, made_by_python):
        self.of_models = []  # variables of Keras and TensorFlow
        self._made_by_python = made_by_python
        super().__init__()
        for number, each in enumerate(callbacks):
            self._walk(f"callback {number}, {type(each).__name__}", each, None, 0)

    def _walks_of_framework(self):
        yield (keras.Model, keras.layers.Layer, tensorflow.Module), self._walk_model
        yield (keras.optimizers.Optimizer, keras.metrics.Metric), lambda name, value, *_: self.of_models.extend(value.variables)
        yield (tensorflow.Variable, keras.Variable), lambda name, value, *_: self.of_models.append(value)
        yield keras.callbacks.Callback, self._walk_callback
        yield keras.utils.PyDataset, self._walk_data
        yield tensorflow.Tensor, self._walk_constant
        yield _RIGHT, lambda *_: None
        if self._made_by_python:
            yield types.GeneratorType, lambda *_: None
            yield numpy.random.Generator, lambda *_: None

    def _walk_model(self, name, value, _put, _depth):
        self.of_models.extend(value.variables)
        if is_of_script(getattr(sys.modules.get(type(value).__module__), "__file__", "<") or "<"):
            for attribute, held in sorted(vars(value).items()):
                if not attribute.startswith("_") and isinstance(held, (bool, int, float)):
                    self._keep(f"{name}.{attribute}", held, functools.partial(setattr, value, attribute))

    def _walk_callback(self, name, value, _put, depth):
        """What it has is set late, by some: so plain attributes are one value."""
        from poseidon.tensorflow.checkpoint import attributes_of, put_attributes

        own = not type(value).__module__.startswith(("keras", "_poseidon_auto", "poseidon"))
        plain = {attribute: held for attribute, held in vars(value).items() if attribute not in _OF_CALLBACKS and
                 isinstance(held, _PLAIN)} if own else attributes_of(value)
        if own and getattr(value, "monitor_op", None) is not None:
            plain["$monitors"] = True
        self._keep(name, plain, functools.partial(put_attributes, value))
        for attribute, held in sorted(vars(value).items()) if own else ():
            if attribute not in _OF_CALLBACKS and attribute not in plain:
                self._walk(f"{name}.{attribute}", held, functools.partial(setattr, value, attribute), depth + 1)

    def _walk_data(self, name, value, _put, depth):
        if not self._made_by_python:
            self._walk_other(name, value, depth)

    def _walk_constant(self, name, value, _put, _depth):
        if hasattr(value, "numpy") and value.dtype != tensorflow.string:
            self._keep(name, ("constant", zlib.crc32(numpy.ascontiguousarray(value.numpy()))), None)
