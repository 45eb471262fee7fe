# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer that steps with the gradients of all ranks."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterable, Iterator

import torch

import poseidon

from .. import _elastic, _horovod
from .._horovod import Average, Compression, Sum
from .._progress import Progress
from . import collectives, trace, wire
from .buckets import Slot
from .deferred import DeferredSteps
from .engine import TIMEOUT_S, Engine, engine_of
from .parallel import sparse_names
from .server_side import ServerSide


def DistributedOptimizer(  # pylint: disable=invalid-name
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None, *,
        model: torch.nn.Module | None = None, overlap: str = "backward",
        compression: Any = Compression.none, backward_passes_per_step: int = 1,
        op: str = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
        groups: Any = None, sparse_as_dense: bool = False, process_set: Any = None,
        bucket_bytes: int | None = None, nan_policy: str = "allow", timeout: float = TIMEOUT_S,
        server_side: bool = False, staleness: int | None = 0) -> torch.optim.Optimizer:
    """Makes an optimizer step with the mean of all ranks' gradients, and returns it. It stays the
    object it was, so learning-rate schedulers and GradScaler work with it.

    named_parameters  names for messages; model.named_parameters(). Default: "group0.0" and so on
    model             whose parameters these are: gives the names, and what overlap needs
    overlap           "backward": gradients travel while backward runs and are averaged when it
                      returns. "forward" (needs model): they also travel while the next forward
                      runs, and step() is made module by module, each just before it computes
    backward_passes_per_step   that many backwards add up on this rank before one is averaged
    server_side       the servers apply the optimizer's rule (SGD, Adam, AdamW, Adagrad, RMSprop)
    staleness         with server_side: 0 all ranks step together, N they may be N steps apart,
                      None they do not wait for each other
    bucket_bytes, nan_policy, timeout   see Engine
    compression       Compression.fp16, Compression.bf16: float32 and float64 gradients travel as such
    op                Average, or Sum: then gradients are the sums of all ranks
    sparse_as_dense   gradients that are a few rows travel whole, and not as these rows
    gradient_predivide_factor, num_groups, groups   Horovod's: taken, and nothing depends on them;
                      servers add in float32, and buckets are packed by themselves

    Parameters are not broadcast: that is broadcast_parameters(), as in Horovod (server_side does).
    Added methods: synchronize(), no_sync(), join().
    """
    trace.start_as_told()
    what = "DistributedOptimizer"
    del num_groups, groups
    _horovod.check_process_set(what, process_set)
    op = _horovod.reduction(what, op)
    _horovod.check_predivide(what, gradient_predivide_factor, op)
    narrow = wire.chosen(what, compression)
    if server_side and (op != Average or narrow is not None):
        raise ValueError("server_side: servers make steps with the mean; neither op=Sum nor "
                         "compression is for them")
    _refuse_unfit(optimizer, overlap, model, server_side, staleness, backward_passes_per_step)
    if named_parameters is None and model is not None:
        named_parameters = model.named_parameters()
    named = _named(optimizer, named_parameters)
    if _elastic.current() is not None:
        wire.refuse_told("where workers come and go, gradients travel as their own type")
        return _elastic_over(optimizer, named, op, overlap, server_side, nan_policy)
    if server_side:
        wire.refuse_told("with server_side, servers make the steps with gradients of their own type")
        return ServerSide.over(optimizer, named, staleness, backward_passes_per_step,
                               bucket_bytes=bucket_bytes, nan_policy=nan_policy, timeout=timeout)
    engine = _engine_of_all(named)
    if engine is None:
        engine = Engine(named, bucket_bytes=bucket_bytes, nan_policy=nan_policy, timeout=timeout,
                        wait="step" if overlap == "forward" else "backward",
                        sparse=sparse_names(model) if model is not None else (),
                        rows=not sparse_as_dense, wire=narrow)
    elif narrow is not None:
        raise poseidon.StateError("compression with a DataParallel model, which sends the gradients "
                                  "itself: give the model as it is")
    elif overlap == "forward":
        raise poseidon.StateError("overlap=\"forward\" with a DataParallel model: DataParallel "
                                  "waits at the end of backward; give the model itself")
    _Distributed.over(optimizer, engine, backward_passes_per_step)
    if op == Sum:
        _sum_instead(optimizer, engine)
    if overlap == "forward":
        DeferredSteps(optimizer, engine, model)
    else:
        optimizer.register_step_pre_hook(_average_first)
    return optimizer


def _elastic_over(optimizer: torch.optim.Optimizer, named: list[tuple[str, torch.Tensor]], op: str, overlap: str,
                  server_side: bool, nan_policy: str) -> torch.optim.Optimizer:
    """Workers come and go."""
    from .elastic import optimizer as elastic  # pylint: disable=import-outside-toplevel

    for is_asked, what in ((server_side, "server_side=True"), (overlap != "backward", f"overlap={overlap!r}"),
                           (nan_policy != "allow", f"nan_policy={nan_policy!r}")):
        if is_asked:
            raise poseidon.InvalidError(f"DistributedOptimizer: {what} is not for programs whose workers come and go "
                                        "(elastic): leave it out")
    if elastic.is_elastic(optimizer):
        raise poseidon.StateError("this optimizer is a DistributedOptimizer already")
    return elastic.over(optimizer, named, op)


def _sum_instead(optimizer: "_Distributed", engine: Engine) -> None:
    """The mean of gradients that are `size` times as large is their sum. They grow before they are added
    to what is there, which may be a sum already."""
    grown: set[int] = set()

    def growing(slot: Slot) -> Any:
        def grow(gradient: torch.Tensor) -> torch.Tensor:
            grown.add(id(slot))
            return gradient * poseidon.size()

        return grow

    slots = [slot for group in optimizer.param_groups for parameter in group["params"]
             if (slot := engine.slot_of(parameter)) is not None]
    for slot in slots:
        slot.parameter.register_hook(growing(slot))

    def refuse_others(*_: Any) -> None:
        for slot in slots:
            if slot.parameter.grad is not None and slot.parameter.grad is not slot.view and \
                    id(slot) not in grown and not slot.sparse:
                raise poseidon.InvalidError(f"op=Sum: no backward has made the gradient of {slot.name}: "
                                            "use backward() and not torch.autograd.grad, or op=Average")
        grown.clear()

    optimizer.register_step_pre_hook(refuse_others)


def _average_first(optimizer: "_Distributed", args: tuple, kwargs: dict) -> tuple | None:
    """Before a step gradients are averaged; where a closure makes them, when it has."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if closure is None:
        optimizer._poseidon.before_step(optimizer)
        optimizer._progress.step(optimizer._poseidon.rounds)
        return None

    def averaging() -> Any:
        optimizer._progress.loss = loss = closure()
        optimizer._poseidon.before_step(optimizer)
        optimizer._progress.step(optimizer._poseidon.rounds)
        return loss

    return args[:1], {**kwargs, "closure": averaging}


def _refuse_unfit(optimizer: torch.optim.Optimizer, overlap: str, model: torch.nn.Module | None,
                  server_side: bool, staleness: int | None, passes: int) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError("DistributedOptimizer takes a torch.optim.Optimizer, not "
                        f"{type(optimizer).__name__}")
    if isinstance(optimizer, (_Distributed, ServerSide)):
        raise poseidon.StateError("this optimizer is a DistributedOptimizer already")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise poseidon.InvalidError(
            "LBFGS evaluates its closure as often as the loss of one rank asks for, so ranks would "
            "part; use SGD, Adam or another optimizer that takes one gradient per step")
    if overlap not in ("backward", "forward"):
        raise ValueError(f"overlap={overlap!r}: \"backward\" or \"forward\"")
    if overlap == "forward" and (model is None or server_side):
        raise ValueError("overlap=\"forward\" needs model=, whose modules wait for their "
                         "parameters, and steps made here (not server_side)")
    if staleness != 0 and not server_side:
        raise ValueError(f"staleness={staleness!r} needs server_side=True: only where servers own "
                         "the parameters can ranks be at different steps")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step={passes}: at least 1")


def _named(optimizer: torch.optim.Optimizer,
           given: Iterable[tuple[str, torch.Tensor]] | None) -> list[tuple[str, torch.Tensor]]:
    """All parameters of the optimizer with their names."""
    names = {id(parameter): name for name, parameter in given or ()}
    return [(names.get(id(parameter), f"group{group_number}.{number}"), parameter)
            for group_number, group in enumerate(optimizer.param_groups)
            for number, parameter in enumerate(group["params"])]


def _engine_of_all(named: list[tuple[str, torch.Tensor]]) -> Engine | None:
    """The engine that a DataParallel attached to all of them already; None: there is none."""
    engines = {id(engine): engine for _, parameter in named
               if parameter.requires_grad and (engine := engine_of(parameter)) is not None}
    if len(engines) > 1:
        raise poseidon.StateError("the optimizer's parameters are those of several DataParallel "
                                  "models: make an optimizer for each")
    engine = next(iter(engines.values()), None)
    for name, parameter in named:
        if engine is not None and parameter.requires_grad and parameter.numel() > 0 and \
                engine.slot_of(parameter) is None:
            raise poseidon.StateError(f"parameter {name} is not one of the DataParallel model that "
                                      "the others are of, and would not be averaged: put it into "
                                      "the model, or give the optimizer the model itself")
    return engine


class _Distributed:
    """What is added to the class of the wrapped optimizer."""

    _poseidon: Engine
    _progress: Progress

    @staticmethod
    def over(optimizer: torch.optim.Optimizer, engine: Engine, passes: int) -> None:
        """Gives an optimizer the methods."""
        parameters = [parameter for group in optimizer.param_groups
                      for parameter in group["params"] if parameter.requires_grad]
        for parameter in parameters:
            slot = engine.slot_of(parameter)
            if slot is not None and slot.stepped:
                raise poseidon.StateError(f"parameter {slot.name} is averaged already for another "
                                          "DistributedOptimizer: two would step it")
        for parameter in parameters:
            if (slot := engine.slot_of(parameter)) is not None:
                slot.stepped = True
        kind = type(optimizer)
        optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {})
        optimizer._poseidon = engine
        optimizer._progress = Progress()
        engine.passes_per_round = passes
        _alive.add(optimizer)

    def synchronize(self) -> None:
        """Gradients are the means of all ranks afterwards."""
        self._poseidon.synchronize()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """For scripts written for Horovod: the same as backward_passes_per_step."""
        if passes < 1:
            raise ValueError(f"backward_passes_per_step={passes}: at least 1")
        self._poseidon.passes_per_round = passes

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside add up on this rank alone; the next one after it, or step(), averages."""
        with self._poseidon.no_sync():
            yield

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For scripts written for Horovod: step() after synchronize() waits for nothing anyway."""
        yield

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """Around a loop over batches of which ranks may have different numbers: a rank that is done
        answers the others without adding anything. At the end all have the parameters and the
        optimizer's state of a rank that had data to the end."""
        yield
        self.join_now()

    def join_now(self) -> int:
        """The end of such a loop. Returns the rank whose parameters all have now, or -1 when all had
        equally many batches."""
        last = self._poseidon.join()
        if last >= 0:
            collectives.broadcast_tensors_(
                [parameter.data for group in self.param_groups for parameter in group["params"]],
                last)
            collectives.broadcast_optimizer_state(self, last)
        return last


def is_distributed(optimizer: Any) -> bool:
    """Whether it is one of workers that stay."""
    return isinstance(optimizer, (_Distributed, ServerSide))


_alive: weakref.WeakSet = weakref.WeakSet()  # distributed optimizers of this process


def join(device: int = -1) -> int:
    """At the end of a loop over batches of which ranks may have different numbers, as in Horovod: see
    the optimizer's own join(). Means are over the ranks that have data. Returns the rank that was last
    to have some."""
    del device
    if len(_alive) != 1:
        raise poseidon.StateError(f"join: this process has {len(_alive)} distributed optimizers: use "
                                  "`with optimizer.join():` around the loop of each")
    last = next(iter(_alive)).join_now()
    return last if last >= 0 else poseidon.size() - 1
