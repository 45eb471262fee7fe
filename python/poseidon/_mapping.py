# SPDX-License-Identifier: Apache-2.0
"""Arrays over memory of the library, and what becomes of them when that memory goes.

psd_close() unmaps what psd_alloc() and psd_view() gave. An array that somebody still holds would then
be a hole that ends the process when it is touched. So pages with the same content are put in its
place: such an array goes on as ordinary memory."""

from __future__ import annotations

import ctypes
import logging
import math
import weakref
from typing import Callable, NamedTuple

import numpy as np

_PROT_READ, _PROT_WRITE = 1, 2
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_FIXED_NOREPLACE = 0x02, 0x20, 0x100000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class _Saved(NamedTuple):
    address: int
    memory: ctypes.Array  # what the arrays lean on
    content: bytes


class Mappings:
    """The memory of one context that Python can see."""

    def __init__(self) -> None:
        self._ends: dict[int, weakref.finalize] = {}  # by address

    def array(self, address: int, shape: tuple[int, ...], dtype: np.dtype,
              free: Callable[[int], None] | None = None) -> np.ndarray:
        """An array there; free(address) is called when the last reference to it is gone."""
        memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
        end = weakref.finalize(memory, self._gone, weakref.ref(self), address, free)
        end.atexit = False
        self._ends[address] = end
        return np.ndarray(shape, dtype, memory)

    @staticmethod
    def _gone(owner: weakref.ref, address: int, free: Callable[[int], None] | None) -> None:
        mappings = owner()
        if mappings is not None:
            mappings._ends.pop(address, None)
        if free is not None:
            free(address)

    def save(self) -> list[_Saved]:
        """What is still held, before the memory goes. Nothing is freed from here on."""
        held = []
        for address, end in list(self._ends.items()):
            found = end.detach()
            if found is not None:
                held.append(_Saved(address, found[0], bytes(found[0])))
        self._ends.clear()
        return held

    @staticmethod
    def restore(held: list[_Saved]) -> None:
        """After the memory has gone."""
        for address, memory, content in held:
            size = len(content)
            got = _libc.mmap(address, size, _PROT_READ | _PROT_WRITE,
                             _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE, -1, 0)
            if got != address:
                logging.getLogger("poseidon").critical(
                    "an array of %d bytes outlives its context, and its place was taken: do not "
                    "touch it any more", size)
                continue
            ctypes.memmove(address, content, size)
            weakref.finalize(memory, _libc.munmap, address, size).atexit = False
