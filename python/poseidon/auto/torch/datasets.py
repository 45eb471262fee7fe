# SPDX-License-Identifier: Apache-2.0
"""A checksum of what can be seen of a dataset without reading its samples.

Workers deal out numbers of samples. That is right only when a number is the same sample everywhere,
which a split or a permutation without a seed may spoil with no other sign of it."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch.utils import data

PART_BYTES = 1 << 16  # of a tensor: where it was shuffled, its beginning tells


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
    if isinstance(dataset, data.TensorDataset):
        for tensor in dataset.tensors:
            found = _of_tensor(tensor, found)
    return found


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
