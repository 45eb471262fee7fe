# SPDX-License-Identifier: Apache-2.0
"""Whether the losses of the parts of a batch make that of the whole, and what is done where their mean does not.

What a loss is made of is written in the graph that autograd has of it: terms that were added up, each of which ends in
a reduction. Behind the names of F_r, below, is what the gradient of a term counts on worker r before the mean over W
workers is taken:

    a mean over its samples     the worker's share of the samples, which is 1 but in an uneven step
    a sum over its samples      W: sums add up
    a sum divided by a number   by that number, d_r W / sum(d), if it goes with the samples (a length, the sum of a
                                mask) or is a batch size; W where it is a factor like any other. A constant may equal a
                                batch size by chance, so a line says what it was taken for
    a mean by weights           by their sum, likewise: class weights, targets that are ignored

The sums of d need an exchange before the gradients are computed. It is done in the first step; and in the others, if the
parts turned out to be unequal then, or could. Where they were equal, a word of the witness says in each round whether they
still are. A penalty on weights is no sum over samples: nothing but weights goes into it.

What is reduced may have another length than the batch: words of packed sentences, nodes of graphs. Such a term counts by
its length where that differs between workers; where it does not, it may as well be a number of channels or of experts.

Without a loader (loose.py) nothing of this is done: how many samples a worker draws is its own business, and gradients
are averaged.

Thread: that of the script which trains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..common import notes
from .together import MEAN, NODES, SUM, look_before, product, shape_of as _shape, signature, the_same
from .weights import Later

if TYPE_CHECKING:
    from .session import TorchSession

TERMS = 8  # of one loss that are weighed
TERMS_SEEN = 512  # with penalties: some scripts have one for each weight
NODES_OF_LOSS = 2048  # before its terms
TOLERANCE = 1e-9
# What leaves a sum of terms one: each gets a factor at most.
STRAIGHT = tuple(f"{name}Backward" for name in (
    "Add", "Sub", "Neg", "Mul", "Div", "View", "Reshape", "Squeeze", "Unsqueeze", "Clone", "ToCopy", "Select", "Mean", "Sum",
    "Unbind", "Expand", "Alias", "Permute", "Transpose", "Slice"))
ELEMENTWISE = tuple(f"{name}Backward" for name in (
    "Add", "Sub", "Neg", "Mul", "Div", "Pow", "Abs", "Sqrt", "Exp", "Log", "Clamp", "Relu", "Sigmoid", "Tanh", "Sign", "Where",
    "Clone", "ToCopy", "View", "Reshape"))
# What penalties are made of besides that. Where data go in, one of their inputs has no gradient.
OF_WEIGHTS = tuple(f"{name}Backward" for name in (
    "Mm", "Bmm", "Mv", "T", "Transpose", "Permute", "Sum", "Mean", "Norm", "LinalgVectorNorm", "Max", "Amax", "Expand",
    "Squeeze", "Unsqueeze", "Select", "Slice", "Diagonal", "Triu", "Tril", "Cat", "Stack", "UnsafeView"))
CHOOSING = ("IndexBackward", "MaskedSelectBackward")  # some of the samples, or of their values
NOT_IGNORED = -100  # torch's own ignore_index, where the script gives none


class Term(NamedTuple):
    """A part of a loss that was reduced to one number."""

    node: Any  # of autograd
    reduction: int
    divisor: Any  # of the script: a number, or a tensor of one; None: it has none
    over_samples: bool = False
    weighed: bool = False  # a mean by weights that are its own, or over some of its targets
    other_length: bool = False  # than the batch: over samples where it differs between workers

    @property
    def added(self) -> bool:
        """Whether it is a sum that was divided by nothing."""
        return self.over_samples and self.reduction == SUM and self.divisor is None

    @property
    def divided(self) -> bool:
        """Whether it is a sum that was divided by something."""
        return self.over_samples and self.reduction == SUM and self.divisor is not None

    def count(self) -> Any:
        """What its sum was divided by: a number, or a tensor of one; None: that is of no interest."""
        if not self.other_length and (not self.over_samples or self.added):
            return None
        if self.reduction == SUM and self.divisor is not None:
            return self.divisor
        weights = getattr(self.node, "_saved_total_weight", None)
        return math.prod(_reduced(self.node)) if weights is None else weights

    def number(self) -> float:
        """The same, as one."""
        count = self.count()
        return math.nan if count is None else float(count)


class Kind(NamedTuple):
    """What a term is, as it was when it was first seen."""

    penalty: bool  # on weights
    over_samples: bool
    weighed: bool
    other_length: bool


class Known(NamedTuple):
    """What is known of a loss by the names of its terms."""

    rows: float  # of a worker when it was first seen
    first: list[float]  # counts of its terms then
    factors: set[int]  # terms whose divisor is a factor like any other
    assumed: set[int]  # terms whose divisor was equal everywhere, and taken for a number of samples


class Found(NamedTuple):
    """What the workers have told each other in one step: those with samples of their own."""

    rows: list[float]  # samples of each
    counts: list[list[float]]  # by term: of each


class Losses:
    """Of one script."""

    def __init__(self, session: TorchSession):
        self._session = session
        self.counted = False  # a library divides by what all workers have counted (huggingface.py)
        self._told: set[str] = set()
        self._hooks: list[Any] = []
        self.forget()

    def forget(self) -> None:
        """Something new is trained, perhaps with another loss. On all workers alike."""
        self._begun = self._exchanges = False
        self._session.witness.forget_means()
        self._samples = 0  # of a full step
        self._divided = False  # a sum over samples is
        self._plain: set[tuple] = set()  # signatures of reductions before which no samples come together
        self._kinds: dict[tuple, list[Kind]] = {}  # by names
        self._known: dict[tuple, Known] = {}
        self._late: tuple[Later, float] | None = None

    def weigh(self, tensors: Any, share: float, rows: float, samples: int) -> float:
        """Something is about to be differentiated: how much its gradients count. share: of the samples, as a
        multiple of the mean; rows: samples of this worker, 0 where it has somebody else's; samples: of all."""
        terms, names, whole = ([], (), True) if self.counted else self._look_at(tensors, rows)
        if self._session.witness.unequal_means and not self._exchanges:
            self._exchanges = True
            self._known.clear()  # to be found out together
            self._tell("late", "parts of its loss are means over other numbers of values, or by other weights, on each "
                       "worker: one step was a mean of means; from now on each counts by its own")
        found = Found([], [])
        if not self._begun:
            full = self._session.batch_size() * self._session.world
            self._samples = samples if full in (0, samples) else 0
        # Whether a sum is divided by a length or by a constant shows in steps with fewer samples, and not to everybody.
        if self._exchanges or not self._begun or self._divided and samples != self._samples:
            found = self._exchange(terms, names, rows)
        elif share != 0.0 and terms:
            self._compare(terms, names, rows)
        if share == 0.0 or not terms:
            return share
        known = self._known.get(names)
        self._tell_of_divisors(known)
        factors = [self._count_of(number, term, share, found, known) for number, term in enumerate(terms)]
        return self._settle(terms, factors, next(filter(None, factors), 0.0) if whole else share)

    def _look_at(self, tensors: Any, rows: float) -> tuple[list[Term], tuple, bool]:
        """Its terms but penalties, the names of all, and whether it has no other parts. What is over samples is decided
        when they are first seen, because the last batch of an epoch may have as many samples as something else has
        elements."""
        terms, strange, whole = _terms(tensors, rows, self._plain)
        names = tuple((term.node.name(), term.reduction, term.divisor is None) for term in terms)
        if strange == "function":
            self._tell("function", "its loss is a function of a mean or of a sum, such as its root: gradients are the "
                       "mean over the workers' parts, which is not exactly that of one process")
        elif strange == "batch":
            self._tell("batch", "its loss is made of statistics of a batch, or of pairs of its samples, and each worker has those "
                       "of its own samples: gradients are the mean over the workers' parts, which is not exactly that of one "
                       "process")
        elif strange:
            self._tell("strange", f"its loss is made by {strange.partition('Backward')[0]}, of which it is not known "
                       "whether parts make the whole: gradients are the mean over the workers' parts, which is that of one "
                       "process for a mean over the samples alone")
        if names not in self._kinds and rows > 0:
            self._kinds[names] = [_kind(term, rows, len(terms)) for term in terms]
        if names in self._kinds:
            kinds = self._kinds[names]
            whole = whole and not any(kind.penalty for kind in kinds)
            terms = [term._replace(over_samples=kind.over_samples, weighed=kind.weighed, other_length=kind.other_length)
                     for term, kind in zip(terms, kinds) if not kind.penalty]
        if len(terms) > TERMS:
            self._tell("many", f"its loss has {len(terms)} terms: {TERMS} of them were looked at, and of the others gradients "
                       "are the mean over the workers' parts, which is that of one process for means over the samples")
            terms, whole = terms[:TERMS], False
        return terms, names, whole

    def after_backward(self) -> None:
        """It was differentiated."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ---- what the others have

    def _exchange(self, terms: list[Term], names: tuple, rows: float) -> Found:
        """Of all workers that have samples of their own."""
        from poseidon.torch import reductions

        session = self._session
        mine = torch.zeros(session.world, TERMS + 3, dtype=torch.float64)
        mine[session.rank, 0] = rows
        mine[session.rank, 1] = any(term.weighed for term in terms)
        mine[session.rank, 2] = any(term.divided for term in terms)
        for number, term in enumerate(terms):
            mine[session.rank, 3 + number] = term.number()
        told = reductions.allreduce(mine, name="parts of a loss", op="sum").tolist()
        present = [row for row in told if row[0] > 0]
        counts = [list(each) for each in zip(*(row[3:] for row in present))][:len(terms)]
        if present and names not in self._known:
            self._get_to_know(terms, names, present, counts)
        return Found([row[0] for row in present], counts)

    def _get_to_know(self, terms: list[Term], names: tuple, present: list, counts: list[list[float]]) -> None:
        rows = [row[0] for row in present]
        equal = {number for number, term in enumerate(terms) if term.divided and _equal(counts[number])}
        factors = {number for number in equal
                   if not all(self._is_mean(terms[number], counts[number][0], each) for each in rows)}
        self._known[names] = Known(rows[0], [each[0] for each in counts], factors, equal - factors)
        self._begun = True
        self._divided = self._divided or any(row[2] > 0 for row in present)
        if self._exchanges:
            return
        # By what all workers know alike: they have to decide the same. Which terms go with the samples is not of that kind.
        equal = all(_equal(found) or _equal([count / each for count, each in zip(found, rows)])
                    for number, found in enumerate(counts) if number not in factors)
        self._exchanges = not equal or any(row[1] > 0 for row in present)
        if self._exchanges:
            self._tell("weighed", "its loss is a mean by weights, or over a part of its values: that of each worker "
                       "counts by what it is a mean of")

    def _is_mean(self, term: Term, divisor: float, rows: float) -> bool:
        """Whether a sum is divided by the number of its samples. The batch of a loader counts as such, full or not; that
        of a script which takes its batches itself is everybody's (walks.py)."""
        width = math.prod(_reduced(term.node)) // max(1, rows)
        if self._session.walks.divides:
            return _goes_with(divisor, rows, width) and not _goes_with(divisor, self._session.samples, width)
        return _goes_with(divisor, rows, width) or _goes_with(divisor, self._session.batch_size(), width)

    def _compare(self, terms: list[Term], names: tuple, rows: float) -> None:
        """Tells the witness what should be equal everywhere, or that an exchange is needed. Nobody waits for a GPU."""
        known = self._known.get(names)
        if any(term.weighed or term.divided and known is None for term in terms):
            self._session.witness.means = -1.0
            return
        found = 0.0
        for number, term in enumerate(terms):
            count = term.count()
            if count is None:
                continue
            if known is not None and number in known.factors:
                found = found if _is_constant(known, number, term) else -math.inf  # it is no such factor
                continue
            if isinstance(count, torch.Tensor) and count.device.type != "cpu":
                late, self._late = self._late, (Later(count.detach().reshape(1).double()),
                                                1 if term.other_length else rows)
                found += late[0].take()[0] / late[1] if late is not None else math.nan
            else:
                found += term.number() / (1 if term.other_length else rows)
        self._session.witness.means = found

    # ---- how much they count

    def _count_of(self, number: int, term: Term, share: float, found: Found, known: Known | None) -> float:
        world = float(self._session.world)
        counts = found.counts[number] if found.counts else []
        if term.other_length:
            if not counts or _equal(counts) or min(counts) <= 0:
                return share
            term = term._replace(over_samples=True)
        if term.added or term.divided and known is not None and number in known.factors:
            self._tell("sum", f"its loss is a sum over samples: the gradients of the {self._session.world} workers are "
                       "added up, as one process with so many times the batch would have them")
            return world
        if not term.over_samples or not counts or not self._exchanges and not term.divided:
            return share
        if known is not None and number in known.assumed and _is_batch_size(term, number, known, found):
            return 1.0
        total = sum(counts)
        return term.number() * world / total if total > 0 else share

    def _tell_of_divisors(self, known: Known | None) -> None:
        """Whether a constant is a batch size or equals one by chance shows in nothing that the script does."""
        if known is None or not known.assumed or "divisor" in self._told:
            return
        divisor = known.first[min(known.assumed)]
        self._tell("divisor", f"its loss is a sum divided by {divisor:g}, which is taken for a number of samples, or of their "
                   "values: gradients are those of a mean over the samples of all workers; if it is something else, such as "
                   "how many batches make a step, let the loss be a mean, or a sum that nothing divides")

    def _settle(self, terms: list[Term], factors: list[float], whole: float) -> float:
        """Parameters' gradients are multiplied by what is returned; those of terms that count otherwise before that."""
        for term, factor in zip(terms, factors):
            if whole != 0.0 and abs(factor - whole) > TOLERANCE * abs(whole):
                self._hooks.append(term.node.register_prehook(_scaling(factor / whole)))
        return whole

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._told and self._session.rank == 0:
            notes.tell(f"{notes.script_name()}: {text}")
        self._told.add(kind)


def _scaling(factor: float) -> Any:
    def scale(gradients: tuple) -> tuple:
        return tuple(None if each is None else torch.zeros_like(each) if factor == 0.0 else each * factor
                     for each in gradients)

    return scale


def _is_batch_size(term: Term, number: int, known: Known, found: Found) -> bool:
    """Whether a divisor stays the batch size where there are fewer samples. One process would divide these by W times as
    much, also where some workers have none."""
    divisor = known.first[number]
    if any(each != divisor for each in found.counts[number]):
        return False
    width = math.prod(_reduced(term.node)) // max(1, found.rows[0])
    return any(each != known.rows or not _goes_with(divisor, each, width) for each in found.rows)


def _is_constant(known: Known | None, number: int, term: Term) -> bool:
    """Whether a sum is always divided by the same."""
    return known is not None and term.divided and term.number() == known.first[number]


def _equal(numbers: list[float]) -> bool:
    return all(math.isnan(number) for number in numbers) or \
        max(numbers) - min(numbers) <= TOLERANCE * max(map(abs, numbers))


def _goes_with(divisor: float, samples: float, width: float) -> bool:
    """Whether a divisor is a number of samples, or of the values of which each has so many."""
    times = divisor / samples if samples > 0 else 0.0
    return times >= 1 and abs(times - round(times)) < 1e-6 and width % round(times) == 0


# ---- graphs


def _terms(tensors: Any, rows: float, plain: set[tuple]) -> tuple[list[Term], str, bool]:
    """Those of a loss that is one number; what is in it but their sum, each with a factor ("function": one of them; or
    the name of an operation that makes one number of many); and whether it has no other parts."""
    if isinstance(tensors, (list, tuple)) and len(tensors) == 1:
        tensors = tensors[0]
    if not isinstance(tensors, torch.Tensor) or tensors.numel() != 1 or tensors.grad_fn is None:
        return [], "", False
    found: list[Term] = []
    strange, whole = "", True
    rest: list[tuple[Any, Any, Any]] = [(tensors.grad_fn, None, None)]  # divided by what, and times one over what
    for _ in range(NODES_OF_LOSS):
        if not rest or len(found) == TERMS_SEEN:
            break
        node, divisor, inverse = rest.pop()
        reduction = _reduction(node)
        inner = [each for each, _ in node.next_functions if each is not None]
        if reduction is not None and not _is_of_losses(inner, rows):
            terms = _terms_behind(node, reduction, inverse if divisor is None else divisor, rows, plain)
            strange, whole = (strange, whole) if terms else (strange or "batch", False)
            found.extend(terms)
        elif reduction is not None:
            rest.extend((each, divisor, inverse) for stack in inner for each, _ in stack.next_functions if each is not None)
        elif _elements(node) == 1 and inner:
            name = node.name()
            if name.startswith("Mul") and len(inner) > 1:  # perhaps a weight that is learned
                whole, inner = False, [each for each in inner if _has_reduction(each)]
            if not name.startswith(STRAIGHT) or name.startswith(("Mul", "Div")) and len(inner) > 1:
                strange = strange or _strangeness(node, inner)
                whole = False
                continue
            if name.startswith("Div"):
                divisor = product(divisor, _divisor(node))
            elif name.startswith("Mul") and _divides(node):
                inverse = product(inverse, _divisor(node))
            rest.extend((each, divisor, inverse) for each in inner)
        else:
            whole = False
    return found, strange, whole and not rest


def _terms_behind(node: Any, reduction: int, divisor: Any, rows: float, plain: set[tuple]) -> list[Term]:
    """A reduction is one; or those are whose samples have come together before it. None: it is a function of these."""
    known = signature(node)
    if rows <= 0 or known in plain:
        return [Term(node, reduction, divisor)]
    before = look_before(node, rows, _is_of_weights, _scalar_divisor)
    if not before.reductions:
        inner = the_same(before.divisors) if reduction == SUM else None
        if inner is None:
            plain.add(known)
        return [Term(node, reduction, product(divisor, inner))]
    if not before.linear:
        return []
    return [Term(each, kind, product(divisor, inner))
            for (each, kind), inner in zip(before.reductions, before.divisors)]


def _strangeness(node: Any, inner: list) -> str:
    """Of a number that is no sum of terms (see _terms)."""
    if any(map(_has_reduction, inner)):
        return "function"
    return node.name() if any(_elements(each) > 1 for each in inner) and not _is_of_weights(node) else ""


def _has_reduction(node: Any) -> bool:
    """Whether it is a number that was made of many."""
    rest = [node]
    for _ in range(NODES):
        if not rest:
            break
        node = rest.pop()
        if _elements(node) == 1:
            if _reduction(node) is not None and _is_over_samples(node, 1):
                return True
            rest.extend(each for each, _ in node.next_functions if each is not None)
    return False


def _is_of_losses(inner: list, rows: float) -> bool:
    """Whether what is reduced are a few losses that were stacked."""
    return len(inner) == 1 and inner[0].name().startswith(("StackBackward", "CatBackward")) and \
        all(each is None or _elements(each) == 1 for each, _ in inner[0].next_functions) and \
        not (rows >= 4 and len(inner[0].next_functions) % rows == 0)


def _elements(node: Any) -> int:
    return math.prod(_shape(node))


def _reduced(node: Any) -> tuple[int, ...]:
    """The shape of what was reduced."""
    told = getattr(node, "_saved_self_sym_sizes", None)
    if told is not None:
        return tuple(told)
    inner = node.next_functions[0] if node.next_functions else (None, 0)
    return tuple(inner[0]._input_metadata[inner[1]].shape) if inner[0] is not None else ()


def _reduction(node: Any) -> int | None:
    """MEAN or SUM; None: it is neither, or of one element."""
    if _elements(node) != 1:
        return None
    told = getattr(node, "_saved_reduction", None)
    if told is not None:
        return told if told in (MEAN, SUM) else None
    name = node.name()
    if name.startswith("MeanBackward") and math.prod(_reduced(node)) > 1:
        return MEAN
    return SUM if name.startswith("SumBackward") and math.prod(_reduced(node)) > 1 else None


def _is_weighed(node: Any) -> bool:
    """Whether a mean is one by weights of classes, or leaves some of its values out."""
    if hasattr(node, "_saved_total_weight"):
        ignored = node._saved_ignore_index
        ignored = ignored - (1 << 64) if ignored >= 1 << 63 else ignored
        if node._saved_weight is not None or ignored != NOT_IGNORED:
            return True
    return _comes_from(node, lambda inner: inner.name().startswith(CHOOSING))


def _kind(term: Term, rows: float, count: int) -> Kind:
    """count: of all terms. As many as samples, or more, are perhaps one of each."""
    if _is_penalty(term.node):
        return Kind(True, False, False, False)
    over = _goes_with_samples(term.node, rows)
    weighed = over and term.reduction == MEAN and _is_weighed(term.node)
    return Kind(False, over, weighed, not over and count < rows)


def _is_over_samples(node: Any, rows: float) -> bool:
    return _goes_with_samples(node, rows) and not _is_penalty(node)


def _goes_with_samples(node: Any, rows: float) -> bool:
    """Whether what is reduced has as many rows as there are samples, or a multiple, or was chosen from them."""
    return rows > 0 and (any(size % rows == 0 for size in _reduced(node)) or
                         _comes_from(node, lambda inner: inner.name().startswith(CHOOSING)))


def _is_penalty(node: Any) -> bool:
    """On weights: it has their shape and comes from them element by element, or nothing else goes into it."""
    return _comes_from(node, lambda inner: hasattr(inner, "variable"), by=ELEMENTWISE) or _is_of_weights(node)


def _is_of_weights(node: Any) -> bool:
    """Whether nothing but weights goes into a number: constants are added to them, or multiplied, by element."""
    rest, seen = [each for each, _ in node.next_functions if each is not None], set()
    while rest:
        inner = rest.pop()
        if inner in seen or hasattr(inner, "variable"):
            continue
        seen.add(inner)
        if len(seen) > NODES or not _takes_weights_alone(inner):
            return False
        rest.extend(each for each, _ in inner.next_functions if each is not None)
    return True


def _takes_weights_alone(node: Any) -> bool:
    """Whether no data go in right here."""
    inputs = node.next_functions
    if all(each is not None for each, _ in inputs):
        return node.name().startswith(ELEMENTWISE + OF_WEIGHTS)
    return node.name().startswith(ELEMENTWISE) and \
        any(each is not None and tuple(each._input_metadata[at].shape) == _shape(node) for each, at in inputs)


def _comes_from(node: Any, is_wanted: Any, by: tuple[str, ...] = ("",)) -> bool:
    """Whether what was reduced is one of these, or made of one by nodes of such names that leave its length as it is."""
    shape = _reduced(node)
    rest = [each for each, _ in node.next_functions if each is not None]
    for _ in range(NODES):
        if not rest:
            break
        inner = rest.pop()
        if _elements(inner) != math.prod(shape) and _shape(inner)[:1] != shape[:1]:
            continue
        if is_wanted(inner):
            return True
        if inner.name().startswith(by):
            rest.extend(each for each, _ in inner.next_functions if each is not None)
    return False


def _divisor(node: Any) -> Any:
    """The number by which something was divided, or multiplied (_divides); None: it is not known."""
    other = getattr(node, "_saved_other", None)
    if isinstance(other, torch.Tensor) and other.numel() != 1 or other is None:
        return None
    other = other.detach().reshape(()) if isinstance(other, torch.Tensor) else other
    return other if node.name().startswith("Div") else 1 / other


def _divides(node: Any) -> bool:
    """Whether a factor is one over a whole number, other than a half. A number of the script: those on a GPU are not
    waited for."""
    other = getattr(node, "_saved_other", None)
    if other is None or isinstance(other, torch.Tensor) and (other.numel() != 1 or other.device.type != "cpu"):
        return False
    other = abs(float(other))
    return 0 < other < 0.5 and abs(1 / other - round(1 / other)) < 1e-6


def _scalar_divisor(node: Any) -> Any:
    """What every element was divided by, or times one over what; None: by nothing, or each by another number."""
    is_one = node.name().startswith("DivBackward") or node.name().startswith("MulBackward") and _divides(node)
    return _divisor(node) if is_one else None
