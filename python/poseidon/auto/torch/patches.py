# SPDX-License-Identifier: Apache-2.0
"""Where torch tells the session what the script does. Each function replaces one of torch's own and
calls it."""

from __future__ import annotations

import atexit
import functools
import inspect
from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from . import iterables, lineage, loose, losses, native_files, seen, streams, sync_norm, torchrun, walks
from .samplers import drops_last
from .shards import Batches, Shard

if TYPE_CHECKING:
    from .session import TorchSession


def apply(session: TorchSession) -> None:
    """From now on the session hears of it."""
    atexit.register(session.at_exit)
    session.streams = streams.Streams(session.rank)
    streams.apply(session.streams)
    iterables.draw_alike(session.streams)
    session.lineage = lineage.Lineage()
    session.losses = losses.Losses(session)
    session.loose = loose.Loose(session)
    session.seen = seen.Seen(session)
    _watch_optimizers(session)
    _watch_loaders(session)
    _watch_backward(session)
    _watch_files(session)
    _watch_distributed(session)
    sync_norm.apply(session)
    walks.apply(session)


def _watch_optimizers(session: TorchSession) -> None:
    make = torch.optim.Optimizer.__init__

    @functools.wraps(make)
    def init(optimizer, *args, **kwargs):
        make(optimizer, *args, **kwargs)
        session.add_optimizer(optimizer)

    def noting_zeros(zero):
        @functools.wraps(zero)
        def zero_grad(*args, **kwargs):
            session.points.zeroed = True
            return zero(*args, **kwargs)

        return zero_grad

    def before_step(optimizer, args, kwargs):
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            session.before_step(optimizer)
            return None
        averaging = session.before_step_with(optimizer, closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": averaging}
        return (args[0], averaging, *args[2:]), kwargs

    torch.optim.Optimizer.__init__ = init
    torch.optim.Optimizer.zero_grad = noting_zeros(torch.optim.Optimizer.zero_grad)
    torch.nn.Module.zero_grad = noting_zeros(torch.nn.Module.zero_grad)
    register_optimizer_step_pre_hook(before_step)


def _watch_loaders(session: TorchSession) -> None:
    own_batches = dataloader.DataLoader._index_sampler.fget
    make, reset = dataloader._BaseDataLoaderIter.__init__, dataloader._BaseDataLoaderIter._reset
    take = dataloader._BaseDataLoaderIter.__next__
    make_loader = dataloader.DataLoader.__init__
    witnessed, points, grad_enabled = session.seen, session.points, torch.is_grad_enabled

    @functools.wraps(make_loader)
    def init_loader(loader, *args, **kwargs):
        session.loose.loaders += 1
        make_loader(loader, *args, **kwargs)

    @functools.wraps(make)
    def init(iterator, loader):
        with session.streams.common():
            make(iterator, loader)
        if type(iterator._sampler_iter) is Shard:  # processes that prepare its data have noise of their own
            iterator._base_seed += session.rank << 32

    @functools.wraps(reset)
    def begin_again(iterator, loader, *args, **kwargs):
        with session.streams.common():
            reset(iterator, loader, *args, **kwargs)

    def index_sampler(loader):
        return Batches(session, loader, own_batches(loader))

    @functools.wraps(take)
    def next_batch(iterator):
        shard = iterator._sampler_iter
        if type(shard) is not Shard:
            return next_of_stream(iterator, shard) if type(shard) is iterables.Stream else next_undealt(iterator)
        session.before_next(shard)
        if points.are_of_use and shard.trains:
            points.at_batch(shard)
        try:
            batch = take(iterator)
        except StopIteration:
            return rest_of(iterator, shard)
        delivery, reading = session.delivered(shard, batch), shard.reading
        if reading is None:
            return batch
        # Nearly all batches are this worker's next part of what it trains on: the witness needs no call but one.
        asked = reading.asked
        if reading.is_steady and asked and delivery is not None and not session.borrows and \
                not witnessed.uneven_for and grad_enabled() and reading.gave_another(asked[0], delivery.digest):
            witnessed.newest = asked.popleft(), batch
        else:
            witnessed.gave(iterator, batch, delivery)
        return batch

    def rest_of(iterator, shard):
        """What the other workers' parts of an evaluation are. The processes of a loader have ended by now."""
        if not session.is_evaluation_after_all(shard):
            session.epoch_ended()
            points.over(shard)
            witnessed.finish(shard)
            raise StopIteration
        fetcher = dataloader._DatasetKind.create_fetcher(iterator._dataset_kind, iterator._dataset,
                                                         iterator._auto_collation, iterator._collate_fn,
                                                         iterator._drop_last)
        batch = fetcher.fetch(next(shard))
        witnessed.gave(iterator, batch)
        return batch

    def next_of_stream(iterator, stream):
        points.lead_nowhere("it trains on an IterableDataset")
        session.before_next(stream)
        read = functools.partial(take, iterator)
        try:
            batch = stream.take(read)
        except StopIteration:
            if not session.is_evaluation_after_all(stream):
                session.epoch_ended()
                witnessed.finish(stream)
                raise
            batch = stream.take(read)
        witnessed.gave(iterator, batch, session.delivered(stream, batch))
        return batch

    def next_undealt(iterator):
        witnessed.before_next(iterator)
        try:
            batch = take(iterator)
        except StopIteration:
            witnessed.finish(iterator._sampler_iter)
            raise
        witnessed.gave(iterator, batch)
        return batch

    own_length = dataloader.DataLoader.__len__

    @functools.wraps(own_length)
    def length(loader):
        count = own_length(loader)
        if not iterables.is_stream(loader) or not session.length_is_dealt(loader):
            return count
        return count // session.world if drops_last(loader) else -(-count // session.world)

    dataloader.DataLoader.__init__, dataloader.DataLoader.__len__ = init_loader, length
    dataloader.DataLoader._index_sampler = property(index_sampler)
    dataloader._BaseDataLoaderIter.__init__, dataloader._BaseDataLoaderIter._reset = init, begin_again
    dataloader._BaseDataLoaderIter.__next__ = next_batch


def _watch_backward(session: TorchSession) -> None:
    own_backward, own_grad = torch.autograd.backward, torch.autograd.grad

    @functools.wraps(own_backward)
    def backward(tensors, *args, **kwargs):
        if session.passes_over():
            return None
        session.before_backward(tensors)
        if not session.optimizers:
            session.before_backward_by_hand(tensors)
        session.weigh_gradients(tensors, backward=True)
        try:
            return own_backward(tensors, *args, **kwargs)
        finally:
            session.losses.after_backward()

    @functools.wraps(own_grad)
    def grad(outputs, inputs, *args, **kwargs):
        if session.passes_over():
            session.points.replay.refuse("it uses what torch.autograd.grad gives")
        session.before_backward(outputs)
        if not session.optimizers and _has_parameter(inputs):
            session.before_backward_by_hand(outputs, inputs)
        session.weigh_gradients(outputs, backward=False)
        return own_grad(outputs, inputs, *args, **kwargs)

    torch.autograd.backward, torch.autograd.grad = backward, grad


def _has_parameter(inputs) -> bool:
    """Whether gradients are wanted of what is trained, not of what goes into a model."""
    if isinstance(inputs, torch.Tensor):
        return isinstance(inputs, torch.nn.Parameter)
    return isinstance(inputs, (list, tuple)) and any(map(_has_parameter, inputs))


def _watch_files(session: TorchSession) -> None:
    own_save, own_load = torch.save, torch.load

    @functools.wraps(own_save)
    def save(obj, f, *args, **kwargs):
        if session.keeps_file(f):
            own_save(obj, native_files.to_write(f), *args, **kwargs)

    @functools.wraps(own_load)
    def load(f, *args, **kwargs):
        return own_load(native_files.to_read(session.to_load(f)), *args, **kwargs)

    torch.save, torch.load = save, load
    native_files.apply()


def _watch_distributed(session: TorchSession) -> None:
    if not torch.distributed.is_available():
        return
    own = torch.distributed.init_process_group

    @functools.wraps(own)
    def init_process_group(*args, **kwargs):
        session.step_aside("the script begins torch.distributed itself")
        told = inspect.signature(own).bind_partial(*args, **kwargs).arguments
        if torchrun.needs_variables(told.get("init_method"), told.get("store")):
            torchrun.tell_script()
        return own(*args, **kwargs)

    torch.distributed.init_process_group = init_process_group
