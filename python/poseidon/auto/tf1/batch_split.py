# SPDX-License-Identifier: Apache-2.0
"""Whether a batch can be cut: whether the gradients of its parts, by themselves, make that of the whole.

They do for a loss that is a mean over samples, or their sum. They do not where samples are compared
with each other, counted by a mask, or in a graph with a number of samples of its own.

What is drawn at random for the whole (dropout) is given to the parts, row by row. Where that does not
fit, the whole is computed twice, and may differ from its parts by as much as from itself."""

import enum

import numpy
import tensorflow.compat.v1 as tensorflow

_ROUNDING = 1e-3  # of a gradient's length
_COARSE_ROUNDING = 5e-2  # where numbers have 16 bits
_NEGLIGIBLE = 1e-6  # of the length of all gradients: what is left of a gradient that is 0
_NOISES = 4  # so many times what the whole differs from itself
_NOISE_MOST = 0.1  # of the length of all gradients; with more, nothing would be noticed
_DRAWS = ("Random", "StatelessRandom", "TruncatedNormal", "ParameterizedTruncatedNormal",
          "StatelessTruncatedNormal", "Multinomial", "StatelessMultinomial")


class Verdict(enum.IntEnum):
    """What the gradient of the whole is."""

    MEAN = 0  # of the parts', by their samples
    SUM = 1
    NEITHER = 2
    FAILED = 3  # TensorFlow could not compute that of a part
    ZERO = 4  # nothing can be told by it


def draws_of(operations):
    """Tensors of random numbers that can be given to a graph."""
    return [each.outputs[0] for each in operations if each.type.startswith(_DRAWS)
            and len(each.outputs) == 1 and each._get_control_flow_context() is None]


def judge(run, whole, parts, draws):
    """run(fetches, arrays) computes the gradients, with more fetches behind them; whole: arrays by
    tensor; parts: (arrays, share of the samples)."""
    try:
        frozen = _judge_frozen(run, whole, parts, draws) if draws else Verdict.NEITHER
        return frozen if frozen in (Verdict.MEAN, Verdict.SUM) else _judge_twice(run, whole, parts)
    except (tensorflow.errors.OpError, ValueError):
        return Verdict.FAILED


def _judge_frozen(run, whole, parts, draws):
    """With the same random numbers for the whole and its parts."""
    gradients, drawn = run(draws, whole)
    samples = _samples(whole)
    begin, found = 0, Parts(gradients)
    for arrays, share in parts:
        end = begin + _samples(arrays)
        try:
            found.add(run([], {**arrays, **_rows(draws, drawn, begin, end, samples)})[0], share)
        except (tensorflow.errors.OpError, ValueError):
            return Verdict.NEITHER  # those numbers are not of samples
        begin = end
    return found.compare(gradients)


def _judge_twice(run, whole, parts):
    once, again = run([], whole)[0], run([], whole)[0]
    found = Parts(once)
    for arrays, share in parts:
        found.add(run([], arrays)[0], share)
    return found.compare(once, again)


def nearest(run, whole, parts):
    """Mean or sum, where neither is exact."""
    gradients = run([], whole)[0]
    found = Parts(gradients)
    for arrays, share in parts:
        found.add(run([], arrays)[0], share)
    far = [numpy.linalg.norm(_distances(gradients, each)) for each in (found.mean, found.sum)]
    return Verdict.SUM if far[1] < far[0] else Verdict.MEAN


def _samples(arrays):
    return len(next(iter(arrays.values())))


def _rows(draws, drawn, begin, end, samples):
    """Those of some samples, which may have several each."""
    found = {}
    for tensor, value in zip(draws, drawn):
        if value.ndim > 0 and len(value) % samples == 0:
            each = len(value) // samples
            value = value[begin * each:end * each]
        found[tensor] = value
    return found


def _length(array):
    return float(numpy.linalg.norm(numpy.asarray(array, numpy.float64).ravel()))


def _distances(some, others):
    return numpy.array([_length(a - b) for a, b in zip(some, others)])


class Parts:
    """Gradients of the parts, put together."""

    def __init__(self, like):
        self.mean = [numpy.zeros_like(each) for each in like]
        self.sum = [numpy.zeros_like(each) for each in like]
        self._lengths = numpy.zeros(len(like))

    def add(self, gradients, share):
        """Those of one more part."""
        for number, gradient in enumerate(gradients):
            self.mean[number] += (gradient * share).astype(gradient.dtype)
            self.sum[number] += gradient
            self._lengths[number] += _length(gradient) * share

    def compare(self, once, again=None):
        """With the whole."""
        noises = numpy.zeros(len(once)) if again is None else _distances(once, again)
        lengths = numpy.maximum(self._lengths, [_length(each) for each in once])
        total = float(numpy.linalg.norm(lengths))
        if total == 0:
            return Verdict.ZERO
        noise = float(numpy.linalg.norm(noises)) / total
        if not noise <= _NOISE_MOST:  # nor not a number
            return Verdict.NEITHER
        rounding = numpy.array([_COARSE_ROUNDING if each.dtype.itemsize < 4 else _ROUNDING
                                for each in once])
        most = (rounding + _NOISES * noise) * lengths + _NOISES * noises + _NEGLIGIBLE * total
        for verdict, made in ((Verdict.MEAN, self.mean), (Verdict.SUM, self.sum)):
            if bool(numpy.all(_distances(once, made) <= most)):
                return verdict
        return Verdict.NEITHER
