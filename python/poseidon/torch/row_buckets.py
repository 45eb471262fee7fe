# SPDX-License-Identifier: Apache-2.0
"""Gradients that are a few rows of a large parameter: these rows travel, and nothing else.

A row bucket is what a bucket (buckets.py) is to the engine, of one parameter whose gradients are sparse. It travels through a
sparse table that is a sum: what comes back is the union of the rows that the ranks have touched, with their means. The marks
of a bucket travel as two rows more, behind the last one of the parameter: one says that a rank has a gradient, the other that
it has data."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

import poseidon

from .buckets import DTYPES, Bucket, Slot
from .memory import FOREVER

WIDTH_MAX = 4096  # numbers of a row of a sparse table
VARIABLE = "PSD_TORCH_ROWS"
BYTES_MIN = 64 << 10  # of a parameter: smaller ones travel together with others, which is a message less
_TYPES = (torch.float32, torch.float16, torch.bfloat16)  # that rows may have


def are_told_to_travel() -> bool:
    """What the environment says, the same on all workers."""
    word = os.environ.get(VARIABLE, "")
    if word not in ("", "touched", "whole"):
        raise poseidon.InvalidError(f"{VARIABLE}={word}: must be touched or whole")
    return word != "whole"


def may_travel_as_rows(slot: Slot) -> bool:
    """Whether rows of such a parameter can be told apart, and are worth it."""
    parameter = slot.parameter
    return slot.sparse and parameter.dim() == 2 and parameter.shape[1] <= WIDTH_MAX and parameter.dtype in _TYPES and \
        parameter.numel() * parameter.dtype.itemsize >= BYTES_MIN


class RowBucket(Bucket):
    """One parameter. It is its own memory: what is sent, and what came."""

    by_rows = True

    def __init__(self, slot: Slot, wire: torch.dtype | None, table: Any):
        super().__init__([slot], wire)
        self.table = table
        self.rows, self.width = slot.parameter.shape
        self.memory = self
        slot.bucket, slot.flag, slot.view, slot.rows = self, 0, None, None
        self.marks = self.behind = self.behind_on_host = torch.zeros(2)
        self.to_write = torch.ones(2)
        self.ids = torch.empty(0, dtype=torch.int64)  # of this rank, and then of all
        self.values = torch.empty(0, self.width, dtype=self.dtype)

    @property
    def payload(self) -> torch.Tensor:
        return self.values

    @classmethod
    def open(cls, name: str, slot: Slot, wire: torch.dtype | None, nan_policy: str) -> "RowBucket":
        """Every rank opens it. poseidon.InvalidError, for all of them alike: the job cannot have sparse tables."""
        travels_as = Bucket([slot], wire).wire
        table = poseidon.SparseTable(name, slot.parameter.shape[1], DTYPES[travels_as], use="sum", reduce="mean",
                                     nan_policy=nan_policy)
        return cls(slot, wire, table)

    # ---- what is sent

    def take(self, gradient: torch.Tensor | None) -> None:
        """The rows of this rank. Those that come several times are added on their way."""
        if gradient is None:
            self.ids, self.values = self.ids[:0], self.values[:0]
        elif gradient.is_sparse and gradient.sparse_dim() == 1:
            self.ids, self.values = gradient._indices()[0], gradient._values()
        else:
            self.ids = torch.arange(self.rows)
            self.values = gradient.to_dense() if gradient.is_sparse else gradient

    def push_pull(self, bucket: Bucket) -> "RowTransfer":
        """Sends the rows, and the marks of a rank that has any."""
        told = self.marks.nonzero()[:, 0]
        ids = torch.cat((self.ids.cpu(), self.rows + told))
        values = torch.cat((self.values.to("cpu", self.wire), torch.ones(len(told), self.width, dtype=self.wire)))
        self.elements = values.numel()
        return RowTransfer(self, self.table.push(ids.numpy(), values, priority=self.priority, timeout_ms=FOREVER))

    def meanwhile(self) -> None:
        """Backward goes on, with other buckets."""
        poseidon.context()._reap()

    def hand_over(self) -> None:
        """The context's own thread does what is left."""

    def send_all(self, timeout: float) -> None:
        """All of it has left."""

    # ---- what comes

    def came_back(self, ids: np.ndarray, values: np.ndarray) -> None:
        """The marks are the last rows: their ids are larger than those of all others."""
        count = int(np.searchsorted(ids, self.rows))
        self.marks.zero_()
        for mark, row in zip(ids[count:] - self.rows, self._tensor(values[count:])):
            self.marks[mark] = row[0]
        self.ids = torch.from_numpy(ids[:count]).to(self.device)
        self.values = self._tensor(values[:count]).to(self.device, self.dtype)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        if self.wire == torch.bfloat16:  # NumPy has none: the bits
            return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(values)

    def gradient(self) -> torch.Tensor:
        """The mean of all ranks."""
        return torch.sparse_coo_tensor(self.ids[None], self.values, self.slots[0].parameter.shape, is_coalesced=True)


class RowTransfer:
    """A future: the rows of all ranks are in the bucket."""

    def __init__(self, bucket: RowBucket, future: Any):
        self.bucket, self.future = bucket, future
        self.add_done_callback = future.add_done_callback

    def result(self, timeout: float | None = None) -> None:
        """Waits until they are there."""
        self.bucket.came_back(*self.future.result(timeout))
