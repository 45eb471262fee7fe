# SPDX-License-Identifier: Apache-2.0
"""Failures as exceptions: one class for each thing that a program can do about them."""

from __future__ import annotations

import builtins
import enum


class Status(enum.IntEnum):
    """The codes of include/psd/status.h, without their prefix PSD_."""

    OK = 0
    PENDING = 1
    ERR_INVALID = -1
    ERR_MISMATCH = -2
    ERR_STEP = -3
    ERR_NOT_FINITE = -4
    ERR_FORKED = -5
    ERR_STATE = -6
    ERR_TIMEOUT = -20
    ERR_BUSY = -21
    ERR_DROPPED = -22
    ERR_TOO_BIG = -23
    ERR_NO_MEMORY = -24
    ERR_IO = -25
    ERR_CORRUPT = -26
    ERR_PEER_LOST = -40
    ERR_JOB_FAILED = -41
    ERR_FENCED = -42
    ERR_REFUSED = -43
    ERR_VERSION = -44
    ERR_PROTOCOL = -45
    ERR_CLOSED = -46
    ERR_INTERNAL = -60


class Error(Exception):
    """Something that Poseidon could not do. The message is the library's own: what was tried, and
    what happened.

    status   why, as a member of Status.
    outcome  of an operation: "not applied" when nothing of it took effect, "unknown" when some of
             it may have. None for everything else.
    """

    status: Status = Status.ERR_INTERNAL
    outcome: str | None = None

    def __init__(self, text: str, status: Status | None = None, outcome: str | None = None):
        super().__init__(text)
        if status is not None:
            self.status = status
        self.outcome = outcome

    def __reduce__(self) -> tuple:  # so that it survives multiprocessing and poseidon.run
        return type(self), (str(self), self.status, self.outcome)


class InvalidError(Error, ValueError):
    """An argument makes no sense."""

    status = Status.ERR_INVALID


class MismatchError(Error, ValueError):
    """Ranks disagree about a table; the message shows both sides."""

    status = Status.ERR_MISMATCH


class StepError(Error, ValueError):
    """Not the next step of this table."""

    status = Status.ERR_STEP


class NotFiniteError(Error, ArithmeticError):
    """A gradient holds a NaN or an infinity, and the table's nan_policy is "reject"."""

    status = Status.ERR_NOT_FINITE


class StateError(Error, RuntimeError):
    """Not possible now: before init(), or in the middle of something else."""

    status = Status.ERR_STATE


class ForkedError(StateError):
    """The context belongs to the parent of this process."""

    status = Status.ERR_FORKED


class ClosedError(StateError):
    """The context was closed."""

    status = Status.ERR_CLOSED


class TimeoutError(Error, builtins.TimeoutError):  # pylint: disable=redefined-builtin
    """A deadline has passed."""

    status = Status.ERR_TIMEOUT


class DroppedError(Error):
    """The round closed with the gradients of others (backup workers)."""

    status = Status.ERR_DROPPED


class MemoryError(Error, builtins.MemoryError):  # pylint: disable=redefined-builtin
    """It does not fit, here or on a server."""

    status = Status.ERR_NO_MEMORY


class FileError(Error):
    """A file of a save could not be written or read, or is damaged."""

    status = Status.ERR_IO


class LostError(Error, ConnectionError):
    """The job is over for this worker: a process was lost, the job failed, or somebody replaced
    this worker."""

    status = Status.ERR_PEER_LOST


class RefusedError(Error, ConnectionError):
    """The job does not take this worker: its rank, its secret or its version."""

    status = Status.ERR_REFUSED


class LibraryError(Error, ImportError):
    """libpsd, or a program of Poseidon, is missing, or is of another version than the package."""

    status = Status.ERR_VERSION


_CLASSES: dict[Status, type[Error]] = {
    Status.ERR_INVALID: InvalidError,
    Status.ERR_MISMATCH: MismatchError,
    Status.ERR_STEP: StepError,
    Status.ERR_NOT_FINITE: NotFiniteError,
    Status.ERR_FORKED: ForkedError,
    Status.ERR_STATE: StateError,
    Status.ERR_TIMEOUT: TimeoutError,
    Status.ERR_DROPPED: DroppedError,
    Status.ERR_TOO_BIG: MemoryError,
    Status.ERR_NO_MEMORY: MemoryError,
    Status.ERR_IO: FileError,
    Status.ERR_CORRUPT: FileError,
    Status.ERR_PEER_LOST: LostError,
    Status.ERR_JOB_FAILED: LostError,
    Status.ERR_FENCED: LostError,
    Status.ERR_REFUSED: RefusedError,
    Status.ERR_VERSION: RefusedError,
    Status.ERR_CLOSED: ClosedError,
}


def error_of(code: int, text: str, outcome: str | None = None) -> Error:
    """The exception for a code of the library."""
    try:
        status = Status(code)
    except ValueError:  # of a newer library
        return Error(f"{text} (status {code})", outcome=outcome)
    return _CLASSES.get(status, Error)(text, status, outcome)
