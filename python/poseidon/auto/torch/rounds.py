# SPDX-License-Identifier: Apache-2.0
"""Gradients and words of the witness where workers may join: rounds of poseidon.elastic, which know who is in them.

Rounds stands where poseidon.torch.engine.Engine does elsewhere. All gradients travel together when a backward is over, so
that a step in which a worker dies can be given again; buffers travel with them, from the first of the workers that are here.
What the workers compare goes with the round that says who is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np
import torch

from poseidon._due import AT_EPOCH, Giver, wish_of
from poseidon.elastic.control import PAYLOAD, Kind, Round
from poseidon.elastic.sampler import Share
from poseidon.torch import engine as engines

from ..common.witness import COUNT
from .checks import Checks

if TYPE_CHECKING:
    from .growth import Growth

SPACE = 64  # numbers at the beginning of what goes with a round, for growth.py
TYPES = {torch.float32: "float32", torch.float64: "float64"}  # of gradients
_ONE = Share(0, 0, 1, 1, 0)  # every worker counts as its gradients are weighed


class Slot(NamedTuple):
    """Where a tensor lies in the flat arrays."""

    parameter: torch.Tensor
    kind: str
    begin: int

    def of(self, flats: dict[str, torch.Tensor]) -> torch.Tensor:
        """Its part of them."""
        return flats[self.kind][self.begin:self.begin + self.parameter.numel()].view(self.parameter.shape)


class Rounds:
    """Of all parameters that a script trains. Thread: that of the script which trains."""

    name = "poseidon.elastic"

    def __init__(self, growth: Growth, named: list[tuple[str, torch.Tensor]], buffers: list[tuple[str, torch.Tensor]]):
        self._growth, self._group = growth, growth.group
        trained = [(name, each) for name, each in named if each.requires_grad and each.numel() > 0]
        lengths = {"float32": len(trained)}  # a number of each tells whether anybody has a gradient
        self.slots = [self._slot(each, TYPES[each.dtype], lengths) for _, each in trained]
        self._averaged = dict(lengths)  # so many of a kind are means; behind them are buffers
        self._buffers = [self._slot(each, "float32" if each.dtype in (torch.float32, torch.float16, torch.bfloat16) else "float64",
                                    lengths) for _, each in buffers if each.numel() > 0]
        self._flag = lengths["float32"]  # somebody's buffers are there
        lengths["float32"] += 1
        self._flats = {kind: torch.zeros(length, dtype=getattr(torch, kind)) for kind, length in lengths.items()}
        self._group.use(lengths, repr([(name, tuple(each.shape), str(each.dtype)) for name, each in trained + buffers]))
        self.rounds = 0
        self._rounds_at_step: dict[int, int] = {}  # by optimizer
        self._left: dict[int, torch.Tensor] = {}  # gradients that a round has made, by parameter
        self._task = -1  # the backward that the last gradient came from
        self._kept: list[torch.Tensor] | None = None  # buffers, as the forward left them
        self._handles = [slot.parameter.register_post_accumulate_grad_hook(self._on_gradient) for slot in self.slots]
        for slot in self.slots:
            engines._engines[id(slot.parameter)] = self  # type: ignore[assignment]

    @staticmethod
    def _slot(tensor: torch.Tensor, kind: str, lengths: dict[str, int]) -> Slot:
        begin = lengths.setdefault(kind, 0)
        lengths[kind] += tensor.numel()
        return Slot(tensor, kind, begin)

    def detach(self) -> None:
        """Ends it: gradients stay as they are."""
        for handle in self._handles:
            handle.remove()
        for slot in self.slots:
            engines._engines.pop(id(slot.parameter), None)

    # ---- when there is a round

    def _on_gradient(self, _: torch.Tensor) -> None:
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            self._keep_buffers()
            torch.autograd.Variable._execution_engine.queue_callback(self._exchange)

    def _keep_buffers(self) -> None:
        """Before a backward computes parts of the forward again."""
        if self._buffers and self._group.rank == self._group.first():
            self._kept = [slot.parameter.detach().clone() for slot in self._buffers]

    def before_step(self, optimizer: Any) -> None:
        """Gradients are means afterwards, also when this worker's backward touched none of the parameters, and those that no
        backward has made (torch.autograd.grad)."""
        if self.rounds == self._rounds_at_step.get(id(optimizer), 0) or self._has_others(optimizer):
            self._keep_buffers()
            self._exchange()
        self._rounds_at_step[id(optimizer)] = self.rounds

    def _has_others(self, optimizer: Any) -> bool:
        return any(each.grad is not None and each.grad is not self._left.get(id(each))
                   for group in optimizer.param_groups for each in group["params"] if engines.engine_of(each) is self)

    # ---- a round

    @torch.no_grad()
    def _exchange(self) -> None:
        self._place()
        arrays: dict[str, np.ndarray] = {kind: flat.numpy() for kind, flat in self._flats.items()}
        checks = self._growth.checks
        with self._growth.in_step():
            round_ = self._group.give(arrays, _ONE, self._growth.payload(checks.words()))
        self._group.wire.take(arrays, 1.0)
        givers = len(round_.those(Kind.GRADIENTS))
        for kind, count in self._averaged.items():
            self._flats[kind][:count].div_(givers)
        self._take_gradients()
        if self._flats["float32"][self._flag] != 0:
            self._take_buffers()
        self.rounds += 1
        self._growth.hear(round_)
        checks.hear(round_)

    def _place(self) -> None:
        used = self._flats["float32"][:len(self.slots)]
        for number, slot in enumerate(self.slots):
            gradient = slot.parameter.grad
            used[number] = gradient is not None
            if gradient is None:
                slot.of(self._flats).zero_()
            else:
                slot.of(self._flats).copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        kept, self._kept = self._kept, None
        self._flats["float32"][self._flag] = kept is not None
        for number, slot in enumerate(self._buffers):
            if kept is None:
                slot.of(self._flats).zero_()
            else:
                slot.of(self._flats).copy_(kept[number])

    def _take_gradients(self) -> None:
        used = self._flats["float32"][:len(self.slots)].tolist()
        for number, slot in enumerate(self.slots):
            parameter = slot.parameter
            if used[number] == 0:
                parameter.grad = None
                self._left.pop(id(parameter), None)
                continue
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(slot.of(self._flats))
            self._left[id(parameter)] = parameter.grad

    def _take_buffers(self) -> None:
        if self._group.rank == self._group.first():
            return
        for slot in self._buffers:
            slot.parameter.data.copy_(slot.of(self._flats))  # through .data, as batch normalization does


class Words(Checks):
    """What the workers compare, where they may be others from one epoch to the next: all words travel with every round. In a
    place of its own each member has those words; where there are more of them than places, by a message of their own."""

    def __init__(self, growth: Growth, rounds: Rounds):
        self._growth, self._group = growth, growth.group
        self._members: tuple[int, ...] = growth.group.members
        super().__init__(growth.session, rounds, engines.TIMEOUT_S)  # type: ignore[arg-type]
        self._rows_told: np.ndarray | None = None

    def _open(self, engine: Any) -> None:
        """Nothing: rounds have room."""

    def words(self) -> np.ndarray:
        """This worker's for the round that begins, in their place."""
        self.begin(active=True)
        found = self._placed(self._words(over=False))
        if not self._samples or self._has_news or self._epochs != self._witness.epochs:
            self._prepare()
        return found

    def _placed(self, words: Sequence[float]) -> np.ndarray:
        found = np.zeros(COUNT * len(self._members))
        at = COUNT * self._members.index(self._group.rank)
        found[at:at + COUNT] = words
        if len(found) <= PAYLOAD - SPACE:
            return found
        self._rows_told = self._group.reduce(found, mean=False)
        return found[:0]

    def _everybodys(self, round_: Round, kind: Kind) -> list[list[float]]:
        """Everybody's; zeros of those who are not in the round."""
        told, self._rows_told = self._rows_told, None
        rows = (round_.payload[SPACE:] if told is None else told)[:COUNT * len(self._members)].reshape(-1, COUNT)
        here = set(round_.those(kind))
        return [row.tolist() if rank in here else [0.0] * COUNT for rank, row in zip(self._members, rows)]

    def hear(self, round_: Round) -> None:
        """The round has ended."""
        self._witness.hear(self._everybodys(round_, Kind.GRADIENTS), list(self._rates), self._session._steps)
        self._rounds += 1

    def compare_at_end(self, steps: int) -> str:
        """The script is over: see Checks."""
        self._begin_end()
        with self._growth.in_step():
            round_ = self._group.finish(self._growth.payload(self._placed(self._words(over=True))))
        return self._witness.hear_end(self._everybodys(round_, Kind.END), steps)


class Due(Giver):
    """poseidon._due.Due, where what worker 0 has heard goes with the rounds."""

    def __init__(self, growth: Growth, timeout: float):
        super().__init__(growth.group.context, timeout)
        self._growth = growth

    def after(self, step: int, epoch_ended: Callable[[], bool] = bool) -> bool:
        """Whether the state after so many steps is wanted. epoch_ended: asked where the ends of epochs are wanted."""
        told = self._growth.told
        if self._context.rank == 0:
            self._growth.wish = wish_of(self._context.checkpoint_due(step))
        return epoch_ended() if told == AT_EPOCH else told == step
