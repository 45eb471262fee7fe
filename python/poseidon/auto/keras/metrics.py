# SPDX-License-Identifier: Apache-2.0
"""Metrics of an epoch of Model.fit, over the samples of all workers.

What metrics of Keras keep are sums over samples: totals and counts, true positives, confusion matrices.
Those of all workers are added up before Keras asks for the result, which is that of one process then. Of
others, which may keep anything, the results are averaged."""

import keras
import numpy


class Metrics:
    """Of a model in fit."""

    def __init__(self, session, model):
        self._session, self._model = session, model
        self.evaluating = False

    def enter(self):
        """From now on Keras asks here."""
        own = self._model._get_metrics_result_or_logs

        def result(logs):
            if not self.evaluating:
                self._add_up()
            return own(logs)

        self._model._get_metrics_result_or_logs = result

    def leave(self):
        """Keras's own again."""
        self._model.__dict__.pop("_get_metrics_result_or_logs", None)

    def _add_up(self):
        """Sums of all workers."""
        import poseidon
        from poseidon.tensorflow.ops import TIMEOUT_MS

        variables = [each for metric in _flat(self._model.metrics) if _keeps_sums(metric)
                     for each in metric.variables]
        if not variables:
            return
        values = [each.numpy() for each in variables]
        flat = numpy.concatenate([each.astype(numpy.float64).ravel() for each in values])
        name = f"keras.metrics.{flat.size}"
        table = poseidon.context()._tables.get(name) or poseidon.Table(
            name, flat.size, "float64", use="sum", reduce="sum", nan_policy="allow")
        sums = table.push_pull(flat, timeout_ms=TIMEOUT_MS).wait()
        begin = 0
        for variable, value in zip(variables, values):
            mine = sums[begin:begin + value.size].reshape(value.shape)
            variable.assign(mine.astype(value.dtype))
            begin += value.size
        if self._session.step.adds_up:
            self._scale_loss()

    def _scale_loss(self):
        """A loss that is a sum over the batch is W times that of a worker's part."""
        tracker = getattr(self._model, "_loss_tracker", None)
        if tracker is not None:
            tracker.total.assign(tracker.total * self._session.world)

    @staticmethod
    def average(logs):
        """Of what is no sum, each worker has its own."""
        from poseidon.tensorflow.callbacks import average_values

        numbers = {key: float(value) for key, value in (logs or {}).items()
                   if numpy.ndim(value) == 0}
        if logs is not None:
            logs.update(average_values(numbers, "metrics"))


def _flat(metrics):
    """Also those inside of others, each once."""
    found = []
    for each in metrics:
        inner = _flat(getattr(each, "metrics", ()) or ())
        found += [one for one in (inner or [each]) if all(one is not other for other in found)]
    return found


def _keeps_sums(metric):
    return any(issubclass(base, keras.metrics.Metric) and base is not keras.metrics.Metric
               and base.__module__.split(".")[0] == "keras" for base in type(metric).__mro__)
