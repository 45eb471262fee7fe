# SPDX-License-Identifier: Apache-2.0
"""libpsd: where it lies, and its calls as ctypes knows them.

Every call through ctypes gives the GIL back while it runs. The structures are in _structs.py."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import shutil
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p

from ._errors import LibraryError, error_of
from ._structs import (DIMS_MAX, STRUCTS, ErrorText, MembersInfo, NodeInfo, OpenArgs, ReaderAnswer, ReaderArgs,
                       ReaderOpenArgs, ReaderTable, Rows, RuleArgs, SparseArgs, TableArgs, Transfer)
from ._version import __version__

FOREVER = 2**32 - 1
UNBOUNDED = 2**32 - 1
OK, PENDING = 0, 1
TRANSFER_CHECKED, TRANSFER_VIEW, TRANSFER_BEHIND = 1, 2, 8
PACKAGE = pathlib.Path(__file__).resolve().parent
NATIVE = PACKAGE / "_native"  # in a wheel: lib/ and bin/
TREE = PACKAGE.parents[1]  # in a checkout

# Values of the enums of psd.h, by the names that Python programs use.
DTYPES = {"float32": 1, "float64": 2, "float16": 3, "bfloat16": 4}
USES = {"update": 0, "sum": 1}
REDUCES = {"mean": 0, "sum": 1}
RULES = {"sgd": 0, "add": 1, "momentum": 2, "nesterov": 3, "adagrad": 4, "rmsprop": 5, "adam": 6,
         "adamw": 7, "ftrl": 8}
SCHEDULES = {"constant": 0, "step": 1, "cosine": 2}
NAN_POLICIES = {"reject": 0, "skip": 1, "allow": 2}
FULLS = {"refuse": 0, "oldest": 1, "spill": 2}
INITS = {"zero": 0, "rank0": 1, "constant": 2, "uniform": 3, "normal": 4}
OUTCOMES = {0: "pending", 1: "done", 2: "not applied", 3: "unknown"}
ROLES = {1: "master", 2: "server", 3: "worker"}
STATES = {0: "missing", 1: "joined", 2: "running", 3: "done", 4: "lost"}

# name: (what it returns, its arguments)
_PROTOTYPES = {
    "psd_version": (c_char_p, []),
    "psd_status_name": (c_char_p, [c_int]),
    "psd_last_error": (POINTER(ErrorText), []),
    "psd_open": (c_int, [POINTER(OpenArgs), POINTER(c_void_p)]),
    "psd_close": (c_int, [c_void_p]),
    "psd_abandon": (None, [c_void_p]),
    "psd_rank": (c_uint32, [c_void_p]),
    "psd_size": (c_uint32, [c_void_p]),
    "psd_servers": (c_uint32, [c_void_p]),
    "psd_incarnation": (c_uint32, [c_void_p]),
    "psd_table_open": (c_int, [c_void_p, POINTER(TableArgs), POINTER(c_void_p)]),
    "psd_table_step": (c_uint64, [c_void_p]),
    "psd_sparse_open": (c_int, [c_void_p, POINTER(SparseArgs), POINTER(c_void_p)]),
    "psd_sparse_lookup": (c_int, [c_void_p, POINTER(Rows), POINTER(c_void_p)]),
    "psd_sparse_push": (c_int, [c_void_p, POINTER(Rows), POINTER(c_void_p)]),
    "psd_sparse_push_lookup": (c_int, [c_void_p, POINTER(Rows), POINTER(c_void_p)]),
    "psd_sparse_sum_count": (c_uint64, [c_void_p]),
    "psd_sparse_sum_read": (c_int, [c_void_p, c_void_p, c_void_p]),
    "psd_push": (c_int, [c_void_p, POINTER(Transfer), POINTER(c_void_p)]),
    "psd_pull": (c_int, [c_void_p, POINTER(Transfer), POINTER(c_void_p)]),
    "psd_push_pull": (c_int, [c_void_p, POINTER(Transfer), POINTER(c_void_p)]),
    "psd_alloc": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "psd_free": (c_int, [c_void_p, c_void_p]),
    "psd_view": (c_int, [c_void_p, POINTER(c_void_p)]),
    "psd_view_changes": (c_uint64, [c_void_p]),
    "psd_wait": (c_int, [c_void_p, c_uint32]),
    "psd_wait_any": (c_int, [c_void_p, c_uint32, POINTER(c_void_p)]),
    "psd_op_outcome": (c_int, [c_void_p]),
    "psd_op_error": (POINTER(ErrorText), [c_void_p]),
    "psd_op_release": (None, [c_void_p]),
    "psd_fd": (c_int, [c_void_p]),
    "psd_barrier": (c_int, [c_void_p, c_uint32]),
    "psd_global_step": (c_int, [c_void_p, c_uint64, POINTER(c_uint64)]),
    "psd_report": (c_int, [c_void_p, c_uint64, c_char_p, c_double]),
    "psd_mark": (c_int, [c_void_p, c_uint64, c_char_p, c_uint64, c_uint64]),
    "psd_nodes": (c_int, [c_void_p, POINTER(NodeInfo), c_size_t, c_size_t, POINTER(c_size_t)]),
    "psd_members": (c_int, [c_void_p, c_uint64, POINTER(MembersInfo), POINTER(c_uint32), c_size_t]),
    "psd_leave": (c_int, [c_void_p]),
    "psd_save": (c_int, [c_void_p, c_char_p, c_uint64]),
    "psd_checkpoint_due": (c_uint64, [c_void_p, c_uint64]),
    "psd_checkpoint_part": (c_int, [c_void_p, c_uint64, c_void_p, c_size_t]),
    "psd_checkpoint_resumed": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t),
                                       POINTER(c_uint64)]),
    "psd_reader_open": (c_int, [POINTER(ReaderOpenArgs), POINTER(c_void_p)]),
    "psd_reader_close": (None, [c_void_p]),
    "psd_reader_find": (c_int, [c_void_p, c_char_p, POINTER(ReaderTable)]),
    "psd_reader_read": (c_int, [c_void_p, POINTER(ReaderArgs), POINTER(ReaderAnswer)]),
    "psd_load": (c_int, [c_void_p, c_char_p, POINTER(c_uint64)]),
}


def _candidates() -> list[str]:
    """Where libpsd may lie, the first that exists counts. PSD_LIB alone when it is set."""
    told = os.environ.get("PSD_LIB")
    if told:
        return [told]
    files = [NATIVE / "lib" / "libpsd.so.0", TREE / "build" / "libpsd.so.0"]
    if PACKAGE.parts[-4:-1] == ("share", "poseidon", "python"):  # of an installed prefix
        files += sorted(PACKAGE.parents[3].glob("lib*/**/libpsd.so.0"))
    return [str(file) for file in files if file.exists()] + ["libpsd.so.0"]


def _mode() -> int:
    """libpsd finds its own libraries before what others have made global: TensorFlow brings a TLS
    library of its own, whose functions have the names of OpenSSL's. AddressSanitizer cannot do
    that."""
    sanitized = "asan" in os.environ.get("LD_PRELOAD", "")
    return os.RTLD_NOW | os.RTLD_LOCAL | (0 if sanitized else os.RTLD_DEEPBIND)


def _open_first(candidates: list[str]) -> tuple[ctypes.CDLL, str]:
    reasons = []
    for path in candidates:
        try:
            return ctypes.CDLL(path, _mode()), path
        except OSError as error:
            reasons.append(f"{path}: {error}")
    hint = ("PSD_LIB names it" if os.environ.get("PSD_LIB") else
            "install the wheel, build the tree (make), or set PSD_LIB to the file")
    raise LibraryError(f"libpsd cannot be loaded ({'; '.join(reasons)}): {hint}")


def _check_version(lib: ctypes.CDLL, path: str) -> None:
    try:
        lib.psd_version.restype = c_char_p
        version = lib.psd_version().decode()
    except AttributeError:
        raise LibraryError(f"{path} is not libpsd: it has no psd_version") from None
    if version != __version__:
        raise LibraryError(
            f"{path} is libpsd {version}, the package {PACKAGE} is {__version__}: "
            "install both from one release, or set PSD_LIB to the right file")


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libpsd, loaded when it is first needed."""
    lib, path = _open_first(_candidates())
    _check_version(lib, path)
    for name, (result, arguments) in _PROTOTYPES.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            raise LibraryError(f"{path} calls itself {__version__} but has no {name}: it is of "
                               "another build than the package") from None
        function.restype = result
        function.argtypes = arguments
    return lib


def check(status: int) -> None:
    """Raises what the last call of this thread left behind."""
    if status != OK:
        text = library().psd_last_error().contents.text.decode(errors="replace")
        raise error_of(status, text)


def program(name: str) -> str:
    """psd_run and the like: in the wheel, in the tree, or in the PATH."""
    for file in (NATIVE / "bin" / name, TREE / "build" / name):
        if os.access(file, os.X_OK):
            return str(file)
    found = shutil.which(name)
    if found is None:
        raise LibraryError(f"{name} is neither in {NATIVE / 'bin'} nor in {TREE / 'build'} nor in "
                           "the PATH: install the wheel, or build the tree (make)")
    return found
