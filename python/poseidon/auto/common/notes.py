# SPDX-License-Identifier: Apache-2.0
"""What psd_run is told. The script's own output is left alone."""

from __future__ import annotations

import os
import stat
import sys


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
    """Why the script is stopped, to psd_run and to whoever reads the worker's log."""
    text = f"automatic distribution stopped {script_name()}: {reason}; {advice}"
    tell(text)
    sys.stdout.flush()
    print(f"poseidon: {text}", file=sys.stderr, flush=True)
