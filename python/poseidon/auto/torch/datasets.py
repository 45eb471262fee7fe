# SPDX-License-Identifier: Apache-2.0
"""A checksum of what can be seen of a dataset without reading its samples: its length, what datasets of torch's own
kinds hold, and the lists and arrays of others (names of files, labels, indices).

Workers deal out numbers of samples. That is right only when a number is the same sample everywhere,
which a split or a permutation without a seed may spoil with no other sign of it."""

from __future__ import annotations

import os
import sys
import zlib
from typing import Any

import torch
from torch.utils import data

PART_BYTES = 1 << 16  # of a tensor: where it was shuffled, its beginning tells
PART_ITEMS = 1000  # of a list
_DEPTH = 3  # of lists in lists


def fingerprint(dataset: Any) -> int:
    """Equal for equal datasets: the length, and what datasets of torch's own kinds hold."""
    return _of(dataset, 0)


def _of(dataset: Any, found: int) -> int:
    found = _of_text(type(dataset).__name__, found)
    if hasattr(dataset, "__len__"):
        found = _of_text(str(len(dataset)), found)
    if isinstance(dataset, data.Subset):
        return _of(dataset.dataset, _of_numbers(dataset.indices, found))
    if isinstance(dataset, data.ConcatDataset):
        for part in dataset.datasets:
            found = _of(part, found)
    elif isinstance(dataset, data.TensorDataset):
        for tensor in dataset.tensors:
            found = _of_tensor(tensor, found)
    return found


def contents(dataset: Any) -> int:
    """Equal for datasets that hold equal lists and arrays. To be asked before samples are read: what a dataset keeps
    of them differs from worker to worker. Single numbers and texts may do so from the beginning (a directory, the
    time), and a path may begin differently."""
    found = 0
    if isinstance(dataset, (data.Subset, data.ConcatDataset)):
        for part in getattr(dataset, "datasets", None) or [dataset.dataset]:
            found = zlib.crc32(b"%d" % contents(part), found)
        return found
    held = getattr(dataset, "__dict__", {})
    for name in sorted(name for name in held if isinstance(name, str)):
        if _is_sequence(held[name]) and len(held[name]) > 1:
            found = _of_value(held[name], _of_text(name, found), _DEPTH)
    return found


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or _is_array(value) or isinstance(value, torch.Tensor) and value.dim() > 0


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.ndim > 0


def _of_value(value: Any, found: int, depth: int) -> int:
    if isinstance(value, torch.Tensor):
        return _of_tensor(value, found) if value.dim() > 0 else found
    if _is_array(value):
        plain = value.dtype.kind in "biufcSU"
        part = value[:max(1, PART_BYTES // max(1, value[:1].nbytes))]
        return zlib.crc32(part.tobytes() if plain else b"", _of_text(f"{value.dtype}{value.shape}", found))
    if isinstance(value, (list, tuple)):
        found = _of_text(str(len(value)), found)
        if depth > 0:
            for each in value[::max(1, len(value) // PART_ITEMS)]:
                found = _of_value(each, found, depth - 1)
        return found
    if isinstance(value, (str, os.PathLike)):
        return _of_text(os.path.basename(os.fspath(value)) if isinstance(value, os.PathLike) else
                        value.rpartition("/")[2], found)
    if isinstance(value, (bool, int, float, bytes, type(None))):
        return _of_text(repr(value), found)
    return _of_text(type(value).__name__, found)


def _of_text(text: str, found: int) -> int:
    return zlib.crc32(text.encode(), found)


def _of_numbers(numbers: Any, found: int) -> int:
    return _of_text(",".join(str(int(number)) for number in numbers), found)


def _of_tensor(tensor: torch.Tensor, found: int) -> int:
    found = _of_text(f"{tensor.dtype}{list(tensor.shape)}", found)
    if tensor.layout != torch.strided:
        return found
    rows = max(1, PART_BYTES // max(1, tensor[:1].numel() * tensor.element_size()))
    part = tensor[:rows].detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(part.view(torch.uint8).numpy()[:PART_BYTES], found)
