# SPDX-License-Identifier: Apache-2.0
"""Gradients leave while backward still runs, and come back as their mean.

An engine is attached to parameters. A hook on each (register_post_accumulate_grad_hook) counts those
of a bucket that have their gradient. The last one copies all of them into the bucket, memory that
servers on this machine read where it is, and makes each parameter.grad a view of it. The bucket leaves
as one push_pull, whose answer, the mean, is written over what was sent. That copy is the only pass over
a gradient on this side, and there is none when parameter.grad is that view already (gradients that
accumulate, zero_grad(set_to_none=False)). All other hooks do next to nothing, because they are called
between the operations of backward, in caches that these have filled.

A *round* is one synchronizing backward: in it every bucket is pushed once, by every rank, whatever
that rank's loss depended on. So ranks agree on the number of transfers without talking about it. What
is not ready when backward ends is pushed as it is, or as zeros when there is no gradient at all. A
round on top of an older one (two backwards before a step) averages what was averaged before, which
changes nothing, plus what is new.

The first round has no overlap: the order in which gradients become ready on rank 0 is learned in it,
told to all, and buckets are packed in that order. Buckets of the first layers, needed first by the
next forward, have the highest priority."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import warnings
from typing import Any, Callable, Iterable, Iterator, Protocol

import torch

import poseidon

from . import collectives, hooks, trace, wire as wires
from .buckets import CHUNK, DTYPES, Bucket, Slot, plan
from .memory import Memory, memory_for
from .room import CARRIERS, Room
from .row_buckets import RowBucket, are_told_to_travel, may_travel_as_rows

TIMEOUT_S = 1800.0
_OWN_REFERENCES = 2  # to a slot's view: the slot's, and that of the call which counts

# By the id of a parameter, which its engine keeps: looked up for every parameter of every step.
_engines: dict[int, "Engine"] = {}
_count = 0  # engines of this process, for their names


class Companion(Protocol):
    """Something that travels with every round, such as buffers."""

    def begin(self, active: bool) -> None:
        """The round begins; active: this rank takes part with data."""

    def leave(self) -> None:
        """All gradients of this rank have left."""

    def end(self, active: bool) -> None:
        """The round has ended."""


def engine_of(parameter: torch.Tensor) -> "Engine | None":
    """The engine that a parameter is attached to."""
    return _engines.get(id(parameter))


def attach(parameters: Iterable[Any], **options: Any) -> "Engine":
    """An engine for parameters, or (name, parameter) pairs: see Engine for the options. Every rank
    calls it with the same parameters."""
    named = [item if isinstance(item, tuple) else (f"parameter{number}", item)
             for number, item in enumerate(parameters)]
    return Engine(named, **options)


def _warn_of_weights_that_begin_anew(context: Any) -> None:
    """Tables go on from the checkpoint by themselves. A model does not, unless there is a part of its worker's in it."""
    if context.rank == 0 and "PSD_RESUME" in os.environ and context.checkpoint_resumed() is None:
        warnings.warn("the job goes on from a checkpoint that has nothing of this model: its weights and optimizer are with the workers, "
                      "and begin anew unless the script loads them itself. poseidon.torch.Checkpoint saves them (docs/checkpoints.md)",
                      RuntimeWarning, stacklevel=4)


class Engine:
    """Averages the gradients of some parameters over all ranks.

    bucket_bytes  gradients smaller than this travel together until they reach it; None: 1 MiB, on a device 32 MiB
    wait          "backward": gradients are averaged when backward() returns, so that whatever looks
                  at them next (clipping, GradScaler, any optimizer) is right. "step": only
                  synchronize() waits; until then parameter.grad is None
    nan_policy    of the tables. "allow": NaN and infinity reach all ranks, which GradScaler needs.
                  "reject": the push fails and names the parameters
    timeout       seconds to wait for other ranks before it is called an error
    sparse        names of the parameters whose gradients are known to be sparse
    rows          sparse gradients travel as the rows that were touched; else whole
    wire          type that wider gradients travel as, float16 say; None: what PSD_TORCH_GRADIENTS says, or their own
    """

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]], *,
                 bucket_bytes: int | None = None, wait: str = "backward",
                 nan_policy: str = "allow", timeout: float = TIMEOUT_S,
                 sparse: Iterable[str] = (), rows: bool = True, wire: torch.dtype | None = None):
        global _count  # pylint: disable=global-statement
        if wait not in ("backward", "step"):
            raise ValueError(f"wait={wait!r}: \"backward\" or \"step\"")
        known_sparse = set(sparse)
        self.context = poseidon.context()
        if self.context.incarnation > 1:
            raise poseidon.StateError(
                "this worker replaces one that died, but the weights of a PyTorch model are with "
                "the workers, which went on: let psd_run restart all of them "
                "(--restart_scope=group), from a checkpoint")
        _warn_of_weights_that_begin_anew(self.context)
        self.slots = [Slot(name, parameter, name in known_sparse) for name, parameter in named
                      if parameter.requires_grad and parameter.numel() > 0]
        self._check_parameters()
        collectives.check_same([(slot.name, slot.parameter) for slot in self.slots], "attach")
        self.name = f"gradients{_count}"
        _count += 1
        self.bucket_bytes, self.wait = bucket_bytes, wait
        self.nan_policy, self.timeout, self.wire = nan_policy, timeout, wire or wires.told()
        self.may_send_rows = are_told_to_travel() and rows
        self.companions: list[Companion] = []
        self.buckets: list[Bucket] = []
        self._memories: list[Memory] = []  # that they lie in
        self._room: Room | None = None  # for what travels with the gradients
        self._carrier: Bucket | None = None  # that it lies in
        self.share_active = 1.0  # of the ranks that had data in the last round
        self.rounds = 0  # that ended
        self.rounds_active = 0  # of them, with data of this rank
        self._rounds_at_step: dict[int, int] = {}  # by optimizer
        # Called when gradients are under way and this rank goes on: with wait="step", or to join.
        self.before_next_backward: Callable[[], None] = self.synchronize
        self.passes_per_round = 1  # backwards that add up here before one is averaged
        self._passes = 0
        self._planned = False
        self._order: list[Slot] = []  # as they became ready, until buckets are planned
        self._synchronizing = True
        self._joined = False
        self._open = False  # a round has begun, and not everything of it is back
        self._pushed_all = True
        self._unsent = 0  # buckets of the round
        self._task = -1  # the backward that the last gradient came from
        self._times = hooks.Times(self.context)
        self._by_parameter = {id(slot.parameter): slot for slot in self.slots}
        self._handles = [slot.parameter.register_post_accumulate_grad_hook(self._on_gradient(slot))
                         for slot in self.slots]
        if wait == "step":
            self._handles += [slot.parameter.register_hook(self._before_accumulation(slot))
                              for slot in self.slots]
        for slot in self.slots:
            _engines[id(slot.parameter)] = self

    def _check_parameters(self) -> None:
        for slot in self.slots:
            if slot.parameter.dtype not in DTYPES:
                raise poseidon.InvalidError(
                    f"parameter {slot.name} is {str(slot.parameter.dtype).removeprefix('torch.')}: "
                    f"only {', '.join(DTYPES.values())} are averaged; give real and imaginary "
                    "parts parameters of their own")
            if id(slot.parameter) in _engines:
                raise poseidon.StateError(
                    f"parameter {slot.name} is averaged already by another DataParallel or "
                    "DistributedOptimizer: two would average it twice")
        if not self.slots:
            raise poseidon.InvalidError("none of the parameters requires a gradient: "
                                        "there is nothing to average")

    def slot_of(self, parameter: torch.Tensor) -> Slot | None:
        """Where a parameter's gradient lies; None: it is not averaged."""
        return self._by_parameter.get(id(parameter))

    def detach(self) -> None:
        """Ends it: hooks are taken away, gradients stay as they are."""
        self.synchronize()
        for handle in self._handles:
            handle.remove()
        for slot in self.slots:
            _engines.pop(id(slot.parameter), None)
            if slot.parameter.grad is not None and slot.parameter.grad is slot.view:
                slot.parameter.grad = slot.view.clone()
        self._handles, self.buckets, self._carrier = [], [], None

    # ---- during backward

    def _on_gradient(self, slot: Slot) -> Callable[[torch.Tensor], None]:
        current_task = torch._C._current_graph_task_id

        def count(_parameter: torch.Tensor) -> None:
            task = current_task()
            if task != self._task:
                self._task = task
                self._begin_backward()
            if not self._open:
                return
            if not self._planned:
                self._order.append(slot)
                return
            bucket = slot.bucket
            if bucket.future is not None:
                raise poseidon.StateError(
                    f"the gradient of {slot.name} was added to after it had left: a parameter is used "
                    "inside and outside of a reentrant checkpoint (use torch.utils.checkpoint with "
                    "use_reentrant=False), or the backward before this one failed")
            if slot.ready:
                return
            slot.ready = True
            bucket.missing -= 1
            if bucket.missing == 0:
                self._leave(bucket)

        return count

    def _leave(self, bucket: Bucket) -> None:
        """All gradients of the bucket are there, and backward goes on."""
        self._times.ready(bucket.name)
        self._push(bucket)
        if self._unsent > 0 and bucket.memory is not None:
            bucket.memory.meanwhile()

    def _begin_backward(self) -> None:
        if not self._synchronizing:
            return
        self._passes += 1
        if self._passes < self.passes_per_round:
            return
        if not self._open:
            self._begin_round()
        self._times.begin()
        torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)

    def _begin_round(self) -> None:
        self._open, self._pushed_all, self._passes = True, False, 0
        self._unsent = len(self.buckets)
        for companion in self.companions:
            companion.begin(active=not self._joined)

    def _end_of_backward(self) -> None:
        if not self._open:
            return
        self._times.end(self.rounds)
        self._push_rest()
        if self.wait == "backward":
            self.synchronize()

    def _before_accumulation(self, slot: Slot) -> Callable[[torch.Tensor], None]:
        def wait_until_back(_gradient: torch.Tensor) -> None:
            if self._open and self._pushed_all:  # of a backward before this one
                self.before_next_backward()

        return wait_until_back

    def _fill(self, bucket: Bucket) -> None:
        """The gradients are in the bucket, all copied by one call, and parameter.grad is there, too."""
        slots, gradients = [], []
        for slot in bucket.slots:
            gradient = slot.parameter.grad
            slot.used = gradient is not None
            if not slot.used:
                self._place_nothing(slot)
                continue
            if gradient is slot.view:
                continue
            if gradient.requires_grad:
                gradient = gradient.detach()
            if slot.sparse:
                self._place_rows(slot, gradient)
                continue
            self._part_from_kept(slot)
            slots.append(slot)
            gradients.append(gradient.to_dense() if gradient.is_sparse else gradient)
        if not slots:
            return
        torch._foreach_copy_([slot.view for slot in slots], gradients)
        for slot in slots:
            slot.parameter.grad = slot.view

    def _place_nothing(self, slot: Slot) -> None:
        """There is no gradient."""
        if slot.by_rows:
            slot.bucket.take(None)
            return
        self._part_from_kept(slot)
        slot.view.zero_()
        if slot.rows is not None:
            slot.rows.zero_()

    @staticmethod
    def _part_from_kept(slot: Slot) -> None:
        """A gradient of an earlier round that the program keeps stays what it was, as it does in
        one process: it gets memory of its own."""
        if sys.getrefcount(slot.view) > _OWN_REFERENCES:
            kept, slot.view = slot.view, slot.view.detach()
            kept.data = kept.clone()

    @staticmethod
    def _place_rows(slot: Slot, gradient: torch.Tensor) -> None:
        if slot.by_rows:
            slot.bucket.take(gradient)
            return
        slot.view.zero_()
        slot.rows.zero_()
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            rows = gradient.indices()[0]
            slot.view.index_copy_(0, rows, gradient.values())
            slot.rows[rows] = 1
        else:
            slot.view.copy_(gradient)
            slot.rows.fill_(1)

    def _push(self, bucket: Bucket) -> None:
        self._fill(bucket)
        bucket.behind.copy_(bucket.to_write)
        for slot in bucket.slots:
            if not slot.used:
                bucket.marks[slot.flag] = 0
        if self._joined:
            bucket.marks[-1] = 0
        bucket.future = bucket.memory.push_pull(bucket)
        self._unsent -= 1
        trace.follow(bucket.future, bucket.name, bucket.elements * bucket.wire.itemsize)

    # ---- the end of a round

    def _push_rest(self) -> None:
        """Pushes what has not left: a rank that does not need a gradient still has to answer."""
        if not self._planned:
            self._plan()
        for bucket in self.buckets:
            if bucket.future is None:
                self._push(bucket)
        self._pushed_all = True
        for companion in self.companions:
            companion.leave()
        if self.wait == "step":
            self._hand_over()

    def _hand_over(self) -> None:
        for memory in self._memories:
            memory.hand_over()
        for slot in self.slots:
            slot.parameter.grad = None  # it is under way: nobody may read or write it

    def synchronize(self) -> None:
        """Waits until the gradients are the means of all ranks."""
        if not self._open:
            return
        if not self._pushed_all:
            self._push_rest()
        with trace.span("wait"):
            for memory in self._memories:
                memory.send_all(self.timeout)
            # Companions first: they see it when a rank has left, and its gradients would never come.
            if self._carrier is not None:
                self.finish(self._carrier)
            for companion in self.companions:
                companion.end(active=not self._joined)
            for bucket in self.buckets:
                self.finish(bucket)
        self._open = False
        self.rounds += 1
        self.rounds_active += not self._joined

    def finish(self, bucket: Bucket) -> None:
        """Waits for one bucket; its parameters have their gradients then."""
        if bucket.future is None:
            return
        self._await(bucket)
        self._settle(bucket)
        bucket.missing = len(bucket.slots)
        for slot in bucket.slots:
            slot.ready = False

    def _await(self, bucket: Bucket) -> None:
        future, bucket.future = bucket.future, None
        try:
            future.result(self.timeout)
        except poseidon.TimeoutError as error:
            raise poseidon.TimeoutError(
                f"the gradients of {bucket.name} did not come back within {self.timeout:g} s in "
                f"round {self.rounds} ({error}): another rank stands still, or has fewer batches "
                "and does something else; let all leave the loop through join()") from error

    def _settle(self, bucket: Bucket) -> None:
        bucket.came = marks = bucket.behind_on_host.tolist()  # nobody waits for a device
        self.share_active = marks[len(bucket.slots)]
        if bucket.wire != bucket.dtype:  # it was rounded on its way
            self.share_active = round(self.share_active * self.context.size) / self.context.size
        if 0 < self.share_active < 1:
            bucket.payload.div_(self.share_active)
        if self._joined:
            return
        for slot in bucket.slots:
            if not slot.used and marks[slot.flag] == 0:
                continue  # nobody has a gradient: no rank makes a step with it
            if slot.sparse:
                slot.given = self._rows(slot)
            slot.parameter.grad = slot.given if slot.sparse else slot.view

    @staticmethod
    def _rows(slot: Slot) -> torch.Tensor:
        if slot.by_rows:
            return slot.bucket.gradient()
        rows = slot.rows.nonzero()[:, 0]
        return torch.sparse_coo_tensor(rows[None], slot.view[rows], slot.parameter.shape,
                                       is_coalesced=True)

    # ---- what travels with the gradients

    def reserve(self, count: int) -> Room:
        """Room for so many small numbers of each rank, before the first round. What is put there
        when a round begins travels with it, from the second one on; not where no bucket has a type that can
        carry it, nor from a device, nor of hundreds of ranks."""
        self._room = Room(count)
        return self._room

    def send_room(self) -> None:
        """What was put into the room travels by itself: this rank has ended, and the others have it with their next
        round, or when they end, too. To their gradients it adds nothing."""
        bucket = self._carrier
        for slot in bucket.slots:
            if slot.parameter.grad is slot.view:
                slot.parameter.grad = slot.view.clone()
        bucket.behind.copy_(bucket.to_write)
        bucket.flat.zero_()
        bucket.future = bucket.memory.push_pull(bucket)
        self._await(bucket)

    # ---- around a step

    def before_step(self, optimizer: Any = None) -> None:
        """What an optimizer calls before it looks at the gradients: they are averaged afterwards,
        also when this rank's backward touched none of the parameters, or was inside no_sync()."""
        self.begin_missing_round(optimizer)
        self.synchronize()
        self.note_step(optimizer)

    def begin_missing_round(self, optimizer: Any = None) -> None:
        """Sends what there is when no backward did since this optimizer's last step, and gradients
        that no backward has made (torch.autograd.grad). What was averaged before stays the same."""
        if self._open:
            return
        if self.rounds == self._rounds_at_step.get(id(optimizer), 0) or self._has_others(optimizer):
            self._begin_round()
            self._push_rest()

    def _has_others(self, optimizer: Any) -> bool:
        """Whether a gradient is not one that a round has left there."""
        for group in optimizer.param_groups if optimizer is not None else ():
            for parameter in group["params"]:
                gradient, slot = parameter.grad, self._by_parameter.get(id(parameter))
                if gradient is not None and slot is not None and \
                        gradient is not (slot.given if slot.sparse else slot.view):
                    return True
        return False

    def note_step(self, optimizer: Any = None) -> None:
        """The rounds so far have served an optimizer's step."""
        self._rounds_at_step[id(optimizer)] = self.rounds + self._open

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside add up gradients on this rank alone; the first one after it, or the
        step, averages the sum."""
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before

    # ---- ranks with fewer batches

    def join(self) -> int:
        """This rank has no more data: it takes part in the rounds of the others, adding nothing,
        until no rank has any. Means are over the ranks that have data. Returns the rank that was
        last to have some, or -1 when all had equally many rounds."""
        self.before_next_backward()
        self._joined = True
        for slot in self.slots:
            slot.parameter.grad = None  # its memory is for the others' means now
        try:
            while True:
                self._begin_round()
                self.synchronize()
                if self.share_active == 0:
                    break
        finally:
            self._joined = False
        self._rounds_at_step = dict.fromkeys(self._rounds_at_step, self.rounds)
        counts = [int(text) for text in
                  collectives.allgather_bytes(str(self.rounds_active).encode())]
        self.rounds_active = max(counts)
        return -1 if min(counts) == max(counts) else counts.index(max(counts))

    # ---- buckets

    def _plan(self) -> None:
        """Packs buckets in the order in which rank 0's gradients became ready; what did not become
        ready comes last, from the last layer to the first."""
        order, may_carry = self._agree_on_order()
        if self._is_alone():
            self.buckets = [Bucket(slots, self.wire) for slots in order]
            self._keep_to_itself()
        else:
            self.buckets = [self._bucket(number, slots) for number, slots in enumerate(order)]
            self._open_tables(may_carry)
        self._planned = True
        self._order = []

    def _is_alone(self) -> bool:
        may_be_joined = os.environ.get("PSD_JOIN") != "off"  # by workers that come later (docs/elastic.md)
        return self.context.size == 1 and not may_be_joined and self.nan_policy == "allow" and self._room is None

    def _keep_to_itself(self) -> None:
        from .alone import AloneEngine  # pylint: disable=import-outside-toplevel,cyclic-import

        self.__class__ = AloneEngine
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for bucket in self.buckets:
            for slot in bucket.slots:
                slot.bucket = bucket

    def _bucket(self, number: int, slots: list[Slot]) -> Bucket:
        """Rows travel as such where the job can have sparse tables, which all ranks find out alike: each asks for one, whose
        name is no other table's."""
        if slots[0].by_rows:
            name = _table_name(f"{self.name}/{number} rows of", slots[0].name)
            try:
                return RowBucket.open(name, slots[0], self.wire, self.nan_policy)
            except poseidon.InvalidError as error:
                slots[0].by_rows = False
                if self.context.rank == 0:
                    logging.getLogger("poseidon").warning(
                        "the gradients of %s travel whole, and not as the rows that are touched: %s", slots[0].name, error)
        return Bucket(slots, self.wire)

    def _open_tables(self, may_carry: bool) -> None:
        whole = [bucket for bucket in self.buckets if not bucket.by_rows]
        if may_carry:
            self._choose_carrier(whole)
        for number, bucket in enumerate(self.buckets):
            bucket.priority = 1 + number * 254 // max(1, len(self.buckets) - 1)
            if bucket.by_rows:
                continue
            bucket.table = poseidon.Table(
                _table_name(f"{self.name}/{number}", bucket.name), shape=(bucket.elements,),
                dtype=DTYPES[bucket.wire], use="sum", reduce="mean", nan_policy=self.nan_policy,
                priority=bucket.priority)
        self._memories = memory_for(whole) if whole else []
        if self._carrier is not None:
            self._room.lie_in(self._carrier)

    def _choose_carrier(self, buckets: list[Bucket]) -> None:
        """The first bucket that leaves, of those whose type will do: it is back when it is waited for."""
        self._carrier = next((bucket for bucket in buckets
                              if DTYPES[bucket.wire] in CARRIERS and bucket.wire == bucket.dtype), None)
        if self._carrier is not None:
            self._carrier.make_room(self._room.elements)

    def _agree_on_order(self) -> tuple[list[list[Slot]], bool]:
        """The slots of every bucket, and whether there is room in one: as rank 0 has it."""
        numbers = {id(slot): number for number, slot in enumerate(self.slots)}
        ready = dict.fromkeys(numbers[id(slot)] for slot in self._order)
        rest = [number for number in reversed(range(len(self.slots))) if number not in ready]
        for slot in self.slots:
            gradient = slot.parameter.grad
            slot.sparse = slot.sparse or (gradient is not None and gradient.is_sparse)
        may_carry = self._room is not None and self._room.elements <= CHUNK and \
            all(slot.parameter.device.type == "cpu" for slot in self.slots)
        told = json.dumps([[*ready, *rest], [slot.sparse for slot in self.slots], may_carry]).encode()
        order, sparse, may_carry = json.loads(collectives.broadcast_bytes(told, 0))
        for slot, is_sparse in zip(self.slots, sparse):
            slot.sparse = is_sparse
            slot.by_rows = self.may_send_rows and may_travel_as_rows(slot)
        return plan([self.slots[number] for number in order], self.bucket_bytes), may_carry


def _table_name(place: str, content: str) -> str:
    """Says which parameters it holds, in the 255 bytes that a name may have."""
    return f"{place} {content}".encode()[:255].decode(errors="ignore")
