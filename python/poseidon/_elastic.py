# SPDX-License-Identifier: Apache-2.0
"""Whether this program is one whose workers come and go (poseidon.elastic), and its group of workers.

This is what the rest of the package knows of it: nothing of it is loaded for programs that are not."""

from __future__ import annotations

import importlib
import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .elastic.group import Group

_PACKAGES = ("poseidon.elastic", "poseidon.torch.elastic", "poseidon.tensorflow.elastic", "poseidon.tensorflow.keras.elastic",
             "poseidon.keras.elastic")
_declared = False
_group: "Optional[Group]" = None


def declare() -> None:
    """This program is one."""
    global _declared  # pylint: disable=global-statement
    _declared = True


def look_for_use(frame: FrameType | None) -> bool:
    """Whether the program is one: it has imported poseidon.elastic, or the code that called, or the script that it is part
    of, names `elastic` (hvd.elastic.run), which is not executed yet."""
    if _declared or any(name in sys.modules for name in _PACKAGES):
        declare()
    while frame is not None and not _declared:
        if not frame.f_globals.get("__name__", "").startswith(("poseidon.", "importlib")) and _names_it(frame.f_code):
            declare()
        frame = frame.f_back
    return _declared


def _names_it(code: CodeType) -> bool:
    return "elastic" in code.co_names or \
        any(isinstance(constant, CodeType) and _names_it(constant) for constant in code.co_consts)


def is_declared() -> bool:
    """Whether this program is one."""
    return _declared


def current() -> "Optional[Group]":
    """The group of workers that this one is of; None: the program is another, or in no job."""
    global _group  # pylint: disable=global-statement
    if not _declared:
        return None
    from ._context import context, is_initialized  # pylint: disable=import-outside-toplevel

    if not is_initialized():
        return None
    if _group is None or _group.context is not context():
        _group = importlib.import_module("poseidon.elastic.group").Group(context())
    return _group


def rank() -> int:
    """This worker among those that are here: 0..size()-1. Where workers do not come and go it is the rank."""
    from ._context import context  # pylint: disable=import-outside-toplevel

    group = current()
    return group.index if group is not None and group.members else context().rank


def size() -> int:
    """How many workers are here."""
    from ._context import context  # pylint: disable=import-outside-toplevel

    group = current()
    return len(group.members) if group is not None and group.members else context().size


def barrier(timeout_ms: int | None = None) -> None:
    """Waits until all workers that are here have come to it."""
    from ._context import context  # pylint: disable=import-outside-toplevel

    group = current()
    if group is not None:
        group.barrier()
    elif timeout_ms is None:
        context().barrier()
    else:
        context().barrier(timeout_ms)
