# SPDX-License-Identifier: Apache-2.0
"""What happens in Model.fit before and after the script's own callbacks."""

import zlib

import keras
import numpy

from . import everyone


class First(keras.callbacks.Callback):
    """Comes before those of the script."""

    def __init__(self, session, fitted, first_epoch):
        super().__init__()
        self._session, self._fitted, self._first_epoch = session, fitted, first_epoch

    def on_train_begin(self, logs=None):
        """The function that trains is made."""
        self._fitted.begin()
        self._session.begin_training(self.model, self.params, self._first_epoch)

    def on_epoch_begin(self, epoch, logs=None):
        """Counts anew."""
        self._session.begin_epoch()

    def on_train_batch_end(self, batch, logs=None):
        """Keras calls it after every step."""
        self._session.trained(self.model, self._fitted.pieces, logs)

    def on_test_begin(self, logs=None):
        """An evaluation is the same on all workers, so their statistics must be."""
        self._fitted.metrics.evaluating = True
        average_statistics(self._session, self.model.non_trainable_weights)

    def on_test_end(self, logs=None):
        """Back to training."""
        self._fitted.metrics.evaluating = False

    def on_epoch_end(self, epoch, logs=None):
        """Callbacks decide by what is the same on all workers."""
        average_statistics(self._session, self.model.non_trainable_weights)
        self._fitted.metrics.average(logs)


class Last(keras.callbacks.Callback):
    """Comes after those of the script."""

    def __init__(self, session, fitted, others):
        super().__init__()
        self._session, self._fitted = session, fitted
        self._asks = any(_may_stop(each) for each in others)
        self._in_the_middle = False  # whether training was stopped before an epoch's end

    def on_train_batch_end(self, batch, logs=None):
        """Whoever wants to stop stops all, at the same step."""
        if self._asks:
            self._stop_together()
            self._in_the_middle = self.model.stop_training

    def on_epoch_end(self, epoch, logs=None):
        """The same, and everything is compared."""
        stopped = self._in_the_middle
        self._stop_together()
        self._session.end_epoch(self._fitted.pieces, logs, not stopped)

    def _stop_together(self):
        wanted = everyone.tell(self._session, [self.model.stop_training], "stop")[:, 0]
        if wanted.any():
            if not wanted.all():
                first = int(numpy.flatnonzero(wanted)[0])
                self._session.tell_once(f"worker {first} asked to stop training, by what it alone "
                                        "has seen; all workers stop at the same step")
            self.model.stop_training = True


def _may_stop(callback):
    """Of Keras's own, one decides after a step."""
    if isinstance(callback, keras.callbacks.TerminateOnNaN):
        return True
    kind = type(callback)
    if kind.__module__.split(".")[0] == "keras" and kind is not keras.callbacks.LambdaCallback:
        return False
    names = ("on_train_batch_end", "on_batch_end", "on_train_batch_begin", "on_batch_begin")
    return any(getattr(kind, name, None) is not getattr(keras.callbacks.Callback, name)
               or name in vars(callback) for name in names)


def checksum(variables):
    """Of all their bytes."""
    found = 0
    for each in variables:
        found = zlib.crc32(numpy.ascontiguousarray(each.numpy()).tobytes(), found)
    return found


def average_statistics(session, weights):
    """Running statistics (of BatchNormalization) become the means of all workers', where they
    differ."""
    import poseidon
    from poseidon.tensorflow.ops import TIMEOUT_MS

    variables = [each for each in weights
                 if numpy.issubdtype(each.numpy().dtype, numpy.floating)]
    if not variables:
        return
    sums = everyone.tell(session, [checksum([each]) for each in variables], "statistics")
    differ = [each for each, column in zip(variables, sums.T) if (column != column[0]).any()]
    if not differ:
        return
    flat = numpy.concatenate([each.numpy().astype(numpy.float64).ravel() for each in differ])
    name = f"keras.statistics.{flat.size}"
    table = poseidon.context()._tables.get(name) or poseidon.Table(
        name, flat.size, "float64", use="sum", nan_policy="allow")
    means, begin = table.push_pull(flat, timeout_ms=TIMEOUT_MS).wait(), 0
    for each in differ:
        value = each.numpy()
        each.assign(means[begin:begin + value.size].reshape(value.shape).astype(value.dtype))
        begin += value.size
