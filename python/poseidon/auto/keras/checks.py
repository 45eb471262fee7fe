# SPDX-License-Identifier: Apache-2.0
"""What the workers compare: in every step what its graph has exchanged (steps.py), and at the end of every
epoch the weights, rates and samples of the whole, by the witness."""

import math
import zlib

import numpy

from ..common import notes
from ..common.witness import MODULUS, SURE_AFTER, Witness
from . import everyone

_ADVICE_ORDER = ("draw random numbers from random, numpy.random or tf.random, not from a generator of its "
                 "own without a seed, and leave out deterministic=False")
_ADVICE_REPORT = "please report the script; use poseidon.tensorflow in it, or --auto off"


END_MS = 60_000  # for the other workers to end their scripts


class Checks:
    """Of the steps of one kind of a session: those of Model.fit, or those of loops of its own."""

    def __init__(self, session, step):
        self._session, self._step = session, step
        self._witness = Witness(session.world, session.rank, session.breach)
        self.say = self._witness.say  # a breach, each kind once
        self._evaluations = 0  # that were compared
        self._verified = ""

    def look(self, number):
        """A step is over."""
        seen = self._step.seen()
        if seen.absent:
            self._session.refuse(
                "a worker has ended its training while others go on, and nobody has its part of the data",
                "decide when to stop by nothing that only one worker sees, such as its own loss: an evaluation is the "
                "same on all")
        if not self._step.optimizers:
            self.say("nothing exchanged", "a step of Model.fit applied no optimizer of Keras, so every worker would "
                     "train by itself", "apply one in train_step, or use poseidon.tensorflow")
        if seen.orders:
            self.say("order", f"the workers' training data differ in step {number}: each takes a part of "
                     "what must be the same batches", _ADVICE_ORDER)
        if seen.parts:
            self.say("samples", f"what the workers train on in step {number} does not make up the whole: "
                     "some samples were left out, or taken twice", _ADVICE_REPORT)
        if seen.rates:
            self.say("learning rates", f"the workers' learning rates differ in step {number}",
                     "decide by the evaluation or by the metrics of an epoch, which are the same on all workers")
        if seen.weights:
            self.say("weights", f"the workers' weights differ in step {number}",
                     "change weights by optimizers of Keras alone, in train_step")
        if seen.means:
            self.say("gradients", f"an optimizer got something else in step {number} than the gradients of all "
                     "workers' samples together", _ADVICE_REPORT)
        if seen.alike >= SURE_AFTER:
            self.say("same data", f"the workers were given different batches, and have had the same gradients in "
                     f"{seen.alike:g} steps up to step {number}: they train on the same samples",
                     "train on what the tf.data.Dataset of the loop gives out; or use poseidon.tensorflow in the "
                     "script")

    def end_epoch(self, pieces, logs, whole, steps):
        """Whole: it was read to its end. Every worker comes here."""
        step = self._step
        seen, (part, everything) = step.seen(), step.digests()
        if whole:
            self._count(pieces, seen)
            self._witness.finish_epoch(part % MODULUS, everything % MODULUS, round(seen.samples),
                                       each_once=pieces.samples is not None)
        rows = self._exchange("witness")
        self._witness.hear(rows, steps=steps)
        self._compare_evaluation(logs)
        self._verified = self._witness.hear_end(rows, steps)

    def _exchange(self, name, timeout_ms=None):
        self._witness.note(rates=_rates(self._step.optimizers), **_weights(self._step.variables))
        return everyone.tell(self._session, self._witness.words(), name, timeout_ms).tolist()

    # ---- loops of the script's own

    def tests_on(self, digest):
        """The script gets a batch that all workers get."""
        self._witness.tests_on(0, digest)

    def end_reading(self, part, whole, samples, steps):
        """A loop that trains has come to its end, after so many steps of the script."""
        self._witness.finish_epoch(part % MODULUS, whole % MODULUS, samples)
        self._witness.hear(self._exchange("loop"), steps=steps)

    def end_script(self, steps):
        """The script is over."""
        import poseidon
        from poseidon._leaving import failing

        if failing():
            return
        try:
            rows = self._exchange("end", END_MS)
        except poseidon.Error:
            return  # somebody died, or goes on
        self._verified = self._witness.hear_end(rows, steps)

    def _count(self, pieces, seen):
        for name, must, found in (("samples", pieces.samples, seen.samples),
                                  ("batches", pieces.elements, seen.batches)):
            if must is not None and abs(must - found) > 1e-6 * must:
                self.say("samples", f"an epoch has {must} {name}, and the workers have trained on {found:g}",
                         _ADVICE_REPORT)

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
                self.say("evaluation", f"the workers do not evaluate with the same data: {key} differs",
                         "set seeds before data are made or split, and do not evaluate with random data")
        self._evaluations += 1

    def tell_verified(self, steps):
        """For people, at the end."""
        if self._session.rank != min(self._witness.lost.here()) or steps == 0:
            return
        if self._witness.breaches:
            notes.tell(f"not right: {', '.join(sorted(self._witness.breaches))}")
        elif self._verified:
            notes.tell(f"{self._witness.heading()}: {self._verified}{self._more_verified()}")

    def _more_verified(self):
        found = "; gradients are those of all workers' samples in every step"
        return found + ("; evaluation with the same result everywhere" if self._evaluations else "")


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
