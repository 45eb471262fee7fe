# SPDX-License-Identifier: Apache-2.0
"""The programs of a wheel as commands of its environment: psd_run, ps_master, ps_server."""

from __future__ import annotations

import os
import sys

from ._errors import LibraryError
from ._library import program


def _become(name: str) -> None:
    try:
        path = program(name)
    except LibraryError as error:
        sys.exit(f"{name}: {error}")
    os.execv(path, [path, *sys.argv[1:]])


def psd_run() -> None:
    """Starts jobs."""
    _become("psd_run")


def ps_master() -> None:
    """Knows who is in a job."""
    _become("ps_master")


def ps_server() -> None:
    """Holds parameters."""
    _become("ps_server")
