# SPDX-License-Identifier: Apache-2.0
"""allreduce: sums, means and extremes over all ranks, at once or with a handle to wait for.

Floating-point sums go through a table, which adds them on the servers. What servers do not add (integers,
extremes, products) every rank gathers and reduces itself: it is small, as a rule."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import torch

import poseidon

from .. import _elastic, _horovod
from .._horovod import Average, Compression, Max, Min, Product, Sum
from . import codec, collectives
from .buckets import DTYPES
from .memory import FOREVER

_OFFERED = (Average, Sum, Min, Max, Product)
_BY_RANK = {Sum: lambda all_: all_.sum(0), Min: lambda all_: all_.amin(0),
            Max: lambda all_: all_.amax(0), Product: lambda all_: all_.prod(0)}


class Handle:
    """A reduction under way."""

    def __init__(self, future: Any, finish: Callable[[], torch.Tensor]):
        self.future, self._finish = future, finish
        self.output: torch.Tensor | None = None

    def wait(self) -> torch.Tensor:
        """Once or more: the result."""
        if self.output is None:
            self.output = self._finish()
        return self.output


class _Tables:
    """Those of one context. Reductions of one name, or of one kind, have a table for each that is
    under way at the same time."""

    def __init__(self) -> None:
        self.context = poseidon.context()
        self.made: dict[tuple, list[poseidon.Table]] = {}
        self.busy: set[str] = set()

    def take(self, key: tuple, shape: tuple[int, ...], dtype: str, op: str) -> poseidon.Table:
        """The first one that is free, which is the same on all ranks."""
        made = self.made.setdefault(key, [])
        table = next((table for table in made if table.name not in self.busy), None)
        if table is None:
            number = f"/{len(made)}" if made else ""
            table = poseidon.Table(f"poseidon.torch/allreduce/{key[0]}/{op}/{dtype}{number}",
                                   shape=shape, dtype=dtype, use="sum", reduce=op, nan_policy="allow")
            made.append(table)
        self.busy.add(table.name)
        return table


_tables: _Tables | None = None


def _of_context() -> _Tables:
    global _tables  # pylint: disable=global-statement
    if _tables is None or _tables.context is not poseidon.context():
        _tables = _Tables()
    return _tables


def _begin(tensor: torch.Tensor, what: str, name: str | None, op: str, half: bool) -> Handle:
    if tensor.dtype not in DTYPES or op not in (Average, Sum):
        if op == Average:
            raise TypeError(f"{what}: the mean of {str(tensor.dtype).removeprefix('torch.')} is no such "
                            f"number: convert it (tensor.float()), or use op=Sum")
        result = _reduce_here(tensor, what, op)
        return Handle(None, lambda: result)
    if tensor.numel() == 0:
        result = tensor.clone()
        return Handle(None, lambda: result)
    group = _elastic.current()
    if group is not None:
        flat = tensor.detach().cpu().to(torch.float64).reshape(-1)
        reduced = torch.from_numpy(group.reduce(flat.numpy(), op == Average))
        result = reduced.reshape(tensor.shape).to(tensor.device, tensor.dtype)
        return Handle(None, lambda: result)
    shape = tuple(tensor.shape) or (1,)
    travels = torch.float16 if half and tensor.dtype in (torch.float32, torch.float64) else tensor.dtype
    key = (name or f"{DTYPES[travels]}{list(shape)}", op, travels)
    tables = _of_context()
    table = tables.take(key, shape, DTYPES[travels], op)
    sent = tensor.detach().cpu().to(travels).contiguous().reshape(shape)
    out = torch.empty_like(sent)
    future = table.push_pull(sent, out=out, timeout_ms=FOREVER)

    def finish() -> torch.Tensor:
        future.result(collectives.TIMEOUT_S)
        tables.busy.discard(table.name)
        return out.reshape(tensor.shape).to(tensor.device, tensor.dtype)

    return Handle(future, finish)


def _reduce_here(tensor: torch.Tensor, what: str, op: str) -> torch.Tensor:
    collectives.check_same([(what, tensor)], what)
    parts = [codec.tensor_from(raw, tensor.dtype, tuple(tensor.shape)) for raw
             in collectives.allgather_bytes(codec.tensor_bytes(tensor))]
    return _BY_RANK[op](torch.stack(parts)).to(tensor.device, tensor.dtype)


def allreduce_async(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
                    op: str | None = None, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0, process_set: Any = None, *,
                    compression: Any = Compression.none) -> Handle:
    """Begins a reduction; synchronize(handle) is its result."""
    what = f"allreduce of {name}" if name else "allreduce"
    _horovod.check_process_set(what, process_set)
    chosen = _horovod.reduction(what, op, average, _OFFERED)
    given = tensor if prescale_factor == 1.0 else tensor * prescale_factor
    handle = _begin(given, what, name, chosen, Compression.is_half(what, compression))
    if postscale_factor == 1.0:
        return handle
    return Handle(handle.future, lambda: handle.wait() * postscale_factor)


def allreduce_async_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Handle:
    """The same into the tensor itself, when synchronize() is called."""
    handle = allreduce_async(tensor, *args, **kwargs)

    def write() -> torch.Tensor:
        with torch.no_grad():
            tensor.copy_(handle.wait())
        return tensor

    return Handle(handle.future, write)


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
              compression: Any = Compression.none, op: str | None = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: Any = None) -> torch.Tensor:
    """The mean (or what op= says) of a tensor over all ranks, as a new tensor. Gradients go back through
    means and sums, to all ranks."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Differentiable.apply(tensor, average, name, compression, op, prescale_factor,
                                     postscale_factor, process_set)
    return allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, process_set,
                           compression=compression).wait()


class _Differentiable(torch.autograd.Function):
    """What one rank's tensor does to the means of all is what the gradients of all do to it."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *options: Any) -> torch.Tensor:
        """Without a gradient of its own."""
        ctx.options = options
        with torch.no_grad():
            return allreduce(tensor, *options)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        """Every rank comes here: all have computed a loss from it."""
        average, _, compression, op, before, after, group = ctx.options
        if op not in (None, Average, Sum):
            raise poseidon.InvalidError(f"allreduce: op={op!r} has no gradient: use Average or Sum")
        back = allreduce(gradient, average, None, compression, op, before, after, group)
        return back, *(None for _ in ctx.options)


def allreduce_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The same into the tensor itself."""
    return allreduce_async_(tensor, *args, **kwargs).wait()


def grouped_allreduce_async(tensors: Iterable[torch.Tensor], average: bool | None = None,
                            name: str | None = None, **options: Any) -> Handle:
    """Several at once; synchronize(handle) is the list."""
    handles = [allreduce_async(tensor, average, f"{name}.{number}" if name else None, **options)
               for number, tensor in enumerate(tensors)]
    return Handle(_All(handles), lambda: [handle.wait() for handle in handles])


def grouped_allreduce(tensors: Iterable[torch.Tensor], *args: Any,
                      **kwargs: Any) -> list[torch.Tensor]:
    """Several at once."""
    return grouped_allreduce_async(tensors, *args, **kwargs).wait()


class _All:
    """A future of several."""

    def __init__(self, handles: list[Handle]):
        self._futures = [handle.future for handle in handles if handle.future is not None]

    def done(self) -> bool:
        return all(future.done() for future in self._futures)


def _at_once(function: Callable[..., torch.Tensor]) -> Callable[..., Handle]:
    """As an operation with a handle: it is over when it returns."""

    def begin(*args: Any, **kwargs: Any) -> Handle:
        result = function(*args, **kwargs)
        return Handle(None, lambda: result)

    return begin


allgather_async = _at_once(collectives.allgather)
broadcast_async = _at_once(collectives.broadcast)
broadcast_async_ = _at_once(collectives.broadcast_)


def poll(handle: Handle) -> bool:
    """Whether synchronize() would not wait."""
    return handle.output is not None or handle.future is None or handle.future.done()


def synchronize(handle: Handle) -> torch.Tensor:
    """Waits for an operation, and gives its result."""
    return handle.wait()
