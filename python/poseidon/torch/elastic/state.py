# SPDX-License-Identifier: Apache-2.0
"""The state of a training with PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from ..._errors import StateError
from ...elastic.state import State
from .. import codec, parts
from ..optimizer import is_distributed


class TorchState(State):
    """Model, optimizer, and whatever else all workers have alike: samplers, learning-rate schedulers, GradScaler (all that has
    state_dict() and load_state_dict()), numbers, text, tensors.

        TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)"""

    codec = codec
    parts = parts

    def __init__(self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **attributes: Any):
        if optimizer is not None and is_distributed(optimizer):
            raise StateError("TorchState: the optimizer was made for workers that stay: name poseidon.torch.elastic (or import it) in "
                             "the program before hvd.init()")
        given = {"model": model, "optimizer": optimizer}
        super().__init__(**{name: value for name, value in given.items() if value is not None}, **attributes)
