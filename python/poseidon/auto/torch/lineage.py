# SPDX-License-Identifier: Apache-2.0
"""Which batches a loss was computed from.

Most loops take a batch and train on it, so what is differentiated comes from the batch that was taken last. Where
that is not so (a loader that is read ahead, batches that are kept and used again) and batches count differently in
the mean, every operation is followed from the batch to the loss. That costs several microseconds an operation, and is
done for the few steps alone in which it matters.

Thread: that of the script which trains."""

from __future__ import annotations

import weakref
from typing import Any, Iterable

import torch
from torch.utils import _pytree as trees
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

PRUNE_EVERY = 64  # batches: those that nobody has any more are forgotten


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """Those of a batch, whatever its structure is."""
    found, rest = [], [batch]
    while rest:
        each = rest.pop()
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, dict) or hasattr(each, "values") and hasattr(each, "keys"):  # BatchEncoding
            rest.extend(each.values())
        elif isinstance(each, (list, tuple)):
            rest.extend(each)
        elif hasattr(each, "__dict__"):  # a batch class of the script's own
            rest.extend(vars(each).values())
    return found


def _storage(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse, or no memory of its own
        return None


class Lineage:
    """Batches that were handed out, and what came of them while follow() holds."""

    def __init__(self) -> None:
        self._batches: list[tuple[Any, list[weakref.ref]]] = []  # delivery, its tensors
        self._mode: _Follow | None = None

    def add(self, delivery: Any, batch: Any) -> None:
        """The script gets a batch."""
        tensors = tensors_of(batch)
        self._batches.append((delivery, [weakref.ref(each) for each in tensors]))
        if len(self._batches) % PRUNE_EVERY == 0:
            self.forget()
        if self._mode is not None:
            self._mode.mark(tensors, delivery)

    def mark(self, tensors: Iterable[torch.Tensor], delivery: Any) -> None:
        """These come from it, too."""
        if self._mode is not None:
            self._mode.mark(tensors, delivery)

    def forget(self) -> None:
        """Batches that the script no longer has are of no interest."""
        self._batches = [entry for entry in self._batches if any(each() is not None for each in entry[1])]

    def follows(self) -> bool:
        """Whether operations are followed."""
        return self._mode is not None

    def follow(self) -> None:
        """From now on operations are followed."""
        if self._mode is not None:
            return
        self._mode = _Follow()
        for delivery, references in self._batches:
            self._mode.mark([each for each in (reference() for reference in references) if each is not None], delivery)
        self._mode.__enter__()

    def rest(self) -> None:
        """No longer."""
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)

    @staticmethod
    def looking_away() -> Any:
        """Operations inside are ours: numbers that autograd has kept cannot be read while they are followed."""
        return _disable_current_modes()

    def sources(self, tensors: Any) -> set:
        """The deliveries that these were computed from, as far as it was seen."""
        return set() if self._mode is None else self._mode.sources(trees.tree_leaves(tensors))


class _Follow(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[int, frozenset] = {}  # storage: deliveries
        self._kept: list[torch.Tensor] = []  # so that no storage gets the address of another

    def mark(self, tensors: Iterable[torch.Tensor], delivery: Any) -> None:
        for tensor in tensors:
            self._add(tensor, frozenset((delivery,)))

    def sources(self, tensors: Iterable[Any]) -> set:
        found: set = set()
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                found |= self._sources.get(_storage(tensor), frozenset())
        return found

    def _add(self, tensor: torch.Tensor, deliveries: frozenset) -> None:
        place = _storage(tensor)
        if place is None or (tensor.is_leaf and tensor.requires_grad):  # weights come from all that was trained on
            return
        if place not in self._sources:
            self._kept.append(tensor)
        self._sources[place] = self._sources.get(place, frozenset()) | deliveries

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        found = self.sources(trees.tree_leaves((args, kwargs)))
        if found:
            for each in trees.tree_leaves(result):
                if isinstance(each, torch.Tensor):
                    self._add(each.detach() if each.requires_grad and not each.is_leaf else each, frozenset(found))
        return result
