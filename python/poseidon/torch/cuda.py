# SPDX-License-Identifier: Apache-2.0
"""Buckets on a CUDA device: a staging buffer in host memory, and streams of their own for both ways.

    gradients on the device --(stream "down")--> staging buffer --push_pull--> staging buffer
    --(stream "up")--> means on the device

The staging buffer is the memory that servers on this machine read in place; its pages are pinned, so
that copies run beside the computation. Nobody on the computing side waits: a courier thread waits for
each copy and starts the transfer, and the stream that uses the gradients waits for the way up on the
device, not in Python."""

from __future__ import annotations

import queue
import threading
import weakref
from typing import Any, Callable

import torch

import poseidon

from .buckets import Bucket
from .memory import HostMemory


class CudaMemory:
    """The buckets of one device."""

    def __init__(self, host: HostMemory, device: torch.device):
        self.host, self.device = host, device
        self.down, self.up = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.errands: queue.SimpleQueue = queue.SimpleQueue()
        address, size = host.region.ctypes.data, host.region.nbytes
        if int(torch.cuda.cudart().cudaHostRegister(address, size, 0)) == 0:
            weakref.finalize(self, torch.cuda.cudart().cudaHostUnregister, address)
        courier = threading.Thread(target=_carry, args=(self.errands,), daemon=True,
                                   name=f"poseidon {device}")
        courier.start()
        weakref.finalize(self, self.errands.put, None)

    def push_pull(self, bucket: Bucket) -> "Journey":
        """Sends what the current stream has written into the bucket by now."""
        written = torch.cuda.Event()
        written.record(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.down):
            self.down.wait_event(written)
            bucket.host[:bucket.marks_end].copy_(bucket.flat, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self.down)
        journey = Journey(self, bucket, copied)
        self.errands.put(journey)
        return journey

    def bring_back(self, bucket: Bucket) -> None:
        """The means go up; the current stream goes on when they are there."""
        with torch.cuda.stream(self.up):
            bucket.flat.copy_(bucket.host[:bucket.marks_end], non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(self.up)
        torch.cuda.current_stream(self.device).wait_event(arrived)


class Journey:
    """A future: down, to the servers and back, and up again."""

    def __init__(self, memory: CudaMemory, bucket: Bucket, copied: torch.cuda.Event):
        self.memory, self.bucket, self.copied = memory, bucket, copied
        self.started = threading.Event()
        self.transfer: Any = None
        self.error: BaseException | None = None
        self.callbacks: list[Callable[[Any], None]] = []
        self.lock = threading.Lock()

    def start(self) -> None:
        """On the courier's thread: waits for the copy, then sends it."""
        try:
            self.copied.synchronize()
            transfer = self.memory.host.push_pull(self.bucket)
            with self.lock:
                self.transfer = transfer
                callbacks, self.callbacks = self.callbacks, []
            for callback in callbacks:
                transfer.add_done_callback(callback)
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.error = error  # raised where somebody waits for it
        finally:
            self.started.set()

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls function(future) when the means are in the staging buffer."""
        with self.lock:
            if self.transfer is None:
                self.callbacks.append(function)
                return
        self.transfer.add_done_callback(function)

    def result(self, timeout: float | None = None) -> None:
        """The means are in the bucket for whatever the current stream does next."""
        if not self.started.wait(timeout):
            raise poseidon.TimeoutError(f"the gradients of {self.bucket.name} did not leave "
                                        f"{self.memory.device} within {timeout:g} s")
        if self.error is not None:
            raise self.error
        self.transfer.result(timeout)
        self.memory.bring_back(self.bucket)


def _carry(errands: queue.SimpleQueue) -> None:
    """The courier: in the order in which buckets came down, until told to end."""
    while (journey := errands.get()) is not None:
        journey.start()
        del journey
