# SPDX-License-Identifier: Apache-2.0
"""Servers own the parameters and apply the optimizer's rule: synchronously, stale-synchronously, or
asynchronously.

Gradients leave during backward as in the engine; what comes back are the new values, which step()
copies into the parameters. They are not written there as they arrive: backward may still be reading
a weight when its new value is there."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import torch

import poseidon

from . import trace
from .buckets import DTYPES, Bucket, Slot, plan
from .engine import Engine, _table_name
from .memory import FOREVER, HostMemory


class ServerSide:
    """What is added to the class of an optimizer whose steps servers make."""

    _engine: "ServerEngine"

    @staticmethod
    def over(optimizer: torch.optim.Optimizer, named: list[tuple[str, torch.Tensor]],
             staleness: int | None, passes: int, **options: Any) -> torch.optim.Optimizer:
        """Hands an optimizer's rule to the servers; parameters become those of rank 0."""
        if "step" in vars(optimizer):
            raise poseidon.StateError("a learning-rate scheduler holds this optimizer already; "
                                      "servers make its steps: give them the schedule instead")
        engine = ServerEngine(optimizer, named, staleness, **options)
        engine.passes_per_round = passes
        kind = type(optimizer)
        optimizer.__class__ = type(kind.__name__, (ServerSide, kind), {})
        optimizer._engine = engine
        return optimizer

    @torch.optim.Optimizer.profile_hook_step
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the new values of this step and takes them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._engine.check_options()
        self._engine.before_step()
        return loss

    def no_sync(self) -> Any:
        """Backwards inside add up gradients on this rank alone."""
        return self._engine.no_sync()

    def join(self) -> Any:
        """Not offered."""
        raise poseidon.StateError("server_side: a rank that is done leaves the job "
                                  "(poseidon.close()), and the others go on without it")


class ServerEngine(Engine):
    """Pushes gradients to tables that servers update, and takes the new values."""

    def __init__(self, optimizer: torch.optim.Optimizer, named: list[tuple[str, torch.Tensor]],
                 staleness: int | None, **options: Any):
        self.rules = [rule_of(optimizer, group) for group in optimizer.param_groups]
        self.optimizer, self.staleness = optimizer, staleness
        super().__init__(named, wait="step", **options)
        groups = {id(parameter): number for number, group in enumerate(optimizer.param_groups)
                  for parameter in group["params"]}
        for slot in self.slots:
            slot.group = groups[id(slot.parameter)]
        self._plan()

    def check_options(self) -> None:
        """Raises when somebody changed what the servers were told at the beginning."""
        for group, rule in zip(self.optimizer.param_groups, self.rules):
            now = rule_of(self.optimizer, group)
            changed = [key for key in rule if rule[key] != now[key]]
            if changed:
                key = changed[0]
                raise poseidon.StateError(
                    f"{key} changed from {rule[key]} to {now[key]}: servers apply the rule as it "
                    "was when the optimizer was made; schedulers need server_side=False")

    def _plan(self) -> None:
        buckets = plan(reversed(self.slots), self.bucket_bytes)
        self.buckets = [Bucket(slots) for slots in buckets]
        self.memory = HostMemory(self.buckets)
        for number, bucket in enumerate(self.buckets):
            bucket.memory = self.memory
            bucket.lay_out(bucket.host)
            bucket.values = torch.zeros_like(bucket.host)
            for slot, value in _pairs(bucket):
                value.copy_(slot.parameter.detach())
            bucket.priority = 1 + number * 254 // max(1, len(self.buckets) - 1)
            bucket.table = poseidon.Table(
                _table_name(f"{self.name}/{number}", bucket.name), dtype=DTYPES[bucket.dtype],
                values=bucket.values, staleness=self.staleness, nan_policy=self.nan_policy,
                priority=bucket.priority, **self.rules[bucket.slots[0].group])
            bucket.table.transfer(None, bucket.values.data_ptr(), keep=(bucket.values,),
                                  timeout_ms=FOREVER).result(self.timeout)
            self._settle(bucket)
        self._planned = True

    def _before_accumulation(self, slot: Slot) -> Callable[[torch.Tensor], None]:
        def refuse_a_second(_gradient: torch.Tensor) -> None:
            if self._open and self._pushed_all:
                raise poseidon.StateError(
                    f"a second backward before step(): the first gradient of {slot.name} is with "
                    "the servers already; put all backwards but the last inside no_sync()")

        return refuse_a_second

    def _fill(self, bucket: Bucket) -> None:
        for slot in bucket.slots:
            if slot.parameter.grad is None:
                self._place_nothing(slot)
                continue
            gradient = slot.parameter.grad.detach()
            slot.view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def _push(self, bucket: Bucket) -> None:
        self._fill(bucket)
        bucket.future = bucket.table.transfer(
            bucket.host.data_ptr(), bucket.values.data_ptr(),
            keep=(self.memory.region, bucket.values), priority=bucket.priority,
            timeout_ms=FOREVER)
        trace.follow(bucket.future, bucket.name, bucket.elements * bucket.dtype.itemsize)

    def _settle(self, bucket: Bucket) -> None:
        with torch.no_grad():
            for slot, value in _pairs(bucket):
                slot.parameter.copy_(value)


def _pairs(bucket: Bucket) -> Iterator[tuple[Slot, torch.Tensor]]:
    """Every slot with its parameter's place among the values."""
    for slot, offset in zip(bucket.slots, bucket.offsets):
        yield slot, bucket.values.as_strided(slot.view.shape, slot.view.stride(), offset)


# ---- from PyTorch's optimizers to the servers' rules


def rule_of(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a table whose rule does what the optimizer does with a parameter group."""
    kind = next((known for known in _RULES if isinstance(optimizer, known)), None)
    if kind is None:
        raise poseidon.InvalidError(
            f"server_side: servers know no rule like {type(optimizer).__name__}; they know "
            f"{', '.join(known.__name__ for known in _RULES)}")
    _refuse(optimizer, group, "maximize", "amsgrad", "centered", "dampening", "lr_decay",
            "initial_accumulator_value")
    rule = {"learning_rate": float(group["lr"]), "weight_decay": group["weight_decay"]}
    rule.update(_RULES[kind](optimizer, group))
    zeros = [key for key in ("learning_rate", "beta1", "beta2", "epsilon") if rule.get(key) == 0]
    if zeros:
        raise poseidon.InvalidError(f"server_side: {zeros[0]} is 0, which servers take for "
                                    "\"the default\": give a small number instead")
    return rule


def _refuse(optimizer: torch.optim.Optimizer, group: dict[str, Any], *options: str) -> None:
    for option in options:
        if group.get(option):
            raise poseidon.InvalidError(f"server_side: servers have no {option} for "
                                        f"{type(optimizer).__name__} ({option}={group[option]!r})")


def _sgd(_optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    if group["momentum"] == 0:
        return {"rule": "sgd"}
    return {"rule": "nesterov" if group["nesterov"] else "momentum",
            "momentum": group["momentum"]}


def _adam(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    decoupled = isinstance(optimizer, torch.optim.AdamW)
    return {"rule": "adamw" if decoupled else "adam", "beta1": group["betas"][0],
            "beta2": group["betas"][1], "epsilon": group["eps"]}


def _adagrad(_optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    return {"rule": "adagrad", "epsilon": group["eps"]}


def _rmsprop(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    _refuse(optimizer, group, "momentum")
    return {"rule": "rmsprop", "beta2": group["alpha"], "epsilon": group["eps"]}


_RULES = {torch.optim.AdamW: _adam, torch.optim.Adam: _adam, torch.optim.SGD: _sgd,
          torch.optim.Adagrad: _adagrad, torch.optim.RMSprop: _rmsprop}
