# SPDX-License-Identifier: Apache-2.0
"""Says so when a plain script writes to a place for passing files, such as /tmp, which all workers share (places.py).

Such places cannot be made private: sockets and memory by which processes meet are there. So every worker writes what one
process would write once, and a directory that one has made is there for the next. What has a name of its own by construction
(tempfile), and what libraries keep there for all, is not meant.

Thread: any thread of the script."""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
import tempfile
from typing import Any

from . import notes
from .file_hooks import WRITE_FLAGS, is_relative_to_descriptor, replace
from .places import Places, real_place

PASSING = ("/tmp", "/var/tmp")
OWN_NAMES = ("tempfile", "multiprocessing", "torch._inductor", "torch._dynamo", "torch._functorch", "torch.multiprocessing",
             "torch.distributed", "triton", "poseidon", "_poseidon_auto")
FRAMES = 12  # of those who call, that are asked for their names
PRIVATE = 0o700  # the mode of directories that tempfile makes


class SharedWrites:
    """Of this worker. since: when it began."""

    def __init__(self, places: Places, plain: bool, since: float):
        self._places, self._plain, self._since = places, plain, since
        self._passing = {os.path.realpath(name) for name in (*PASSING, tempfile.gettempdir())}
        self._own: set[str] = set()  # directories that have a name of their own
        self._first = ""  # that was written before it was known that the script is a plain one
        self._told = False
        self._home = os.getpid()
        self._writes_are_told = os.environ["PSD_RANK"] == "1"  # once for all workers

    def apply(self) -> None:
        """From now on."""
        own = io.open

        @functools.wraps(own)
        def open_file(file, mode="r", *args, **kwargs):
            if not isinstance(file, int) and isinstance(mode, str) and not set(mode).isdisjoint("wax+"):
                self._writes(file)
            return own(file, mode, *args, **kwargs)

        def opening(own_open):
            def open_descriptor(path, flags, *args, **kwargs):
                if flags & WRITE_FLAGS and not flags & os.O_EXCL and not is_relative_to_descriptor(kwargs):
                    self._writes(path)
                return own_open(path, flags, *args, **kwargs)

            return open_descriptor

        if self._writes_are_told:
            builtins.open = io.open = open_file
            replace("open", opening)
        replace("mkdir", self._making)

    def be_certain(self) -> None:
        """The script is a plain one, and trains."""
        self._plain = True
        if self._first:
            self._tell(self._first)

    def rest(self) -> None:
        """Files are the script's own business."""
        self._told = True

    def _making(self, own: Any) -> Any:
        def make(path, mode=0o777, **kwargs):
            place = None if is_relative_to_descriptor(kwargs) else self._shared(path)
            try:
                own(path, mode, **kwargs)
            except FileExistsError:
                if place is not None and os.path.exists(place) and os.path.getctime(place) >= self._since:
                    self._tell(place)
                raise
            if place is not None and mode == PRIVATE:
                self._own.add(place)
            elif place is not None and self._writes_are_told:
                self._tell(place)

        return make

    def _writes(self, path: Any) -> None:
        if not self._told and (place := self._shared(path)) is not None:
            self._tell(place)

    def _shared(self, path: Any) -> str | None:
        """Where it is, if that is such a place."""
        place = above = real_place(path, True)
        if place is None or place in self._passing or self._places.root_for(place) is not None:
            return None
        while above != "/" and above not in self._own:
            if above in self._places.shared:
                return place if above in self._passing else None
            above = os.path.dirname(above)
        return None

    def _tell(self, place: str) -> None:
        if self._told or os.getpid() != self._home or _has_a_name_of_its_own():
            return
        if not self._plain:
            self._first = self._first or place
            return
        self._told = True
        notes.tell(f"files: {notes.script_name()} writes {place}, where they are not kept apart: every worker writes there, so "
                   "that a log has each line once for every worker, and os.makedirs fails without exist_ok=True; let it write "
                   "below its working directory")


def _has_a_name_of_its_own() -> bool:
    """By who writes it."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("_poseidon_auto"):
        frame = frame.f_back
    for _ in range(FRAMES):
        if frame is None:
            break
        name = frame.f_globals.get("__name__", "")
        if any(name == each or name.startswith(each + ".") for each in OWN_NAMES):
            return True
        frame = frame.f_back
    return False
