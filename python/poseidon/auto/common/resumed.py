# SPDX-License-Identifier: Apache-2.0
"""What a script has to know of the checkpoint that its job goes on from before anything else of it runs: random numbers
are to begin as they did, and sets of text to have the order that they had."""

from __future__ import annotations

import functools
import json
import os
import sys
import zlib
from typing import Any

_NAME = "part-{}-worker0.safetensors"


def is_resumed() -> bool:
    """Whether the job goes on from a checkpoint."""
    return bool(os.environ.get("PSD_RESUME")) and bool(os.environ.get("PSD_RESUME_GENERATION"))


@functools.lru_cache(maxsize=1)
def head() -> dict[str, Any]:
    """What the part of worker 0 says of the script; empty: there is none of a plain script. Whether it is intact is looked
    at later."""
    if not is_resumed():
        return {}
    path = os.path.join(os.environ["PSD_RESUME"], _NAME.format(os.environ["PSD_RESUME_GENERATION"]))
    try:
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        found = json.loads(header["__metadata__"]["plain"])
    except (OSError, ValueError, KeyError):
        return {}
    return found if isinstance(found, dict) else {}


def begin_again_in_order() -> None:
    """Python with another order of sets is started anew with that of the checkpoint: there is no other way to change it."""
    order = head().get("hash_seed")
    if order is not None and os.environ.get("PYTHONHASHSEED") != order:
        os.environ["PYTHONHASHSEED"] = order
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def circumstances(session: Any, **versions: str) -> dict[str, Any]:
    """What has to be the same when a script goes on."""
    with open(sys.argv[0], "rb") as file:
        text = file.read()
    return {"script": zlib.crc32(text), "arguments": sys.argv[1:], "workers": session.world, **versions}


def check_circumstances(session: Any, **versions: str) -> None:
    """Of the checkpoint and now."""
    for what, now in circumstances(session, **versions).items():
        if head().get(what) != now:
            told = "" if what == "script" else f" ({head().get(what)} then, {now} now)"
            session.refuse(f"the checkpoint was written with another {what.rstrip('s') if what in ('arguments', 'workers') else what}{told}",
                           "go on with what it was written with, and the same number of workers, or begin anew")
