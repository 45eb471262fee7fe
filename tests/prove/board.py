# SPDX-License-Identifier: Apache-2.0
"""The board of fail points that a test shares with the processes of a job (src/base/fail_points.c)."""

import mmap
import os
import pathlib
import struct
import subprocess

MAGIC = 0x42465350
HEAD, SLOT = 64, 32  # bytes
KILL, STOP = 0, 1


def list_points(build):
    """The names of the fail points of a build, in the order of its board, with what is said of them."""
    program = pathlib.Path(build) / "tests" / "prove" / "psd_points"
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split(None, 1) for line in lines)


class Board:
    def __init__(self, path, names):
        self.numbers = {name: number for number, name in enumerate(names)}
        self.path = pathlib.Path(path)
        self.path.write_bytes(struct.pack("<II", MAGIC, len(self.numbers)).ljust(HEAD + SLOT * len(self.numbers), b"\0"))
        os.chmod(self.path, 0o666)  # processes of a job may have another user
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def _at(self, name):
        return HEAD + SLOT * self.numbers[name]

    def arm(self, name, passing=1, action=KILL, only=0):
        """From now on; only: one process, by the number that it knows itself by."""
        struct.pack_into("<III", self.memory, self._at(name) + 4, action, only, 0)
        struct.pack_into("<I", self.memory, self._at(name), passing)

    def disarm(self, name):
        struct.pack_into("<I", self.memory, self._at(name), 0)

    def fired(self, name):
        """(process, time in seconds of time.monotonic()) since it was armed; None: not yet."""
        process, = struct.unpack_from("<I", self.memory, self._at(name) + 12)
        nanoseconds, = struct.unpack_from("<Q", self.memory, self._at(name) + 24)
        return (process, nanoseconds / 1e9) if process else None

    def passes(self):
        """How often processes of the job have come to each point."""
        return {name: struct.unpack_from("<Q", self.memory, self._at(name) + 16)[0] for name in self.numbers}
