# SPDX-License-Identifier: Apache-2.0
"""What a worker has, as one safetensors file (poseidon._parts): with tensors of PyTorch, and NumPy's arrays as such."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from .._parts import NAMES, Parts
from . import codec

_NAMES = {getattr(torch, name): short for name, short in NAMES.items()}
_TYPES = {short: dtype for dtype, short in _NAMES.items()}


class _Tensors(Parts):
    nouns = "arrays and tensors"

    def takes(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def type_of(self, array: Any) -> str | None:
        return _NAMES.get(array.dtype) if array.layout == torch.strided else None

    def raw(self, array: Any) -> bytes:
        return codec.tensor_bytes(array)

    def restore(self, data: memoryview, name: str, shape: Sequence[int]) -> Any:
        return codec.tensor_from(data, _TYPES[name], shape)

    def _pack(self, value: Any, arrays: list[Any], where: str) -> Any:
        if isinstance(value, np.ndarray):
            return {"$array": self._pack(torch.from_numpy(np.ascontiguousarray(value)), arrays, where)}
        return super()._pack(value, arrays, where)

    def _unpack(self, value: Any, header: dict[str, Any], data: memoryview) -> Any:
        if isinstance(value, dict) and "$array" in value:
            return self._unpack(value["$array"], header, data).numpy()
        return super()._unpack(value, header, data)


encode, decode = _Tensors().encode, _Tensors().decode
