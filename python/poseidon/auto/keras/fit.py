# SPDX-License-Identifier: Apache-2.0
"""Keras scripts that know nothing of Poseidon: Model.fit is distributed, everything else is whole.

W workers with batches of b train like one process with batches of W*b: pieces.py has which part of the
data is this worker's, steps.py how gradients become those of the whole. Before the first step the
script's own train_step is tried on a part of a batch (trial.py)."""

import contextlib
import math
import os
import sys

import keras
import tensorflow

from ..common import notes
from ..common.session import Session
from ..tf1.batch_split import Verdict
from . import everyone, noise
from .callbacks import First, Last
from .checks import Checks
from .metrics import Metrics
from .pieces import Pieces
from .steps import Step, rates_of, sample
from .tape_loops import TapeLoops
from .trial import Trial


class KerasSession(Session):
    """Thread: that of the script which trains."""

    package = "poseidon.tensorflow"
    goes_on = True

    def __init__(self, watch):
        super().__init__(watch)
        self.in_fit = False
        self.step = self.checks = self.points = None  # from the first fit on
        self._fitted = {}  # by the identity of a model: how it was fitted last
        self.loops = TapeLoops(self)
        self._told = set()
        self._progress = None  # from the first step on
        self._samples = 0.0  # that the workers have trained on in epochs before this one

    def step_aside(self, reason):
        """Why the script does it itself is told once: by TensorFlow's session, where both know."""
        if reason == self._watch.reason:
            self.aside = True
        else:
            super().step_aside(reason)

    def has_optimizers(self):
        """Whether the script has made one."""
        return self.loops.optimizers > 0

    def before_strategy(self, strategy):
        """The script trains with one of tf.distribute."""
        if not self.active() or self._is_child():
            return
        name = type(strategy).__name__
        if strategy.extended._in_multi_worker_mode() or "ParameterServer" in name:
            self.step_aside(f"the script uses tf.distribute itself ({name})")
        else:
            self.refuse(f"it trains with tf.distribute's {name}, which knows the devices of its own "
                        "process alone, so every worker would train by itself on the same samples",
                        "leave the strategy out, or run it with --auto off")

    def step_of_apply(self):
        """An optimizer is about to change weights. Returns the step that averages its gradients; None: nobody
        has to."""
        if not self.active():
            return None
        if self.in_fit:
            return None if self.step.is_applying() else self.step
        if self._is_child():
            return None
        if tensorflow.distribute.has_strategy():
            self.before_strategy(tensorflow.distribute.get_strategy())
        return self.loops.step_of_apply() if self.active() else None

    def before_single_batches(self):
        """train_on_batch was called."""
        if self.active() and not self.in_fit and not self._is_child():
            self.refuse("it trains by train_on_batch, outside of Model.fit, so every worker would train on the "
                        "same samples",
                        "use Model.fit, a loop over a tf.data.Dataset with a tape, or poseidon.tensorflow in the "
                        "script, or --auto off")

    # ---- fit

    def fit(self, own, model, x=None, y=None, batch_size=None, epochs=1, verbose="auto",
            callbacks=None, validation_split=0.0, validation_data=None, shuffle=True,
            class_weight=None, sample_weight=None, initial_epoch=0, steps_per_epoch=None, **rest):
        """Model.fit of this worker."""
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = callbacks.callbacks
        self._check_fit(model, callbacks)
        self._begin()
        if validation_split and validation_data is None:
            from keras.src.trainers.data_adapters import array_slicing

            (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=validation_split)
        pieces = Pieces(self, x, y, sample_weight, batch_size, shuffle, class_weight,
                        steps_per_epoch)
        if steps_per_epoch is not None:
            steps_per_epoch = -(-steps_per_epoch // self.world)
            pieces.samples = pieces.elements = None  # an epoch is what the script says
        fitted = self._prepare(model, pieces)
        callbacks = self.points.begin_fit(fitted, pieces, self._callbacks(callbacks, fitted, initial_epoch))
        self.in_fit = True
        try:
            return own(model, pieces.dataset, epochs=epochs,
                       verbose=verbose if self.rank == 0 else 0, validation_data=validation_data,
                       callbacks=callbacks, initial_epoch=initial_epoch, steps_per_epoch=steps_per_epoch, shuffle=False, **rest)
        finally:
            self.in_fit = False
            fitted.leave()

    def _check_fit(self, model, callbacks):
        if self._is_child():
            self.refuse("it trains in a process that it started itself",
                        "use poseidon.tensorflow in it, or run it with --auto off")
        if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in callbacks or ()):
            self.refuse("BackupAndRestore would take one worker back to an epoch of its own",
                        "leave it out, or use poseidon.tensorflow")
        if not getattr(model, "compiled", True):
            self.refuse("fit was called before compile", "compile the model first")

    def _begin(self):
        """The workers are about to train together."""
        self._join()
        import poseidon.tensorflow.optimizer  # noqa: F401  (XLA is left out)

        if self.step is None:
            from .points import Points  # needs poseidon

            self.points = Points(self)
            self.step = Step(self)
            self.checks = Checks(self, self.step)

    def _prepare(self, model, pieces):
        """A step that knows its share. The graph of an earlier fit is used again where it fits."""
        self.step.begin_fit()
        if not pieces.even:
            model.steps_per_execution = 1  # as an epoch may have another number of steps
        fitted = self._fitted.get(id(model))
        if fitted is None or not fitted.still_holds(pieces):
            fitted = self._fitted[id(model)] = Fitted(self, model)
        fitted.enter(pieces)
        return fitted

    def _callbacks(self, given, fitted, first_epoch):
        writers = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)
        kept = [each for each in given or () if self.rank == 0 or not isinstance(each, writers)]
        return [First(self, fitted, first_epoch), *kept, Last(self, fitted, kept)]

    def begin_training(self, model, params, first_epoch):
        """fit knows how long it will be, unless the data has no length."""
        begun = self._steps
        steps, epochs = (params or {}).get("steps"), (params or {}).get("epochs")

        def remaining():  # whoever asks takes what is raised for not knowing
            together = getattr(model, "steps_per_execution", 1) or 1  # Keras tells of these once
            return begun + math.ceil(steps / together) * (epochs - first_epoch) - self._steps

        self.expect_steps(remaining)

    def begin_epoch(self):
        """Counts anew."""
        self._samples += self.step.seen().samples
        self.step.forget()

    def _trained_on(self):
        return self._samples + self.step.seen().samples

    def progress(self):
        """Of all that the script trains."""
        from poseidon._progress import Progress

        if self._progress is None:
            self._progress = Progress()
        return self._progress

    def trained(self, model, pieces, logs=None):
        """A step is over."""
        progress = self.progress()
        progress.loss = (logs or {}).get("loss")
        progress.remaining = self.remaining
        progress.trained_on = self._trained_on
        progress.step(self.count_step())
        self.checks.look(self._steps)
        if self._steps == 1 and self.rank == 0:
            weights = self.step.variables
            values = sum(weight.shape.num_elements() if hasattr(weight.shape, "num_elements")
                         else _product(weight.shape) for weight in weights)
            names = " and ".join(dict.fromkeys(type(each).__name__
                                               for each in self.step.optimizers))
            notes.tell(
                f"automatic distribution of {notes.script_name()}: {self.world} workers, weights of "
                f"worker 0 for all, gradients of {names} averaged "
                f"({len(weights)} tensors, {values} values), data of Model.fit dealt out "
                f"({pieces.rows}), evaluation whole, files by worker "
                "0; --auto off turns it off")

    def count_step(self):
        """One more, in fit or in a loop."""
        self._steps += 1
        return self._steps

    def end_epoch(self, pieces, logs, whole):
        """An epoch is over; whole: it was read to its end."""
        self.checks.end_epoch(pieces, logs, whole, self._steps)

    # ---- what is found out on the way

    def judged(self, verdict, problem, step):
        """What the first batch told of the script's step. Says whether gradients are to be added up."""
        all_of_them = {Verdict(int(each)) for each in everyone.tell(self, [verdict], "verdict")[:, 0]}
        for worst in (Verdict.FAILED, Verdict.NEITHER, Verdict.SUM, Verdict.MEAN, Verdict.ZERO):
            if worst in all_of_them:
                break
        if worst == Verdict.SUM and Verdict.MEAN in all_of_them:
            worst = Verdict.NEITHER
        step.adds_up = worst == Verdict.SUM
        step.must_add_up.assign(worst == Verdict.SUM)
        if worst == Verdict.SUM:
            self.tell_once("the loss of its training is a sum over samples, not a mean: gradients of "
                           "the workers are added up")
        elif worst == Verdict.NEITHER:
            self.tell_once("the gradients of a batch are not the mean of those of its parts "
                           "(gradients are changed in train_step, or samples of a batch depend on "
                           "each other: clipping, masks that are counted, negatives within the "
                           "batch): each worker computes them from its own part, which is not what "
                           "one process with the whole batch does; optimizers clip what is averaged "
                           "(clipnorm, global_clipnorm)")
        elif worst == Verdict.FAILED:
            self.tell_once("whether the parts of a batch make the whole could not be tried "
                           f"({problem or 'another worker could not'}): it is taken for granted that "
                           "the loss is a mean over samples")
        return worst == Verdict.SUM

    def tell_once(self, text):
        """By worker 0."""
        if self.rank == 0 and text not in self._told:
            self._told.add(text)
            notes.tell(f"automatic distribution of {notes.script_name()}: {text}")

    def at_exit(self):
        """The script is over."""
        if not self.refused and not self.aside and not self._is_child() and not hasattr(sys, "last_value"):
            if self.checks is not None:
                self.checks.tell_verified(self._steps)
            with contextlib.suppress(SystemExit):  # it was refused: see below
                self.loops.at_exit()
        super().at_exit()

    # ---- files

    def keeps_file(self, target):
        """Whether this worker writes it."""
        if not self.active() or not self.joined or self._is_child():
            return True
        self._saved.add(os.path.abspath(os.fspath(target)))
        return self.rank == 0


class Fitted:
    """A model in fit: its step, and the graph that was made of it."""

    def __init__(self, session, model):
        self._session, self.model = session, model
        self._compiled = _how_compiled(model)
        self._function = None  # of Keras, when this fit is over
        self._tried = False
        self.variables = []  # what the step uses, where it is known
        self.draws_with_state = ""  # by which operation, if by one
        self._adds_up = False
        self.pieces = self.metrics = None

    def still_holds(self, pieces):
        """Whether it can be used for another fit."""
        return self._compiled == _how_compiled(self.model) and self.pieces.even == pieces.even

    def enter(self, pieces):
        """A fit begins."""
        from poseidon.tensorflow.fit_points import optimizers_of

        model, step = self.model, self._session.step
        self.pieces = pieces
        self.metrics = Metrics(self._session, model)
        step.even, step.adds_up = pieces.even, self._adds_up
        step.must_add_up.assign(self._adds_up)
        self._outside = model.train_function
        model.jit_compile = False  # operations that talk to servers cannot be compiled
        model.train_function = self._function
        self._own_step = own_step = model.train_step

        def train_step(data):
            data, words = data
            # Nothing happens in a step that finds no data: counters of optimizers would go on alone.
            with tensorflow.control_dependencies([words]):
                step.begin(data, words, rates_of(optimizers_of(model)), sample(model.trainable_weights))
                logs = own_step(data)
            if self._session.points.are_of_use:
                self.draws_with_state = noise.drawn_with_state()
            return logs

        model.train_step = train_step
        self.metrics.enter()

    def leave(self):
        """It is over."""
        self._function = self.model.train_function
        self.model.train_function = self._outside
        self.model.__dict__.pop("train_step", None)
        self.metrics.leave()

    def begin(self):
        """Keras has made the function that trains, and nothing was trained yet."""
        from poseidon.tensorflow.fit_points import optimizers_of

        model, session = self.model, self._session
        session.step.share_variables([*model.weights, *session.step.variables, *(
            each for optimizer in optimizers_of(model) for each in optimizer.variables)])
        own = session.points.passing(model.train_function)

        def first(iterator):
            model.train_function = own
            return self._take_first_step(own, iterator)

        model.train_function = first

    def _take_first_step(self, own, iterator):
        """What was read to try the step is trained on then."""
        batches = []
        try:
            for _ in range(self.model.steps_per_execution):
                batches.append(iterator.get_next())
        except tensorflow.errors.OutOfRangeError:
            if not batches:
                return own(iterator)  # which ends likewise
        if not self._tried:
            self._try(batches[0][0], iterator.element_spec[0])
        noise.draw_apart(self._session.rank, self.model, self.variables)
        from poseidon.tensorflow.fit_points import of_batches

        return own(iter(of_batches(batches, iterator.element_spec)))

    def _try(self, data, specs):
        trial = Trial(self._session.step, self.model, self._own_step, specs)
        self._adds_up = self._session.judged(trial.judge(data), trial.problem, self._session.step)
        self._tried = True
        self.variables = trial.variables


def _how_compiled(model):
    """What a graph is made of. Things are compared by identity, and so kept."""
    things = [model.optimizer, getattr(model, "_compile_loss", None),
              getattr(model, "_compile_metrics", None), type(model).train_step,
              *(each.value for each in model.trainable_weights)]
    return [_Same(each) for each in things] + [model.run_eagerly, model.steps_per_execution]


class _Same:
    """Equal to itself alone."""

    def __init__(self, thing):
        self._thing = thing

    def __eq__(self, other):
        return isinstance(other, _Same) and self._thing is other._thing


def _product(shape):
    total = 1
    for each in shape:
        total *= each
    return total
