# SPDX-License-Identifier: Apache-2.0
"""What the members of a job do on the nodes of the cluster."""

from __future__ import annotations

import os
import queue
import socket
import traceback
from typing import Any, Callable

import ray

import poseidon
from .._errors import Error, Status
from .die_with_parent import die_with_parent
from .daemons import Daemon, Lines, hold_secret
from .seal import KeyPair

# What the other workers raise when one is lost: a consequence, not a cause.
_CONSEQUENCES = (Status.ERR_PEER_LOST, Status.ERR_JOB_FAILED, Status.ERR_FENCED)


class Member:
    """An actor of the job. It ends with its raylet: a node that Ray has lost takes no part, and the master of the
    job knows at once, where Ray waits for ten heartbeats and more."""

    def __init__(self, name: str):
        die_with_parent(os.getppid())
        self.name = name
        self.address = ray.util.get_node_ip_address()
        self._keys = KeyPair()

    def meet(self) -> dict[str, Any]:
        """Who this is and where, and the key that the secret is to be sealed for."""
        return {"node": ray.get_runtime_context().get_node_id(), "address": self.address,
                "pid": os.getpid(), "version": poseidon.__version__, "public": self._keys.public}

    def _take(self, sealed: bytes, variables: dict[str, str]) -> int:
        os.environ.update(variables)
        return hold_secret(self._keys.open(sealed, self.name))


class Master(Member):
    """Starts ps_master on the driver's node, and passes on what that tells about the members."""

    def start(self, sealed: bytes, variables: dict[str, str], workers: int, servers: int,
              timeout: float) -> str:
        """Where it listens."""
        secret = self._take(sealed, variables)
        reader, writer = os.pipe()
        self._daemon = Daemon("ps_master", [
            "--workers", str(workers), "--servers", str(servers), "--bind", self.address, "--port", "0",
            "--ready_fd", str(writer), "--tell_joins", "--on_worker_death=fail",
            f"--start_timeout_ms={round(timeout * 1000)}"], secret, (writer,))
        os.close(writer)
        self._lines = Lines(reader)
        try:
            address = self._lines.next(timeout)
        except queue.Empty:
            raise RuntimeError(f"ps_master does not listen after {timeout:.0f} s") from None
        if address is None:
            raise RuntimeError(f"ps_master ended with code {self._daemon.wait()}; its log is this "
                               "actor's")
        return address

    def tiding(self) -> str | int:
        """The next line of ps_master, or, after the last one, its exit code."""
        line = self._lines.next()
        return self._daemon.wait() if line is None else line

    @staticmethod
    def reaches(address: str, port: int, timeout: float) -> bool:
        """Whether somebody listens there, a raylet for instance."""
        try:
            socket.create_connection((address, port), timeout).close()
        except OSError:
            return False
        return True


class Server(Member):
    """Starts a ps_server on its node."""

    def start(self, sealed: bytes, variables: dict[str, str], index: int, master: str, timeout: float
              ) -> int:
        """Its process."""
        secret = self._take(sealed, variables)
        self._daemon = Daemon("ps_server", [
            "--index", str(index), "--master_address", master, "--bind", self.address,
            f"--start_timeout_ms={round(timeout * 1000)}"], secret)
        return self._daemon.pid

    def wait(self) -> int:
        """Its exit code."""
        return self._daemon.wait()


class Worker(Member):
    """Calls the function."""

    def call(self, sealed: bytes, variables: dict[str, str], timeout: float,
             function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[str, Any]:
        """("returned", what the function returned), or ("raised" or "followed", the traceback): "followed" when it
        only says that the job has failed. A worker that raised keeps its place in the job until the driver ends it:
        who left first would be named as lost."""
        try:
            self._take(sealed, variables)
            poseidon.init(open_timeout_ms=round(timeout * 1000))
            result = function(*args, **kwargs)
            poseidon.close()
        except BaseException as error:  # pylint: disable=broad-exception-caught
            kind = "followed" if isinstance(error, Error) and error.status in _CONSEQUENCES else "raised"
            return kind, traceback.format_exc()
        return "returned", result
