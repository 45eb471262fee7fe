# SPDX-License-Identifier: Apache-2.0
"""Lines for psd_run to show. The script's own output is left alone."""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys

_LAST_WORD = "last word: "  # psd_run quotes such a line when it says why the job ended


def tell(text: str) -> bool:
    """One line for psd_run's console and poseidon_run.log. Returns whether psd_run takes it."""
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
    """Says why the script is stopped: psd_run says it once; without a psd_run the worker prints it. In a child process
    of the script, this is not the last word of the worker."""
    text = f"automatic distribution stopped {script_name()}: {reason}; {advice}"
    sys.stdout.flush()
    if not tell(text if multiprocessing.parent_process() is not None else _LAST_WORD + text):
        print(f"poseidon: {text}", file=sys.stderr, flush=True)
