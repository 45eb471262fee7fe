# SPDX-License-Identifier: Apache-2.0
"""What the workers compare: in every step what its graph has exchanged (steps.py), and at the end of every
epoch the weights, rates and samples of the whole, by the witness."""

import math
import zlib

import numpy

from ..common import notes
from ..common.witness import MODULUS, Witness
from . import everyone

_ADVICE_ORDER = ("draw random numbers from random, numpy.random or tf.random, not from a generator of its "
                 "own without a seed, and leave out deterministic=False")


class Checks:
    """Of one session."""

    def __init__(self, session):
        self._session = session
        self._witness = Witness(session.world, session.rank, self._breach)
        self._verified = ""

    def _breach(self, kind, reason, advice):
        del kind
        self._session.refuse(reason, advice)

    def look(self, number):
        """A step is over."""
        session, seen = self._session, self._session.step.seen()
        if not session.step.optimizers:
            session.refuse("a step of Model.fit applied no optimizer of Keras, so every worker would "
                           "train by itself", "apply one in train_step, or use poseidon.tensorflow")
        if seen.orders:
            session.refuse(f"the workers' training data differ in step {number}: each takes a part of "
                           "what must be the same batches", _ADVICE_ORDER)
        if seen.parts:
            session.refuse(f"what the workers train on in step {number} does not make up the whole: "
                           "some samples were left out, or taken twice",
                           "please report the script; use poseidon.tensorflow in it, or --auto off")
        if seen.rates:
            session.refuse(f"the workers' learning rates differ in step {number}",
                           "decide by the evaluation or by the metrics of an epoch, which are the same "
                           "on all workers")
        if seen.weights:
            session.refuse(f"the workers' weights differ in step {number}",
                           "change weights by optimizers of Keras alone, in train_step")

    def end_epoch(self, pieces, logs, whole, steps):
        """Whole: it was read to its end. Every worker comes here."""
        step = self._session.step
        seen, (part, everything) = step.seen(), step.digests()
        if whole:
            self._count(pieces, seen)
            self._witness.finish_epoch(part % MODULUS, everything % MODULUS, round(seen.samples))
        self._witness.note(rates=_rates(step.optimizers), **_weights(step.variables))
        rows = everyone.tell(self._session, self._witness.words(), "witness").tolist()
        self._witness.hear(rows)
        self._compare_evaluation(logs)
        self._verified = self._witness.hear_end(rows, steps)

    def _count(self, pieces, seen):
        for name, must, found in (("samples", pieces.samples, seen.samples),
                                  ("batches", pieces.elements, seen.batches)):
            if must is not None and abs(must - found) > 1e-6 * must:
                self._session.refuse(
                    f"an epoch has {must} {name}, and the workers have trained on {found:g}",
                    "please report the script; use poseidon.tensorflow in it, or --auto off")

    def _compare_evaluation(self, logs):
        """Workers with the same weights have the same results, unless they evaluate something else."""
        found = {key: float(value) for key, value in (logs or {}).items()
                 if key.startswith("val_") and numpy.ndim(value) == 0}
        if not found:
            return
        all_of_them = everyone.tell(self._session, [found[key] for key in sorted(found)],
                                    "evaluation")
        spread, most = numpy.ptp(all_of_them, axis=0), numpy.abs(all_of_them).max(axis=0)
        for key, differs in zip(sorted(found), spread > 1e-3 * most + 1e-6):
            if differs:
                self._session.refuse(
                    f"the workers do not evaluate with the same data: {key} differs",
                    "set seeds before data are made or split, and do not evaluate with random data")

    def tell_verified(self, steps):
        """For people, at the end."""
        if self._verified and self._session.rank == 0 and steps > 0:
            notes.tell(f"verified: {self._verified}")


def _rates(optimizers):
    return zlib.crc32(repr([float(each.learning_rate) for each in optimizers]).encode())


def _weights(variables):
    """All bits of them, how large they are, and how they lie in one direction."""
    bits, square, direction = 0, 0.0, 0.0
    for number, each in enumerate(variables):
        value = numpy.ascontiguousarray(each.numpy())
        bits = zlib.crc32(value.tobytes(), bits)
        flat = value.astype(numpy.float64).ravel()
        square += float(flat @ flat)
        direction += float(flat @ numpy.cos(numpy.arange(flat.size) * 7 + number * 3))
    return {"bits": bits, "norm": math.sqrt(square), "direction": direction}
