# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Keras for training with several workers."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import poseidon

from .. import _elastic
from .. import broadcast as broadcast_array
from .._horovod import check_process_set
from . import ops
from .ops import TIMEOUT_MS


def broadcast_variables(variables: Any, root_rank: int = 0, process_set: Any = None) -> Any:
    """Gives all workers the root's values. Every worker calls it with the same variables. Inside of a
    tf.function, and in a graph, it is a part of that."""
    check_process_set("broadcast_variables", process_set)
    if not tf.executing_eagerly():
        return tf.group(*(variable.assign(ops.broadcast(variable, root_rank)) for variable in variables
                          if variable.dtype != tf.string))
    _elastic.barrier(TIMEOUT_MS)  # workers prepare their data before, and need not be done together
    variables = list(variables)
    for number, variable in enumerate(variables):
        value = np.array(variable.numpy(), order="C")
        if value.dtype.hasobject:
            continue  # text
        got = broadcast_array(value, root_rank,
                              f"variable {number} of {len(variables)} ({_kind(variable)})")
        if _elastic.rank() != root_rank:
            variable.assign(got)
    return None


def _kind(variable: Any) -> str:
    """What it is called in its layer or optimizer. The whole path is another for a model that was loaded
    than for one that was made, and where a process made other models before."""
    return re.split("[/_]", getattr(variable, "path", variable.name))[-1].partition(":")[0][:100]


def average_values(values: dict[str, float], name: str) -> dict[str, float]:
    """The means over all workers, for the keys that every worker has in this order."""
    if not values:
        return {}
    group = _elastic.current()
    if group is not None:
        found = group.reduce(np.array([values[key] for key in sorted(values)], np.float64), True)
        return dict(zip(sorted(values), map(float, found)))
    table = f"tensorflow.{name}.{len(values)}"
    context = poseidon.context()
    found = context._tables.get(table) or poseidon.Table(
        table, len(values), "float64", use="sum", nan_policy="allow")
    means = found.push_pull(np.array([values[key] for key in sorted(values)], np.float64),
                            timeout_ms=TIMEOUT_MS).wait()
    return dict(zip(sorted(values), map(float, means)))


class BroadcastCallback(keras.callbacks.Callback):
    """Before training begins, all workers get the weights and the optimizer's state of the root."""

    def __init__(self, root: int = 0):
        super().__init__()
        self._root = root

    def on_train_begin(self, logs: Any = None) -> None:
        """The model is built by now. The optimizer may not be, and the root's, of a saved model, is."""
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = list(self.model.weights)
        broadcast_variables(variables + list(optimizer.variables if optimizer else ()), self._root)


class MetricAverageCallback(keras.callbacks.Callback):
    """The epoch's metrics become their means over all workers: give it before callbacks that decide
    by them (EarlyStopping, ReduceLROnPlateau), which then decide alike everywhere."""

    def __init__(self, device: str = "", process_set: Any = None):
        super().__init__()
        del device
        check_process_set("MetricAverageCallback", process_set)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Changes the logs that later callbacks see."""
        numbers = {key: float(value) for key, value in (logs or {}).items()}
        if logs is not None:
            logs.update(average_values(numbers, "metrics"))


class LearningRateWarmupCallback(keras.callbacks.Callback):
    """The learning rate rises from initial / size() to initial over the first epochs, step by step;
    with W times the batch, training often wants W times the rate, and does not bear it at once."""

    def __init__(self, initial_lr: float, warmup_epochs: float = 5, momentum_correction: bool = True,
                 steps_per_epoch: int | None = None, verbose: int = 0):
        super().__init__()
        del momentum_correction  # Horovod's: momentum is a constant of the compiled step
        self._initial, self._epochs, self._verbose = initial_lr, warmup_epochs, verbose
        self._steps, self._epoch = steps_per_epoch, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Where we are."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate for this step."""
        if self._epoch >= self._epochs:
            return  # the rate is somebody else's now
        steps = self._steps or self.params.get("steps") or 1
        progress = min(1.0, (self._epoch + batch / steps) / self._epochs)
        begin = self._initial / _elastic.size()
        self.model.optimizer.learning_rate = begin + (self._initial - begin) * progress

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The end of the warm-up."""
        if epoch + 1 >= self._epochs > epoch:
            self.model.optimizer.learning_rate = self._initial
            if self._verbose and _elastic.rank() == 0:
                print(f"learning rate {self._initial} after {epoch + 1} epochs", flush=True)


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keras's own, which writes on worker 0 alone."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """With save_freq in steps."""
        if _elastic.rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """With save_freq="epoch"."""
        if _elastic.rank() == 0:
            super().on_epoch_end(epoch, logs)
