# SPDX-License-Identifier: Apache-2.0
"""Whether a process that the script started itself was stopped for training there.

The script may not look at how its children end. They leave a mark in memory of the first process, which they find
through an environment variable, however they were started; nothing is left of it when that process is gone. And of those
that multiprocessing has started it is known how they ended."""

import functools
import multiprocessing.process
import os

EXIT_REFUSED = 2
_VARIABLE = "PSD_AUTO_CHILDREN"
_descriptor = -1  # of the mark, in the first process
_started: list = []  # processes that have not ended well, as far as it is known


def watch() -> None:
    """In the first process, before the script starts others."""
    global _descriptor  # pylint: disable=global-statement
    if _VARIABLE not in os.environ:
        _descriptor = os.memfd_create("poseidon_children")
        os.environ[_VARIABLE] = f"/proc/{os.getpid()}/fd/{_descriptor}"
        _watch_ends()


def _watch_ends() -> None:
    start = multiprocessing.process.BaseProcess.start

    @functools.wraps(start)
    def start_and_note(process):
        start(process)
        _started[:] = [each for each in _started if _exit_code(each) != 0]
        _started.append(process)

    multiprocessing.process.BaseProcess.start = start_and_note


def _exit_code(process) -> int | None:
    """None: it runs, or the script has closed it."""
    try:
        return process.exitcode
    except (ValueError, AssertionError):  # closed; or of another process
        return None


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


def ended_as_refused() -> bool:
    """In the first process: whether one of the others has the exit code for it."""
    return any(_exit_code(each) == EXIT_REFUSED for each in _started)
