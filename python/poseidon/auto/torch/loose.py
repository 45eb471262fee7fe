# SPDX-License-Identifier: Apache-2.0
"""Training whose batches no loader hands out: indices that the script draws itself, environments of
reinforcement learning, one graph as a whole.

There is nothing to deal out, so every worker has to draw for itself: W workers that draw b samples each make a step of
W * b samples. The worker joins the job, and its own stream of random numbers begins (streams.py), at the first forward
that gradients can come from. Where the script uses no module of torch, or a loader may still come, that is at the first
backward. A batch drawn before that is the same on all workers; this affects the first step alone.

Slices of a permutation are divided (walks.py). But a script may also walk through its data by other slices, or with a
generator that has a seed of its own. Then all workers train on the same batches, which shows in what their models are
given: in the first step if that is a slice and nothing has been drawn, else in the second. Such a script is refused. If
the compared steps all get the same data, the script trains on all its data at once: nothing can be divided, and a line
says so.

Thread: the script's thread that trains."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from ..common import notes
from . import drawn_evaluation, randomness
from .digests import checksum
from .lineage import tensors_of

if TYPE_CHECKING:
    from .session import TorchSession

STEPS_COMPARED = 3  # the first, whose batch all workers may have drawn alike, and two that tell
PART_BYTES = 1 << 14  # the first bytes of a tensor, which are compared


class Loose:
    """One for each script."""

    def __init__(self, session: TorchSession):
        self._session = session
        self.begun = False
        self.loaders = 0  # how many were made
        self.undealt = False  # a loader was read whole, with gradients on: its batches may be trained on
        self._new = False  # an optimizer was made since the last _begin()
        self._hook: Any = None  # on forwards of all modules
        self._step = _Step()
        self._history: list[list[bytes]] = []  # digests of all workers, by step
        self._states = b""  # of random generators, when the first optimizer was made

    def watch(self) -> None:
        """There is a new optimizer: its parameters will be used soon."""
        self._new = True
        self._states = self._states or self._session.streams.digest()
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._before_forward)

    def leave_to_loader(self) -> None:
        """A loader hands batches out: it is in charge from now on."""
        if self.begun:
            self._session.tell_what_is_done()
        self.begun = False
        self._rest()

    def _rest(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    # ---- how it begins

    def _before_forward(self, module: torch.nn.Module, inputs: tuple) -> None:
        if torch.compiler.is_compiling():
            return
        session = self._session
        if not self.begun and (session.joined or self.loaders > 0) or not session.can_begin():
            self._rest()  # a loader is in charge, or nobody is
            return
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return
        if self._new and session.trains_with(module):
            self._begin(before_forward=True)
        if self.begun:
            self._step.add(inputs)
            if not self._new and len(self._history) >= STEPS_COMPARED:
                self._rest()

    def before_backward(self, tensors: Any) -> None:
        """Something is differentiated."""
        if (self.begun or not self._session.joined) and self._session.can_begin():
            self._begin(before_forward=False)
            self._step.losses = tensors_of(tensors)
        if self.begun:
            self._tell_witness()

    def begin_walk(self) -> None:
        """The script takes a slice of a permutation, to train on it."""
        if self.begun or not self._session.joined:
            self._begin(before_forward=True)

    def before_closure(self) -> None:
        """An optimizer is about to step, with a closure that makes its gradients."""
        if not self._session.joined:
            self._begin(before_forward=True)

    def before_step(self) -> None:
        """An optimizer is about to step, and has its gradients."""
        if not self._session.joined:
            self._begin(before_forward=False)
        if self.begun:
            self._tell_witness()
        if self.begun and not self._session.walks.divides and len(self._history) < STEPS_COMPARED:
            self._compare()

    def _tell_witness(self) -> None:
        """No loader hands out what is trained on: _compare() looks at it instead. A round may begin now."""
        if not self._session.walks.divides:
            self._session.witness.expect_same_data()

    def _begin(self, before_forward: bool) -> None:
        """Joins the job, or attaches what is new to it."""
        if not self._new:
            return
        if self.undealt and not self.begun:
            self._session.refuse(
                "it trains on data of a torch.utils.data.DataLoader that was read before its optimizer was made, or "
                "in eval() mode, so every worker would train on the same samples",
                "read the loader in training mode after the optimizer was made")
        self._session.begin_together(before_forward)
        self._new = False
        if not self.begun:
            self._step.was_drawn = self._states != self._session.streams.digest()
            self._share_random_numbers()
            drawn_evaluation.watch(self._session)
            self.begun = True

    def _share_random_numbers(self) -> None:
        from poseidon.torch import collectives

        streams = self._session.streams
        with streams.common():
            found = collectives.broadcast_object(randomness.state(None))
            if self._session.rank != 0:
                randomness.restore(None, found)
            streams.part()

    # ---- what the workers train on

    def _compare(self) -> None:
        from poseidon.torch import collectives

        step, self._step = self._step, _Step()
        self._history.append(collectives.allgather_bytes(step.digest()))
        now = self._history[-1]
        if len(set(now)) == 1 and (now != self._history[0] or step.was_cut and not step.was_drawn):
            self._refuse_walk()
        if len(self._history) < STEPS_COMPARED:
            return
        if any(len(set(step)) > 1 for step in self._history[1:]):
            self._session.witness.add_fact(f"{self.finding()} in the steps that were compared (2 and {STEPS_COMPARED})")
            self._session.tell_what_is_done()
            return
        self._session.witness.add_fact("the same data as a whole on every worker")
        self._session.tell_what_is_done()
        self._tell_whole()

    def _refuse_walk(self) -> None:
        self._session.refuse(
            f"all {self._session.world} workers train on the same batches, which come from no "
            "torch.utils.data.DataLoader, so they would do together what one of them does",
            "let a DataLoader hand the batches out; or take slices of a permutation of their indices (order = "
            "torch.randperm(n), X[order[i:i + size]]), which are divided among the workers; or draw indices at random in "
            "every step (torch.randint, numpy.random, random; not a generator with a seed of its own)")

    def finding(self) -> str:
        """What is known of the training data of all workers, in words."""
        if self._session.walks.divides:
            return f"each batch divided among them ({self._session.samples} samples a step)"
        telling = self._history[1:]
        if not telling or len(self._history) < STEPS_COMPARED:
            return "training data drawn by each worker for itself (too few steps to compare them)"
        if all(len(set(step)) == len(step) for step in telling):
            return "each worker's training data its own"
        if any(len(set(step)) > 1 for step in telling):
            return "training data drawn by each worker, some of them alike"
        return "training data not dealt out"

    def _tell_whole(self) -> None:
        if self._session.rank == 0:
            notes.tell(f"every step of {notes.script_name()} trains on the same data as a whole, so there is nothing to "
                       f"deal out: {self._session.world} workers train as one process does, and are no faster")


class _Step:
    """What the model was given since the last step; without a model, the losses."""

    def __init__(self) -> None:
        self._inputs = 0
        self._seen = False
        self.was_cut = False  # it is a part of something larger
        self.was_drawn = True  # random numbers were drawn before it
        self.losses: list[torch.Tensor] = []

    def add(self, inputs: tuple) -> None:
        for tensor in tensors_of(inputs):
            if not tensor.requires_grad:  # not the output of another module
                self._seen = True
                self.was_cut = self.was_cut or tensor._is_view() and tensor.numel() < tensor._base.numel()
                self._inputs = checksum(tensor, self._inputs, PART_BYTES)

    def digest(self) -> bytes:
        if self._seen:
            return struct.pack("<Q", self._inputs)
        found = 0
        for tensor in self.losses:
            found = checksum(tensor, found, PART_BYTES)
        return struct.pack("<Q", found)
