# SPDX-License-Identifier: Apache-2.0
"""Values of Python and tensors as bytes and back, without pickle (poseidon._codec)."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import numpy as np
import torch

from .._codec import Codec


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


class _Tensors(Codec):
    name, nouns = "tensor", "tensors"

    def takes(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def describe(self, array: Any) -> tuple[list[Any], bytes]:
        return [str(array.dtype).removeprefix("torch."), list(array.shape)], tensor_bytes(array)

    def restore(self, take: Callable[[int], memoryview], *description: Any) -> Any:
        name, shape = description
        dtype = getattr(torch, name)
        return tensor_from(take(math.prod(shape) * dtype.itemsize), dtype, shape)


encode, decode = _Tensors().encode, _Tensors().decode
