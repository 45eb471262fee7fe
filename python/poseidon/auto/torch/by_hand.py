# SPDX-License-Identifier: Apache-2.0
"""Training without an optimizer: a script that changes its parameters by hand (`p -= lr * p.grad`).

Nothing tells when it makes a step, so it cannot be distributed. But gradients are also computed for other purposes
(attacks on a model, saliency): what tells is that a tensor which gradients were computed for has another value when the
next gradients are. Then the script is stopped, before its second step.

Thread: that of the script which trains."""

from __future__ import annotations

import weakref
from typing import Any, Iterator

import torch

from .digests import checksum
from .lineage import tensors_of

PART_BYTES = 1 << 14  # of a tensor
REASON = ("it computes gradients and changes its parameters without an optimizer of torch.optim, so every worker trains "
          "by itself")
ADVICE = "use an optimizer of torch.optim, poseidon.torch, or --auto off"


class ByHand:
    """What was differentiated before there was any optimizer."""

    def __init__(self) -> None:
        self._backwards = 0
        self._leaves: list[tuple[weakref.ref, int]] = []  # and what their values were

    def before_backward(self, tensors: Any, inputs: Any = None) -> bool:
        """Something is about to be differentiated, by itself or by what its gradients are wanted of. Says whether
        it is training. Looks at the second, the third, the fifth time and so on: it costs a pass over the weights."""
        self._backwards += 1
        if self._backwards == 1:
            leaves = _parameters_among(inputs) if inputs is not None else leaves_of(tensors)
            self._leaves = [(weakref.ref(leaf), _value(leaf)) for leaf in leaves]
            return False
        looks = (self._backwards - 1) & (self._backwards - 2) == 0
        return looks and self._changed()

    def _changed(self) -> bool:
        return any(leaf is not None and _value(leaf) != value
                   for leaf, value in ((reference(), value) for reference, value in self._leaves))

    def trained(self) -> bool:
        """The script is over: whether it has trained, as far as one can see. Where all tensors that gradients were
        computed for are gone, new ones may have taken their place."""
        if self._backwards == 0:
            return False
        return self._changed() or all(reference() is None for reference, _ in self._leaves)


def _value(leaf: torch.Tensor) -> int:
    return checksum(leaf, 0, PART_BYTES)


def _parameters_among(inputs: Any) -> list[torch.Tensor]:
    return [each for each in tensors_of(inputs) if each.is_leaf]


def leaves_of(tensors: Any) -> Iterator[torch.Tensor]:
    """Tensors that gradients of these are computed for."""
    rest = [tensor.grad_fn for tensor in tensors_of(tensors)]
    seen = set()
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        rest.extend(following for following, _ in node.next_functions)
