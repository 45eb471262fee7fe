# SPDX-License-Identifier: Apache-2.0
"""Poseidon for TensorFlow 2 and Keras 3. docs/tensorflow.md is the manual.

    import poseidon.tensorflow as psd

    psd.init()
    optimizer = psd.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, loss)
    model.fit(dataset.shard(psd.size(), psd.rank()), callbacks=[psd.BroadcastCallback()])

Scripts with sessions: poseidon.tensorflow.v1."""

from .. import barrier, close, global_step, init, is_initialized, local_rank, rank, report, size
from .callbacks import (BroadcastCallback, LearningRateWarmupCallback, MetricAverageCallback,
                        ModelCheckpoint, broadcast_variables)
from .ops import broadcast, pull, push, push_pull, push_pull_table
from .optimizer import DistributedGradientTape, DistributedOptimizer

__all__ = ["BroadcastCallback", "DistributedGradientTape", "DistributedOptimizer",
           "LearningRateWarmupCallback", "MetricAverageCallback", "ModelCheckpoint", "barrier",
           "broadcast", "broadcast_variables", "close", "global_step", "init", "is_initialized",
           "local_rank", "pull", "push", "push_pull", "push_pull_table", "rank", "report", "size"]
