# SPDX-License-Identifier: Apache-2.0
"""Who counts in a step of a job whose workers come and go."""

from __future__ import annotations

from ctypes import byref, c_uint32, sizeof
from typing import NamedTuple

from ._library import MembersInfo, check, library

STEP_NOW = 2**64 - 1
_NO_INDEX = 2**32 - 1
_RANKS_MAX = 1024


class Members(NamedTuple):
    """The workers that count in a step."""

    version: int  # grows with every worker that joins or leaves; 0 at the start
    since: int  # the step since which it is this set
    ranks: tuple[int, ...]  # may have gaps
    index: int | None  # this worker's place among them; None: it does not count in that step

    @property
    def count(self) -> int:
        return len(self.ranks)


def members_at(handle: int, step: int | None) -> Members:
    found = MembersInfo(sizeof(MembersInfo))
    ranks = (c_uint32 * _RANKS_MAX)()
    check(library().psd_members(handle, STEP_NOW if step is None else step, byref(found), ranks, _RANKS_MAX))
    return Members(found.version, found.since, tuple(ranks[: found.count]),
                   None if found.index == _NO_INDEX else found.index)
