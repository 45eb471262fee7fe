# SPDX-License-Identifier: Apache-2.0
"""The rows of a batch: looked up when a forward needs them, pushed once the optimizer has made its step.

A forward looks up each id of its batch once, and computes with a small tensor of these rows, a leaf of the graph. Backward
leaves the gradient there. So no gradient is ever larger than the rows that were touched. All that backwards have left since the
last step is one push, whatever the number of forwards: every worker pushes in every step, perhaps no row at all."""

from __future__ import annotations

import atexit
import gc
import sys
import weakref
from typing import Any, Callable, NamedTuple

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer

import poseidon

from .. import _rows
from .._ahead import Ahead
from .._export import write_rows
from .._rows import BACKWARDS
from .._sparse import SparseTable
from .memory import FOREVER

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_followers: list[weakref.ref] = []  # all Rows of this process, in the order in which they were made


class _Part(NamedTuple):
    """What one forward has looked up."""

    ids: torch.Tensor  # each once
    values: torch.Tensor  # the leaf


class Rows:
    """Rows of one sparse table, and when they are pushed."""

    def __init__(self, table: SparseTable, padding: int | None = None):
        self.table = table
        self._padding = padding  # an id that has no row
        self.dtype = DTYPES[table.dtype]
        self._parts: list[_Part] = []
        self._backwards = 0  # since the last step
        self._steps = 0  # that were pushed
        self._pushing: Any = None  # the future of the last push
        self._ahead = Ahead(table)
        self._is_told = False  # by steps_with, who makes the steps
        self._optimizer: Callable[[], Any] | None = None  # whose steps push; a weak reference unless told
        self._by_hand = False  # step() is called by the program
        _followers.append(weakref.ref(self))

    # ---- forward and backward

    def of(self, ids: torch.Tensor, learns: bool) -> tuple[torch.Tensor, torch.Tensor, int | None]:
        """The rows of a batch, each once, and for each id which of them it has. If there is padding, the last one is its."""
        if learns and ids.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(ids.device.type) and \
                torch.get_autocast_dtype(ids.device.type) == torch.float16:
            self._refuse("autocast with float16 needs a GradScaler, which does not see gradients of rows: use bfloat16")
        needed, places = torch.unique(ids, return_inverse=True)
        padding = None if self._padding is None else (needed == self._padding).nonzero()
        if padding is not None and padding.numel() > 0:
            at, last = int(padding), needed.numel() - 1
            needed = torch.cat((needed[:at], needed[at + 1:]))
            places = torch.where(places == at, last, places - (places > at).long())
        needed = needed.cpu()
        if learns:
            self._ahead.take(needed.numpy())
        values = self._look_up(needed, learns).to(ids.device)
        if learns:
            values.requires_grad_()
            values.register_post_accumulate_grad_hook(self._hook(self._steps))
            self._parts.append(_Part(needed, values))
        if padding is None or padding.numel() == 0:
            return values, places, None
        return torch.cat((values, values.new_zeros(1, self.table.width))), places, len(values)

    def _look_up(self, needed: torch.Tensor, learns: bool) -> torch.Tensor:
        """Rows as they are after the last step: those that came with its push, or asked for now."""
        self._finish()
        found = self._ahead.find(needed.numpy(), learns)
        if found is not None:
            return found.clone()  # somebody's leaf
        values = torch.empty(needed.numel(), self.table.width, dtype=self.dtype)
        if needed.numel() > 0:
            _rows.wait(self.table, self.table.lookup(needed.numpy(), values, timeout_ms=FOREVER))
        return values

    def _hook(self, made_at: int) -> Callable[[torch.Tensor], None]:
        rows = weakref.ref(self)

        def check(values: torch.Tensor) -> None:
            if rows() is not None:
                rows()._after_backward(made_at, values.grad)

        return check

    def _after_backward(self, made_at: int, gradient: torch.Tensor) -> None:
        if gradient.requires_grad:
            self._refuse("backward(create_graph=True): the gradient of rows would have to keep its graph, and it goes to the "
                         "servers. Give torch.autograd.grad what you need the second derivative of")
        if made_at != self._steps:
            self._refuse("a backward through rows from before the last step, which the servers have changed since: call forward "
                         "again")
        self._backwards += 1
        if self._backwards > BACKWARDS:
            self._refuse(f"{BACKWARDS} backwards without a step of an optimizer: {_HOW_TO_STEP}")

    # ---- the step

    def announce(self, ids: torch.Tensor) -> None:
        """The next push brings rows that forwards after it need."""
        self._ahead.announce(self._needed(ids))

    def prefetch(self, ids: torch.Tensor) -> None:
        """Of a forward that comes after all that were told so far. Any thread."""
        self._ahead.prefetch(self._needed(ids))

    def _needed(self, ids: torch.Tensor) -> np.ndarray:
        needed = torch.unique(ids).cpu()
        return (needed if self._padding is None else needed[needed != self._padding]).numpy()

    def export(self, path: Any, ids: torch.Tensor) -> int:
        """Writes rows to a file."""
        self._finish()
        return write_rows(self.table, path, self._needed(ids), _rows.TIMEOUT_S)

    def forget(self) -> None:
        """Gradients since the last step are thrown away."""
        self._parts, self._backwards = [], 0

    def steps_with(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Says whose step pushes. None: nobody's, the program calls step()."""
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"steps_with takes a torch.optim.Optimizer, or None, not {type(optimizer).__name__}")
        self._is_told, self._by_hand = True, optimizer is None
        self._optimizer = (lambda: optimizer) if optimizer is not None else None

    def step(self) -> None:
        """For programs in which no optimizer makes steps."""
        if self._optimizer is not None:
            self._refuse("step() of the layer, and the steps of an optimizer push already: leave step() out, or say "
                         "layer.steps_with(None)")
        self._by_hand = True
        self._push()

    def after(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made a step."""
        mine = self._optimizer() if self._optimizer is not None else None
        if self._by_hand or (self._is_told and mine is not optimizer):
            return
        if mine is None:
            self._follow(optimizer)
        elif mine is not optimizer:
            self._refuse("two optimizers make steps, and the rows are pushed once per step: say with which one, "
                         "layer.steps_with(optimizer)")
        if isinstance(optimizer, torch.optim.LBFGS):
            self._refuse("LBFGS evaluates its closure several times for one step, and the rows stay the same: use another optimizer")
        self._push()

    def _follow(self, optimizer: torch.optim.Optimizer) -> None:
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.amp.GradScaler) and thing.is_enabled():
                self._refuse("a GradScaler is enabled, which would leave its scale in the gradients of rows: use bfloat16, without "
                             "one")
        self._optimizer = weakref.ref(optimizer)

    def _push(self) -> None:
        """What backwards have left. It is under way when this returns."""
        self._finish()
        asked = self._ahead.asked(len(self._parts))
        parts = [part for part in self._parts if part.values.grad is not None]
        self.forget()
        ids = torch.cat([part.ids for part in parts]) if parts else torch.empty(0, dtype=torch.int64)
        gradients = torch.cat([part.values.grad.cpu() for part in parts]) if parts else \
            torch.empty(0, self.table.width, dtype=self.dtype)
        self._steps += 1
        if asked is None:
            self._pushing = self.table.push(ids.numpy(), gradients, timeout_ms=FOREVER)
            return
        values = torch.empty(asked.size, self.table.width, dtype=self.dtype)
        self._pushing = self.table.push_lookup(ids.numpy(), gradients, asked, values, timeout_ms=FOREVER)
        self._ahead.come(values)

    def _finish(self) -> None:
        """The push before has ended."""
        pushing, self._pushing = self._pushing, None
        if pushing is not None:
            _rows.wait(self.table, pushing)

    def _refuse(self, why: str) -> None:
        raise poseidon.StateError(f"sparse table {self.table.name}: {why}")

    def tell_what_is_left(self) -> None:
        """At the end of the process."""
        if self._backwards > 0 and not self._steps:
            print(f"poseidon: sparse table {self.table.name} has learnt nothing: {self._backwards} backwards, and no step of an "
                  f"optimizer. {_HOW_TO_STEP}", file=sys.stderr, flush=True)


_HOW_TO_STEP = "If no optimizer makes steps, call step() of the layer after backward"


def open_table(name: str, width: int, padding: int | None, **options: Any) -> Rows:
    """A sparse table, and its rows for one layer."""
    return Rows(_rows.open_table(name, width, **options), padding)


def _after_step(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    for each in _alive():
        each.after(optimizer)


def _alive() -> list[Rows]:
    _followers[:] = [each for each in _followers if each() is not None]
    return [rows for each in _followers if (rows := each()) is not None]


def _tell_what_is_left() -> None:
    for each in _alive():
        each.tell_what_is_left()


torch_optimizer.register_optimizer_step_post_hook(_after_step)
atexit.register(_tell_what_is_left)
