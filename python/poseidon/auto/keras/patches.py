# SPDX-License-Identifier: Apache-2.0
"""Where Keras tells the session what the script does."""

import atexit
import functools
import sys

import keras
import tensorflow
from keras.src.optimizers import base_optimizer
from keras.src.saving import saving_api
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.ops.structured_function import StructuredFunctionWrapper
from tensorflow.python.eager import backprop
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from . import noise


def apply(session):
    """From now on the session hears of it."""
    atexit.register(session.at_exit)
    _watch_fit(session)
    _watch_optimizers(session)
    _watch_files(session)
    _keep_orders(session)
    _watch_loops(session)
    noise.watch_generators()
    noise.watch_layers()


def _keep_orders(session):
    """Datasets that may come in any order (deterministic=False) come in that of their elements, which is
    the same on all workers."""
    def ordered(own):
        @functools.wraps(own)
        def make(dataset, *args, **kwargs):
            if kwargs.get("deterministic") is False and session.active():
                kwargs["deterministic"] = True
            return own(dataset, *args, **kwargs)

        return make

    for name in ("map", "interleave", "batch"):
        setattr(tensorflow.data.Dataset, name, ordered(getattr(tensorflow.data.Dataset, name)))


def _watch_fit(session):
    own = keras.Model.fit

    @functools.wraps(own)
    def fit(model, *args, **kwargs):
        strategy = getattr(model, "_distribute_strategy", None) or (
            tensorflow.distribute.get_strategy() if tensorflow.distribute.has_strategy() else None)
        if strategy is not None:
            session.before_strategy(strategy)
        if not session.active() or session.in_fit:
            return own(model, *args, **kwargs)
        return session.fit(own, model, *args, **kwargs)

    keras.Model.fit = fit


def _watch_loops(session):
    """Those of the script's own, over datasets, with tapes."""
    loops = session.loops
    kind, numpy_iterator = tensorflow.data.Dataset, dataset_ops.NumpyIterator
    own_iter, own_numpy, own_gradient = kind.__iter__, kind.as_numpy_iterator, backprop.GradientTape.gradient
    own_call, own_function = Function.__call__, StructuredFunctionWrapper.__init__
    own_batch = keras.Model.train_on_batch

    @functools.wraps(own_iter)
    def read(dataset):
        return loops.read(dataset, own_iter) if loops.takes(sys._getframe(1)) else own_iter(dataset)

    @functools.wraps(own_numpy)
    def as_numpy_iterator(dataset):
        if not tensorflow.executing_eagerly() or not loops.takes(sys._getframe(1)):
            return own_numpy(dataset)
        made = numpy_iterator.__new__(numpy_iterator)
        made._iterator, made._dataset = loops.read(dataset, own_iter), dataset
        return made

    @functools.wraps(own_gradient)
    def gradient(tape, target, sources, *args, **kwargs):
        found = own_gradient(tape, target, sources, *args, **kwargs)
        loops.differentiated(sources)
        return found

    @functools.wraps(own_call)
    def call(function, *args, **kwargs):
        return loops.call(own_call, function, args, kwargs)

    @functools.wraps(own_function)
    def trace(*args, **kwargs):
        with loops.in_dataset_function():
            own_function(*args, **kwargs)

    @functools.wraps(own_batch)
    def train_on_batch(*args, **kwargs):
        session.before_single_batches()
        return own_batch(*args, **kwargs)

    kind.__iter__, kind.as_numpy_iterator = read, as_numpy_iterator
    backprop.GradientTape.gradient, Function.__call__ = gradient, call
    StructuredFunctionWrapper.__init__ = trace
    keras.Model.train_on_batch = train_on_batch
    _note_calls(base_optimizer.BaseOptimizer, "__init__", loops.made_optimizer)
    _note_calls(keras.layers.BatchNormalization, "call", loops.used_layer)


def _note_calls(kind, name, note):
    own = getattr(kind, name)

    @functools.wraps(own)
    def method(self, *args, **kwargs):
        note(self)
        return own(self, *args, **kwargs)

    setattr(kind, name, method)


def _watch_optimizers(session):
    """Also the one that has another inside, and does not call what it inherits."""
    def watched(own):
        @functools.wraps(own)
        def apply_gradients(optimizer, grads, trainable_variables=None):
            step = session.step_of_apply()
            if step is None:
                return own(optimizer, grads, trainable_variables)
            variables = list(optimizer._trainable_variables if trainable_variables is None
                             else trainable_variables)
            means = step.average(optimizer, list(grads), variables)
            if means is None:
                return None
            with step.applying():
                return own(optimizer, means, variables)

        return apply_gradients

    for kind in (base_optimizer.BaseOptimizer, keras.optimizers.LossScaleOptimizer):
        kind.apply = watched(kind.apply)


def _watch_files(session):
    def writing(own):
        @functools.wraps(own)
        def write(model, filepath, *args, **kwargs):
            if session.keeps_file(filepath):
                return own(model, filepath, *args, **kwargs)
            return None

        return write

    def reading(own, place):
        @functools.wraps(own)
        def read(*args, **kwargs):
            session.before_load(args[place] if len(args) > place else kwargs.get("filepath"))
            return own(*args, **kwargs)

        return read

    for name in ("save_model", "save_weights"):
        changed = writing(getattr(saving_api, name))
        setattr(saving_api, name, changed)
        if hasattr(keras.saving, name):
            setattr(keras.saving, name, changed)
    keras.models.save_model = saving_api.save_model
    keras.Model.export = writing(keras.Model.export)
    saving_api.load_model = reading(saving_api.load_model, 0)
    saving_api.load_weights = reading(saving_api.load_weights, 1)
    keras.saving.load_model = keras.models.load_model = saving_api.load_model
