# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer where workers come and go: step() averages the gradients over the samples of all workers.

Gradients leave when step() (or synchronize()) is called, all together, not while backward runs: a step that a worker died in is
given again, so what is sent must stay as it is until all have it."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import numpy as np
import torch

import poseidon

from ... import _elastic
from ..._horovod import Sum
from ..._progress import Progress

_TRAVELS = {torch.float64: "float64", torch.float32: "float32", torch.float16: "float32", torch.bfloat16: "float32"}


class Gradients:
    """Of an optimizer's parameters, as flat arrays. A number more for each parameter tells whether anybody has a gradient."""

    def __init__(self, named: list[tuple[str, torch.Tensor]], op: str):
        self.parameters = [parameter for _, parameter in named if parameter.requires_grad and parameter.numel() > 0]
        self._op = op
        if not self.parameters:
            raise poseidon.InvalidError("none of the parameters requires a gradient: there is nothing to average")
        for name, parameter in named:
            if parameter.requires_grad and parameter.dtype not in _TRAVELS:
                raise poseidon.InvalidError(f"parameter {name} is {str(parameter.dtype).removeprefix('torch.')}: only "
                                            "float32, float64, float16 and bfloat16 are averaged")
        lengths = {"float32": len(self.parameters)}
        self._places: list[tuple[str, int]] = []
        for parameter in self.parameters:
            kind = _TRAVELS[parameter.dtype]
            self._places.append((kind, lengths.setdefault(kind, 0)))
            lengths[kind] += parameter.numel()
        self._flats = {kind: torch.zeros(length, dtype=getattr(torch, kind)) for kind, length in lengths.items()}
        self.group = _elastic.current()
        assert self.group is not None
        self.group.use(lengths, repr([(name, tuple(parameter.shape), str(parameter.dtype)) for name, parameter in named]))
        self.rounds = 0
        self._is_averaged = False
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def _on_gradient(self, _: torch.Tensor) -> None:
        self._is_averaged = False

    def _place(self, number: int) -> torch.Tensor:
        (kind, begin), parameter = self._places[number], self.parameters[number]
        return self._flats[kind][begin:begin + parameter.numel()].view(parameter.shape)

    @torch.no_grad()
    def synchronize(self) -> None:
        """Gradients are the means of all workers afterwards. Once they are, they stay it."""
        if self._is_averaged:
            return
        used = self._flats["float32"][:len(self.parameters)]
        for number, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            used[number] = gradient is not None
            if gradient is None:
                self._place(number).zero_()
            else:
                self._place(number).copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        arrays: dict[str, np.ndarray] = {kind: flat.numpy() for kind, flat in self._flats.items()}
        found = self.group.average(arrays)
        factor = self.group.givers if self._op == Sum else 1
        by_anybody = used.tolist()
        for number, parameter in enumerate(self.parameters):
            if not found or by_anybody[number] == 0:
                parameter.grad = None
                continue
            mean = self._place(number) if factor == 1 else self._place(number) * factor
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(mean)
        self.rounds += 1
        self._is_averaged = True

    def step_over(self) -> None:
        """The optimizer has made its step."""
        self._is_averaged = False


class _Elastic:
    """What is added to the class of the wrapped optimizer."""

    _gradients: Gradients
    _progress: Progress

    def synchronize(self) -> None:
        """Gradients are the means of all workers afterwards."""
        self._gradients.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Around a step() behind synchronize(): it waits for nothing anyway."""
        yield

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Nothing travels in backward: gradients add up here until step()."""
        yield

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Horovod's: backwards add up until step()."""

    def join(self) -> Any:
        """Not here: an ElasticSampler gives all workers equally many batches."""
        raise poseidon.StateError("join: workers of an elastic job have equally many batches: use hvd.elastic.ElasticSampler")


def is_elastic(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it was made by over()."""
    return isinstance(optimizer, _Elastic)


def over(optimizer: torch.optim.Optimizer, named: list[tuple[str, torch.Tensor]], op: str) -> torch.optim.Optimizer:
    """Gives an optimizer the methods and the hooks."""
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (_Elastic, kind), {})
    optimizer._gradients, optimizer._progress = Gradients(named, op), Progress()
    optimizer.register_step_pre_hook(_average_first)
    optimizer.register_step_post_hook(lambda made, *_: made._gradients.step_over())
    return optimizer


def _average_first(optimizer: Any, args: tuple, kwargs: dict) -> None:
    if kwargs.get("closure", args[1] if len(args) > 1 else None) is not None:
        raise poseidon.InvalidError("optimizer.step(closure) in an elastic job: call backward(), then step()")
    optimizer._gradients.synchronize()
    optimizer._progress.step(optimizer._gradients.rounds, optimizer._gradients.group.samples)
