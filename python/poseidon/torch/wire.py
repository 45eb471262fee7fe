# SPDX-License-Identifier: Apache-2.0
"""As which type gradients travel: what the script says, or else the environment."""

from __future__ import annotations

import os
from typing import Any

import torch

import poseidon

from .._horovod import Compression

VARIABLE = "PSD_TORCH_GRADIENTS"
_WORDS = {"": None, "own": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def told() -> torch.dtype | None:
    """What the variable says, the same on all workers; None: their own type."""
    word = os.environ.get(VARIABLE, "")
    if word not in _WORDS:
        raise poseidon.InvalidError(f"{VARIABLE}={word}: must be own, bf16 or fp16")
    return _WORDS[word]


def refuse_told(why: str) -> None:
    """Where gradients cannot travel as the variable says."""
    if told() is not None:
        raise poseidon.InvalidError(f"{VARIABLE}={os.environ[VARIABLE]}: {why}; leave the variable out")


def chosen(what: str, compression: Any) -> torch.dtype | None:
    """What a script says with compression=; None: nothing."""
    if compression is Compression.bf16:
        return torch.bfloat16
    return torch.float16 if Compression.is_half(what, compression) else None
