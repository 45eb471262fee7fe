# SPDX-License-Identifier: Apache-2.0
"""Loops of the script's own over a tf.data.Dataset, with a tape and optimizers of Keras.

The batches of a loop that trains are dealt out (readings.py), its optimizers get the means of all workers'
gradients (tape_steps.py), loops that only evaluate see everything. What the workers have told each other is
looked at when the script asks for its next batch.

Stopped at their first step: loops whose batches come from elsewhere, and loops inside of a tf.function, which
nobody can deal out."""

import contextlib
import weakref

import tensorflow

from ..common import notes
from ..tf1.batch_split import Verdict
from . import noise
from .callbacks import average_statistics
from .checks import Checks
from .readings import Reading
from .tape_steps import TapeStep, statistics_of
from .tape_trial import FunctionTrial, TrainsNothing

_ELSEWHERE = ("it trains in a loop of its own, outside of Model.fit, on samples that come from no tf.data.Dataset "
              "which the loop reads, so every worker would train on the same samples",
              "read its batches from one (for x, y in tf.data.Dataset.from_tensor_slices((x, y)).batch(n)), use "
              "Model.fit, or poseidon.tensorflow in the script, or --auto off")
_IN_A_GRAPH = ("it reads its training data inside of a tf.function, where they cannot be dealt out",
               "loop over the tf.data.Dataset outside, and call a tf.function for each batch; or use "
               "poseidon.tensorflow in the script, or --auto off")
_SEVERAL = ("it makes one step from several batches, of which one is smaller than the others: how each counts in the "
            "mean cannot be told")
_LIBRARIES = ("keras", "tensorflow")  # whose own loops are not the script's


class TapeLoops:
    """Of one session. Thread: that of the script which trains."""

    def __init__(self, session):
        self._session = session
        self.world, self.rank = session.world, session.rank
        self.step = self.checks = None  # from the first loop on
        self.used_variables = []  # that a function uses which trains, where it was tried
        self.optimizers = 0  # that were made
        self._known_layers = weakref.WeakSet()
        self._layers = []  # references to layers that keep statistics
        self._roles = weakref.WeakKeyDictionary()  # dataset: whether it trains
        self._current = lambda: None  # the reading that gave the last batch
        self._part = None  # what is known of that batch
        self._counted = (0, 0)  # when it was given
        self._waiting = None  # a batch that was dealt out, and no optimizer was applied since
        self._rows = 0  # of the batch
        self._tried = weakref.WeakSet()  # functions
        self._judged = weakref.WeakSet()  # functions of which it is known whether parts make the whole, or was told that not
        self._eager_judged = False  # the same of steps outside of any
        self._called = None  # the function that is under way
        self._sums = weakref.WeakKeyDictionary()  # function: whether its loss is a sum over samples
        self._adds_up = False  # in the step that is being made
        self._functions = 0  # of datasets, that are being traced
        self._calls = 0  # of tf.functions, that are under way
        self._steps_at_average = 0
        self.steps = 0

    def made_optimizer(self, optimizer):
        """One that may train is being made."""
        del optimizer
        self.optimizers += 1

    def used_layer(self, layer):
        """One that keeps statistics."""
        if layer not in self._known_layers:
            self._known_layers.add(layer)
            self._layers.append(weakref.ref(layer))

    # ---- loops begin

    def takes(self, frame):
        """Whether an iterator that is asked for there is a loop of the script that may train."""
        session = self._session
        if not session.active() or session.in_fit or not self.optimizers or session._is_child() or \
                tensorflow.distribute.has_strategy():
            return False
        return frame.f_globals.get("__name__", "").split(".")[0] not in _LIBRARIES

    def read(self, dataset, own_iter):
        """An iterator for the script."""
        if not tensorflow.executing_eagerly():
            self._mark_graph()
            return own_iter(dataset)
        self._session._begin()
        if self.step is None:
            self.step = TapeStep(self._session, self)
            self.checks = Checks(self._session, self.step)
        self._average_statistics()
        return Reading(self, dataset, own_iter, self._roles.get(dataset))

    @staticmethod
    def _mark_graph():
        tensorflow.compat.v1.get_default_graph()._poseidon_reads = True

    # ---- batches

    def before_next(self, reading):
        """The script asks for a batch: what has it done with the one before?"""
        if not tensorflow.executing_eagerly():
            self._session.refuse(*_IN_A_GRAPH)
        self._look()
        if reading.trains is not None or reading.handed_out == 0 or reading.problem:
            return
        if self.step.counted() != reading.counted:
            reading.be_training()
            self._roles[reading.dataset] = True
        else:
            reading.be_evaluation()
            if any(self._roles.values()):
                self._roles[reading.dataset] = False

    def _look(self):
        """At what was done since the last batch was given."""
        part, self._part = self._part, None
        if part is not None and self.step.counted()[1] != self._counted[1]:
            self._waiting = None
            self._stepped(part)

    def _stepped(self, part):
        self.steps += 1
        if self.steps == 1:
            self._session.points.lead_nowhere("it trains in a loop of its own")
        self._session.progress().step(self._session.count_step(), part.rows)
        self.checks.look(self.steps)
        if self.steps == 1 and self.rank == 0:
            names = " and ".join(dict.fromkeys(type(each).__name__ for each in self.step.optimizers))
            notes.tell(
                f"automatic distribution of {notes.script_name()}: {self.world} workers, weights of worker 0 for all, "
                f"gradients of {names} averaged ({len(self.step.variables)} tensors), batches of its own loop dealt "
                f"out ({part.rows} samples a step), evaluation whole, files by worker 0; a training loss that the "
                "script prints is that of the worker's own samples; --auto off turns it off")

    def gave(self, reading, part, rows):
        """The script gets a batch of so many rows."""
        if not part.problem:
            if self._waiting is not None and self._waiting.weight != part.weight:
                part = part._replace(problem=_SEVERAL, advice="make its datasets with batch(n, drop_remainder=True)")
            self._waiting = part
        self._current, self._part, self._rows = weakref.ref(reading), part, rows
        self._counted = reading.counted = self.step.counted()
        reading.given = [a + b for a, b in zip(reading.given, (part.mine, part.whole, part.rows))]
        self.step.give(None if part.problem else part)

    def tests_on(self, digest):
        """All workers get this batch."""
        self.checks.tests_on(digest)

    def finished(self, reading):
        """It was read to its end."""
        if self._current() is reading:
            self.step.give(None)
            self._current = lambda: None
        if reading.trains and reading.handed_out > 0:
            self._average_statistics()
            self.checks.end_reading(*reading.given, self.steps)
            reading.handed_out = 0

    def _average_statistics(self):
        """Before an evaluation those of all workers become the same."""
        if self.steps > self._steps_at_average:
            self._steps_at_average = self.steps
            alive = [layer for layer in (reference() for reference in self._layers) if layer is not None]
            average_statistics(self._session, statistics_of(alive))

    # ---- gradients

    def differentiated(self, sources):
        """A tape has computed gradients of these."""
        if self.step is not None and not self._session.in_fit and \
                any(hasattr(each, "assign") for each in tensorflow.nest.flatten(sources)):
            self.step.differentiated()

    def step_of_apply(self):
        """Where an optimizer is about to be applied."""
        if self.step is None or self._session._is_child():
            self._session.refuse(*self._where_from())
        return None if self.step.is_applying() else self.step

    def before_apply(self):
        """An optimizer is about to be applied, or a function is traced that applies it."""
        if self._functions > 0 or _reads_in_graph():
            self._session.refuse(*_IN_A_GRAPH)
        if self._current() is None or self._part is None:
            self._session.refuse(*self._where_from())
        if self._part.problem:
            self._session.refuse(self._part.problem, self._part.advice or "use dense batches (Dataset.batch(n)), or "
                                 "poseidon.tensorflow in the script")
        self._see_that_it_is_judged()
        if self._calls == 0:
            self._add_up(False)

    def _see_that_it_is_judged(self):
        """What was found out about one function says nothing of another, nor of a step outside of any."""
        function = self._called
        if self._eager_judged if function is None else function in self._judged:
            return
        if function is None:
            self._eager_judged = True
        else:
            self._judged.add(function)
        with tensorflow.init_scope():
            self._take_verdict(Verdict.FAILED, "it makes steps outside of a tf.function" if function is None else
                               "a tf.function that trains is not given the batch itself")

    def _where_from(self):
        return _IN_A_GRAPH if self._functions > 0 or _reads_in_graph() else _ELSEWHERE

    @contextlib.contextmanager
    def in_dataset_function(self):
        """A function of a dataset is being traced: also a loop over one, inside of a tf.function."""
        self._functions += 1
        try:
            yield
        finally:
            self._functions -= 1

    def tracing(self):
        """Whether the step that is being made has not run yet."""
        return self._calls > 0

    # ---- functions of the script

    def call(self, own, function, args, kwargs):
        """A tf.function is called."""
        if self._part is None or self._part.problem or self._session.in_fit or not self._session.active() or \
                not tensorflow.executing_eagerly() or self.step.recorded is not None:
            return own(function, *args, **kwargs)
        if function not in self._tried:
            self._tried.add(function)
            self._try(function, args, kwargs)
        self._add_up(self._sums.get(function, False))
        self._calls += 1
        before, self._called = self._called, function
        try:
            with noise.in_own_graph(self.rank):
                return own(function, *args, **kwargs)
        finally:
            self._calls -= 1
            self._called = before

    def _try(self, function, args, kwargs):
        trial = FunctionTrial(self.step, function, args, kwargs, self._rows)
        if not trial.samples:
            return
        try:
            verdict = trial.judge(trial.samples)
        except TrainsNothing:
            return
        self.used_variables += trial.variables
        self._judged.add(function)
        self._sums[function] = self._take_verdict(verdict, trial.problem)
        self.step.adds_up = self._adds_up  # until the function is called
        self.step.must_add_up.assign(self._adds_up)

    def _take_verdict(self, verdict, problem):
        return self._session.judged(verdict, problem, self.step)

    def _add_up(self, adds_up):
        """Whether the optimizers that are applied next get sums."""
        if adds_up != self._adds_up:
            self._adds_up = self.step.adds_up = adds_up
            self.step.must_add_up.assign(adds_up)
            self.step.give(self._part)

    # ---- the end

    def at_exit(self):
        """The script is over."""
        if self._part is not None:
            self._look()
        if self.steps > 0:
            self.checks.end_script(self.steps)
            self.checks.tell_verified(self.steps)
            self.steps = 0


def _reads_in_graph():
    """Whether the graph that is being made reads a dataset by itself."""
    if tensorflow.executing_eagerly():
        return False
    graph = tensorflow.compat.v1.get_default_graph()
    while graph is not None:
        if getattr(graph, "_poseidon_reads", False):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False
