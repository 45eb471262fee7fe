# SPDX-License-Identifier: Apache-2.0
"""Poseidon for Python: train one model with many processes.

    import numpy as np
    import poseidon

    poseidon.init()                                     # under psd_run
    weights = poseidon.Table("weights", values=np.zeros(10, np.float32), learning_rate=0.1)
    w = weights.pull().wait()
    for step in range(weights.step, 100):
        w = weights.push_pull(gradient(w)).wait()
        poseidon.report(step, "loss", loss(w))
    poseidon.close()

Nothing is loaded before it is needed: libpsd with init(). docs/python.md is the manual."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import numpy as _np

from ._context import Context, Members, Node, close, context, init, is_initialized
from ._errors import (ClosedError, DroppedError, Error, FileError, ForkedError, InvalidError,
                      LibraryError, LostError, MemoryError, MismatchError, NotFiniteError,
                      RefusedError, StateError, Status, StepError, TimeoutError)
from ._future import Future
from ._library import library as _load_library
from ._reader import Reader, Reading
from ._sparse import SparseTable
from ._table import Table
from ._version import __version__

__all__ = [
    "ClosedError", "Context", "DroppedError", "Error", "FileError", "ForkedError", "Future",
    "InvalidError", "LibraryError", "LostError", "Members", "MemoryError", "MismatchError", "Node",
    "NotFiniteError", "Reader", "Reading", "RefusedError", "SparseTable", "StateError", "Status", "StepError", "Table", "TimeoutError",
    "__version__", "abandon", "alloc", "barrier", "broadcast", "close", "context", "global_step",
    "init", "is_initialized", "leave", "library_version", "load", "local_rank", "local_size", "mark",
    "members", "nodes", "num_servers", "rank", "report", "run", "save", "size"]

for _public in (Context, Members, Node, Future, Reader, Reading, SparseTable, Table, Status, Error, *Error.__subclasses__(),
                *StateError.__subclasses__()):
    _public.__module__ = __name__  # how messages and help() call them


def rank() -> int:
    """This worker's number, 0..size()-1."""
    return context().rank


def size() -> int:
    """How many workers the job started with."""
    return context().size


def local_rank() -> int:
    """This worker's number among those of its machine."""
    return context().local_rank


def local_size() -> int:
    """How many workers this machine has."""
    return context().local_size


def num_servers() -> int:
    """How many servers the job has."""
    return context().num_servers


def barrier(timeout_ms: int | None = None) -> None:
    """Waits until every live worker has come to its n-th barrier. Several threads may wait at
    once: each call is a barrier of its own, in the order in which the calls began."""
    if timeout_ms is None:
        context().barrier()
    else:
        context().barrier(timeout_ms)


def global_step(add: int = 0) -> int:
    """Adds to the job's global step, exactly once, and returns the new value."""
    return context().global_step(add)


def report(step: int, name: str = "", value: float = 0.0) -> None:
    """Tells the job how this worker is doing: shown by psd_run. Never waits. Under the name "steps_total": the step at
    which it expects to end; 0: it does not know."""
    context().report(step, name, value)


def mark(step: int, name: str, begin_ns: int, end_ns: int) -> None:
    """Tells the job what this worker did from when to when (time.monotonic_ns()): psd_run trace draws a bar for it. Never
    waits."""
    context().mark(step, name, begin_ns, end_ns)


def nodes() -> list[Node]:
    """The master's table of the job."""
    return context().nodes()


def members(step: int | None = None) -> Members:
    """Who counts in that step: see Context.members."""
    return context().members(step)


def leave() -> None:
    """Leaves while the job goes on: see Context.leave."""
    context().leave()


def save(directory: str | os.PathLike, step: int | None = None) -> int:
    """Writes all "update" tables: see Context.save. One worker calls it."""
    return context().save(directory, step)


def load(directory: str | os.PathLike) -> int:
    """Reads what save() wrote: see Context.load. Every worker calls it."""
    return context().load(directory)


def alloc(shape: int | tuple[int, ...], dtype: Any = "float32") -> _np.ndarray:
    """Memory for gradients that a server on this machine reads in place: see Context.alloc."""
    return context().alloc(shape, dtype)


def broadcast(array: Any, root: int = 0, name: str = "array") -> Any:
    """Gives all workers the root's array, bit for bit, in place: see poseidon._broadcast."""
    from ._broadcast import broadcast as send  # pylint: disable=import-outside-toplevel

    return send(context(), array, root, name)


def abandon() -> None:
    """Leaves at once and without a farewell: see Context.abandon."""
    context().abandon()


def library_version() -> str:
    """The version of libpsd: that of the package, or LibraryError is raised."""
    return _load_library().psd_version().decode()


def __getattr__(name: str) -> Any:
    """What is large, or may not be there, is loaded when it is asked for."""
    if name == "run":
        return importlib.import_module("._run", __name__).run
    if name == "RunError":
        return importlib.import_module("._run", __name__).RunError
    if name == "cluster" and importlib.util.find_spec(f"{__name__}.cluster") is not None:
        function = importlib.import_module(".cluster", __name__).cluster
        globals()[name] = function  # in the place of the module
        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
