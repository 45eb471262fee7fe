# SPDX-License-Identifier: Apache-2.0
"""What a worker of the ledger workload writes down while it runs, in a file that the test reads meanwhile: how many
pushes were acknowledged, and when each step began and ended. The test says there at which step to stop.

Plain stores into mapped memory: what was written is there when the worker dies. Numbers are written whole, each by one store:
struct.pack_into would make them 0 for a moment, and who reads that as the step to stop at leaves the others alone."""

import mmap
import pathlib
import struct

HEAD = 4096
RECORD = struct.Struct("<dd")
STEPS_MAX = 400_000
NEVER = 2**63 - 1
_AT = {"steps": 0, "pushes": 1, "stop_at": 2, "global_adds": 3}  # words of 8 bytes


class Tape:
    def __init__(self, path, create=False):
        self.path = path = pathlib.Path(path)
        if create:
            with open(path, "wb") as file:
                file.truncate(HEAD + RECORD.size * STEPS_MAX)
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.words = memoryview(self.memory)[:HEAD].cast("Q")
        if create:
            self.set("stop_at", NEVER)

    def get(self, name):
        return self.words[_AT[name]]

    def set(self, name, value):
        self.words[_AT[name]] = value

    def add_step(self, begin, end, pushes):
        steps = self.get("steps")
        RECORD.pack_into(self.memory, HEAD + RECORD.size * steps, begin, end)
        self.set("pushes", self.get("pushes") + pushes)
        self.set("steps", steps + 1)

    def recovered(self, moment):
        """When the first step ended that began after the moment: all of its answers are later. None: none did."""
        low, high = 0, self.get("steps")
        while low < high:
            middle = (low + high) // 2
            begin, _ = RECORD.unpack_from(self.memory, HEAD + RECORD.size * middle)
            low, high = (middle + 1, high) if begin <= moment else (low, middle)
        if low >= self.get("steps"):
            return None
        return RECORD.unpack_from(self.memory, HEAD + RECORD.size * low)[1]
