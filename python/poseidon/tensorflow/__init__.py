# SPDX-License-Identifier: Apache-2.0
"""Poseidon for TensorFlow 2 and Keras 3. docs/tensorflow.md is the manual.

    import poseidon.tensorflow as psd

    psd.init()
    optimizer = psd.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, loss)
    model.fit(dataset.shard(psd.size(), psd.rank()), callbacks=[psd.BroadcastCallback()])

Scripts with sessions: poseidon.tensorflow.v1. Horovod's names are here, too (import poseidon.tensorflow as
hvd), and in poseidon.tensorflow.keras. Keras is imported with what needs it."""

import importlib
from typing import Any

from .. import _horovod, close, global_step, init, is_initialized, local_rank, local_size, report
from .._ahead import prefetched
from .._elastic import barrier, rank, size
from .._horovod import (Adasum, Average, Compression, Max, Min, Product, Sum, ccl_built, cuda_built,
                        ddl_built, global_process_set, gloo_built, gloo_enabled, mpi_built,
                        mpi_enabled, mpi_threads_supported, nccl_built, rocm_built)
from .ops import pull, push, push_pull, push_pull_table
from .reductions import allgather, allreduce, broadcast, broadcast_object, grouped_allreduce
from .rows import lookup, push_rows

shutdown = close
_LATER = {"BroadcastCallback": "callbacks", "Checkpoint": "checkpoint", "LearningRateWarmupCallback": "callbacks",
          "MetricAverageCallback": "callbacks", "ModelCheckpoint": "callbacks",
          "broadcast_variables": "callbacks", "DistributedGradientTape": "optimizer",
          "DistributedOptimizer": "optimizer", "Embedding": "embedding", "broadcast_global_variables": "sessions",
          "BroadcastGlobalVariablesHook": "sessions"}

__all__ = ["Adasum", "Average", "Compression", "Max", "Min", "Product", "Sum", "allgather", "allreduce",
           "barrier", "broadcast", "broadcast_object", "close", "global_process_set", "global_step",
           "grouped_allreduce", "init", "is_initialized", "local_rank", "local_size", "lookup",
           "prefetched", "pull", "push", "push_pull", "push_pull_table", "push_rows", "rank", "report",
           "shutdown", "size", *_LATER, *_horovod.QUESTIONS]


def __getattr__(name: str) -> Any:
    """What is built on Keras or on sessions; what Horovod has, and this has not, says what to do."""
    if name == "elastic":
        return importlib.import_module(".elastic", __name__)
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise _horovod.absent(__name__, name)
