# SPDX-License-Identifier: Apache-2.0
"""What a worker has, as one safetensors file: arrays as such, everything else as JSON in its metadata. Nothing in it can
run code. Here the arrays are NumPy's; poseidon.torch.parts has tensors."""

from __future__ import annotations

import json
import math
from typing import Any, Sequence

import numpy as np

_KEY = "poseidon"
_HEADER = 8
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
         "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}


class Parts:
    """A kind of arrays says how one of them lies in the file."""

    nouns = "arrays"

    def takes(self, value: Any) -> bool:
        """Is it such an array?"""
        return isinstance(value, np.ndarray)

    def type_of(self, array: Any) -> str | None:
        """Its type, by its name in safetensors; None: it cannot be saved."""
        return NAMES.get(array.dtype.name)

    def raw(self, array: Any) -> bytes:
        """The elements in row-major order."""
        return np.ascontiguousarray(array).tobytes()

    def restore(self, data: memoryview, name: str, shape: Sequence[int]) -> Any:
        """An array of its own from such bytes."""
        return np.frombuffer(data, _dtype(name)).reshape(tuple(shape)).copy()

    def encode(self, value: Any, **words: str) -> bytes:
        """A value of numbers, text, None, lists, tuples, dictionaries and arrays, as a file. words: more metadata."""
        arrays: list[Any] = []
        header: dict[str, Any] = {"__metadata__": {_KEY: json.dumps(self._pack(value, arrays, "it")), **words}}
        pieces, at = [self.raw(array) for array in arrays], 0
        for number, (array, piece) in enumerate(zip(arrays, pieces)):
            header[f"tensor{number}"] = {"dtype": self.type_of(array), "shape": list(array.shape), "data_offsets": [at, at + len(piece)]}
            at += len(piece)
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + _HEADER) % 64)
        return b"".join([len(text).to_bytes(_HEADER, "little"), text, *pieces])

    def decode(self, data: bytes | bytearray) -> Any:
        """What encode() was given."""
        end = _HEADER + int.from_bytes(data[:_HEADER], "little")
        header = json.loads(bytes(data[_HEADER:end]))
        return self._unpack(json.loads(header.pop("__metadata__")[_KEY]), header, memoryview(data)[end:])

    # ---- what JSON lacks is an object with one key that begins with a dollar sign

    def _pack(self, value: Any, arrays: list[Any], where: str) -> Any:
        if self.takes(value):
            if self.type_of(value) is None:
                raise TypeError(f"{where} is an array of {value.dtype}: it cannot be saved")
            arrays.append(value)
            return {"$tensor": len(arrays) - 1}
        if isinstance(value, np.generic):
            return {"$scalar": [str(value.dtype), self._pack(value.item(), arrays, where)]}
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": repr(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, bytes):
            return {"$bytes": value.hex()}
        if isinstance(value, list):
            return [self._pack(item, arrays, f"{where}[{number}]") for number, item in enumerate(value)]
        if isinstance(value, (tuple, set, frozenset)):
            kind = "$tuple" if isinstance(value, tuple) else f"${type(value).__name__}"
            return {kind: [self._pack(item, arrays, where) for item in value]}
        if isinstance(value, dict):
            return {"$dict": [[self._pack(key, arrays, where), self._pack(item, arrays, f"{where}[{key!r}]")]
                              for key, item in value.items()]}
        raise TypeError(f"{where} is a {type(value).__name__}: only numbers, text, None, lists, tuples, sets, dictionaries and "
                        f"{self.nouns} can be saved")

    def _unpack(self, value: Any, header: dict[str, Any], data: memoryview) -> Any:
        if isinstance(value, list):
            return [self._unpack(item, header, data) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "$tensor":
            told = header[f"tensor{content}"]
            begin, end = told["data_offsets"]
            return self.restore(data[begin:end], told["dtype"], told["shape"])
        if kind == "$scalar":
            return np.dtype(content[0]).type(content[1])
        if kind == "$float":
            return float(content)
        if kind == "$bytes":
            return bytes.fromhex(content)
        if kind == "$dict":
            return {self._unpack(key, header, data): self._unpack(item, header, data) for key, item in content}
        return {"$tuple": tuple, "$set": set, "$frozenset": frozenset}[kind](self._unpack(item, header, data) for item in content)


def _dtype(name: str) -> np.dtype:
    if name == "BF16":
        import ml_dtypes  # JAX and TensorFlow bring it

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({short: known for known, short in NAMES.items()}[name])


encode, decode = Parts().encode, Parts().decode
