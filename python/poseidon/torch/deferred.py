# SPDX-License-Identifier: Apache-2.0
"""Steps that are made when they are needed: overlap="forward".

step() only notes that it was called, and with which learning rates. Before a module computes in the
next forward, a hook waits for the buckets that hold its parameters and makes the step for them, with
the optimizer's own code over these parameters alone. So the first layers compute while the gradients
of the last ones are still under way. Optimizers treat each parameter by itself, so the result has
the same bits.

step() itself stays the optimizer's own, with hooks: learning-rate schedulers and other wrappers keep
the step that they found when they were made, so one that takes its place would never be called.

Between step() and the next forward, parameters that nobody needed yet are those of before the step.
Whatever reads them as a whole finishes first: state_dict() and load_state_dict() of model and
optimizer, the next backward, join(), and finish(), for programs that read them in other ways."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

import poseidon

from .buckets import Bucket
from .engine import Engine


class DeferredSteps:
    """Makes an optimizer's steps module by module."""

    def __init__(self, optimizer: torch.optim.Optimizer, engine: Engine, model: torch.nn.Module):
        self.optimizer, self.engine = optimizer, engine
        self.options: list[dict[str, Any]] = []  # of the step that is due, by parameter group
        self.due: dict[int, Bucket] = {}  # buckets whose parameters are before that step
        self.group_of = {id(parameter): number
                         for number, group in enumerate(optimizer.param_groups)
                         for parameter in group["params"]}
        kind = type(optimizer)
        self.make_step = getattr(kind.step, "__wrapped__", kind.step)  # without hooks
        optimizer.__class__ = type(kind.__name__, (_Deferring, kind), {})
        optimizer._deferred = self
        self.applying = False  # the optimizer's own code runs, for some of its parameters
        optimizer.register_step_pre_hook(self._hold_back)
        noting = optimizer.register_step_post_hook(self._note)
        optimizer._optimizer_step_post_hooks.move_to_end(noting.id, last=False)
        engine.before_next_backward = self.end_round
        for module in model.modules():
            parameters = list(module.parameters(recurse=False))
            if parameters:
                module.register_forward_pre_hook(self._hook_for(parameters))
        model.register_state_dict_pre_hook(lambda *_: self.finish())
        model.register_load_state_dict_pre_hook(lambda *_: self.finish())
        optimizer.register_state_dict_pre_hook(lambda *_: self.finish())
        optimizer.register_load_state_dict_pre_hook(lambda *_: self.finish())

    def _hook_for(self, parameters: list[torch.Tensor]) -> Any:
        slots = [self.engine.slot_of(parameter) for parameter in parameters]

        def bring_up_to_date(*_: Any) -> None:
            if self.due:
                for slot in slots:
                    if slot is not None:
                        self._step_with(slot.bucket)

        return bring_up_to_date

    def _hold_back(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> Any:
        """Lets the optimizer's own step pass over nothing: its parameters' turn comes later."""
        if self.applying:
            return None  # a step that calls that of its base class
        if kwargs.get("closure", args[1] if len(args) > 1 else None) is not None:
            raise poseidon.InvalidError("overlap=\"forward\" takes no closure: call backward(), "
                                        "then step()")
        return (_without_parameters(optimizer), *args[1:]), kwargs

    def _note(self, *_: Any) -> None:
        if not self.applying:
            self.step()

    def step(self) -> None:
        """Every parameter's step is due from now on."""
        self.finish()
        self.engine.begin_missing_round(self.optimizer)
        self.options = [{key: value for key, value in group.items() if key != "params"}
                        for group in self.optimizer.param_groups]
        self.due = {id(bucket): bucket for bucket in self.engine.buckets}
        self.engine.note_step(self.optimizer)
        for bucket in self.engine.buckets:
            if bucket.future is None:  # somebody has waited for it: zero_grad() may come next
                self._step_with(bucket)

    def finish(self) -> None:
        """Makes all steps that are due."""
        if not self.due:
            return
        for bucket in list(self.due.values()):
            self._step_with(bucket)
        self.engine.synchronize()

    def end_round(self) -> None:
        """Gradients of the last backward are averaged afterwards, and its step is made if it is
        due: nothing may be added to its gradients, nor may anybody clear them."""
        self.finish()
        self.engine.synchronize()

    def _step_with(self, bucket: Bucket) -> None:
        if self.due.pop(id(bucket), None) is None:
            return
        self.engine.finish(bucket)
        chosen: list[list[torch.Tensor]] = [[] for _ in self.options]
        for slot in bucket.slots:
            chosen[self.group_of[id(slot.parameter)]].append(slot.parameter)
        everything = self.optimizer.param_groups
        self.optimizer.param_groups = [{**options, "params": parameters} for options, parameters
                                       in zip(self.options, chosen) if parameters]
        self.applying = True
        try:
            self.make_step(self.optimizer)
        finally:
            self.applying = False
            self.optimizer.param_groups = everything
        for slot in bucket.slots:
            slot.parameter.grad = None
        if not self.due:
            self.engine.synchronize()


def _without_parameters(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer with the same options, and nothing to step."""
    kind = type(optimizer)
    empty = kind.__new__(kind)
    vars(empty).update(vars(optimizer), _optimizer_step_pre_hooks=OrderedDict(),
                       _optimizer_step_post_hooks=OrderedDict(),
                       param_groups=[{**group, "params": []} for group in optimizer.param_groups])
    return empty


class _Deferring:
    """What is added to the optimizer's class."""

    _deferred: DeferredSteps

    def synchronize(self) -> None:
        """Gradients are the means of all ranks afterwards; a step that is due is made before."""
        self._deferred.end_round()

    def finish(self) -> None:
        """Makes what is left of the last step now."""
        self._deferred.finish()
