# SPDX-License-Identifier: Apache-2.0
"""The kernel ends a process with the one that started it, however that ends.

As a script, `die_with_parent.py PARENT PROGRAM ARGUMENTS...`, it becomes that program. A function that runs between fork
and exec would do without one more file, but not safely in a process with threads, which every actor of Ray is."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """`parent` is who it was when that was decided: it may be gone by now."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
