# SPDX-License-Identifier: Apache-2.0
"""The memory of buckets, and how a bucket gets from there to the servers and back."""

from __future__ import annotations

from typing import Any, Protocol, Sequence

import torch

import poseidon

from .buckets import Bucket

FOREVER = 2**32 - 1  # whoever waits for the future has a deadline of his own
_ALIGNMENT = 4096  # bytes; a bucket begins on a page


class Memory(Protocol):
    """Where a bucket's gradients lie."""

    def push_pull(self, bucket: Bucket) -> Any:
        """Sends the bucket; the future ends when the means are in its place."""

    def meanwhile(self) -> None:
        """Backward goes on, with other buckets."""

    def hand_over(self) -> None:
        """Everything was pushed, and the program goes on without waiting."""

    def send_all(self, timeout: float) -> None:
        """Everything was pushed, and the program waits for it: what is still here leaves now."""


class HostMemory:
    """One region for all buckets, read by servers on this machine where it is."""

    def __init__(self, buckets: Sequence[Bucket]):
        sizes = [_rounded(bucket.elements * bucket.wire.itemsize) for bucket in buckets]
        self.region = poseidon.alloc(sum(sizes) // 4, "float32")
        flat = torch.from_numpy(self.region).view(torch.uint8)
        begin = 0
        for bucket, size in zip(buckets, sizes):
            used = bucket.elements * bucket.wire.itemsize
            bucket.host = flat[begin:begin + used].view(bucket.wire)
            begin += size

    def push_pull(self, bucket: Bucket) -> Any:
        return self.push_pull_part(bucket, None, 0, bucket.elements)

    def push_pull_part(self, bucket: Bucket, step: int | None, first: int, count: int, behind: bool = False,
                       view: bool = False) -> Any:
        """first: a multiple of the elements of a chunk; behind: this thread has no time; view: the means come into the table's
        view, not back here."""
        address = bucket.host.data_ptr() + first * bucket.wire.itemsize
        return bucket.table.transfer(address, None if view else address, view=view, keep=(self.region,),
                                     priority=bucket.priority, step=step, first=first, count=count,
                                     timeout_ms=FOREVER, reap=not behind, behind=behind)

    def meanwhile(self) -> None:
        poseidon.context()._reap()  # its thread drives this one while backward goes on

    def hand_over(self) -> None:
        """The context's own thread does what is left."""

    def send_all(self, timeout: float) -> None:
        """All of it has left."""


class ConvertingMemory:
    """Buckets that travel as another type: rounded on the way to the servers."""

    def __init__(self, host: HostMemory):
        self.host = host

    def push_pull(self, bucket: Bucket) -> "Conversion":
        bucket.host[:bucket.marks_end].copy_(bucket.flat)
        return Conversion(self.host.push_pull(bucket), bucket)

    def meanwhile(self) -> None:
        self.host.meanwhile()

    def hand_over(self) -> None:
        self.host.hand_over()

    def send_all(self, timeout: float) -> None:
        self.host.send_all(timeout)


class Conversion:
    """A future: there and back, and into the bucket's own type."""

    def __init__(self, transfer: Any, bucket: Bucket):
        self.transfer, self.bucket = transfer, bucket
        self.add_done_callback = transfer.add_done_callback

    def result(self, timeout: float | None = None) -> None:
        """The means are in the bucket."""
        self.transfer.result(timeout)
        self.bucket.flat.copy_(self.bucket.host[:self.bucket.marks_end])


def _rounded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def memory_for(buckets: Sequence[Bucket]) -> list[Memory]:
    """Gives every bucket memory: of its own machine, and of its device when that is another. Returns all that they have."""
    host = HostMemory(buckets)
    devices: dict[torch.device, Memory] = {}
    for bucket in buckets:
        if bucket.device.type == "cpu" and bucket.wire == bucket.dtype:
            bucket.memory = host
            bucket.lay_out(bucket.host[:bucket.marks_end])
        elif bucket.device.type == "cpu":
            bucket.memory = ConvertingMemory(host)
            bucket.lay_out(torch.zeros(bucket.marks_end, dtype=bucket.dtype))
        elif bucket.device.type == "cuda":
            from .cuda import CudaMemory  # pylint: disable=import-outside-toplevel

            if bucket.device not in devices:
                devices[bucket.device] = CudaMemory(host, bucket.device)
            bucket.memory = devices[bucket.device]
            bucket.lay_out(torch.zeros(bucket.marks_end, dtype=bucket.dtype, device=bucket.device))
        else:
            raise poseidon.InvalidError(f"parameters of {bucket.name} are on {bucket.device}: "
                                        "only CPU and CUDA tensors are averaged")
    return list({id(bucket.memory): bucket.memory for bucket in buckets}.values())
