# SPDX-License-Identifier: Apache-2.0
"""One worker's array for all, bit for bit.

It goes through "sum" tables to which the root gives its bytes and everybody else zeros. Sixteen bits
become one float32, which holds them exactly, so integers, NaN and negative zero arrive as they were. The
tables are small and used again, whatever is sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _elastic
from ._errors import InvalidError, MismatchError
from ._memory import elements
from ._table import Table

if TYPE_CHECKING:
    from ._context import Context

_SMALL, _LARGE = 1 << 11, 1 << 20  # elements, of two bytes each
_HEADER_BYTES = 2 * _SMALL


class Broadcaster:
    """The tables that broadcasts of one context go through."""

    def __init__(self, context: Context):
        self._context = context
        self._tables: dict[int, Table] = {}

    def _table(self, elements_: int) -> Table:
        if elements_ not in self._tables:
            self._tables[elements_] = Table(
                f"poseidon.broadcast.{elements_}", elements_, "float32", use="sum", reduce="sum",
                nan_policy="allow", context=self._context)
        return self._tables[elements_]

    def _send_block(self, size: int, block: np.ndarray | None, count: int) -> np.ndarray:
        """`count` bytes of the root, where block is not None."""
        pairs = np.zeros(size, np.float32)
        if block is not None:
            padded = np.zeros(count + count % 2, np.uint8)
            padded[:count] = block
            pairs[: padded.size // 2] = padded.view(np.uint16)
        summed = self._table(size).push_pull(pairs, pairs).wait()
        return summed[: (count + 1) // 2].astype(np.uint16).view(np.uint8)[:count]

    def send(self, flat: np.ndarray, is_root: bool) -> None:
        """Fills these bytes with those of the root."""
        at = 0
        while at < flat.size:
            size = _SMALL if flat.size - at <= 2 * _SMALL else _LARGE
            piece = flat[at: at + 2 * size]
            got = self._send_block(size, piece if is_root else None, piece.size)
            if not is_root:
                piece[:] = got
            at += piece.size

    def agree(self, mine: dict[str, Any], is_root: bool) -> dict[str, Any]:
        """What the root says of its array."""
        text = json.dumps(mine).encode()
        if len(text) > _HEADER_BYTES:
            raise InvalidError(f"broadcast {mine['name'][:60]}...: the name is too long")
        header = np.zeros(_HEADER_BYTES, np.uint8)
        header[: len(text)] = np.frombuffer(text, np.uint8)
        self.send(header, is_root)
        try:
            return json.loads(header.tobytes().rstrip(b"\0"))
        except ValueError:
            raise MismatchError(f"broadcast {mine['name']}: workers disagree about the root; "
                                f"here it is {mine['root']}") from None


def _among_members(group: Any, array: Any, found: np.ndarray, root: int) -> Any:
    """Where workers come and go. The root is one of those that are here."""
    came = group.broadcast(np.ascontiguousarray(found).tobytes(), root)
    values = np.frombuffer(came, found.dtype).reshape(found.shape)
    if not found.flags.writeable:
        return values.copy()
    found[...] = values
    return array if isinstance(array, np.ndarray) or hasattr(array, "__dlpack__") else found


def broadcast(context: Context, array: Any, root: int, name: str) -> Any:
    """Every worker calls it with arrays of one type and shape. Where the array is not the root's it
    is overwritten, and returned; a new one is returned for what cannot be written."""
    what = f"broadcast {name}"
    found, dtype = elements(what, array)
    group = _elastic.current()
    if group is not None and group.context is context:
        return _among_members(group, array, found, root)
    if not 0 <= root < context.size:
        raise InvalidError(f"{what}: root {root}, the job has ranks 0 to {context.size - 1}")
    if context._broadcaster is None:
        context._broadcaster = Broadcaster(context)
    is_root = context.rank == root
    mine = {"name": name, "root": root, "dtype": dtype, "shape": list(found.shape)}
    theirs = context._broadcaster.agree(mine, is_root)
    if theirs != mine:
        raise MismatchError(
            f"{what}: rank {context.rank} expects {name} {dtype}{list(found.shape)} from rank "
            f"{root}, rank {theirs['root']} sends {theirs['name']} "
            f"{theirs['dtype']}{theirs['shape']}")
    direct = found.flags.c_contiguous and (is_root or found.flags.writeable)
    whole = found if direct else np.array(found, order="C")
    if whole.size:
        context._broadcaster.send(whole.reshape(-1).view(np.uint8), is_root)
    if is_root:
        return array
    if not found.flags.writeable:
        return whole
    if not direct:
        found[...] = whole
    return array if isinstance(array, np.ndarray) or hasattr(array, "__dlpack__") else found
