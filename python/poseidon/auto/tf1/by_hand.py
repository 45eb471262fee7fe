# SPDX-License-Identifier: Apache-2.0
"""Scripts of TensorFlow that compute gradients of variables and give them to no optimizer, but change
the variables by hand: every worker would train by itself. Such a script is stopped where it first changes one
of them, eagerly or in a function; of one whose session changes them it is told when the script is over."""

import atexit
import functools
import multiprocessing
import os
import sys

import tensorflow as version_2
import tensorflow.compat.v1 as tensorflow
from tensorflow.python.eager import backprop
from tensorflow.python.ops import resource_variable_ops

from ..common import notes
from . import own_gradients
from ..common.session import EXIT_REFUSED


class _ByHand:
    """Thread: any; what is noted is noted for good."""

    def __init__(self, watch):
        self._watch = watch
        self._seen = False
        self._sources = {}  # variables, by identity: kept, so that it is theirs alone
        self._refused = False

    def note(self, sources):
        """Gradients of these were asked for. Those of a model's input train nothing."""
        if self._is_known():
            return
        for each in tensorflow.nest.flatten(sources):
            if hasattr(each, "assign"):
                self._seen = True
                variable = getattr(each, "value", each)  # of Keras
                variable = each if callable(variable) else variable
                self._sources[id(variable)] = variable

    def before_change(self, variable):
        """The script is about to assign to it."""
        if id(variable) in self._sources and not self._is_known() and \
                not own_gradients.in_plain_graph() and multiprocessing.parent_process() is None:
            self._refused = True
            notes.explain_refusal(
                "it computes gradients of a variable and changes it by hand, so every worker would train by itself",
                "use an optimizer of Keras or of tf.train, or poseidon.tensorflow in the script, or --auto off")
            raise SystemExit(EXIT_REFUSED)

    def _is_known(self):
        """Whether somebody else looks after the script's training."""
        return any(each.joined or each.aside or each.refused or each.has_optimizers()
                   for each in self._watch.sessions)

    def at_exit(self):
        """The script is over."""
        if self._refused:  # the script has caught the exit
            sys.stderr.flush()
            os._exit(EXIT_REFUSED)
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

    def changing(own):
        @functools.wraps(own)
        def change(variable, *args, **kwargs):
            by_hand.before_change(variable)
            return own(variable, *args, **kwargs)

        return change

    for kind in (resource_variable_ops.BaseResourceVariable, resource_variable_ops.ResourceVariable):
        for name in {"assign", "assign_add", "assign_sub"} & set(vars(kind)):
            setattr(kind, name, changing(getattr(kind, name)))
    backprop.GradientTape.gradient = gradient
    for module in (tensorflow, version_2, version_2.compat.v2):
        module.gradients = watched(module.gradients)
