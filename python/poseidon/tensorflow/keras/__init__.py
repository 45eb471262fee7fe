# SPDX-License-Identifier: Apache-2.0
"""Poseidon for Keras by Horovod's names: `import poseidon.tensorflow.keras as hvd` in the place of
`import horovod.tensorflow.keras as hvd`. docs/tensorflow.md has the table.

Operations take and give plain values here: numbers, lists, arrays."""

from __future__ import annotations

import importlib
from typing import Any

import keras

from ... import _horovod
from ..._horovod import (Adasum, Average, Compression, Max, Min, Product, Sum, ccl_built, cuda_built,
                         ddl_built, global_process_set, gloo_built, gloo_enabled, mpi_built,
                         mpi_enabled, mpi_threads_supported, nccl_built, rocm_built)
from .. import (barrier, broadcast_global_variables, broadcast_object, broadcast_variables, init,
                is_initialized, local_rank, local_size, rank, reductions, shutdown, size)
from ..embedding import Embedding
from ..optimizer import DistributedOptimizer
from . import callbacks

__all__ = ["Adasum", "Average", "Compression", "DistributedOptimizer", "Embedding", "Max", "Min", "Product", "Sum",
           "allgather", "allreduce", "barrier", "broadcast", "broadcast_global_variables",
           "broadcast_object", "broadcast_variables", "callbacks", "global_process_set", "init",
           "is_initialized", "load_model", "local_rank", "local_size", "rank", "shutdown", "size",
           *_horovod.QUESTIONS]


def allreduce(value: Any, name: str | None = None, average: bool | None = None, **options: Any) -> Any:
    """The mean (or what op= says) of a number, a list or an array over all workers."""
    return _plain(reductions.allreduce(value, average, name=name, **options))


def allgather(value: Any, name: str | None = None) -> Any:
    """All workers' values, one after the other along their first dimension."""
    return _plain(reductions.allgather(value, name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's value on every worker."""
    return _plain(reductions.broadcast(value, root_rank, name))


def _plain(tensor: Any) -> Any:
    value = tensor.numpy()
    return value.item() if value.ndim == 0 else value


def load_model(filepath: Any, custom_optimizers: Any = None, custom_objects: dict | None = None,
               compression: Any = Compression.none, **options: Any) -> Any:
    """A saved model, whose optimizer is distributed from now on."""
    known = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    DistributedOptimizer(model.optimizer, compression=compression, **options)
    return model


def __getattr__(name: str) -> Any:
    """What few programs need; and what Horovod has, and this has not, says what to do."""
    if name == "elastic":
        return importlib.import_module("poseidon.tensorflow.keras.elastic")
    raise _horovod.absent(__name__, name)
