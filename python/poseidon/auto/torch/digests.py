# SPDX-License-Identifier: Apache-2.0
"""Checksums of tensors, before anything of poseidon is there."""

from __future__ import annotations

import zlib

import torch


def checksum(tensor: torch.Tensor, found: int, part_bytes: int) -> int:
    """Of the type, the shape and the first bytes."""
    found = zlib.crc32(f"{tensor.dtype}{list(tensor.shape)}".encode(), found)
    try:
        raw = _first_values(tensor.detach(), part_bytes).cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    except RuntimeError:  # no values are there: inside vmap, on a meta device
        return found
    return zlib.crc32(raw[:part_bytes], found)


def _first_values(tensor: torch.Tensor, part_bytes: int) -> torch.Tensor:
    if tensor.layout != torch.strided:
        tensor = tensor.coalesce().values() if tensor.is_sparse else tensor.values()
    if tensor.dim() == 0:
        return tensor
    rows = max(1, part_bytes // max(1, tensor[:1].numel() * tensor.element_size()))
    return tensor[:rows]
