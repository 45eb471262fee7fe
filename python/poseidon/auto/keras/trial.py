# SPDX-License-Identifier: Apache-2.0
"""Whether the parts of a batch make the whole, tried on the first one before anything is trained: the
gradients of two parts against those of both together, by the script's own train_step.

Nothing is changed by it: optimizers are not applied, and what else the step writes (statistics, metrics,
random states) is put back. Random numbers are the same for each row while it is tried, so that whole and
parts have the same ones, and normalization of batches uses its running statistics."""

import contextlib

import keras
import numpy
import tensorflow

from ..tf1.batch_split import Parts, Verdict

_DRAWS = ("normal", "uniform", "truncated_normal")
_FAILURES = (tensorflow.errors.OpError, ValueError, TypeError, AttributeError, RuntimeError,
             NotImplementedError, IndexError, KeyError)


class Trial:
    """Of one model's step."""

    draws_for_constant_rows = False  # whether the script may have the number of rows as a constant

    def __init__(self, step, model, train_step, specs):
        self._step, self._model, self._train_step = step, model, train_step
        self._specs = specs
        self.problem = ""
        self.variables = []  # that the step uses, where a graph was made of it

    def judge(self, data):
        """What the gradients of a batch are."""
        rows = int(tensorflow.nest.flatten(data)[0].shape[0])
        if rows < 2:
            self.problem = "its batches have one sample"
            return Verdict.FAILED
        cut = max(1, rows // 3)
        pieces = [(_rows(data, begin, end), (end - begin) / rows)
                  for begin, end in ((0, cut), (cut, rows))]
        try:
            with _quiet_randomness(rows if self.draws_for_constant_rows else None):
                run = self._function()
                self._step.share_variables(self._step.variables)  # made by now, if not before
                whole = run(data)
                found = Parts(whole)
                for piece, share in pieces:
                    found.add(run(piece), share)
                return found.compare(whole, run(data))
        except _FAILURES as error:
            lines = str(error).strip().splitlines()  # of what autograph tells, the last says what it is
            said = lines[-1 if lines[0].startswith("in user code") else 0].strip()[:200] if lines else ""
            self.problem = f"{type(error).__name__}: {said}" if said else type(error).__name__
            return Verdict.FAILED

    def _function(self):
        """Computes gradients, as arrays, and leaves everything as it was."""
        compute = self._record
        if not self._model.run_eagerly:
            signature = tensorflow.nest.map_structure(_any_rows, self._specs)
            compute = tensorflow.function(self._record, autograph=False).get_concrete_function(
                signature)
            self.variables = list(compute.graph.variables)

        return self._restoring(compute)

    def _restoring(self, compute):
        """What it writes is put back."""
        of_model = self._model.variables if self._model is not None else ()

        def run(data):
            written = _Kept([*of_model, *self.variables])
            try:
                return [each.numpy() for each in compute(data)]
            finally:
                written.restore()

        return run

    def _record(self, data):
        self._step.recorded = []
        try:
            self._train_step(data)
            return list(self._step.recorded)
        finally:
            self._step.recorded = None


class _Kept:
    """Values of variables."""

    def __init__(self, variables):
        self._values = {}
        for each in variables:
            value = getattr(each, "value", each) if isinstance(each, keras.Variable) else each
            if value.dtype not in (tensorflow.resource, tensorflow.variant):
                self._values[id(value)] = (value, tensorflow.identity(value))

    def restore(self):
        """As they were."""
        for variable, value in self._values.values():
            variable.assign(value)


def _rows(data, begin, end):
    return tensorflow.nest.map_structure(
        lambda each: each[begin:end] if each.shape.rank else each, data)


def _any_rows(spec):
    shape = [None, *spec.shape[1:]] if spec.shape.rank else spec.shape
    return tensorflow.TensorSpec(shape, spec.dtype)


@contextlib.contextmanager
def _quiet_randomness(rows):
    """The same random numbers for every row, no normalization by the batch, no output. rows: what tf.random
    draws for as many is noise, too, where that is known."""
    with contextlib.ExitStack() as changed:
        for name in _DRAWS:
            _replace(changed, tensorflow.random, f"stateless_{name}", _alike)
            stateless = getattr(tensorflow.random, f"stateless_{name}")
            _replace(changed, tensorflow.random, name, lambda own, to=stateless: _with_seed(rows, own, to))
        _replace(changed, tensorflow.nn.experimental, "stateless_dropout", _drop_alike)
        stateless_dropout = tensorflow.nn.experimental.stateless_dropout
        _replace(changed, tensorflow.nn, "dropout",
                 lambda own: lambda x, rate, noise_shape=None, seed=None, name=None:
                 stateless_dropout(x, rate, seed=[1, 2], noise_shape=noise_shape))
        _replace(changed, keras.layers.BatchNormalization, "call", _with_running_statistics)
        _replace(changed, tensorflow, "print", lambda own: lambda *words, **options: None)
        changed.enter_context(tensorflow.summary.record_if(False))
        yield


def _replace(changed, place, name, make):
    own = getattr(place, name)
    setattr(place, name, make(own))
    changed.callback(setattr, place, name, own)


def _is_of_samples(shape, rows=None):
    """Whether it has one row for each sample: their number is open while a step is tried. Initial values of
    weights, which may be drawn then, have a shape that is known. rows: what is known to be a number of samples."""
    known = tensorflow.get_static_value(tensorflow.convert_to_tensor(shape), partial=True)
    if known is None or len(known) == 0:
        return False
    return known[0] is None or (rows is not None and known[0] == rows)


def _one_row(shape):
    shape = tensorflow.convert_to_tensor(shape, tensorflow.int32)
    return tensorflow.concat([tensorflow.ones_like(shape[:1]), shape[1:]], 0)


def _alike(own):
    """Draws one row for all samples."""
    def draw(shape, *args, **kwargs):
        if not _is_of_samples(shape):
            return own(shape, *args, **kwargs)
        return tensorflow.broadcast_to(own(_one_row(shape), *args, **kwargs), shape)

    return draw


def _with_seed(rows, own, stateless):
    """In the place of one that draws other numbers in every run."""
    def draw(shape, *args, seed=None, name=None, **kwargs):
        if not _is_of_samples(shape, rows):
            return own(shape, *args, seed=seed, name=name, **kwargs)
        return stateless(shape, [1, 2], *args, **kwargs)

    return draw


def _drop_alike(own):
    def dropout(x, rate, seed=None, noise_shape=None, **kwargs):
        shape = noise_shape
        if noise_shape is None:
            shape = tensorflow.shape(x)
        elif not tensorflow.is_tensor(noise_shape):
            shape = tensorflow.convert_to_tensor([tensorflow.shape(x)[place] if size is None else size
                                                  for place, size in enumerate(noise_shape)])
        if _is_of_samples(shape):
            noise_shape = _one_row(shape)
        return own(x, rate, seed=seed, noise_shape=noise_shape, **kwargs)

    return dropout


def _with_running_statistics(own):
    def call(layer, inputs, training=None, mask=None):
        return own(layer, inputs, training=False, mask=mask)

    return call
