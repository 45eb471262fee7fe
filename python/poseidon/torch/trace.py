# SPDX-License-Identifier: Apache-2.0
"""What happened when, as a file for chrome://tracing or ui.perfetto.dev.

    poseidon.torch.trace.start("trace.json")     or PSD_TORCH_TRACE=trace-{rank}.json
    ...
    poseidon.torch.trace.stop()                  also at the end of the process

Computation is one row, every transfer under way is a bar on the rows below it. While nothing is
recorded, a call costs a comparison."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
from typing import Any, Iterator

import poseidon

COMPUTE_ROW = 0


class _Recorder:
    def __init__(self, path: str):
        self.path = path
        self.events: list[dict] = []
        self.lock = threading.Lock()
        self.rows: list[bool] = []  # whether a transfer is drawn there now

    def add(self, name: str, row: int, begin_ns: int, end_ns: int, **details: Any) -> None:
        with self.lock:
            self.events.append({"name": name, "ph": "X", "pid": poseidon.rank(), "tid": row,
                                "ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000,
                                "args": details})

    def take_row(self) -> int:
        """A row below the computation where nothing is drawn."""
        with self.lock:
            if False not in self.rows:
                self.rows.append(False)
            row = self.rows.index(False)
            self.rows[row] = True
            return COMPUTE_ROW + 1 + row

    def give_row(self, row: int) -> None:
        with self.lock:
            self.rows[row - COMPUTE_ROW - 1] = False

    def write(self) -> None:
        names = [{"name": "thread_name", "ph": "M", "pid": rank, "tid": row,
                  "args": {"name": "computation" if row == COMPUTE_ROW else f"transfer {row}"}}
                 for rank, row in sorted({(event["pid"], event["tid"]) for event in self.events})]
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": names + self.events, "displayTimeUnit": "ms"}, file)


_recorder: _Recorder | None = None


def start(path: str | os.PathLike) -> None:
    """Begins to record; {rank} in the path becomes this worker's number."""
    global _recorder  # pylint: disable=global-statement
    _recorder = _Recorder(str(path).replace("{rank}", str(poseidon.rank())))


def stop() -> str | None:
    """Writes the file and returns its path; None when nothing was recorded."""
    global _recorder  # pylint: disable=global-statement
    recorder, _recorder = _recorder, None
    if recorder is None:
        return None
    recorder.write()
    return recorder.path


def start_as_told() -> None:
    """Begins to record when PSD_TORCH_TRACE names a file."""
    path = os.environ.get("PSD_TORCH_TRACE")
    if path and _recorder is None:
        start(path)


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Draws a bar for what is done inside, on the row of the computation."""
    if _recorder is None:
        yield
        return
    recorder, begin = _recorder, time.monotonic_ns()
    try:
        yield
    finally:
        recorder.add(name, COMPUTE_ROW, begin, time.monotonic_ns())


def follow(future: Any, name: str, size: int) -> None:
    """Draws a bar for a transfer, from now to its end."""
    if _recorder is None:
        return
    recorder, begin, row = _recorder, time.monotonic_ns(), _recorder.take_row()

    def ended(_future: Any) -> None:
        recorder.add(name, row, begin, time.monotonic_ns(), bytes=size)
        recorder.give_row(row)

    future.add_done_callback(ended)


atexit.register(stop)
