# SPDX-License-Identifier: Apache-2.0
"""The state of a PyTorch script in the checkpoints of psd_run --checkpoint, and where it goes on from (--resume).

    state = psd.Checkpoint(model=model, optimizer=optimizer, scheduler=scheduler, best=0.0)
    for epoch in state.epochs(10):
        for inputs, labels in state.batches(loader):
            ...
        state.best = max(state.best, accuracy)

Rank 0 writes what it was given, each rank its random generators, after the same batch; in the background. A script that goes on has
all of it back when the first batch comes: the batches before are read from the loader once more, and passed over."""

from __future__ import annotations

import random
import sys
from typing import Any, Iterable, Iterator

import torch

import poseidon

from .. import _due as due
from . import collectives, parts

TIMEOUT_S = 1800.0
_KIND = "poseidon.torch.Checkpoint"


def _generators() -> list:
    numpy = sys.modules.get("numpy")
    return [torch.get_rng_state(), random.getstate(),
            None if numpy is None else numpy.random.get_state(),
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None]


def _set_generators(states: list) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])
    if states[3] is not None:
        torch.cuda.set_rng_state_all(states[3])


class Checkpoint:
    """What is given by name: objects with state_dict() and load_state_dict(), and values (numbers, text, lists,
    dictionaries, tensors), which are attributes then. All ranks make one, with the same names, when model and optimizer
    are ready. In a job that goes on they have what was saved."""

    def __init__(self, **given: Any):
        self.epoch = self.batch = self.steps = 0  # where it is: batches of this epoch that are done, of all epochs
        self.resumed = False
        self._objects = {name: each for name, each in given.items() if hasattr(each, "state_dict")}
        self._names = [name for name in given if name not in self._objects]
        taken = [name for name in given if hasattr(type(self), name) or name in vars(self)]
        if taken:
            raise poseidon.InvalidError(f"Checkpoint({taken[0]}=...): that name means something else here; choose another")
        vars(self).update(given)
        self._begun: Any = None  # generators when the epoch began
        self._to_set: Any = None  # generators of the place that is gone on from
        found = poseidon.context().checkpoint_resumed()
        if found is not None:
            self._load(parts.decode(found[1]))
        self._due = due.Due(TIMEOUT_S) if due.wanted() else None

    def _load(self, kept: Any) -> None:
        if not isinstance(kept, dict) or kept.get("kind") != _KIND:
            raise poseidon.MismatchError("the checkpoint that the job goes on from is not of poseidon.torch.Checkpoint")
        if len(kept["workers"]) != poseidon.size():
            raise poseidon.MismatchError(f"the checkpoint is of {len(kept['workers'])} workers, the job has {poseidon.size()}: "
                                         "their data and random numbers are dealt out anew only when an epoch begins")
        names = {*kept["objects"], *kept["values"]}
        if names != {*self._objects, *self._names}:
            raise poseidon.MismatchError(f"the checkpoint has {', '.join(sorted(names))}, the script gives "
                                         f"{', '.join(sorted([*self._objects, *self._names]))}")
        for name, each in self._objects.items():
            each.load_state_dict(kept["objects"][name])
        vars(self).update(kept["values"])
        self.epoch, self.batch, self.steps, self._begun = kept["epoch"], kept["batch"], kept["steps"], kept["begun"]
        self._to_set, self.resumed = parts.decode(kept["workers"][poseidon.rank()]), True

    def epochs(self, count: int) -> Iterator[int]:
        """Those that are left."""
        while self.epoch < count:
            yield self.epoch
            self.epoch, self.batch, self._begun = self.epoch + 1, 0, None

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Those of this epoch that are left. A batch is done when the next one is asked for."""
        passed, self.batch = self.batch, 0
        if passed:
            _set_generators(self._begun[poseidon.rank()])
        else:
            self._begun = [parts.decode(each) for each in collectives.allgather_bytes(parts.encode(_generators()))] \
                if self._due is not None else None
        batches = iter(loader)
        for _ in range(passed):
            next(batches)
            self.batch += 1
        if passed:
            _set_generators(self._to_set)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch
            self.batch += 1
            self.steps += 1
            if self._due is not None and self._due.after(self.steps, lambda: self._is_last(loader)):
                self._give()

    def _is_last(self, loader: Any) -> bool:
        return self.batch == len(loader)

    def _give(self) -> None:
        notes = collectives.allgather_bytes(parts.encode(_generators()))
        if poseidon.rank() == 0:
            self._due.give(self.steps, parts.encode({
                "kind": _KIND, "epoch": self.epoch, "batch": self.batch, "steps": self.steps, "begun": self._begun,
                "workers": notes, "objects": {name: each.state_dict() for name, each in self._objects.items()},
                "values": {name: getattr(self, name) for name in self._names}}))
