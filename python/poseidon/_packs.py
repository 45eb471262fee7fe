# SPDX-License-Identifier: Apache-2.0
"""Which tensors travel together: what a table costs is more than what a small tensor does."""

from __future__ import annotations

from typing import Iterable

SMALL_BYTES = 64 << 10  # tensors below this travel with others of their type ...
PACK_BYTES = 1 << 20  # ... until they are so many bytes


def plan(tensors: Iterable[tuple[int, str, int]]) -> list[list[int]]:
    """tensors: number, type and bytes of each. The numbers of those that travel together, as every worker finds them by
    itself."""
    packs: list[list[int]] = []
    filling: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    for number, kind, size in tensors:
        if size >= SMALL_BYTES:
            packs.append([number])
            continue
        if kind not in filling or filled[kind] + size > PACK_BYTES:
            filling[kind], filled[kind] = [], 0
            packs.append(filling[kind])
        filling[kind].append(number)
        filled[kind] += size
    return packs
