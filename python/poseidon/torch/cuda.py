# SPDX-License-Identifier: Apache-2.0
"""Buckets on a CUDA device: a staging buffer in host memory, and streams of their own for both ways.

    gradients on the device --(stream "down")--> staging buffer --push_pull--> the servers' values
    --(stream "up")--> means on the device

The staging buffer is the memory that servers on this machine read in place, and the device reads the means where such a
server has them (landing.py). Both are pinned (pinned.py), so that copies run beside the computation. Means of servers elsewhere
come into the staging buffer.

Backward is computed by a thread that does little but launch kernels, far ahead of the device. Whatever else
wants Python meanwhile holds that thread up, so there is no other: a bucket that is full sends those before it whose copies
have come down by then. The rest leaves when backward has been launched, in send_all(): by then the device is at work, and
the thread has nothing to do but wait for it. Where the program goes on instead (wait="step"), a courier thread does that.
The stream that uses the means waits for them on the device, not in Python."""

from __future__ import annotations

import collections
import queue
import threading
import time
import weakref
from typing import Any, Callable

import torch

import poseidon

from .buckets import CHUNK, Bucket
from .landing import Landing
from .memory import HostMemory
from .pinned import pin

PART = 96 * CHUNK  # elements that travel by themselves, at most
_SPIN_S = 0.0002  # so long a wait for the device looks again and again ...
_PAUSE_S = 0.00005  # ... and then that often, for servers on the same cores
_SOON_S = 0.1
_LOOK_MS = 10
_FOREVER_S = float("inf")


class CudaMemory:
    """The buckets of one device."""

    def __init__(self, host: HostMemory, device: torch.device):
        self.host, self.device = host, device
        self.down, self.up = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.leaving: collections.deque[Part] = collections.deque()  # on their way to the staging buffer
        self.away: collections.deque[Part] = collections.deque()  # with the servers
        self.sending = threading.Lock()  # both of them, but for appending
        self.steps: dict[Bucket, int] = {}  # of their last pushes: to ask the library would wait for its thread
        self.landings: dict[Bucket, Landing] = {}
        self.errands: queue.SimpleQueue | None = None  # of the courier
        self.context = poseidon.context()
        self.pages = pin(device, host.region.ctypes.data, host.region.nbytes)

    def push_pull(self, bucket: Bucket) -> "Journey":
        """Sends what the current stream has written into the bucket by now."""
        written = torch.cuda.Event()
        written.record(torch.cuda.current_stream(self.device))
        step = self.steps[bucket] = self.steps[bucket] + 1 if bucket in self.steps else bucket.table.step
        if bucket not in self.landings:
            self.landings[bucket] = Landing(bucket)
        landing = self.landings[bucket]
        landing.begin_step()
        bucket.behind_on_host = landing.means[bucket.marks_begin:bucket.marks_end]
        size = part_of(bucket.marks_end)
        parts = [Part(self, bucket, step, first, min(first + size, bucket.marks_end))
                 for first in range(0, bucket.marks_end, size)]
        with torch.cuda.stream(self.down):
            self.down.wait_event(written)
            for part in parts:
                landing.wait_until_read(part.first, self.down)
                part.descend()
        self.leaving.extend(parts)
        if self.sending.acquire(blocking=False):
            try:
                self._send_what_is_down()
                self._take_back()
            finally:
                self.sending.release()
        return Journey(self, bucket, parts)

    def meanwhile(self) -> None:
        """Backward goes on: the context's own thread does what is to be done."""

    def hand_over(self) -> None:
        """The program goes on, and waits for nothing: what has not left yet is left to the courier."""
        if self.errands is None:
            self.errands = queue.SimpleQueue()
            threading.Thread(target=_carry, args=(self.errands,), daemon=True, name=f"poseidon {self.device}").start()
            weakref.finalize(self, self.errands.put, None)
        self.errands.put(weakref.ref(self))

    def send_all(self, timeout: float | None = None) -> None:
        """Sends everything as soon as it has come down; means that are there go up meanwhile."""
        deadline = time.monotonic() + (_FOREVER_S if timeout is None else timeout)
        if not self.leaving and not self.away:
            return
        if not self.sending.acquire(timeout=-1 if timeout is None else timeout):
            raise self._too_late(timeout)
        try:
            since = time.monotonic()
            while self.leaving:
                if self._send_what_is_down() or self._take_back(most=1):
                    since = time.monotonic()
                elif not _pause(since, deadline):
                    raise self._too_late(timeout)
            self._bring_back()
        finally:
            self.sending.release()

    def _bring_back(self) -> None:
        """The rest of the means. If they do not come soon, a rank may have left, and whoever waits for everything finds
        out."""
        since = time.monotonic()
        while self.away:
            if self._take_back():
                since = time.monotonic()
            elif time.monotonic() - since > _SOON_S:
                return
            else:
                self.context._wait_any(_LOOK_MS)

    def _take_back(self, most: int = 1 << 30) -> bool:
        """Means that have come go up, those of so many parts; the first layers overtake others. Whether there were any."""
        taken = 0
        for part in list(self.away):
            if taken < most and part.transfer.done():
                taken += 1
                self.away.remove(part)
                if part.transfer.exception() is None:  # else who waits for it is told
                    part.rise()
        return taken > 0

    def _send_what_is_down(self) -> bool:
        """Whether there was something."""
        before = len(self.leaving)
        while self.leaving and self.leaving[0].copied.query():
            self._send_first()
        return len(self.leaving) < before

    def _send_first(self) -> None:
        part = self.leaving[0]
        part.start()
        if part.error is None:  # who waits for it is told
            self.away.append(part)
        self.leaving.popleft()

    def _too_late(self, timeout: float | None) -> poseidon.TimeoutError:
        name = self.leaving[0].bucket.name if self.leaving else "a bucket"
        return poseidon.TimeoutError(f"the gradients of {name} did not leave {self.device} within {timeout:g} s")


class Part:
    """Elements of a bucket that travel by themselves, so that a large one is on all parts of its way at once."""

    def __init__(self, memory: CudaMemory, bucket: Bucket, step: int, first: int, end: int):
        self.memory, self.bucket, self.step, self.first, self.end = memory, bucket, step, first, end
        self.landing = memory.landings[bucket]
        self.copied = torch.cuda.Event()  # to the staging buffer
        self.transfer: Any = None
        self.error: BaseException | None = None
        self.arrived: torch.cuda.Event | None = None  # the means, on the device
        self.callbacks: list[Callable[[Any], None]] = []
        self.lock = threading.Lock()

    def descend(self) -> None:
        """On the stream that is current: down to the staging buffer."""
        self.bucket.host[self.first:self.end].copy_(self.bucket.flat[self.first:self.end], non_blocking=True)
        self.copied.record()

    def start(self) -> None:
        """It has come down: to the servers."""
        is_last = self.end == self.bucket.marks_end
        count = (self.bucket.elements if is_last else self.end) - self.first
        try:
            transfer = self.memory.host.push_pull_part(self.bucket, self.step, self.first, count, behind=True,
                                                       view=self.landing.in_view)
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.error = error  # raised where somebody waits for it
            return
        with self.lock:
            self.transfer = transfer
            callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            transfer.add_done_callback(callback)

    def rise(self) -> None:
        """The means go up."""
        with self.lock:
            if self.arrived is not None:
                return
            means = self.landing.open(self.first, self.end)
            with torch.cuda.stream(self.memory.up):
                self.bucket.flat[self.first:self.end].copy_(means, non_blocking=True)
                self.arrived = torch.cuda.Event()
                self.arrived.record()
            self.landing.read[self.first] = self.arrived

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls function(future) when the means are in host memory."""
        with self.lock:
            if self.transfer is None:
                self.callbacks.append(function)
                return
        self.transfer.add_done_callback(function)

    def result(self, timeout: float | None) -> None:
        """The means are in their place for whatever the current stream does next. It has left."""
        if self.error is not None:
            raise self.error
        self.transfer.result(timeout)
        self.rise()
        torch.cuda.current_stream(self.memory.device).wait_event(self.arrived)


class Journey:
    """A future: all parts of a bucket down, to the servers and back, and up again."""

    def __init__(self, memory: CudaMemory, bucket: Bucket, parts: list[Part]):
        self.memory, self.bucket, self.parts = memory, bucket, parts

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls function(future) when the last part is in host memory."""
        self.parts[-1].add_done_callback(function)

    def result(self, timeout: float | None = None) -> None:
        """The means are in the bucket for whatever the current stream does next."""
        self.memory.send_all(timeout)
        for part in self.parts:
            part.result(timeout)


def part_of(elements: int) -> int:
    """Of each of the parts of so many elements, which are whole chunks and about equal."""
    count = -(-elements // PART)
    return -(-elements // (count * CHUNK)) * CHUNK


def _pause(since: float, deadline: float) -> bool:
    """Nothing has happened since then: a moment for others. False: it is too late."""
    now = time.monotonic()
    if now > deadline:
        return False
    time.sleep(0 if now - since < _SPIN_S else _PAUSE_S)
    return True


def _carry(errands: queue.SimpleQueue) -> None:
    """The courier: sends what is left in the memory that it is given, until told to end."""
    while (memory := errands.get()) is not None:
        found = memory()
        if found is not None:
            found.send_all()
        del found, memory
