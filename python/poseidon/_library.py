# SPDX-License-Identifier: Apache-2.0
"""libpsd: where it lies, and its calls as ctypes knows them.

The structures repeat include/psd/psd.h; a test compares them with what a C compiler says. Every call
through ctypes gives the GIL back while it runs."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import shutil
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p

from ._errors import LibraryError, error_of
from ._version import __version__

FOREVER = 2**32 - 1
UNBOUNDED = 2**32 - 1
OK, PENDING = 0, 1
TRANSFER_CHECKED, TRANSFER_VIEW = 1, 2
DIMS_MAX = 8
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
INITS = {"zero": 0, "rank0": 1, "constant": 2, "uniform": 3, "normal": 4}
OUTCOMES = {0: "pending", 1: "done", 2: "not applied", 3: "unknown"}
ROLES = {1: "master", 2: "server", 3: "worker"}
STATES = {0: "missing", 1: "joined", 2: "running", 3: "done", 4: "lost"}


class OpenArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("master_address", c_char_p), ("rank", c_char_p),
                ("open_timeout_ms", c_uint32), ("op_timeout_ms", c_uint32),
                ("secret_file", c_char_p)]


class RuleArgs(Structure):
    _fields_ = [("rule", c_int), ("learning_rate", c_double), ("momentum", c_double),
                ("beta1", c_double), ("beta2", c_double), ("epsilon", c_double), ("l1", c_double),
                ("l2", c_double), ("ftrl_beta", c_double), ("weight_decay", c_double),
                ("clip_value", c_double), ("schedule", c_int), ("warmup", c_uint64),
                ("period", c_uint64), ("decay", c_double), ("floor", c_double)]


class TableArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_int),
                ("dims", c_uint32), ("shape", c_uint64 * DIMS_MAX), ("use", c_int),
                ("reduce", c_int), ("rule", RuleArgs), ("staleness", c_uint32),
                ("backup_workers", c_uint32), ("nan_policy", c_int), ("init", c_int),
                ("init_value", c_double), ("seed", c_uint64), ("values", c_void_p),
                ("priority", c_int32)]


class Transfer(Structure):
    _fields_ = [("struct_size", c_size_t), ("step", c_uint64), ("gradient", c_void_p),
                ("values", c_void_p), ("first", c_uint64), ("count", c_uint64),
                ("priority", c_int32), ("timeout_ms", c_uint32), ("flags", c_uint32),
                ("done", c_void_p), ("user", c_void_p)]


class ErrorText(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 508)]


class NodeInfo(Structure):
    _fields_ = [("role", c_int), ("rank", c_uint32), ("state", c_int), ("incarnation", c_uint32),
                ("step", c_uint64), ("steps_per_s", c_double), ("value", c_double),
                ("value_name", c_char * 32), ("address", c_char * 72)]


STRUCTS: dict[str, type[Structure]] = {
    "psd_open_args": OpenArgs, "psd_rule_args": RuleArgs, "psd_table_args": TableArgs,
    "psd_transfer": Transfer, "psd_error": ErrorText, "psd_node": NodeInfo}

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
    "psd_push": (c_int, [c_void_p, POINTER(Transfer), POINTER(c_void_p)]),
    "psd_pull": (c_int, [c_void_p, POINTER(Transfer), POINTER(c_void_p)]),
    "psd_push_pull": (c_int, [c_void_p, POINTER(Transfer), POINTER(c_void_p)]),
    "psd_alloc": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "psd_free": (c_int, [c_void_p, c_void_p]),
    "psd_view": (c_int, [c_void_p, POINTER(c_void_p)]),
    "psd_wait": (c_int, [c_void_p, c_uint32]),
    "psd_wait_any": (c_int, [c_void_p, c_uint32, POINTER(c_void_p)]),
    "psd_op_outcome": (c_int, [c_void_p]),
    "psd_op_error": (POINTER(ErrorText), [c_void_p]),
    "psd_op_release": (None, [c_void_p]),
    "psd_fd": (c_int, [c_void_p]),
    "psd_barrier": (c_int, [c_void_p, c_uint32]),
    "psd_global_step": (c_int, [c_void_p, c_uint64, POINTER(c_uint64)]),
    "psd_report": (c_int, [c_void_p, c_uint64, c_char_p, c_double]),
    "psd_nodes": (c_int, [c_void_p, POINTER(NodeInfo), c_size_t, POINTER(c_size_t)]),
    "psd_save": (c_int, [c_void_p, c_char_p, c_uint64]),
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
