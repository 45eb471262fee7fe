# SPDX-License-Identifier: Apache-2.0
"""Which files are a script's own, and which belong to the machine, to Python, or to a cache.

Below the working directory everything is the script's, wherever that is; elsewhere everything is but the shared
places. The more specific rule counts: a cache below the working directory is a cache."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

_SHARED = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "~/.cache")
_SHARED_VARIABLES = ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "PSD_LOG_DIR", "PSD_SCRATCH")


def real_place(path: Any, follow: bool) -> str | None:
    """Where a file really is. follow: a link is what it points to. None: an open file, or no path at all."""
    try:
        text = os.fsdecode(path)
        above, name = os.path.split(text.rstrip("/") or "/")
        if follow or name in ("", ".", ".."):
            return os.path.realpath(text)
        return os.path.join(os.path.realpath(above), name)
    except (TypeError, ValueError, OSError):
        return None


class Places:
    """As they are when the script begins."""

    def __init__(self):
        self.here = os.path.realpath(os.getcwd())
        names = {*_SHARED, tempfile.gettempdir(), sys.prefix, sys.base_prefix,
                 *filter(None, map(os.environ.get, _SHARED_VARIABLES))}
        self.shared = {os.path.realpath(os.path.expanduser(name)) for name in names} - {"/"}

    def root_for(self, place: str) -> str | None:
        """The directory to be made private for a place: the working directory where that has it, else the lowest
        one above it that is there. None: the place is shared."""
        above, root = place, None
        while above != "/":
            if above in self.shared:
                return None
            if above == self.here:
                return above
            if root is None and above != place and os.path.isdir(above):
                root = above
            above = os.path.dirname(above)
        return root

    def are_shared(self, text: str) -> bool:
        """Whether that is certain of a path by its text alone."""
        if "/.." in text:
            return False
        above = text.rstrip("/")
        while above not in ("", "/"):
            if above in self.shared:
                return True
            if above == self.here:
                return False
            above = os.path.dirname(above)
        return False

    def are_private(self, path: str | os.PathLike) -> bool:
        """Whether a file is the script's own."""
        place = real_place(path, True)
        return place is not None and self.root_for(place) is not None
