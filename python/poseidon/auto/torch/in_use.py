# SPDX-License-Identifier: Apache-2.0
"""Which optimizers train now. A model that the script is done with may still be there, in training mode, and says
nothing about what the next loader is read for."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Iterable


def parameters_of(optimizer: Any) -> list:
    """Those that it steps."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class InUse:
    """Optimizers that stepped in the latest epoch of training, and those that are too new to have stepped."""

    def __init__(self) -> None:
        self._latest = weakref.WeakSet()
        self._ever = weakref.WeakSet()
        self._epoch_is_new = False

    def begin_epoch(self) -> None:
        """A loader is read for training."""
        self._epoch_is_new = True

    def add_step(self, optimizer: Any) -> None:
        """It steps."""
        if self._epoch_is_new:
            self._latest.clear()
            self._epoch_is_new = False
        self._latest.add(optimizer)
        self._ever.add(optimizer)

    def among(self, optimizers: Iterable[Any]) -> list:
        """Those of them that are in use."""
        return [each for each in optimizers if each in self._latest or each not in self._ever]


class Turns:
    """Which optimizer steps a parameter. A later one may take parameters over; two at the same time may not have them."""

    def __init__(self) -> None:
        self._last_optimizer: dict[int, weakref.ref] = {}  # by identity of a parameter
        self._last_step: tuple[Callable, list[int]] = (lambda: None, [])  # whose it was; its parameters' identities
        self._retired = weakref.WeakSet()  # optimizers whose parameters another one has taken over

    def take(self, optimizer: Any, parameters: list) -> bool:
        """It steps these. False: another one has taken them over."""
        identities = list(map(id, parameters))
        if self._last_step[0]() is optimizer and self._last_step[1] == identities:
            return True
        self._last_step = (weakref.ref(optimizer), identities)
        if optimizer in self._retired:
            return False
        for parameter in parameters:
            last = self._last_optimizer.get(id(parameter))
            last = None if last is None else last()
            if last is not None and last is not optimizer:
                self._retired.add(last)
            if last is not optimizer:
                self._last_optimizer[id(parameter)] = weakref.ref(optimizer)
        return True
