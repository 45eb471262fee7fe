# SPDX-License-Identifier: Apache-2.0
"""One step of Model.fit on all workers: whatever optimizers it applies get the means of all workers'
gradients, and the workers tell each other what they train on.

A graph is traced once and run often, and functions inside of it may outlive it. So what is known of a step
is kept in variables, and every step sets them first."""

import contextlib
import typing

import numpy
import tensorflow

from . import digests, noise
from .means import Means
from .pieces import Words

TOLERANCE = 1e-4  # of weights: machines may round differently
SAMPLE = 32  # values of each variable


class Seen(typing.NamedTuple):
    """What the workers have told each other: in how many steps something was wrong, and how much was
    trained on."""

    orders: float  # the workers had different batches
    parts: float  # what they trained on did not make them up
    rates: float  # their learning rates differed
    weights: float  # their weights differed
    means: float  # an optimizer got something else than the mean of their gradients
    alike: float  # their batches differed, and their gradients did not
    samples: float
    batches: float  # of the script's size
    steps: float
    absent: float  # a worker took no part, as its script is over


class Step:
    """What the steps of one session do. Thread: that of the script which trains."""

    def __init__(self, session):
        self._session = session
        self._averagers = {}  # by optimizer, variables, and how often they came in this step
        self._means = {}  # likewise
        self._came = {}
        self._applying = False
        self._kept = []  # what has an identity in use
        self._ready = set()  # variables that are worker 0's
        self.optimizers = []  # those that were applied
        self.variables = []  # those that they change
        self.recorded = None  # gradients of a step that is only tried
        self.even = self.adds_up = False
        with tensorflow.device("CPU:0"):
            self._weight = tensorflow.Variable(1.0, False, dtype=tensorflow.float64)
            self._factor = tensorflow.Variable(1.0, False, dtype=tensorflow.float64)
            self._seen = tensorflow.Variable(numpy.zeros(len(Seen._fields)), False)
            self._digests = tensorflow.Variable([0, 0], False, dtype=tensorflow.int64)
            self._share = tensorflow.Variable(1.0, False, dtype=tensorflow.float64)
            self._counts = tensorflow.Variable(1.0, False, dtype=tensorflow.float64)
            self._batch = tensorflow.Variable(0, False, dtype=tensorflow.int64)
            self.must_add_up = tensorflow.Variable(False, False)  # what was found when the step was tried

    # ---- before and after

    def begin_fit(self):
        """Variables may have changed since the last one."""
        self._ready.clear()

    def share_variables(self, variables):
        """Those that are not yet worker 0's become so."""
        from poseidon.tensorflow import broadcast_variables

        new = [each for each in variables if id(each) not in self._ready]
        if new:
            self._kept += new
            self._ready.update(map(id, new))
            broadcast_variables(new)

    def seen(self):
        """What the workers have told each other in this epoch."""
        return Seen(*self._seen.numpy().tolist())

    def digests(self):
        """Of what this worker has trained on in this epoch, and of what all of them have."""
        return self._digests.numpy().tolist()

    def forget(self):
        """A new epoch."""
        self._seen.assign(numpy.zeros(len(Seen._fields)))
        self._digests.assign([0, 0])

    # ---- in a graph, as a rule

    def begin(self, data, words, rates, weights):
        """Comes first in every step. rates, weights: numbers for those of this worker."""
        self._came.clear()
        self._draw_by_itself()
        with tensorflow.device("CPU:0"):
            words = Words(*tensorflow.unstack(words, len(Words._fields)))
            told = self._exchange(data, words, rates, weights)
            if not self.even:
                self._weight.assign(words.counts if self.adds_up else words.share)
            if not self.even or self.adds_up:
                self._factor.assign(told[0] if self.adds_up else told[0] / told[1])

    def _draw_by_itself(self):
        """Noise of this step's graph is the worker's own."""
        graph = tensorflow.compat.v1.get_default_graph()
        if not tensorflow.executing_eagerly() and graph.seed is not None:
            graph.seed = noise.graph_seed(graph.seed, self._session.rank)

    def _exchange(self, data, words, rates, weights):
        """What this worker trains on, and with."""
        counts = tensorflow.cast(words.counts, tensorflow.int64)
        mine = digests.of_rows(data, words.first_row, words.element) * counts
        whole = tensorflow.cast(words.digest, tensorflow.int64)
        self._digests.assign_add([mine, whole])
        return self._compare(words, mine, whole, rates, weights, "keras.words")

    def _compare(self, words, mine, whole, rates, weights, table):
        """mine, whole: digests of this worker's samples, and of all. Everybody's numbers are added up: workers have
        the same where W times the sum of squares is the square of the sum."""
        from poseidon.tensorflow import ops
        from poseidon.tensorflow.gradients import PRIORITY_MAX

        batch, rate = (tensorflow.cast(digests.small(each), tensorflow.float64) for each in (whole, rates))
        weight, size = weights
        told = ops.push_pull(
            tensorflow.stack([tensorflow.ones_like(words.share), words.share, words.part,
                              _modulo(mine, digests.SUMMED), batch, batch * batch, rate, rate * rate,
                              weight, weight * weight, size]),
            table, reduce="sum", priority=PRIORITY_MAX)
        made_up = tensorflow.math.floormod(told[3], float(digests.SUMMED))
        spread = told[0] * told[9] - told[8] * told[8]
        self._seen.assign_add(tensorflow.stack(Seen(
            _number(told[0] * told[5] != told[4] * told[4]),
            _number(made_up != _modulo(whole, digests.SUMMED)),
            _number(told[0] * told[7] != told[6] * told[6]),
            _number(spread > (TOLERANCE * told[10]) ** 2), 0.0, 0.0, told[1], told[2],
            tensorflow.ones_like(words.share), _number(told[0] < self._session.world))))
        self._share.assign(words.share)
        self._counts.assign(words.counts)
        self._batch.assign(mine)
        return told

    def average(self, optimizer, gradients, variables):
        """The means of all workers' gradients. Where a step is only tried: nothing, to be applied
        nowhere."""
        if tensorflow.executing_eagerly():
            self.share_variables([*variables, *optimizer.variables])
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        known = set(map(id, self.variables))
        self.variables += [each for each in variables if id(each) not in known]
        if self.recorded is not None:
            self.recorded += [tensorflow.convert_to_tensor(each) for each in gradients
                              if each is not None]
            return None
        place = self._place(optimizer, variables)
        gradients = [None if each is None else tensorflow.convert_to_tensor(each) for each in gradients]
        means = self._weighed_means(place, gradients, variables)
        self._look_at_means(place, gradients, means)
        return means

    def _weighed_means(self, place, gradients, variables):
        from poseidon.tensorflow.gradients import Averager

        averager = self._averagers.setdefault(place, Averager())
        scaled = [None if each is None else self._scaled(each) for each in gradients]
        means = averager.average(scaled, variables)
        if self.even and not self.adds_up:
            return means
        return [None if each is None else each * tensorflow.cast(self._factor, each.dtype)
                for each in means]

    def _look_at_means(self, place, gradients, means):
        found = self._means.setdefault(place, Means(self._share, self._counts, self._batch,
                                                    self.must_add_up)).compare(gradients, means)
        seen = [0.0] * len(Seen._fields)
        seen[Seen._fields.index("means")], seen[Seen._fields.index("alike")] = found
        self._seen.assign_add(tensorflow.stack(seen))

    def _scaled(self, gradient):
        return gradient if self.even else gradient * tensorflow.cast(self._weight, gradient.dtype)

    def _place(self, optimizer, variables):
        """Each place of a step has tables of its own; in the next step, or graph, the same."""
        key = (id(optimizer), *map(id, variables))
        number = self._came.get(key, 0)
        self._came[key] = number + 1
        if (key, number) not in self._averagers:
            self._kept += [optimizer, variables]
        return key, number

    @contextlib.contextmanager
    def applying(self):
        """One optimizer may be inside of another, which has done all that is to be done."""
        self._applying = True
        try:
            yield
        finally:
            self._applying = False

    def is_applying(self):
        """Whether another optimizer is at work."""
        return self._applying


def rates_of(optimizers):
    """A number for their learning rates in this step."""
    total = tensorflow.constant(0, tensorflow.int64)
    for number, optimizer in enumerate(optimizers):
        bits = tensorflow.bitcast(tensorflow.cast(optimizer.learning_rate, tensorflow.float32),
                                  tensorflow.int32)
        total += tensorflow.cast(bits, tensorflow.int64) * (number + 1)
    return total


def sample(variables):
    """A number for a few values of each variable, and one for how large they are."""
    total = size = tensorflow.constant(0.0, tensorflow.float64)
    for number, each in enumerate(variables):
        value = tensorflow.convert_to_tensor(each)
        if value.dtype.is_floating:
            some = tensorflow.cast(tensorflow.reshape(value, [-1])[:SAMPLE], tensorflow.float64)
            turns = tensorflow.range(tensorflow.size(some), dtype=tensorflow.int32) * 7 + number * 3
            total += tensorflow.reduce_sum(
                some * tensorflow.cos(tensorflow.cast(turns, tensorflow.float64)))
            size += tensorflow.reduce_sum(tensorflow.abs(some))
    return total, size


def _modulo(number, modulus):
    return tensorflow.cast(tensorflow.bitwise.bitwise_and(number, modulus - 1), tensorflow.float64)


def _number(truth):
    return tensorflow.cast(truth, tensorflow.float64)
