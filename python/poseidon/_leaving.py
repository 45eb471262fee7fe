# SPDX-License-Identifier: Apache-2.0
"""Whether this process is failing, as far as that can be known while Python ends.

The interpreter tells nobody with which code it ends. sys.last_value is there after an uncaught
exception; of sys.exit(code) the code is noted here, and the outermost frame: one that stands at a
return in the end has gone on because somebody caught the exit."""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
import threading
from types import FrameType
from typing import Any

_exit: tuple[Any, FrameType] | None = None  # the last code, and the outermost frame


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _returned(frame: FrameType) -> bool:
    """Whether a frame that is over was left by a return, not by an exception."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def watch_exit() -> None:
    """From now on the codes of sys.exit are noted. Doing it again does nothing."""
    own = sys.exit
    if hasattr(own, "noted_by_poseidon"):
        return

    @functools.wraps(own)
    def noting(*code: Any) -> Any:
        global _exit  # pylint: disable=global-statement
        if threading.current_thread() is threading.main_thread():
            _exit = (code[0] if code else None), _outermost(sys._getframe())
        return own(*code)

    noting.noted_by_poseidon = True
    sys.exit = noting


def failing() -> bool:
    """Whether the script was ended by an uncaught exception, or by sys.exit with a code of failure.
    For functions of atexit."""
    if hasattr(sys, "last_value") and not hasattr(sys, "ps1"):
        return True
    if _exit is None:
        return False
    code, frame = _exit
    return code is not None and code != 0 and not _returned(frame)


def keep_to_the_end(thing: Any) -> None:
    """It is never freed, nor is what it holds: threads of the library use that memory until the
    process is gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
