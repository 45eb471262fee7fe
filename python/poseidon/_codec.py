# SPDX-License-Identifier: Apache-2.0
"""Values of Python and NumPy arrays as bytes and back, without pickle: nothing that arrives can run code.

A text in JSON holds everything but the arrays' bytes, which follow it. What JSON lacks (tuples, keys that are not text, arrays,
infinities) is written as an object with one key that begins with a dollar sign. poseidon.torch.codec is the same for
tensors."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

_HEADER = 8  # bytes that tell the length of the text


def encode(value: Any) -> bytes:
    """A value of numbers, text, None, lists, tuples, dictionaries and arrays of numbers, as bytes."""
    arrays: list[bytes] = []
    text = json.dumps(_pack(value, arrays, "the value")).encode()
    return len(text).to_bytes(_HEADER, "little") + text + b"".join(arrays)


def decode(data: bytes) -> Any:
    """What encode() was given."""
    end = _HEADER + int.from_bytes(data[:_HEADER], "little")
    return _Unpacker(memoryview(data)[end:]).unpack(json.loads(data[_HEADER:end]))


def _pack(value: Any, arrays: list[bytes], where: str) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        array = np.asarray(value)
        arrays.append(array.tobytes())
        return {"$array": [array.dtype.str, list(array.shape), isinstance(value, np.generic)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_pack(item, arrays, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [_pack(item, arrays, f"{where}[{number}]") for number, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"$dict": [[_pack(key, arrays, where), _pack(item, arrays, f"{where}[{key!r}]")] for key, item in value.items()]}
    raise TypeError(f"{where} is a {type(value).__name__}: only numbers, text, None, lists, tuples, dictionaries and arrays of "
                    "numbers travel")


class _Unpacker:
    def __init__(self, rest: memoryview):
        self.rest = rest

    def unpack(self, value: Any) -> Any:
        """One value, and what is in it."""
        if isinstance(value, list):
            return [self.unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "$array":
            return self._array(*content)
        if kind == "$float":
            return float(content)
        if kind == "$tuple":
            return tuple(self.unpack(item) for item in content)
        return {self.unpack(key): self.unpack(item) for key, item in content}

    def _array(self, name: str, shape: list[int], is_scalar: bool) -> Any:
        dtype = np.dtype(name)
        size = math.prod(shape) * dtype.itemsize
        raw, self.rest = self.rest[:size], self.rest[size:]
        array = np.frombuffer(raw, dtype).reshape(shape).copy()
        return array[()] if is_scalar else array
