# SPDX-License-Identifier: Apache-2.0
"""Where the samples of a batch come together before a loss is reduced to one number.

    errors.mean(0).sum()            a mean over samples, and then a sum over something else
    (gates.mean(0) * share).sum()   likewise, but
    gates.mean(0).square().sum()    a function of a mean: its parts do not make the whole
    (z.T @ z).square().sum()        likewise, of a sum
    cross_entropy(a @ b.T, ...)     of pairs of samples

By its shape alone, what is reduced may be taken for samples: there may be as many experts or channels as these. So it is
followed back, through operations that work by element, to where its samples still are."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple

import torch

NODES = 256  # of a graph, behind a term
SIGNATURE = 3  # of them
MEAN, SUM = 1, 2  # as torch has them
# Sums stay sums behind these, each with a factor at most.
LINEAR = tuple(f"{name}Backward" for name in (
    "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Permute",
    "Transpose", "T", "Expand", "Clone", "ToCopy", "Alias", "Select", "Slice", "Diagonal", "Triu", "Tril"))
OTHER = tuple(f"{name}Backward" for name in (
    "Pow", "Abs", "Sqrt", "Exp", "Log", "Clamp", "Relu", "Sigmoid", "Tanh", "Where", "Softplus", "Log1P", "MaskedFill",
    "Nll", "LogSoftmax", "Softmax", "Logsumexp"))
TURNING = ("TBackward", "TransposeBackward", "PermuteBackward")
SPREADS = ("VarBackward", "StdBackward", "VarMeanBackward", "StdMeanBackward")


class Before(NamedTuple):
    """What was found behind a reduction."""

    reductions: list[tuple[Any, int]]  # of the samples: nodes, and whether they are means or sums
    linear: bool  # the loss is a sum of these, with factors: they are its terms
    divisors: list[Any]  # of all ways from the reduction to where the samples are


def shape_of(node: Any, at: int = 0) -> tuple[int, ...]:
    """Of what it is the gradient of."""
    return tuple(node._input_metadata[at].shape) if node._input_metadata else ()


def look_before(node: Any, rows: float, is_of_weights: Callable[[Any], bool], divisor_of: Callable[[Any], Any]) -> Before:
    """How the samples of what a node reduces came together before. divisor_of: a node's, None if it has none."""
    found: list[tuple[Any, int]] = []
    divisors: list[Any] = []
    linear, apart, seen = True, False, set()
    by_itself = node.name().startswith(("SumBackward", "MeanBackward"))  # else it is of a loss, such as the square of errors
    rest = [(each, at, by_itself, None) for each, at in node.next_functions if each is not None]
    while rest and len(seen) < NODES:
        inner, at, straight, divisor = rest.pop()
        if (inner, straight) in seen:
            continue
        seen.add((inner, straight))
        kind = _coming_together(inner, at, rows)
        if kind is not None and not is_of_weights(inner):
            found.append((inner, kind))
            divisors.append(divisor)
            linear = linear and straight and kind != 0
            continue
        name = inner.name()
        inputs = [each for each in inner.next_functions if each[0] is not None]
        is_product = name.startswith(("MulBackward", "DivBackward")) and len(inputs) > 1
        if not inputs or not name.startswith(LINEAR + OTHER + ("SumBackward1", "MeanBackward1")):
            if not hasattr(inner, "variable"):  # samples; a weight is none
                apart = True
                divisors.append(divisor)
            continue
        if straight and not is_product:
            divisor = product(divisor, divisor_of(inner))
        straight = straight and not is_product and not name.startswith(OTHER)
        rest.extend((each, place, straight, divisor) for each, place in inputs)
    return Before(found, linear and not apart, divisors)


def signature(node: Any) -> tuple:
    """Of the graph behind a reduction, as far as it is looked at in every step: in most losses there is nothing to find, and it
    takes several times as long to look for it as to see that it is the same loss."""
    found = [node.name()]
    while len(found) < SIGNATURE:
        inputs = node.next_functions
        node = inputs[0][0] if inputs else None
        if node is None:
            break
        found.append(node.name())
    return tuple(found)


def _coming_together(node: Any, at: int, rows: float) -> int | None:
    """MEAN or SUM: of the samples, here; 0: neither, but something else of several of them. None: of none."""
    name = node.name()
    if name.startswith(("SumBackward1", "MeanBackward1")):
        if not _takes_samples(tuple(node._saved_self_sym_sizes), node._saved_dim, rows):
            return None
        return SUM if name.startswith("Sum") else MEAN
    if name.startswith(SPREADS):
        inner, place = node.next_functions[0]
        dims = getattr(node, "_saved_dim", None)
        return 0 if inner is not None and _takes_samples(shape_of(inner, place), dims, rows) else None
    if name.startswith(("MmBackward", "BmmBackward")) and rows > 1:
        return _product_of_samples(node, shape_of(node, at), rows)
    return None


def _takes_samples(sizes: tuple[int, ...], dims: Any, rows: float) -> bool:
    """Whether the samples are among the dimensions that are reduced. They are as many as one of them; else each has several
    places in it, the first if that may be."""
    wrapped = [dim - (1 << 64) if dim >= 1 << 63 else dim for dim in dims or range(len(sizes))]
    taken = {dim % len(sizes) for dim in wrapped} if sizes else set()
    exact = [at for at, size in enumerate(sizes) if size == rows]
    may_be = exact or [at for at, size in enumerate(sizes) if size > 0 and size % rows == 0]
    return bool(may_be) and (may_be[0] in taken if exact or may_be[0] == 0 else taken.issuperset(may_be))


def _product_of_samples(node: Any, shape: tuple[int, ...], rows: float) -> int | None:
    """Of matrices that both are made of data: SUM over the samples, such as x.T @ y; or 0: of pairs, such as x @ y.T."""
    (left, _), (right, place) = node.next_functions[0], node.next_functions[1]
    if len(shape) == 3 and shape[0] != 1 or _is_weight(left) or _is_weight(right):
        return None
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    inner = sizes[1] if sizes else shape_of(right, place)[-2] if right is not None else 0
    high, wide = shape[-2:]
    if right is not None and right.name().startswith(TURNING) and high % rows == 0 and wide % rows == 0:
        return 0
    turned = left is not None and left.name().startswith(TURNING) or len(shape) == 3
    return SUM if inner > 0 and inner % rows == 0 and (turned or high % rows != 0) else None


def _is_weight(node: Any) -> bool:
    """As it is, or turned."""
    while node is not None and node.name().startswith((*TURNING, "ViewBackward", "ToCopyBackward")):
        node = node.next_functions[0][0]
    return node is not None and hasattr(node, "variable")


def product(one: Any, other: Any) -> Any:
    """Of divisors; None: there is none."""
    return other if one is None else one if other is None else one * other


def the_same(divisors: list[Any]) -> Any:
    """What all ways have been divided by; None: by nothing, or each by another."""
    numbers = [each for each in divisors if each is not None]
    if not numbers or len(numbers) < len(divisors):
        return None
    first = float(numbers[0]) if not isinstance(numbers[0], torch.Tensor) or numbers[0].device.type == "cpu" else math.nan
    return numbers[0] if all(each is numbers[0] or float(each) == first for each in numbers) else None
