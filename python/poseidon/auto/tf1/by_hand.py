# SPDX-License-Identifier: Apache-2.0
"""Scripts of TensorFlow that compute gradients of variables and give them to no optimizer, but change
the variables by hand: every worker trains by itself, which is told when the script is over."""

import atexit
import functools
import multiprocessing
import os
import sys

import tensorflow as version_2
import tensorflow.compat.v1 as tensorflow
from tensorflow.python.eager import backprop

from ..common import notes
from . import own_gradients
from ..common.session import EXIT_REFUSED


class _ByHand:
    """Thread: any; what is noted is noted for good."""

    def __init__(self, watch):
        self._watch = watch
        self._seen = False

    def note(self, sources):
        """Gradients of these were asked for. Those of a model's input train nothing."""
        if not self._seen:
            self._seen = any(hasattr(each, "assign") for each in tensorflow.nest.flatten(sources))

    def at_exit(self):
        """The script is over."""
        known = any(each.joined or each.aside or each.refused for each in self._watch.sessions)
        if not self._seen or known or hasattr(sys, "last_value") or \
                multiprocessing.parent_process() is not None:
            return
        notes.explain_refusal(
            "it computed gradients and gave them to no optimizer, so every worker has trained by "
            "itself",
            "use an optimizer of tf.train, Model.fit of Keras, poseidon.tensorflow, or --auto off")
        sys.stderr.flush()
        os._exit(EXIT_REFUSED)


def watch_gradients(watch):
    """From now on."""
    by_hand = _ByHand(watch)
    atexit.register(by_hand.at_exit)
    own_tape = backprop.GradientTape.gradient

    @functools.wraps(own_tape)
    def gradient(tape, target, sources, *args, **kwargs):
        by_hand.note(sources)
        found = own_tape(tape, target, sources, *args, **kwargs)
        if not own_gradients.in_plain_graph():
            return found
        flat = tensorflow.nest.flatten
        return tensorflow.nest.pack_sequence_as(
            sources, own_gradients.remember(flat(sources), flat(found)))

    def watched(own):
        @functools.wraps(own)
        def gradients(ys, xs, *args, **kwargs):
            by_hand.note(xs)
            found = own(ys, xs, *args, **kwargs)
            if not own_gradients.in_plain_graph():
                return found
            return own_gradients.remember(xs if isinstance(xs, (list, tuple)) else [xs], found)

        return gradients

    backprop.GradientTape.gradient = gradient
    for module in (tensorflow, version_2, version_2.compat.v2):
        module.gradients = watched(module.gradients)
