# SPDX-License-Identifier: Apache-2.0
"""A worker of poseidon.run: python -m poseidon._run_worker DIRECTORY"""

from __future__ import annotations

import pathlib
import sys
import traceback

import poseidon
from poseidon._carry import pack, unpack


def _leave(directory: pathlib.Path, name: str, content: bytes) -> None:
    """The file is there as a whole, or not at all."""
    beginning = directory / f".{name}"
    beginning.write_bytes(content)
    beginning.rename(directory / name)


def main() -> int:
    directory = pathlib.Path(sys.argv[1])
    context = poseidon.init()
    rank = context.rank
    try:
        function, args, kwargs = unpack((directory / "call").read_bytes())
        result = pack(function(*args, **kwargs), f"what worker {rank} returned")
        poseidon.close()
    except BaseException:  # pylint: disable=broad-exception-caught
        _leave(directory, f"error.{rank}", traceback.format_exc().encode())
        traceback.print_exc()
        context._leave_to_the_end()
        return 1
    _leave(directory, f"result.{rank}", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
