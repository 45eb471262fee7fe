# SPDX-License-Identifier: Apache-2.0
"""ps_master and ps_server as children of an actor: they end with it."""

from __future__ import annotations

import fcntl
import os
import pathlib
import queue
import subprocess
import sys
import threading
from typing import Sequence

from .._library import program

_SHIM = pathlib.Path(__file__).with_name("die_with_parent.py")
_OTHER_SECRETS = ("PSD_SECRET_FILE", "PSD_INSECURE")  # of whoever started Ray here


def hold_secret(secret: bytes) -> int:
    """A descriptor of a memory file that cannot be changed, as psd_run hands it down. Children get it only when it is
    named to them."""
    descriptor = os.memfd_create("psd_secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, secret)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK |
                fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    for name in _OTHER_SECRETS:
        os.environ.pop(name, None)
    os.environ["PSD_SECRET_FD"] = str(descriptor)
    return descriptor


class Daemon:
    """A program that runs until it ends, or this process does. What it prints is in the log of the actor."""

    def __init__(self, name: str, arguments: Sequence[str], secret: int, inherit: Sequence[int] = ()):
        self._command = [sys.executable, "-I", "-S", str(_SHIM), str(os.getpid()), program(name),
                         *arguments]
        self._inherit = (secret, *inherit)
        self._process: subprocess.Popen | None = None
        self._failure: OSError | None = None
        self._started, self._ended = threading.Event(), threading.Event()
        # A child's parent, in the kernel's eyes, is the thread that started it: it must live on.
        threading.Thread(target=self._attend, name=name, daemon=True).start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    def _attend(self) -> None:
        try:
            self._process = subprocess.Popen(self._command, pass_fds=self._inherit,
                                             stdin=subprocess.DEVNULL)
        except OSError as error:
            self._failure = error
        self._started.set()
        if self._process is not None:
            self._process.wait()
        self._ended.set()

    def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        self._ended.wait()
        assert self._process is not None
        return self._process.returncode

    @property
    def pid(self) -> int:
        """For whoever looks for it on the node."""
        assert self._process is not None
        return self._process.pid


class Lines:
    """Reads a pipe as it is filled, so that who writes never waits."""

    def __init__(self, descriptor: int):
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def next(self, timeout: float | None = None) -> str | None:
        """None: the other end was closed. Raises queue.Empty when the time is up."""
        line = self._queue.get(timeout=timeout)
        if line is None:
            self._queue.put(None)
        return line
