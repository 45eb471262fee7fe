# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Keras for training with several workers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import poseidon

from .. import broadcast as broadcast_array
from .ops import TIMEOUT_MS


def broadcast_variables(variables: Any, root: int = 0) -> None:
    """Gives all workers the root's values. Every worker calls it with the same variables."""
    poseidon.barrier(TIMEOUT_MS)  # workers prepare their data before, and need not be done together
    for number, variable in enumerate(variables):
        value = np.array(variable.numpy(), order="C")
        if value.dtype.hasobject:
            continue  # text
        name = f"{number} {getattr(variable, 'path', variable.name)}"[:200]
        got = broadcast_array(value, root, name)
        if poseidon.rank() != root:
            variable.assign(got)


def average_values(values: dict[str, float], name: str) -> dict[str, float]:
    """The means over all workers, for the keys that every worker has in this order."""
    if not values:
        return {}
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
        """The model is built by now."""
        optimizer = self.model.optimizer
        variables = list(self.model.weights)
        broadcast_variables(variables + list(optimizer.variables if optimizer else ()), self._root)


class MetricAverageCallback(keras.callbacks.Callback):
    """The epoch's metrics become their means over all workers: give it before callbacks that decide
    by them (EarlyStopping, ReduceLROnPlateau), which then decide alike everywhere."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Changes the logs that later callbacks see."""
        numbers = {key: float(value) for key, value in (logs or {}).items()}
        if logs is not None:
            logs.update(average_values(numbers, "metrics"))


class LearningRateWarmupCallback(keras.callbacks.Callback):
    """The learning rate rises from initial / size() to initial over the first epochs, step by step;
    with W times the batch, training often wants W times the rate, and does not bear it at once."""

    def __init__(self, initial: float, warmup_epochs: float = 5, verbose: int = 0):
        super().__init__()
        self._initial, self._epochs, self._verbose = initial, warmup_epochs, verbose
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Where we are."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate for this step."""
        steps = self.params.get("steps") or 1
        progress = (self._epoch + batch / steps) / self._epochs
        if progress > 1:
            return
        begin = self._initial / poseidon.size()
        self.model.optimizer.learning_rate = begin + (self._initial - begin) * progress

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The end of the warm-up."""
        if epoch + 1 >= self._epochs > epoch:
            self.model.optimizer.learning_rate = self._initial
            if self._verbose and poseidon.rank() == 0:
                print(f"learning rate {self._initial} after {epoch + 1} epochs", flush=True)


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keras's own, which writes on worker 0 alone."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """With save_freq in steps."""
        if poseidon.rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """With save_freq="epoch"."""
        if poseidon.rank() == 0:
            super().on_epoch_end(epoch, logs)
