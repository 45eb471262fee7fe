# SPDX-License-Identifier: Apache-2.0
"""Poseidon for PyTorch: models and optimizers that train on all workers of a job.

    import poseidon.torch as psd

    psd.init()
    model = psd.DataParallel(model)             as DistributedDataParallel, or:
    optimizer = psd.DistributedOptimizer(optimizer, model=model)

Horovod's names are here, too: `import poseidon.torch as hvd`. See docs/pytorch.md."""

from poseidon import close as shutdown
from poseidon import init, is_initialized, local_rank, local_size, rank, size

from . import trace
from .collectives import (Average, Sum, allgather, allreduce, broadcast, broadcast_object,
                          broadcast_optimizer_state, broadcast_parameters)
from .engine import Engine, attach
from .optimizer import DistributedOptimizer
from .parallel import DataParallel

__all__ = ["Average", "DataParallel", "DistributedOptimizer", "Engine", "Sum", "allgather",
           "allreduce", "attach", "broadcast", "broadcast_object", "broadcast_optimizer_state",
           "broadcast_parameters", "init", "is_initialized", "local_rank", "local_size", "rank",
           "shutdown", "size", "trace"]
