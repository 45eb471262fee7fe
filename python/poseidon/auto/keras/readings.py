# SPDX-License-Identifier: Apache-2.0
"""A tf.data.Dataset that a loop of the script reads, and which part of it is this worker's.

Every worker reads all of it. W consecutive batches make one step, worker r is given the r-th; where fewer than W
are left, workers share one and cut it by rows, as in Model.fit (pieces.py). Whether the loop trains is not known
before its first batch was used. If nothing was differentiated then, it is an evaluation, and the other batches
of that step follow: it sees everything."""

import itertools
import typing

import tensorflow

from ..common import witness
from . import digests
from .pieces import Pieces

_as_it_is = tensorflow.autograph.experimental.do_not_convert


class Part(typing.NamedTuple):
    """What is known of the batch that the script has got. Digests and numbers of rows."""

    weight: float = 1.0  # of its gradients in the mean
    share: float = 0.0  # its rows; a share of them where others have the same
    counts: float = 1.0  # 0 where another worker counts for the same rows
    mine: int = 0
    whole: int = 0  # of all workers
    rows: int = 0  # of all workers
    problem: str = ""  # why it must not be trained on
    advice: str = ""


def why_not(dataset):
    """Why it cannot be dealt out; empty: it can."""
    specs = tensorflow.nest.flatten(dataset.element_spec)
    if not all(isinstance(spec, tensorflow.TensorSpec) for spec in specs):
        return "its training data has sparse or ragged tensors"
    if not specs or not specs[0].shape.rank:
        return "its training data does not come in batches"
    return ""


class Reading:
    """An iterator in the place of TensorFlow's. loops hears of what is given out."""

    def __init__(self, loops, dataset, own_iter, trains):
        self._loops, self._world, self._rank = loops, loops.world, loops.rank
        self.dataset = dataset
        self.trains = trains  # None: not known yet
        self.handed_out = 0
        self.counted = None  # by loops, when it gave the last batch
        self.given = [0, 0, 0]  # digests of this worker's part and of the whole, rows of the whole
        self.problem = why_not(dataset)
        self.element_spec = dataset.element_spec
        self._left = []  # what follows when it is an evaluation
        self._first = 0  # a digest of the batch that came before that
        sizes = {spec.shape[0] if isinstance(spec, tensorflow.TensorSpec) and spec.shape.rank else None
                 for spec in tensorflow.nest.flatten(dataset.element_spec)}
        self._even = len(sizes) == 1 and None not in sizes  # batches of a fixed size
        self._own = own_iter(dataset if self.problem else _with_digests(dataset, self._world))

    def __iter__(self):
        return self

    def __next__(self):
        self._loops.before_next(self)
        given = self._next_whole() if self.problem or self.trains is False else self._next_part()
        if given is None:
            self._loops.finished(self)
            raise StopIteration
        element, part = given
        self._loops.gave(self, part, _rows([element]) if not self.problem else 0)
        self.handed_out += 1
        return element

    def get_next(self):
        """As TensorFlow's iterators have it."""
        try:
            return next(self)
        except StopIteration:
            raise tensorflow.errors.OutOfRangeError(None, None, "End of sequence") from None

    def be_training(self):
        """Its first batch was trained on."""
        self.trains, self._left = True, []

    def be_evaluation(self):
        """Nothing was differentiated: all of it is for everybody."""
        self.trains = False
        self._loops.tests_on(self._first)

    # ---- everything

    def _next_whole(self):
        if self._left:
            element, digest = self._left.pop(0)
        elif self.problem:
            element, digest = next(self._own, None), 0
        else:
            element, digest = next(self._own, (None, 0))
        if element is None:
            return None
        self._loops.tests_on(int(digest))
        return element, Part(problem=self.problem or "it trains on a tf.data.Dataset with which it has only "
                             "evaluated before, or whose first batch it has not trained on, so every worker would "
                             "train on the same samples",
                             advice="train on every batch that the loop reads, from its first; or use "
                             "poseidon.tensorflow in the script, or --auto off")

    # ---- a part

    def _next_part(self):
        window = list(itertools.islice(self._own, self._world))
        if not window:
            return None
        if len(window) == self._world:
            return self._one_of(window)
        if self.handed_out > 0 and self._even:
            return None  # one process would have left out what does not fill a batch, too
        if self.trains and not self._even:
            return self._cut(window)
        return self._few(window)

    def _one_of(self, window):
        rows, total = _rows(window[self._rank]), sum(map(_rows, window))
        element = window[self._rank][0]
        if self.trains is None:
            self._left = [each for number, each in enumerate(window) if number != self._rank]
            self._first = int(window[self._rank][1])
        return element, Part(rows * self._world / total, rows, 1.0, _digest(element, 0, self._rank),
                             _sum(window), total)

    def _cut(self, window):
        """What is left, for more workers than there are batches."""
        count, total = len(window), sum(map(_rows, window))
        mine = self._rank * count // self._world
        first, last = -(-mine * self._world // count), -(-(mine + 1) * self._world // count)
        element, words = Pieces._slice(window[mine][0], last - first, self._rank - first)
        share, counts = float(words.share), float(words.counts)
        return element, Part(share * self._world / total, share, counts,
                             _digest(element, int(words.first_row), mine) * int(counts), _sum(window), total)

    def _few(self, window):
        """The whole dataset has fewer batches than there are workers: everybody is given all. One batch is as
        right as it is for one process; of several, one process would make one step."""
        self._left, self._first = window[1:], int(window[0][1])
        element, total = window[0][0], _rows(window[0])
        if len(window) > 1:
            return element, Part(problem=f"its training data have {len(window)} batches, fewer than the "
                                 f"{self._world} workers", advice="use smaller batches, or fewer workers")
        counts = float(self._rank == 0)
        return element, Part(1.0, total / self._world, counts, _digest(element, 0, 0) * int(counts),
                             _sum(window), total)


def _with_digests(dataset, world):
    """Of (element, digest), in one order, and not read further than the script asks."""
    options = tensorflow.data.Options()
    options.deterministic = True
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False

    def add(number, element):
        return element, digests.of_rows(element, element=number % world)

    return dataset.enumerate().map(_as_it_is(add)).with_options(options)


def _rows(pair):
    return int(tensorflow.nest.flatten(pair[0])[0].shape[0])


def _sum(window):
    return sum(int(digest) for _, digest in window) % witness.MODULUS


@tensorflow.function(autograph=False, reduce_retracing=True)
def _digest_of(element, first_row, number):
    return digests.of_rows(element, first_row, number)


def _digest(element, first_row, number):
    """Of what the script is given."""
    return int(_digest_of(tensorflow.nest.flatten(element), tensorflow.constant(first_row, tensorflow.int64),
                          tensorflow.constant(number, tensorflow.int64)))
