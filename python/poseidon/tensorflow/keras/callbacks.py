# SPDX-License-Identifier: Apache-2.0
"""Callbacks by Horovod's names."""

from __future__ import annotations

import math
from typing import Any, Callable

import keras

from ..callbacks import BroadcastCallback, LearningRateWarmupCallback, MetricAverageCallback

__all__ = ["BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
           "LearningRateWarmupCallback", "MetricAverageCallback"]


class BroadcastGlobalVariablesCallback(BroadcastCallback):
    """Before training begins, all workers get the weights and the optimizer's state of the root."""

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: bool = False):
        del device, local_variables
        super().__init__(root_rank)


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """From one epoch to another the learning rate is initial_lr times the multiplier: a number, or a
    function of the epoch; with staircase=False of an epoch that grows with every step."""

    def __init__(self, initial_lr: float, multiplier: float | Callable[[float], float],
                 start_epoch: float = 0, end_epoch: float | None = None, staircase: bool = True,
                 momentum_correction: bool = True, steps_per_epoch: int | None = None):
        super().__init__()
        del momentum_correction  # momentum is a constant of the compiled step
        self._initial, self._start = initial_lr, start_epoch
        self._end = math.inf if end_epoch is None else end_epoch
        self._multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self._staircase = staircase or not callable(multiplier)
        self._steps, self._epoch = steps_per_epoch, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Where we are."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate for this step."""
        if not self._start <= self._epoch < self._end or (self._staircase and batch > 0):
            return
        epoch: float = self._epoch
        if not self._staircase:
            epoch += batch / (self._steps or self.params.get("steps") or 1)
        self.model.optimizer.learning_rate = self._initial * self._multiplier(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """For whoever draws it."""
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)
