# SPDX-License-Identifier: Apache-2.0
"""What a worker has, as one safetensors file: tensors as such, everything else as JSON in its metadata. Nothing in it can
run code."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import torch

from . import codec

_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint64: "U64", torch.uint32: "U32",
          torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
_KEY = "poseidon"
_HEADER = 8


def encode(value: Any, **words: str) -> bytes:
    """A value of numbers, text, None, lists, tuples, dictionaries and tensors, as a file. words: more metadata."""
    tensors: list[torch.Tensor] = []
    header: dict[str, Any] = {"__metadata__": {_KEY: json.dumps(_pack(value, tensors, "it")), **words}}
    at = 0
    for number, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        header[f"tensor{number}"] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + _HEADER) % 64)
    return len(text).to_bytes(_HEADER, "little") + text + b"".join(map(codec.tensor_bytes, tensors))


def decode(data: bytes | bytearray) -> Any:
    """What encode() was given. Tensors are on the processor."""
    end = _HEADER + int.from_bytes(data[:_HEADER], "little")
    header = json.loads(bytes(data[_HEADER:end]))
    return _unpack(json.loads(header.pop("__metadata__")[_KEY]), header, memoryview(data)[end:])


def _pack(value: Any, tensors: list[torch.Tensor], where: str) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype not in _NAMES or value.layout != torch.strided:
            raise TypeError(f"{where} is a tensor of {value.dtype}, {value.layout}: it cannot be saved")
        tensors.append(value)
        return {"$tensor": len(tensors) - 1}
    if isinstance(value, np.ndarray):
        return {"$array": _pack(torch.from_numpy(np.ascontiguousarray(value)), tensors, where)}
    if isinstance(value, np.generic):
        return {"$scalar": [str(value.dtype), _pack(value.item(), tensors, where)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, list):
        return [_pack(item, tensors, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, (tuple, set, frozenset)):
        kind = "$tuple" if isinstance(value, tuple) else f"${type(value).__name__}"
        return {kind: [_pack(item, tensors, where) for item in value]}
    if isinstance(value, dict):
        return {"$dict": [[_pack(key, tensors, where), _pack(item, tensors, f"{where}[{key!r}]")] for key, item in value.items()]}
    raise TypeError(f"{where} is a {type(value).__name__}: only numbers, text, None, lists, tuples, sets, dictionaries, "
                    "arrays and tensors can be saved")


def _unpack(value: Any, header: dict[str, Any], data: memoryview) -> Any:
    if isinstance(value, list):
        return [_unpack(item, header, data) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "$tensor":
        told = header[f"tensor{content}"]
        begin, end = told["data_offsets"]
        return codec.tensor_from(data[begin:end], _TYPES[told["dtype"]], told["shape"])
    if kind == "$array":
        return _unpack(content, header, data).numpy()
    if kind == "$scalar":
        return np.dtype(content[0]).type(content[1])
    if kind == "$float":
        return float(content)
    if kind == "$bytes":
        return bytes.fromhex(content)
    if kind == "$dict":
        return {_unpack(key, header, data): _unpack(item, header, data) for key, item in content}
    return {"$tuple": tuple, "$set": set, "$frozenset": frozenset}[kind](_unpack(item, header, data) for item in content)
