# SPDX-License-Identifier: Apache-2.0
"""What psd_run is told. The script's own output is left alone."""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys

_LAST_WORD = "last word: "  # psd_run says such a line when it tells why the job has ended


def tell(text: str) -> bool:
    """One line for psd_run's console and poseidon_run.log. Says whether somebody takes it."""
    place = os.environ.get("PSD_NOTE_FD", "").partition(":")
    try:
        descriptor, inode = int(place[0]), int(place[2])
        found = os.fstat(descriptor)
        if not stat.S_ISFIFO(found.st_mode) or found.st_ino != inode:
            return False  # another file has the number now
        os.write(descriptor, f"{' '.join(text.split())}\n".encode())
    except (ValueError, OSError):
        return False
    return True


def script_name() -> str:
    """The script as people call it."""
    return os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "the script"


def explain_refusal(reason: str, advice: str) -> None:
    """Why the script is stopped: once, by psd_run; by the worker where nobody else does. What a process of the
    script says is not the last word of the worker."""
    text = f"automatic distribution stopped {script_name()}: {reason}; {advice}"
    sys.stdout.flush()
    if not tell(text if multiprocessing.parent_process() is not None else _LAST_WORD + text):
        print(f"poseidon: {text}", file=sys.stderr, flush=True)
