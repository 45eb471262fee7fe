# SPDX-License-Identifier: Apache-2.0
"""Where gradients lie: many small parameters share one table and one piece of memory.

A bucket is a flat tensor:

    gradient of slot 0 | gradient of slot 1 | ... | rows of sparse slots | one flag per slot | active | room

The marks at the end travel with the gradients and are averaged like them, so that without a message
more every rank knows which parameters somebody used (flag above 0), which rows of an embedding
somebody touched, and which share of the ranks still has data (active).

Room, in one bucket at most, is for what else is to travel with a round (room.py). It is written and read together with
the marks, so that it takes no operation more."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Sequence

import torch

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16",
          torch.bfloat16: "bfloat16"}
ALIGNMENT = 64  # bytes; a slot begins where vector instructions like it
CHUNK = 65536  # elements of a table that servers treat at once (PSD_CHUNK_ELEMENTS)


@dataclasses.dataclass(eq=False)
class Slot:
    """One parameter's place in a bucket."""

    name: str
    parameter: torch.Tensor
    sparse: bool = False  # its gradients come as rows
    by_rows: bool = False  # and travel as rows, in a bucket of their own (row_buckets.py)
    stepped: bool = False  # a DistributedOptimizer has it
    group: int = 0  # slots of different groups never share a bucket
    bucket: "Bucket | None" = None
    view: torch.Tensor | None = None  # its gradient in the bucket's memory, shaped like it
    given: torch.Tensor | None = None  # sparse: the gradient that the last round has left
    rows: torch.Tensor | None = None  # sparse: which rows were touched
    flag: int = -1  # index of its flag in the bucket's marks
    ready: bool = False  # its gradient of this round is there
    used: bool = False  # this rank has a gradient for it in this round


class Bucket:
    """Slots of one type that travel as one table. Whoever makes it gives memory and a table."""

    by_rows = False

    def __init__(self, slots: Sequence[Slot], wire: torch.dtype | None = None):
        self.slots = list(slots)
        self.dtype = slots[0].parameter.dtype
        # How its elements travel: as they are, or as what takes less.
        self.wire = wire if wire is not None and wire.itemsize < self.dtype.itemsize else self.dtype
        self.device = slots[0].parameter.device
        self.missing = len(slots)  # slots whose gradient of this round is not there yet
        self.offsets, gradients = _offsets(self.slots, self.dtype.itemsize)
        self.rows_begin = gradients
        rows = sum(slot.parameter.shape[0] for slot in self.slots if slot.sparse)
        self.marks_begin = gradients + rows
        self.marks_end = self.marks_begin + len(self.slots) + 1
        self.room_begin = self.elements = self.marks_end  # elements: of the table
        self.table: Any = None
        self.memory: Any = None
        self.future: Any = None  # of the transfer under way
        self.priority = 1
        self.host: torch.Tensor = torch.empty(0)  # what the servers read and write
        self.flat: torch.Tensor = torch.empty(0)
        self.marks: torch.Tensor = torch.empty(0)  # flags and, last, "active"
        # What is written behind the gradients whenever it leaves: the marks when every slot has a gradient, and the room.
        self.behind: torch.Tensor = torch.empty(0)
        self.to_write: torch.Tensor = torch.empty(0)
        self.behind_on_host: torch.Tensor = torch.empty(0)  # where it comes back, also when flat is on a device
        self.came: list[float] = []  # it, when the bucket came back
        self.values: torch.Tensor = torch.empty(0)  # where servers make the steps: what comes back

    @property
    def name(self) -> str:
        first, last = self.slots[0].name, self.slots[-1].name
        return first if first == last else f"{first}..{last}"

    def make_room(self, elements: int) -> None:
        """So many more at the end of the table, in one chunk: servers take the mean of a chunk at once, and each over
        the ranks that take part in it."""
        if self.marks_end // CHUNK != (self.marks_end + elements - 1) // CHUNK:
            self.room_begin = -(-self.marks_end // CHUNK) * CHUNK
        self.elements = self.room_begin + elements

    def use_room(self) -> torch.Tensor:
        """What is written into the tensor that is returned, with zeros now, travels from now on. The bucket has been laid
        out, in the memory that servers read."""
        self.behind = self.behind_on_host = self.host[self.marks_begin:]
        self.to_write = torch.cat((self.to_write, torch.zeros(self.elements - self.marks_end, dtype=self.dtype)))
        return self.to_write[self.room_begin - self.marks_begin:]

    @property
    def payload(self) -> torch.Tensor:
        """All gradients, without the marks."""
        return self.flat[:self.rows_begin]

    def lay_out(self, flat: torch.Tensor) -> None:
        """Gives every slot its view of the bucket's memory."""
        self.flat = flat
        self.marks = flat[self.marks_begin:self.marks_end]
        self.behind, self.to_write = self.marks, torch.ones_like(self.marks)
        self.behind_on_host = self.host[self.marks_begin:self.marks_end]
        row = self.rows_begin
        for flag, (slot, offset) in enumerate(zip(self.slots, self.offsets)):
            slot.bucket, slot.flag = self, flag
            slot.view = flat.as_strided(slot.parameter.shape, dense_strides(slot.parameter),
                                        flat.storage_offset() + offset)
            if slot.sparse:
                slot.rows = flat[row:row + slot.parameter.shape[0]]
                row += slot.parameter.shape[0]


def _offsets(slots: Sequence[Slot], itemsize: int) -> tuple[list[int], int]:
    offsets, used = [], 0
    step = ALIGNMENT // itemsize
    for slot in slots:
        offsets.append(used)
        used += -(-slot.parameter.numel() // step) * step
    return offsets, used


def dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The strides of a gradient: the parameter's own where it is dense (channels_last), so that
    the optimizer walks through both in the same order."""
    return torch.empty_like(parameter, device="meta").stride()


BUCKET_BYTES = 1 << 20
DEVICE_BUCKET_BYTES = 32 << 20  # what Python does for a bucket takes longer than a device's copy of some MiB


def plan(slots: Iterable[Slot], bucket_bytes: int | None) -> list[list[Slot]]:
    """Packs slots, given in the order in which their gradients become ready, into buckets.

    bucket_bytes  None: what suits the device

    A bucket holds one type on one device and leaves when its last gradient is ready. A parameter
    that fills a bucket by itself gets one of its own, and does not hold up its neighbours; so does
    one whose rows travel."""
    finished: list[list[Slot]] = []
    filling: dict[tuple, list[Slot]] = {}
    filled: dict[tuple, int] = {}
    for slot in slots:
        kind = (slot.group, slot.parameter.dtype, slot.parameter.device)
        size = slot.parameter.numel() * slot.parameter.dtype.itemsize
        enough = bucket_bytes or (BUCKET_BYTES if slot.parameter.device.type == "cpu" else DEVICE_BUCKET_BYTES)
        if slot.by_rows or size >= enough:
            finished.append([slot])
            continue
        filling.setdefault(kind, []).append(slot)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= enough:
            finished.append(filling.pop(kind))
            filled.pop(kind)
    return finished + list(filling.values())
