# SPDX-License-Identifier: Apache-2.0
"""Whether a process that the script started itself was stopped for training there.

The script may not look at how its children end. They leave a mark in memory of the first process, which they find
through an environment variable, however they were started; nothing is left of it when that process is gone."""

import os

_VARIABLE = "PSD_AUTO_CHILDREN"
_descriptor = -1  # of the mark, in the first process


def watch() -> None:
    """In the first process, before the script starts others."""
    global _descriptor  # pylint: disable=global-statement
    if _VARIABLE not in os.environ:
        _descriptor = os.memfd_create("poseidon_children")
        os.environ[_VARIABLE] = f"/proc/{os.getpid()}/fd/{_descriptor}"


def note_refusal() -> None:
    """In a process of the script."""
    try:
        with open(os.environ[_VARIABLE], "wb") as mark:
            mark.write(b"refused")
    except (KeyError, OSError):
        pass  # the first process is gone, or has another environment: its own exit code tells, or nobody can


def refused() -> bool:
    """In the first process: whether one of the others was."""
    try:
        return _descriptor >= 0 and os.fstat(_descriptor).st_size > 0
    except OSError:
        return False  # the script has closed it
