# SPDX-License-Identifier: Apache-2.0
"""The samples of an epoch, dealt again whenever the workers change.

A sample is done when the step with its gradient is: the rounds themselves say whose batches were in them (group.py), so what a
worker had that died is not done, and is dealt to the others. That does not depend on what the program records."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Iterable, Iterator, NamedTuple

import numpy as np

from .. import _elastic
from .._errors import InvalidError, MismatchError
from .deal import Deal, order


class Share(NamedTuple):
    """What this worker has in a step."""

    first: int  # batches of the deal, from this one on
    end: int  # before this one
    samples: int
    batch_size: int
    deal: int  # which deal it is of


class ElasticSampler:
    """An epoch's samples for this worker.

    dataset     or how many samples there are
    shuffle     another order in each epoch; the same on all workers, by the seed
    batch_size  of one worker. A DataLoader of PyTorch says it by itself
    drop_last   samples that do not fill a batch of every worker are left out

    Horovod's methods are here: set_epoch, record_batch, record_indices, get_indices, reset, state_dict. Nothing has to be
    recorded: what the rounds of the job have counted is done."""

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0, *, batch_size: int | None = None,
                 drop_last: bool = False):
        self.length = int(dataset) if isinstance(dataset, (int, np.integer)) else len(dataset)
        self.shuffle, self.seed, self.batch_size, self.drop_last = shuffle, seed, batch_size, drop_last
        self.epoch = 0
        self.done = np.zeros(self.length, bool)  # by sample
        self.follows_rounds = False  # each round takes the next batch: nobody tells when one is handed out
        self._all_through = False  # a loop over it has come to its end
        self._deal: Deal | None = None
        self._members: tuple[int, ...] = ()  # that it was dealt to
        self._index = 0
        self._mark = 0  # of the deal: the same where the deal is
        self._handed = self._counted = 0  # batches of this worker: to the program, in rounds

    # ---- dealing

    def deal(self) -> Deal:
        """Deals what is left to the workers that are here now."""
        if self.batch_size is None:
            raise InvalidError("ElasticSampler: how many samples has a batch? Give the sampler to a DataLoader of PyTorch, or "
                               "batch_size= to the sampler")
        group = _elastic.current()
        self._members = group.members if group is not None and group.members else (0,)
        self._index = self._members.index(group.rank) if group is not None and group.members else 0
        if group is not None and self.follows_rounds:
            group.sampler = self
        if self._all_through and self.done.all():
            self.done[:] = False  # another time around, without set_epoch()
        self._all_through = False
        everything = order(self.length, self.epoch, self.seed, self.shuffle)
        left = everything[~self.done[everything]]
        self._deal = Deal(left, len(self._members), self.batch_size, self.drop_last)
        self._handed = self._counted = 0
        text = f"{self.epoch} {self.seed} {self.length} {self._members} {self.batch_size} {self.drop_last}".encode()
        self._mark = int.from_bytes(hashlib.blake2b(text + np.packbits(self.done).tobytes(), digest_size=6).digest(), "little")
        return self._deal

    def __iter__(self) -> Iterator[int]:
        deal = self.deal()
        for step in range(deal.steps):
            yield from self._with_stand_in(deal, step).tolist()

    def _with_stand_in(self, deal: Deal, step: int) -> np.ndarray:
        """Nobody loads an empty batch: a sample that others have stands in, and counts nothing."""
        batch = deal.batch(self._index, step)
        return batch if len(batch) else deal.left[-1:]

    def batches(self) -> Iterator[np.ndarray]:
        """The samples of each step of this worker, for loops without a DataLoader. A batch may be a stand-in: one sample
        that does not count."""
        deal = self.deal()
        for step in range(deal.steps):
            if not self.follows_rounds:
                self.hand_out()
            yield self._with_stand_in(deal, step)
        self.end_of_loop()

    def __len__(self) -> int:
        """Samples of this worker in what is left of the epoch, stand-ins included."""
        if self.batch_size is None:
            return len(self.left())
        group = _elastic.current()
        members = group.members if group is not None and group.members else (0,)
        index = members.index(group.rank) if group is not None and group.members else 0
        deal = Deal(self.left(), len(members), self.batch_size, self.drop_last)
        return sum(max(1, deal.count(index, step, step + 1)) for step in range(deal.steps)[-1:]) + \
            max(0, deal.steps - 1) * self.batch_size

    def left(self) -> np.ndarray:
        """Samples of this epoch that are not done, by number."""
        return np.flatnonzero(~self.done)

    def is_through(self) -> bool:
        """Nothing of this epoch is left for anybody."""
        deal = self._deal
        return bool(self.done.all()) or (self.drop_last and deal is not None and self._counted >= deal.steps)

    # ---- what was trained on

    def hand_out(self, is_for_training: bool = True) -> None:
        """The program gets the next batch."""
        if is_for_training:
            self._handed += 1
            group = _elastic.current()
            if group is not None:
                group.sampler = self

    def end_of_loop(self) -> None:
        """The program has had all batches. What is left because workers have gone is dealt now."""
        group = _elastic.current()
        if group is not None and self._counted and not self.drop_last and not self.done.all():
            group.interrupt_if_changed()
        self._all_through = True

    def share(self) -> Share | None:
        """What this worker's next round has; None: this sampler has dealt nothing."""
        if self._deal is None:
            return None
        end = min(self._counted + 1, self._deal.steps) if self.follows_rounds else self._handed
        count = self._deal.count(self._index, self._counted, end)
        if end == self._counted and end > 0:  # another step with the batch before
            count = self._deal.count(self._index, end - 1, end)
        return Share(self._counted, end, count, self._deal.batch_size, self._mark)

    def count(self, shares: dict[int, Share]) -> None:
        """A round is over: whose batches were in it."""
        deal = self._deal
        if deal is None:
            return
        for rank, share in shares.items():
            if share.deal != self._mark or rank not in self._members:
                raise MismatchError(
                    f"worker {rank} trains on another deal of the samples than this one (epoch {self.epoch}, "
                    f"{len(deal.left)} samples left for workers {', '.join(map(str, self._members))}): all must make their "
                    "samplers with the same data, seed and batch size, give them to the State, and begin their loops after the same step")
            index = self._members.index(rank)
            self.done[deal.samples(index, share.first, share.end)] = True
            if index == self._index:
                self._counted = share.end

    # ---- Horovod's names

    def set_epoch(self, epoch: int) -> None:
        """Another epoch begins, with all samples. Of the same one nothing is forgotten."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.reset()
            self.done[:] = False

    def reset(self) -> None:
        """What was dealt is dealt again by the next loop."""
        self._deal, self._all_through = None, False
        self._handed = self._counted = 0

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Nothing to do: the rounds say what is done."""

    def record_indices(self, indices: Iterable[int]) -> None:
        """These are done, though no step was made with them. All workers must say the same."""
        self.done[list(indices)] = True

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of one of this worker's batches."""
        del batch_size
        deal = self._deal or self.deal()
        return deal.batch(self._index, batch_idx).tolist()

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position."""
        return {"epoch": self.epoch, "length": self.length,
                "done": base64.b64encode(np.packbits(self.done).tobytes()).decode()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        if state["length"] != self.length:
            raise MismatchError(f"ElasticSampler: here are {self.length} samples, where the state comes from "
                                f"{state['length']}: all workers need the same data")
        packed = np.frombuffer(base64.b64decode(state["done"]), np.uint8)
        self.epoch = state["epoch"]
        self.done = np.unpackbits(packed, count=self.length).astype(bool)
        self.reset()
