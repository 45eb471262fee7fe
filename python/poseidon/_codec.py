# SPDX-License-Identifier: Apache-2.0
"""Values of Python and arrays as bytes and back, without pickle: nothing that arrives can run code.

A text in JSON holds everything but the arrays' bytes, which follow it. What JSON lacks (tuples, keys that are not text, arrays,
infinities) is written as an object with one key that begins with a dollar sign. Here the arrays are NumPy's;
poseidon.torch.codec has tensors."""

from __future__ import annotations

import json
import math
from typing import Any, Callable

import numpy as np

_HEADER = 8  # bytes that tell the length of the text


class Codec:
    """A kind of arrays says how one of them travels."""

    name: str  # of the key that marks one
    nouns: str  # in messages

    def takes(self, value: Any) -> bool:
        """Is it such an array?"""
        raise NotImplementedError

    def describe(self, array: Any) -> tuple[list[Any], bytes]:
        """What restore() needs, for JSON; and the bytes."""
        raise NotImplementedError

    def restore(self, take: Callable[[int], memoryview], *description: Any) -> Any:
        """The array again. take(size) gives the next bytes."""
        raise NotImplementedError

    def encode(self, value: Any) -> bytes:
        """A value of numbers, text, None, lists, tuples, dictionaries and arrays, as bytes."""
        arrays: list[bytes] = []
        text = json.dumps(self._pack(value, arrays, "the value")).encode()
        return len(text).to_bytes(_HEADER, "little") + text + b"".join(arrays)

    def decode(self, data: bytes) -> Any:
        """What encode() was given."""
        end = _HEADER + int.from_bytes(data[:_HEADER], "little")
        rest = memoryview(data)[end:]

        def take(size: int) -> memoryview:
            nonlocal rest
            raw, rest = rest[:size], rest[size:]
            return raw

        return self._unpack(json.loads(data[_HEADER:end]), take)

    def _pack(self, value: Any, arrays: list[bytes], where: str) -> Any:
        if self.takes(value):
            description, raw = self.describe(value)
            arrays.append(raw)
            return {f"${self.name}": description}
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": repr(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self._pack(item, arrays, f"{where}[{number}]") for number, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"$tuple": [self._pack(item, arrays, f"{where}[{number}]") for number, item in enumerate(value)]}
        if isinstance(value, dict):
            return {"$dict": [[self._pack(key, arrays, where), self._pack(item, arrays, f"{where}[{key!r}]")]
                              for key, item in value.items()]}
        raise TypeError(f"{where} is a {type(value).__name__}: only numbers, text, None, lists, tuples, dictionaries and "
                        f"{self.nouns} travel")

    def _unpack(self, value: Any, take: Callable[[int], memoryview]) -> Any:
        if isinstance(value, list):
            return [self._unpack(item, take) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == f"${self.name}":
            return self.restore(take, *content)
        if kind == "$float":
            return float(content)
        if kind == "$tuple":
            return tuple(self._unpack(item, take) for item in content)
        return {self._unpack(key, take): self._unpack(item, take) for key, item in content}


class _Arrays(Codec):
    name, nouns = "array", "arrays of numbers"

    def takes(self, value: Any) -> bool:
        return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc"

    def describe(self, array: Any) -> tuple[list[Any], bytes]:
        flat = np.asarray(array)
        return [flat.dtype.str, list(flat.shape), isinstance(array, np.generic)], flat.tobytes()

    def restore(self, take: Callable[[int], memoryview], *description: Any) -> Any:
        name, shape, is_scalar = description
        dtype = np.dtype(name)
        array = np.frombuffer(take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()
        return array[()] if is_scalar else array


encode, decode = _Arrays().encode, _Arrays().decode
