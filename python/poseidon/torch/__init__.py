# SPDX-License-Identifier: Apache-2.0
"""Poseidon for PyTorch: models and optimizers that train on all workers of a job.

    import poseidon.torch as psd

    psd.init()
    model = psd.DataParallel(model)             as DistributedDataParallel, or:
    optimizer = psd.DistributedOptimizer(optimizer, model=model)

Horovod's names are here, too: `import poseidon.torch as hvd`. See docs/pytorch.md."""

import importlib
from typing import Any

from poseidon import close as shutdown
from poseidon import init, is_initialized, local_rank, local_size

from .. import _horovod
from .._ahead import prefetched
from .._elastic import barrier, rank, size
from .._horovod import (Adasum, Average, Compression, Max, Min, Product, Sum, ccl_built, cuda_built,
                        ddl_built, global_process_set, gloo_built, gloo_enabled, mpi_built,
                        mpi_enabled, mpi_threads_supported, nccl_built, rocm_built)
from . import trace
from .checkpoint import Checkpoint
from .collectives import (allgather, allgather_object, broadcast, broadcast_, broadcast_object,
                          broadcast_optimizer_state, broadcast_parameters)
from .embedding import Embedding, EmbeddingBag
from .engine import Engine, attach
from .optimizer import DistributedOptimizer, join
from .parallel import DataParallel
from .pinned import pinned_bytes
from .reductions import (allgather_async, allreduce, allreduce_, allreduce_async, allreduce_async_,
                         broadcast_async, broadcast_async_, grouped_allreduce,
                         grouped_allreduce_async, poll, synchronize)

__all__ = ["Adasum", "Average", "Checkpoint", "Compression", "DataParallel", "DistributedOptimizer", "Embedding",
           "EmbeddingBag", "Engine", "Max", "Min", "Product", "Sum", "allgather", "allgather_async",
           "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
           "attach", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
           "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
           "global_process_set", "grouped_allreduce", "grouped_allreduce_async", "init",
           "is_initialized", "join", "local_rank", "local_size", "pinned_bytes", "poll", "prefetched",
           "rank", "shutdown", "size", "synchronize", "trace",
           *_horovod.QUESTIONS]


def __getattr__(name: str) -> Any:
    """What few programs need; and what Horovod has, and this has not, says what to do."""
    if name == "elastic":
        return importlib.import_module(".elastic", __name__)
    raise _horovod.absent(__name__, name)
