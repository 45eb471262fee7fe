# SPDX-License-Identifier: Apache-2.0
"""Keras with workers that come and go, by Horovod's names: `hvd.elastic` of `import poseidon.tensorflow.keras as hvd`."""

from __future__ import annotations

from typing import Any

import keras

from ..elastic import (ElasticSampler, HostsUpdatedInterrupt, ObjectState, State, StateLost, TensorFlowKerasState, members, run,
                       samples)

__all__ = ["CommitStateCallback", "ElasticSampler", "HostsUpdatedInterrupt", "KerasState", "ObjectState", "State", "StateLost",
           "TensorFlowKerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "members", "run", "samples"]

KerasState = TensorFlowKerasState


class CommitStateCallback(keras.callbacks.Callback):
    """state.commit() after so many batches, and at the end of each epoch: there workers come and go."""

    def __init__(self, state: State, batches_per_commit: int = 1):
        super().__init__()
        self._state, self._every, self._batches = state, batches_per_commit, 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts anew, on all workers."""
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step is over."""
        self._batches += 1
        if self._batches % self._every == 0:
            self._state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """An epoch is over."""
        self._state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """state.batch is how many batches of the epoch are over."""

    def __init__(self, state: State):
        super().__init__()
        self._state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step is over."""
        self._state.batch = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """An epoch is over."""
        self._state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """state.epoch is how many epochs are over."""

    def __init__(self, state: State):
        super().__init__()
        self._state, self._first = state, state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """It goes on from where it was."""
        self._first = self._state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """An epoch is over."""
        self._state.epoch = self._first + epoch + 1
