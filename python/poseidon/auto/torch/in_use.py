# SPDX-License-Identifier: Apache-2.0
"""Which optimizers train now. A model that the script is done with may still be there, in training mode, and says
nothing about what the next loader is read for."""

from __future__ import annotations

import weakref
from typing import Any, Iterable


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
