# SPDX-License-Identifier: Apache-2.0
"""Pinned pages of host memory: a device reads and writes them at the speed of the link, beside its computation.

The system cannot move or swap them, so there is a bound on how many a process pins. What is not pinned works all the same,
slowly; the first time it happens, a line says so."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
import weakref

import torch

import poseidon

VARIABLE = "PSD_TORCH_PINNED_MIB"  # at most so much, of one process
_READ_ONLY = 8  # cudaHostRegisterReadOnly
_READ_ONLY_SUPPORTED = 113  # CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
_MIB = 1 << 20


class Ledger:
    """All pages that this process has pinned, and how many they may be."""

    def __init__(self) -> None:
        self.bytes = 0
        self.lock = threading.RLock()  # pages may be let go while it is held
        self.held: weakref.WeakSet[Pages] = weakref.WeakSet()
        self.told = False
        self.watched: weakref.ReferenceType | None = None  # the context whose end we wait for

    def take(self, size: int) -> bool:
        """So many more; false: they would be too many."""
        with self.lock:
            if self.bytes + size > limit():
                return False
            self.bytes += size
            return True

    def give_back(self, size: int) -> None:
        """They are pinned no more."""
        with self.lock:
            self.bytes -= size

    def tell(self, size: int, why: str) -> None:
        """Once in a process."""
        if not self.told:
            self.told = True
            logging.getLogger("poseidon").warning(
                "%.1f MiB of host memory are not pinned for CUDA: %s; gradients travel all the same, but slower "
                "(docs/pytorch.md, \"CUDA\")", size / _MIB, why)

    def watch(self) -> None:
        """Memory of the context goes when it ends: nothing of it may be pinned then."""
        context = poseidon.context()
        if self.watched is None or self.watched() is not context:
            self.watched = weakref.ref(context)
            context.before_leaving(self.release_all)

    def release_all(self) -> None:
        """When the devices have done what they were told to do with them."""
        held = list(self.held)
        for device in {pages.device for pages in held}:
            torch.cuda.synchronize(device)
        for pages in held:
            pages.release()


ledger = Ledger()


class Pages:
    """Some that are pinned, until release(), or until nobody has this any more."""

    def __init__(self, device: torch.device, address: int, size: int):
        self.device = device
        self.release = weakref.finalize(self, _unpin, os.getpid(), address, size)
        ledger.held.add(self)


def pin(device: torch.device, address: int, size: int, read_only: bool = False) -> Pages | None:
    """None: there would be too many, or the system refuses it. read_only: as is memory that this process may not write."""
    if not ledger.take(size):
        ledger.tell(size, f"{ledger.bytes / _MIB:.1f} MiB are, and {limit() / _MIB:.1f} are allowed ({VARIABLE})")
        return None
    ledger.watch()
    with torch.cuda.device(device):
        code = int(torch.cuda.cudart().cudaHostRegister(address, size, _READ_ONLY if read_only else 0))
    if code == 0:
        return Pages(device, address, size)
    ledger.give_back(size)
    ledger.tell(size, f"cudaHostRegister failed with {code}")
    _forget_error(device)
    return None


def _forget_error(device: torch.device) -> None:
    """The runtime remembers the error, and the next kernel would be blamed for it."""
    try:
        torch.ones(1, device=device)
    except RuntimeError:
        pass


def _unpin(owner: int, address: int, size: int) -> None:
    if os.getpid() == owner:  # a forked child has no device
        torch.cuda.cudart().cudaHostUnregister(address)
        ledger.give_back(size)


@functools.cache
def limit() -> int:
    """Half of the machine's memory, shared by the workers on it; or what the variable says."""
    told = os.environ.get(VARIABLE, "")
    if not told:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // poseidon.local_size()
    if not told.isdecimal():
        raise poseidon.InvalidError(f"{VARIABLE}={told}: a whole number of MiB; 0: nothing is pinned")
    return int(told) * _MIB


@functools.cache
def reads_views(device: torch.device) -> bool:
    """Whether the device takes memory that this process may not write: views of tables are such."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    supported = ctypes.c_int(0)
    code = driver.cuDeviceGetAttribute(ctypes.byref(supported), _READ_ONLY_SUPPORTED, device.index or 0)
    return code == 0 and supported.value != 0


def pinned_bytes() -> int:
    """So much host memory is pinned for devices by this process: staging buffers, and values of servers on this machine,
    which the workers on it share."""
    return ledger.bytes
