# SPDX-License-Identifier: Apache-2.0
"""This process's place in a job."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from ctypes import byref, c_char, c_size_t, c_uint64, c_void_p, sizeof
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from . import _elastic
from ._blocking import Calls
from ._errors import ClosedError, ForkedError, RefusedError, StateError
from ._future import Future
from ._leaving import failing, keep_to_the_end, watch_exit
from ._library import FOREVER, OK, ROLES, STATES, NodeInfo, OpenArgs, check, library
from ._mapping import Mappings
from ._members import Members, members_at
from ._memory import dtype_name, numpy_dtype
from ._watcher import Watcher

if TYPE_CHECKING:
    from ._table import Table

CHECKPOINT_NONE, CHECKPOINT_EPOCH = 2**64 - 1, 2**64 - 2
_NODES_MAX = 1024 + 256 + 1
_DRAIN_S = 1800.0  # for transfers under way when a worker leaves: as long as frameworks wait


class Node(NamedTuple):
    """A process of the job, as the master knows it."""

    role: str  # master, server, worker
    rank: int
    state: str  # missing, joined, running, done, lost
    incarnation: int
    step: int | None  # last reported; None: the master is new, and has not heard yet
    steps_per_s: float | None  # likewise
    value: float  # last reported ...
    value_name: str  # ... and its name
    address: str


def _node(info: NodeInfo) -> Node:
    is_known = not math.isnan(info.steps_per_s)
    return Node(ROLES[info.role], info.rank, STATES[info.state], info.incarnation, info.step if is_known else None,
                info.steps_per_s if is_known else None, info.value, info.value_name.decode(errors="replace"),
                info.address.decode(errors="replace"))


def _encode(text: Any) -> bytes | None:
    return None if text is None else os.fsencode(str(text))


class Context:
    """A worker's membership in a job. poseidon.init() opens one and makes it the default; whoever
    needs two jobs in one process opens another and passes it along (context=).

    Everything not given comes from the environment that psd_run prepares.

    master_address   "tcp://HOST:PORT"; default PSD_MASTER_ADDRESS
    rank             0..size-1, or "auto"; default PSD_RANK
    open_timeout_ms  for the whole job to gather; default PSD_OPEN_TIMEOUT_MS, else 60,000
    op_timeout_ms    deadline of every operation; default PSD_OP_TIMEOUT_MS, else 60,000
    secret_file      the job's secret; default PSD_SECRET_FILE, or what psd_run hands down

    As a context manager it closes at the end, and leaves without a farewell when an exception
    passes, so that the job learns that this worker failed.
    """

    def __init__(self, master_address: str | None = None, rank: int | str | None = None, *,
                 open_timeout_ms: int = 0, op_timeout_ms: int = 0,
                 secret_file: str | os.PathLike | None = None):
        self._pid = os.getpid()
        self._handle: int | None = None
        self._calls = Calls()
        self._lock = threading.RLock()
        self._live: dict[int, Future] = {}  # pending operations, by address
        self._tables: dict[str, Table] = {}
        self._mappings = Mappings()
        self._watcher: Watcher | None = None
        self._broadcaster: Any = None
        self._leaving: list[Callable[[], Any]] = []  # called before the handle goes away
        self._failed = False  # no farewell at the end of the process
        self._interrupted = False  # a wait was broken off, and none has ended well since
        args = OpenArgs(sizeof(OpenArgs), _encode(master_address), _encode(rank), open_timeout_ms,
                        op_timeout_ms, _encode(secret_file))
        handle = c_void_p()
        self._calls.make(library().psd_open, byref(args), byref(handle))
        self._handle = handle.value
        _open_contexts.add(self)
        watch_exit()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<poseidon.Context: closed>"
        if self._pid != os.getpid():
            return f"<poseidon.Context: of process {self._pid}>"
        return f"<poseidon.Context: worker {self.rank} of {self.size}>"

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        if self._handle is None or self._pid != os.getpid():
            return
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _check(self) -> int:
        """The handle; raises when it must not be used here, or any more."""
        if self._pid != os.getpid():
            raise ForkedError(
                f"the context of process {self._pid} was used in its child {os.getpid()}: a child "
                "of fork computes, its parent talks to the job (data loaders may fork)")
        if self._handle is None:
            raise ClosedError("the context was closed: nothing can be done with it any more")
        return self._handle

    # ---- who and where

    @property
    def rank(self) -> int:
        """This worker's number, 0..size-1."""
        return library().psd_rank(self._check())

    @property
    def size(self) -> int:
        """How many workers the job started with."""
        return library().psd_size(self._check())

    @property
    def num_servers(self) -> int:
        """How many servers the job has."""
        return library().psd_servers(self._check())

    @property
    def incarnation(self) -> int:
        """1; more for a worker that replaces one that died."""
        return library().psd_incarnation(self._check())

    @property
    def local_rank(self) -> int:
        """This worker's number among those of its machine."""
        return self._place()[0]

    @property
    def local_size(self) -> int:
        """How many workers this machine has."""
        return self._place()[1]

    def _place(self) -> tuple[int, int]:
        self._check()
        told = os.environ.get("PSD_LOCAL_RANK"), os.environ.get("PSD_LOCAL_SIZE")
        if told[0] and told[1]:
            return int(told[0]), int(told[1])
        workers = [node for node in self.nodes() if node.role == "worker"]
        hosts = {node.rank: node.address.rpartition(":")[0] for node in workers}
        near = sorted(rank for rank in hosts if hosts[rank] == hosts[self.rank])
        return near.index(self.rank), len(near)

    @property
    def closed(self) -> bool:
        """Whether this process can use it no more."""
        return self._handle is None or self._pid != os.getpid()

    # ---- all together

    def barrier(self, timeout_ms: int = FOREVER) -> None:
        """Waits until every live worker has come to its n-th barrier. Several threads may wait at
        once: each call is a barrier of its own, in the order in which the calls began."""
        self._calls.make(library().psd_barrier, self._check(), timeout_ms)

    def global_step(self, add: int = 0) -> int:
        """Adds to the job's global step, exactly once, and returns the new value."""
        step = c_uint64()
        self._calls.make(library().psd_global_step, self._check(), add, byref(step))
        return step.value

    def report(self, step: int, name: str = "", value: float = 0.0) -> None:
        """Tells the job how this worker is doing: shown by psd_run. Never waits. Under the name "steps_total": the step at
        which it expects to end; 0: it does not know."""
        check(library().psd_report(self._check(), step, name.encode(), float(value)))

    def mark(self, step: int, name: str, begin_ns: int, end_ns: int) -> None:
        """Tells the job what this worker did from when to when (time.monotonic_ns()): psd_run trace draws a bar for it. Never
        waits."""
        check(library().psd_mark(self._check(), step, name.encode(), begin_ns, end_ns))

    def nodes(self) -> list[Node]:
        """The master's table of the job."""
        found = (NodeInfo * _NODES_MAX)()
        count = c_size_t()
        self._calls.make(library().psd_nodes, self._check(), found, sizeof(NodeInfo), _NODES_MAX, byref(count))
        return [_node(info) for info in found[: min(count.value, _NODES_MAX)]]

    def members(self, step: int | None = None) -> Members:
        """Who counts in that step, the one that this worker pushes next: every worker is told the same. None: who counts
        now, as far as this worker has heard. Cheap enough for every step."""
        return members_at(self._check(), step)

    # ---- save and load

    def save(self, directory: str | os.PathLike, step: int | None = None) -> int:
        """Writes all "update" tables as of one step. One worker calls it, between two steps; the
        others go on. Returns the step (by default that of the tables)."""
        if step is None:
            step = min((table.step for table in self._tables.values() if table.saved), default=0)
        self._calls.make(library().psd_save, self._check(), _encode(directory), step)
        return step

    def load(self, directory: str | os.PathLike) -> int:
        """Reads what save() wrote. Every worker calls it, after it opened the tables and before its
        first push. Returns the step to go on from."""
        step = c_uint64()
        self._calls.make(library().psd_load, self._check(), _encode(directory), byref(step))
        for table in self._tables.values():
            table._resume(step.value)
        return step.value

    # ---- this worker's part of checkpoints

    def checkpoint_due(self, step: int) -> int:
        """The step at which psd_run --checkpoint wants a part of this worker, which has made `step` steps;
        CHECKPOINT_NONE, or CHECKPOINT_EPOCH: at the end of this epoch. Rank 0's part is what counts. Never waits."""
        return library().psd_checkpoint_due(self._check(), step)

    def checkpoint_part(self, step: int, data: bytes | bytearray) -> None:
        """Writes this worker's part as it was after that step, and waits until it is on the disk: any thread may call it."""
        memory = (c_char * len(data)).from_buffer(data) if isinstance(data, bytearray) else data
        check(library().psd_checkpoint_part(self._check(), step, memory, len(data)))

    def checkpoint_resumed(self) -> tuple[int, bytearray] | None:
        """The step and the part of rank 0 of the checkpoint that this job goes on from (psd_run --resume); None: it
        begins anew, or there is no part in it."""
        size, step = c_size_t(), c_uint64()
        try:
            check(library().psd_checkpoint_resumed(self._check(), None, 0, byref(size), byref(step)))
        except StateError:
            self._check()
            return None
        data = bytearray(size.value)
        memory = (c_char * len(data)).from_buffer(data)
        check(library().psd_checkpoint_resumed(self._check(), memory, len(data), byref(size), byref(step)))
        return step.value, data

    # ---- memory

    def alloc(self, shape: int | tuple[int, ...], dtype: Any = "float32") -> np.ndarray:
        """An array of zeros for gradients that a server on this machine reads where they are. It is
        given back with its last reference. bfloat16 comes as its bits (uint16)."""
        kind = numpy_dtype(dtype_name(dtype))
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        array_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self._check()
        if array_bytes == 0:
            return np.zeros(shape, kind)
        address = c_void_p()
        check(library().psd_alloc(self._handle, array_bytes, byref(address)))
        return self._mappings.array(address.value or 0, shape, kind, self._free)

    def _free(self, address: int) -> None:
        if not self.closed:
            library().psd_free(self._handle, address)

    # ---- operations

    def _adopt(self, op: int, future: Future) -> None:
        self._live[op] = future

    def _forget(self, op: int, future: Future) -> None:
        if self._live.get(op) is future:
            del self._live[op]

    def _reap(self) -> None:
        """Ends the futures of operations that ended and that nobody waits for."""
        op = c_void_p()
        while library().psd_wait_any(self._handle, 0, byref(op)) == OK:
            future = self._live.get(op.value)
            if future is not None:
                future.done()

    def _wait_any(self, milliseconds: int) -> None:
        """Waits until some operation ends; its future is over then. Nobody else waits for it."""
        op = c_void_p()
        if library().psd_wait_any(self._handle, milliseconds, byref(op)) == OK:
            future = self._live.get(op.value)
            if future is not None:
                future.done()

    def _watch(self) -> None:
        """From now on somebody has to notice at once when operations end."""
        with self._lock:
            if self._watcher is None:
                self._watcher = Watcher(library().psd_fd(self._check()), self._reap)

    # ---- leaving

    def before_leaving(self, function: Callable[[], Any]) -> None:
        """For layers that keep handles of their own: function() is called when this context is
        about to end, and must make sure that they are used no more."""
        self._leaving.append(function)

    def leave(self) -> None:
        """Leaves while the job goes on: waits for what is under way, and the others go on without this worker. Planned,
        never taken for a death. Afterwards only close() is left to be called; leaving twice does nothing."""
        self._calls.make(library().psd_leave, self._check())

    def close(self) -> None:
        """Waits for what is under way, says farewell and leaves. When all workers have left, the
        job is over. Closing twice does nothing."""
        if self._pid != os.getpid():
            self._check()
        if self._handle is None:
            return
        if self._calls.under_way():
            raise StateError("close: a call that was interrupted is still under way; "
                             "abandon() or exit")
        pending = list(self._live.values())
        deadline = time.monotonic() + _DRAIN_S
        for future in pending:
            future._await(max(0.0, deadline - time.monotonic()))
        self._end(lambda handle: self._calls.make(library().psd_close, handle))
        untold = [future.exception() for future in pending if not future._told]
        for error in filter(None, untold):
            raise error

    def abandon(self) -> None:
        """Leaves at once and without a farewell: for the failure path. The job treats this worker
        as dead, by its policy."""
        if self._pid != os.getpid():
            self._check()
        if self._calls.under_way():  # its thread is inside: the end of the process will do it
            self._handle = None
            return
        self._end(library().psd_abandon)
        for future in list(self._live.values()):
            future._close()

    def _leave_to_the_end(self) -> None:
        """Leaves without a farewell when the process is gone, which is about to end as failed."""
        self._failed = True

    def _end(self, leave: Callable[[int], None]) -> None:
        """Nobody gets the handle from here on. Arrays over the library's memory stay usable."""
        with self._lock:
            handle, self._handle = self._handle, None
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
        _open_contexts.discard(self)
        if handle is None:
            return
        for function in self._leaving:
            function()
        for table in self._tables.values():
            table._view = None
        held = self._mappings.save()
        try:
            leave(handle)
        finally:
            self._mappings.restore(held)


_open_contexts: set[Context] = set()
_default: Context | None = None


# Packages whose models are with the workers: one that came later would have another, unless the program gives it the others'
# (poseidon.elastic). See docs/elastic.md.
_KEEPERS = {"poseidon.torch", "poseidon.tensorflow", "poseidon.jax", "poseidon.keras"}


def init(master_address: str | None = None, rank: int | str | None = None, **settings: Any
         ) -> Context:
    """Joins the job and waits until all of it is there. The context becomes the default of this
    process: rank(), Table and all the rest use it. See Context for the settings.

    Called again without arguments it returns the open context."""
    global _default  # pylint: disable=global-statement
    if _default is not None and not _default.closed:
        if master_address is None and rank is None and not settings:
            return _default
        raise StateError("poseidon.init was called before in this process: close() first, or open "
                         "another poseidon.Context")
    if not _elastic.look_for_use(sys._getframe(1)) and sys.modules.keys() & _KEEPERS:
        os.environ.setdefault("PSD_JOIN", "off")
    try:
        _default = Context(master_address, rank, **settings)
    except RefusedError as error:
        if "(setting join)" not in str(error):
            raise
        raise RefusedError(f"{error}. To let workers come and go, a program uses poseidon.elastic (docs/elastic.md); any other is "
                           "run again as a whole, from its last checkpoint (psd_run --restart_scope=group)") from None
    return _default


def is_initialized() -> bool:
    """Whether this process is in a job now."""
    return _default is not None and not _default.closed


def context() -> Context:
    """The default context; raises before init(), after close() and in a forked child."""
    if _default is None:
        raise StateError("poseidon.init() was not called in this process: call it first, in a "
                         "program that psd_run started")
    _default._check()
    return _default


def close() -> None:
    """Leaves the job: see Context.close. Before init() and when closed it does nothing."""
    if _default is not None:
        _default.close()


def _leave_at_exit() -> None:
    """A worker that ends well says farewell, when its last operations are done. One that fails, or
    broke off a wait, does not, and its connections are left to the kernel, which closes them when
    the process is gone: unloading a framework takes longer than the job waits for a worker whose
    connection is closed, and the job shall end with this worker's own code and last lines."""
    failed = failing()
    for each in list(_open_contexts):
        if each.closed or each._calls.under_way():
            continue
        if failed or each._failed or each._interrupted:
            keep_to_the_end(each)
            continue
        try:
            each.close()
        finally:
            if not each.closed:  # what was under way did not end: the job shall know
                keep_to_the_end(each)


atexit.register(_leave_at_exit)
