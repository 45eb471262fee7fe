# SPDX-License-Identifier: Apache-2.0
"""Memory of others, lent to the library: NumPy arrays, the buffer protocol, DLPack."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, NamedTuple

import numpy as np

from ._library import DTYPES

_NUMPY = {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64),
          "float16": np.dtype(np.float16),
          "bfloat16": np.dtype(np.uint16)}  # NumPy has none of its own: the bits
_CPU, _CPU_PINNED = 1, 3  # DLDeviceType
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 11: "ROCm host",
            13: "CUDA managed", 14: "oneAPI"}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DL_FLOAT, _DL_BFLOAT = 2, 4
_DL_KINDS = {0: "int", 1: "uint", 2: "float", 3: "object", 4: "bfloat", 5: "complex", 6: "bool"}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Lent(NamedTuple):
    """Contiguous memory. keep: what must live while it is used; finish: what to do when the library
    has written it, for memory that is a stand-in."""

    address: int
    keep: tuple
    finish: Callable[[], None] | None = None


def dtype_name(dtype: Any) -> str:
    """The library's name of an element type: of NumPy, of PyTorch, of ml_dtypes, or its name."""
    name = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
    name = name.removeprefix("torch.")
    if name in DTYPES:
        return name
    try:
        name = np.dtype(dtype).name
    except TypeError:
        pass
    if name not in DTYPES:
        raise TypeError(f"elements of type {name}: {_refusal(name)}")
    return name


def numpy_dtype(name: str) -> np.dtype:
    """How NumPy holds such elements; bfloat16 as their bits."""
    return _NUMPY[name]


def _refusal(name: str) -> str:
    holds = "tables hold float32, float64, float16 and bfloat16"
    if name.startswith("complex"):
        return f"{holds}; give real and imaginary parts tables of their own (a.real, a.imag)"
    if name.startswith(("str", "bytes", "object", "void", "datetime", "timedelta")):
        return f"{holds}, no text and no objects"
    return f"{holds}; convert it (a.astype('float32'))"


def _require(what: str, dtype: str, shape: tuple, has_dtype: str, has_shape: tuple) -> None:
    if has_dtype not in DTYPES:
        raise TypeError(f"{what}: elements of type {has_dtype}: {_refusal(has_dtype)}")
    if has_dtype != dtype:
        raise TypeError(f"{what}: the table holds {dtype}, the array {has_dtype}: "
                        f"convert it (a.astype('{dtype}'))")
    if has_shape != shape:
        raise ValueError(f"{what}: the table has shape {shape}, the array {has_shape}")


def _from_address(address: int, dtype: np.dtype, shape: tuple, strides: tuple) -> np.ndarray:
    """An array over memory that somebody else owns. Strides in bytes, none negative."""
    extent = sum((n - 1) * stride for n, stride in zip(shape, strides)) + dtype.itemsize
    memory = (ctypes.c_char * extent).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, strides)


def _may_write(tensor: Any) -> bool:
    """Whether a tensor of another library may be written: those of JAX and TensorFlow never are."""
    if not hasattr(tensor, "__setitem__"):
        return False
    if hasattr(tensor, "detach"):
        tensor = tensor.detach()
    try:
        return np.asarray(tensor).flags.writeable
    except (TypeError, RuntimeError, ValueError):  # a type that NumPy lacks: PyTorch's bfloat16
        return True


class _Foreign(NamedTuple):
    """A tensor of another library, by DLPack."""

    array: np.ndarray
    dtype: str
    keep: tuple


def _by_dlpack(what: str, tensor: Any, any_type: bool = False) -> _Foreign:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach()  # PyTorch lends nothing that wants a gradient
    try:
        device = int(tensor.__dlpack_device__()[0])
    except Exception as error:  # pylint: disable=broad-exception-caught
        raise TypeError(f"{what}: the tensor cannot be read: {error}") from None
    if device not in (_CPU, _CPU_PINNED):
        raise TypeError(f"{what}: the tensor is on a device ({_DEVICES.get(device, device)}): "
                        "copy it to the CPU first (a.cpu())")
    capsule = tensor.__dlpack__()  # nobody renames it, so it gives the memory back when it dies
    header = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    dtype = f"{_DL_KINDS.get(header.code, header.code)}{header.bits}"
    shape = tuple(header.shape[i] for i in range(header.ndim))
    if not any_type and (dtype not in DTYPES or header.lanes != 1):
        raise TypeError(f"{what}: elements of type {dtype}: {_refusal(dtype)}")
    kind = np.dtype(f"V{header.bits * header.lanes // 8}") if any_type else _NUMPY[dtype]
    size = kind.itemsize
    if header.strides:
        strides = tuple(header.strides[i] * size for i in range(header.ndim))
    else:
        strides = tuple(size * math.prod(shape[i + 1:]) for i in range(header.ndim))
    if math.prod(shape) == 0:
        return _Foreign(np.empty(shape, kind), dtype, (capsule, tensor))
    address = header.data + header.byte_offset
    return _Foreign(_from_address(address, kind, shape, strides), dtype, (capsule, tensor))


def _look(what: str, given: Any, dtype: str | None) -> _Foreign:
    """Anything that holds numbers, as an array over the same memory."""
    if isinstance(given, np.ndarray):
        array = given
    elif hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__"):
        return _by_dlpack(what, given)
    elif dtype is not None and isinstance(given, (int, float, list, tuple)):
        try:
            array = np.array(given, _NUMPY[dtype]) if dtype != "bfloat16" else np.array(given)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{what}: not numbers: {error}") from None
    else:
        array = np.asarray(given)
    name = array.dtype.name
    if dtype == "bfloat16" and name in ("uint16", "bfloat16"):
        array, name = array.view(np.uint16), "bfloat16"
    return _Foreign(array, name, (given,))


def elements(what: str, given: Any) -> tuple[np.ndarray, str]:
    """An array of any plain type as an array over the same memory, and the name of its type."""
    if not isinstance(given, np.ndarray) and hasattr(given, "__dlpack__") and _may_write(given):
        found = _by_dlpack(what, given, any_type=True)
        return found.array, found.dtype
    array = np.asarray(given)
    if array.dtype.hasobject or array.dtype.kind in "USmM":
        raise TypeError(f"{what}: elements of type {array.dtype.name}: only numbers can be sent, "
                        "no text and no objects")
    return array, array.dtype.name


def describe(what: str, given: Any) -> tuple[str, tuple[int, ...]]:
    """The element type and the shape of somebody's array."""
    found = _look(what, given, None)
    if found.dtype not in DTYPES:
        raise TypeError(f"{what}: elements of type {found.dtype}: {_refusal(found.dtype)}")
    return found.dtype, found.array.shape


def lend_input(what: str, given: Any, dtype: str, shape: tuple) -> Lent:
    """Memory to read: the array itself when it is contiguous, else a copy."""
    found = _look(what, given, dtype)
    _require(what, dtype, shape, found.dtype, found.array.shape)
    array = np.ascontiguousarray(found.array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return Lent(array.ctypes.data, (array, *found.keep))


def _writable(what: str, given: Any) -> Any:
    """Something whose memory can be written: not a copy, and not what must not change."""
    if hasattr(given, "__dlpack__"):
        if not _may_write(given):
            raise ValueError(f"{what}: out is read-only (a {type(given).__name__})")
        return given
    try:
        return np.asarray(memoryview(given))
    except TypeError:
        raise TypeError(f"{what}: out must be an array, a CPU tensor of PyTorch or a buffer, not "
                        f"{type(given).__name__}") from None


def lend_output(what: str, given: Any, dtype: str, shape: tuple) -> Lent:
    """Memory to write: the array itself when it is contiguous, else a stand-in that is copied
    over at the end."""
    if not isinstance(given, np.ndarray):
        given = _writable(what, given)
    found = _look(what, given, dtype)
    target = found.array
    _require(what, dtype, shape, found.dtype, target.shape)
    if not target.flags.writeable:
        raise ValueError(f"{what}: out is read-only")
    if target.flags.c_contiguous and target.dtype.isnative:
        return Lent(target.ctypes.data, (target, *found.keep))
    stand_in = np.empty(shape, _NUMPY[dtype])

    def copy_over() -> None:
        target[...] = stand_in

    return Lent(stand_in.ctypes.data, (stand_in, target, *found.keep), copy_over)
