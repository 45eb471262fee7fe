# SPDX-License-Identifier: Apache-2.0
"""What poseidon.torch asks of a CUDA device, where there is none: tensors stay on the CPU, streams do everything at once, and
pages are pinned in a list. A device reads the pages that were there when they were pinned, whatever lies at their
addresses later; so each read is compared with the mappings of that time."""

import contextlib
import os

import torch

ALREADY_REGISTERED = 712
REFUSED = 801


class Event:
    def record(self, _stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass


class Stream:
    def __init__(self, _device=None):
        pass

    def wait_event(self, _event):
        pass


class Runtime:
    """Pages that are pinned, by address, with the mappings that they had then."""

    def __init__(self, refuses_views):
        self.refuses_views = refuses_views
        self.pinned = {}
        self.registered = self.read = 0

    def cudaHostRegister(self, address, size, flags):
        if self.refuses_views and flags != 0:
            return REFUSED
        if any(address < begin + held and begin < address + size for begin, (held, _) in self.pinned.items()):
            return ALREADY_REGISTERED
        self.pinned[address] = size, mappings(address, size)
        self.registered += 1
        return 0

    def cudaHostUnregister(self, address):
        del self.pinned[address]
        return 0

    def look(self, address, size):
        """A device reads these pages."""
        held, then = self.pinned[address]
        assert held >= size and mappings(address, held) == then, "pages were replaced after they had been pinned"
        self.read += 1


def mappings(address, size):
    """Which files lie there; all of it is there."""
    found, end = [], address
    with open("/proc/self/maps", encoding="utf-8") as lines:
        for line in lines:
            span, _, offset, device, inode = line.split()[:5]
            first, last = (int(text, 16) for text in span.split("-"))
            if last <= address or first >= address + size:
                continue
            assert first <= end, "a hole"
            begin, end = max(first, address), last
            found.append((device, inode, begin - first + int(offset, 16) if inode != "0" else 0))
    assert end >= address + size, "a hole"
    merged = [found[0]]
    merged += [entry for before, entry in zip(found, found[1:]) if entry != before or entry[1] != "0"]
    return merged


def install(refuses_views=False):
    """From now on buckets of CPU tensors travel as those of a device do."""
    from poseidon.torch import cuda, engine, landing, memory, pinned

    runtime = Runtime(refuses_views)
    torch.cuda.Event, torch.cuda.Stream = Event, Stream
    torch.cuda.stream = torch.cuda.device = lambda _: contextlib.nullcontext()
    torch.cuda.current_stream = lambda _=None: Stream()
    torch.cuda.synchronize = lambda _=None: None
    torch.cuda.cudart = lambda: runtime
    pinned.reads_views = landing.reads_views = lambda _device: True

    def memory_for(buckets):
        found = cuda.CudaMemory(memory.HostMemory(buckets), torch.device("cpu"))
        for bucket in buckets:
            bucket.memory = found
            bucket.lay_out(torch.zeros(bucket.marks_end, dtype=bucket.dtype))
        return [found]

    engine.memory_for = memory_for
    own = landing.Landing.open

    def open_and_look(self, first, end):
        means = own(self, first, end)
        if self.in_view and first in self.pinned:
            runtime.look(means.data_ptr(), means.nbytes)
        return means

    landing.Landing.open = open_and_look
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return runtime
