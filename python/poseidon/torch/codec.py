# SPDX-License-Identifier: Apache-2.0
"""Values as bytes and back, without pickle: nothing that arrives can run code.

A text in JSON holds everything but the tensors' bytes, which follow it. Python's types come back as
they were: what JSON lacks (tuples, keys that are not text, tensors, infinities) is written as an
object with one key that begins with a dollar sign."""

from __future__ import annotations

import json
import math
from typing import Any, Sequence

import numpy as np
import torch

_HEADER = 8  # bytes that tell the length of the text


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The elements in row-major order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def tensor_from(raw: bytes | memoryview, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of its own from such bytes."""
    if len(raw) == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    flat = torch.from_numpy(np.frombuffer(raw, np.uint8).copy())
    return flat.view(dtype).reshape(tuple(shape))


def encode(value: Any) -> bytes:
    """A value of numbers, text, None, lists, tuples, dictionaries and tensors, as bytes."""
    tensors: list[bytes] = []
    text = json.dumps(_pack(value, tensors, "the value")).encode()
    return len(text).to_bytes(_HEADER, "little") + text + b"".join(tensors)


def decode(data: bytes) -> Any:
    """What encode() was given."""
    end = _HEADER + int.from_bytes(data[:_HEADER], "little")
    rest = memoryview(data)[end:]
    return _Unpacker(rest).unpack(json.loads(data[_HEADER:end]))


def _pack(value: Any, tensors: list[bytes], where: str) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(tensor_bytes(value))
        return {"$tensor": [str(value.dtype).removeprefix("torch."), list(value.shape)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_pack(item, tensors, where) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_pack(item, tensors, where) for item in value]}
    if isinstance(value, dict):
        return {"$dict": [[_pack(key, tensors, where), _pack(item, tensors, f"{where}[{key!r}]")]
                          for key, item in value.items()]}
    raise TypeError(f"{where} is a {type(value).__name__}: only numbers, text, None, lists, tuples, "
                    "dictionaries and tensors travel")


class _Unpacker:
    def __init__(self, rest: memoryview):
        self.rest = rest

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "$tensor":
            return self._tensor(*content)
        if kind == "$float":
            return float(content)
        if kind == "$tuple":
            return tuple(self.unpack(item) for item in content)
        return {self.unpack(key): self.unpack(item) for key, item in content}

    def _tensor(self, name: str, shape: list[int]) -> torch.Tensor:
        dtype = getattr(torch, name)
        size = math.prod(shape) * dtype.itemsize
        raw, self.rest = self.rest[:size], self.rest[size:]
        return tensor_from(raw, dtype, shape)
