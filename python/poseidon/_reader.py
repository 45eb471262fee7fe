# SPDX-License-Identifier: Apache-2.0
"""Values of a running job, looked at from outside: for evaluation and serving."""

from __future__ import annotations

import os
import threading
from ctypes import byref, c_void_p, sizeof
from typing import Any, NamedTuple

import numpy as np

from ._errors import ClosedError, InvalidError
from ._library import (DTYPES, ReaderAnswer, ReaderArgs, ReaderOpenArgs, ReaderTable, check, library)
from ._memory import lend_output, numpy_dtype
from ._sparse import id_array

_NAMES = {number: name for name, number in DTYPES.items()}


class Reading(NamedTuple):
    """What was read, and how old it is.

    values   bfloat16 as its bits, in uint16
    step     the oldest step of anything in it
    newest   the newest; the same as step: all of it is of one step
    age      seconds: each value was the current one at some moment not longer ago than that, when the call returned
    """

    values: Any
    step: int
    newest: int
    age: float


class Reader:
    """Finds a running job, and reads tables of it. It is no worker: it pushes nothing, and nobody waits for it.

    master       "tcp://HOST:PORT", default PSD_MASTER_ADDRESS
    key_file     what psd_run reader-key wrote, default PSD_READER_KEY_FILE. In a worker neither is needed
    timeout_ms   of every call, default 60,000

    Any thread may use it; calls wait for each other, so threads that read at once have one each. docs/reading.md"""

    def __init__(self, master: str | None = None, key_file: str | os.PathLike | None = None, *, timeout_ms: int = 0):
        self._lock = threading.Lock()  # of what is closed, and of tables
        self._tables: dict[str, ReaderTable] = {}
        self._handle: int | None = None
        args = ReaderOpenArgs(sizeof(ReaderOpenArgs), master.encode() if master is not None else None,
                              os.fsencode(key_file) if key_file is not None else None, timeout_ms)
        handle = c_void_p()
        check(library().psd_reader_open(byref(args), byref(handle)))
        self._handle = handle.value

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def close(self) -> None:
        """Leaves the job. A call that is under way in another thread ends first."""
        with self._lock:
            handle, self._handle = self._handle, None
            library().psd_reader_close(handle)

    def lookup(self, table: str, ids: Any, out: Any = None, *, steps: np.ndarray | None = None,
               timeout_ms: int = 0) -> Reading:
        """Rows of a sparse table, of shape ids.shape + (width,), into `out` or a new array. An id that has no row gets its
        initial value, and no row. steps: an array of uint64 in the shape of ids, for the step of each row."""
        what = f"read sparse table {table}"
        asked = id_array(what + ": ids", ids)
        with self._lock:
            found = self._find(table)
            if found.width == 0:
                raise InvalidError(f"{what}: it has no rows by id; use read()")
            if steps is not None and (steps.dtype != np.uint64 or steps.shape != asked.shape or not steps.flags.c_contiguous):
                raise InvalidError(f"{what}: steps must be a contiguous array of uint64 of shape {asked.shape}")
            return self._read(what, found, asked, (*asked.shape, found.width), out, steps, timeout_ms)

    def read(self, table: str, out: Any = None, *, timeout_ms: int = 0) -> Reading:
        """All of a table that is not sparse, into `out` or a new array."""
        what = f"read table {table}"
        with self._lock:
            found = self._find(table)
            if found.width > 0:
                raise InvalidError(f"{what}: it is sparse; use lookup()")
            return self._read(what, found, None, tuple(found.shape[:found.dims]), out, None, timeout_ms)

    def _find(self, name: str) -> ReaderTable:
        if self._handle is None:
            raise ClosedError("the reader is closed")
        if name not in self._tables:
            found = ReaderTable(struct_size=sizeof(ReaderTable))
            check(library().psd_reader_find(self._handle, name.encode(), byref(found)))
            self._tables[name] = found
        return self._tables[name]

    def _read(self, what: str, table: ReaderTable, ids: np.ndarray | None, shape: tuple, out: Any, steps: np.ndarray | None,
              timeout_ms: int) -> Reading:
        dtype = _NAMES[table.dtype]
        if out is None:
            out = np.empty(shape, numpy_dtype(dtype))
        target = lend_output(what, out, dtype, shape)
        args = ReaderArgs(sizeof(ReaderArgs), table.number, ids.size if ids is not None else 0,
                          ids.ctypes.data if ids is not None and ids.size else None, target.address,
                          steps.ctypes.data if steps is not None else None, timeout_ms)
        answer = ReaderAnswer(struct_size=sizeof(ReaderAnswer))
        check(library().psd_reader_read(self._handle, byref(args), byref(answer)))
        if target.finish is not None:
            target.finish()
        return Reading(out, answer.step, answer.newest, answer.age_us / 1e6)
