# SPDX-License-Identifier: Apache-2.0
"""Poseidon for TensorFlow 2 and Keras 3. docs/tensorflow.md is the manual.

    import poseidon.tensorflow as psd

    psd.init()
    optimizer = psd.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, loss)
    model.fit(dataset.shard(psd.size(), psd.rank()), callbacks=[psd.BroadcastCallback()])

Scripts with sessions: poseidon.tensorflow.v1. Keras is imported with what needs it."""

import importlib
from typing import Any

from .. import barrier, close, global_step, init, is_initialized, local_rank, rank, report, size
from .ops import broadcast, pull, push, push_pull, push_pull_table

_KERAS = {"BroadcastCallback": "callbacks", "LearningRateWarmupCallback": "callbacks",
          "MetricAverageCallback": "callbacks", "ModelCheckpoint": "callbacks",
          "broadcast_variables": "callbacks", "DistributedGradientTape": "optimizer",
          "DistributedOptimizer": "optimizer"}

__all__ = ["barrier", "broadcast", "close", "global_step", "init", "is_initialized", "local_rank",
           "pull", "push", "push_pull", "push_pull_table", "rank", "report", "size", *_KERAS]


def __getattr__(name: str) -> Any:
    """What is built on Keras."""
    if name in _KERAS:
        return getattr(importlib.import_module(f".{_KERAS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
