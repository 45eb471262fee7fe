# SPDX-License-Identifier: Apache-2.0
"""DataParallel: a model whose gradients are averaged over all ranks."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch

import poseidon

from .. import _elastic
from . import collectives, trace
from .buffers import Buffers
from .engine import TIMEOUT_S, Engine


class DataParallel(torch.nn.Module):
    """Wraps a model as torch.nn.parallel.DistributedDataParallel does: every rank computes with
    data of its own, and when backward() returns, gradients are the mean over all ranks. The
    optimizer is an ordinary one and is not wrapped.

    module             the same on every rank. Parameters and buffers become those of rank 0
    broadcast_buffers  buffers follow rank 0 after every step
    bucket_bytes, nan_policy, timeout   see Engine

    state_dict() has the names of DistributedDataParallel ("module." and the model's own).
    """

    def __init__(self, module: torch.nn.Module, *, broadcast_buffers: bool = True,
                 bucket_bytes: int | None = None, nan_policy: str = "allow",
                 timeout: float = TIMEOUT_S):
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"DataParallel takes a torch.nn.Module, not {type(module).__name__}")
        poseidon.context()  # before init it says so
        if _elastic.is_declared():
            raise poseidon.InvalidError("DataParallel is not for programs whose workers come and go (elastic): give the optimizer "
                                        "to DistributedOptimizer, and the model to elastic.TorchState as it is")
        trace.start_as_told()
        named = list(module.named_parameters())
        buffers = list(module.named_buffers())
        collectives.check_same(named + buffers, "DataParallel")
        collectives.broadcast_tensors_([tensor.data for _, tensor in named + buffers])
        self.module = module
        self.engine = Engine(named, bucket_bytes=bucket_bytes, nan_policy=nan_policy,
                             timeout=timeout, sparse=sparse_names(module))
        if broadcast_buffers and buffers and self.engine.context.size > 1:
            self.engine.companions.append(Buffers(self.engine.name, buffers, timeout))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own."""
        with trace.span("forward"):
            return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backwards inside add up on this rank alone; the first backward after it
        averages the sum."""
        with self.engine.no_sync():
            yield

    @contextlib.contextmanager
    def join(self, optimizer: torch.optim.Optimizer | None = None) -> Iterator[None]:
        """Around a loop over batches of which ranks may have different numbers:

            with model.join(optimizer):
                for batch in loader: ...

        A rank that is done takes part in the others' rounds without adding anything, until all are
        done. Then every rank has the parameters and buffers (and the optimizer's state) of a rank
        that had data to the end."""
        yield
        last = self.engine.join()
        if last >= 0:
            tensors = [*self.module.parameters(), *self.module.buffers()]
            collectives.broadcast_tensors_([tensor.data for tensor in tensors], last)
            if optimizer is not None:
                collectives.broadcast_optimizer_state(optimizer, last)


def sparse_names(module: torch.nn.Module) -> list[str]:
    """Parameters whose gradients come as rows: those of embeddings made with sparse=True."""
    return [f"{name}.weight" if name else "weight" for name, child in module.named_modules()
            if isinstance(child, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and child.sparse]
