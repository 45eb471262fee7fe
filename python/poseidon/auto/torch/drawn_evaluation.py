# SPDX-License-Identifier: Apache-2.0
"""Evaluation on batches that a script draws itself: it is to be the same on all workers.

In training every worker draws for itself. While the models are in eval() mode and gradients are off, all draw alike: a
loss that is estimated then is everybody's, and so is whatever the script decides by it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .session import TorchSession

_watched: list[Any] = []  # sessions


def watch(session: TorchSession) -> None:
    """From now on the session's streams of random numbers follow the models' mode."""
    if _watched:
        return
    _watched.append(session)
    for kind in (torch.no_grad, torch.inference_mode, torch.set_grad_enabled):
        kind.__enter__ = _followed(kind.__enter__, session)
        kind.__exit__ = _followed(kind.__exit__, session)
    torch.nn.Module.train = _followed(torch.nn.Module.train, session)


def _followed(method: Any, session: TorchSession) -> Any:
    @functools.wraps(method)
    def call_and_look(*args, **kwargs):
        result = method(*args, **kwargs)
        if not torch.compiler.is_compiling():
            session.streams.hold_common(not torch.is_grad_enabled() and not session.is_in_training_mode())
        return result

    return call_and_look
