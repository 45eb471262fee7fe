# SPDX-License-Identifier: Apache-2.0
"""Keras scripts that know nothing of Poseidon: Model.fit is distributed, everything else is whole.

W workers with batches of b train like one process with batches of W*b. fit() builds the batches that
this one process would see and cuts each into W pieces: worker r trains on the r-th. Where a batch is
short, at the end of an epoch, each worker's gradient counts by its samples; of a batch with fewer
samples than workers everybody takes all, which is the same gradient."""

import atexit
import functools
import math
import os
import zlib

import keras
import numpy
import tensorflow
from keras.src.optimizers import base_optimizer
from keras.src.saving import saving_api
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_data_adapter

from ..common import notes
from ..common.session import Session

BATCH_SIZE = 32  # of Keras, when nothing is said
_BATCH_BY_BATCH = ("Prefetch", "Map", "ParallelMap", "Options", "Cache")  # sizes stay as they are
DIGEST_BYTES = 1 << 20  # of each array that the workers compare


class KerasSession(Session):
    """Thread: that of the script which trains."""

    package = "poseidon.tensorflow"

    def __init__(self, watch):
        super().__init__(watch)
        self.in_fit = False

    def step_aside(self, reason):
        """Why the script does it itself is told once: by TensorFlow's session, where both know."""
        if reason == self._watch.reason:
            self.aside = True
        else:
            super().step_aside(reason)

    def before_apply(self):
        """An optimizer is about to change weights."""
        if not self.active() or self.in_fit or self._is_child():
            return
        if tensorflow.distribute.has_strategy():
            self.step_aside("the script uses tf.distribute itself")
        else:
            self.refuse("it trains in a loop of its own, outside of Model.fit, so every worker "
                        "would train on the same samples",
                        "use Model.fit, or poseidon.tensorflow in the script, or --auto off")

    # ---- fit

    def fit(self, own, model, x=None, y=None, batch_size=None, epochs=1, verbose="auto",
            callbacks=None, validation_split=0.0, validation_data=None, shuffle=True,
            class_weight=None, sample_weight=None, initial_epoch=0, steps_per_epoch=None, **rest):
        """Model.fit of this worker."""
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = callbacks.callbacks
        self._check_fit(model, callbacks)
        self._join()
        if validation_split and validation_data is None:
            from keras.src.trainers.data_adapters import array_slicing

            (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=validation_split)
        pieces = Pieces(self, x, y, sample_weight, batch_size, shuffle, class_weight,
                        steps_per_epoch)
        self._prepare(model, pieces)
        if steps_per_epoch is not None:
            steps_per_epoch = -(-steps_per_epoch // self.world)
        self.in_fit = True
        try:
            return own(model, pieces.dataset, epochs=epochs,
                       verbose=verbose if self.rank == 0 else 0, validation_data=validation_data,
                       callbacks=self._callbacks(callbacks, pieces), initial_epoch=initial_epoch,
                       steps_per_epoch=steps_per_epoch, shuffle=False, **rest)
        finally:
            self.in_fit = False
            model.__dict__.pop("train_step", None)

    def _check_fit(self, model, callbacks):
        if self._is_child():
            self.refuse("it trains in a process that it started itself",
                        "use poseidon.tensorflow in it, or run it with --auto off")
        if keras.backend.backend() != "tensorflow":
            self.refuse(f"Keras runs on {keras.backend.backend()}",
                        "set KERAS_BACKEND=tensorflow, or run it with --auto off")
        if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in callbacks or ()):
            self.refuse("BackupAndRestore would take one worker back to an epoch of its own",
                        "leave it out, or use poseidon.tensorflow")
        if getattr(model, "optimizer", None) is None:
            self.refuse("fit was called before compile", "compile the model first")

    def _prepare(self, model, pieces):
        """Gradients of this model's optimizer are averaged, in a step that knows its share."""
        from poseidon.tensorflow import optimizer as layer

        if not layer.is_distributed(model.optimizer):
            layer.DistributedOptimizer(model.optimizer)
        if pieces.uneven:
            model.steps_per_execution = 1  # shares of two steps must not be mixed up
        averager = model.optimizer._poseidon
        averager.share = None
        model.jit_compile = False  # operations that talk to servers cannot be compiled
        model.train_function = None
        own_step = model.train_step

        def train_step(data):
            averager.share = pieces.share(data)
            return own_step(data)

        if pieces.uneven:
            model.train_step = train_step

    def _callbacks(self, given, pieces):
        from poseidon.tensorflow import BroadcastCallback, MetricAverageCallback

        writers = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)
        kept = [each for each in given or () if self.rank == 0 or not isinstance(each, writers)]
        return [BroadcastCallback(), Progress(self, pieces), MetricAverageCallback(), *kept]

    def trained(self, model, step, pieces):
        """A step is over."""
        import poseidon

        self._steps += 1
        poseidon.report(self._steps)
        if self._steps == 1 and self.rank == 0:
            weights = model.trainable_weights
            values = sum(math.prod(weight.shape) for weight in weights)
            notes.tell(
                f"automatic distribution of {notes.script_name()}: {self.world} workers, weights of "
                f"worker 0 for all, gradients of {type(model.optimizer).__name__} averaged "
                f"({len(weights)} tensors, {values} values), data of Model.fit dealt out "
                f"({pieces.batch * self.world} samples a step), evaluation whole, files by worker "
                "0; --auto off turns it off")

    # ---- files

    def keeps_file(self, target):
        """Whether this worker writes it."""
        if not self.active() or not self.joined or self._is_child():
            return True
        self._saved.add(os.path.abspath(os.fspath(target)))
        return self.rank == 0


class Progress(keras.callbacks.Callback):
    """Tells the session, and so psd_run, of steps."""

    def __init__(self, session, pieces):
        super().__init__()
        self._session, self._pieces = session, pieces

    def on_train_batch_end(self, batch, logs=None):
        """Keras calls it after every step."""
        self._session.trained(self.model, batch, self._pieces)


class Pieces:
    """The batches of one process with W times the batch size, and this worker's part of each."""

    def __init__(self, session, x, y, sample_weight, batch_size, shuffle, class_weight, steps):
        self._session, self._world, self._rank = session, session.world, session.rank
        self.uneven = True
        if array_data_adapter.can_convert_arrays((x, y, sample_weight)):
            whole = self._of_arrays(x, y, sample_weight, batch_size, shuffle, class_weight, steps)
        elif isinstance(x, tensorflow.data.Dataset):
            whole = self._of_dataset(x, y, sample_weight, class_weight)
        else:
            session.refuse(f"its training data is a {type(x).__name__}, whose samples have no "
                           "numbers to deal out by",
                           "use arrays or a tf.data.Dataset, or poseidon.tensorflow in the script")
        self._check(whole)
        cut = whole.map(self._cut, num_parallel_calls=1, deterministic=True)
        self.dataset = cut.prefetch(tensorflow.data.AUTOTUNE)

    def _of_arrays(self, x, y, sample_weight, batch_size, shuffle, class_weight, steps):
        arrays = [each for each in tensorflow.nest.flatten((x, y, sample_weight))
                  if each is not None]
        self._compare(arrays)
        samples = int(arrays[0].shape[0])
        self.batch = batch_size or (-(-samples // steps) if steps else BATCH_SIZE)
        together = self.batch * self._world
        self.uneven = samples % together != 0
        return _counted(data_adapters.get_data_adapter(
            x=x, y=y, sample_weight=sample_weight, batch_size=together, shuffle=shuffle,
            class_weight=class_weight).get_tf_dataset(), -(-samples // together))

    def _of_dataset(self, dataset, y, sample_weight, class_weight):
        adapter = data_adapters.get_data_adapter(x=dataset, y=y, sample_weight=sample_weight,
                                                 class_weight=class_weight)
        dataset = adapter.get_tf_dataset()
        static = {spec.shape[0] if spec.shape.rank else None
                  for spec in tensorflow.nest.flatten(dataset.element_spec)}
        count = int(dataset.cardinality())
        if len(static) == 1 and None not in static:
            self.batch = static.pop()
            self.uneven = False
            return _counted(dataset.rebatch(self.batch * self._world, drop_remainder=True),
                            count // self._world if count >= 0 else None)
        self.batch, plain = _batch_size(dataset)
        if self.batch is None:
            self._session.refuse("its tf.data.Dataset does not tell its batch size",
                                 "batch it with Dataset.batch(n), or with drop_remainder=True")
        return _counted(dataset.rebatch(self.batch * self._world),
                        -(-count // self._world) if plain and count >= 0 else None)

    def _compare(self, arrays):
        """Workers that shuffled differently would see some samples twice and others never."""
        import poseidon
        from poseidon.tensorflow.ops import TIMEOUT_MS

        poseidon.barrier(TIMEOUT_MS)  # between two fits worker 0 may have written files
        digest = 0
        for each in arrays:
            rows = max(1, DIGEST_BYTES // max(1, each[:1].nbytes if hasattr(each[:1], "nbytes")
                                              else DIGEST_BYTES))
            digest = zlib.crc32(numpy.ascontiguousarray(each[:rows]).tobytes(), digest)
        theirs = poseidon.broadcast(numpy.array([digest, int(arrays[0].shape[0])], numpy.int64),
                                    name="training arrays")
        if self._rank != 0 and int(theirs[0]) != digest:
            self._session.refuse(
                "the workers' training arrays differ",
                "shuffle with numpy.random or random, not with a generator of its own that is "
                "seeded differently on each worker")

    def _check(self, whole):
        specs = tensorflow.nest.flatten(whole.element_spec)
        if not all(isinstance(spec, tensorflow.TensorSpec) for spec in specs):
            self._session.refuse("its training data has sparse or ragged tensors",
                                 "use dense ones, or poseidon.tensorflow in the script")

    def _cut(self, *parts):
        count = tensorflow.shape(_first(parts))[0]
        few = count < self._world
        begin = tensorflow.where(few, 0, count * self._rank // self._world)
        end = tensorflow.where(few, count, count * (self._rank + 1) // self._world)

        def piece(tensor):
            mine = tensor[begin:end]
            return mine if self.uneven else tensorflow.ensure_shape(
                mine, [self.batch, *tensor.shape[1:]])

        cut = tensorflow.nest.map_structure(piece, parts)
        return cut if len(cut) > 1 else cut[0]

    def share(self, data):
        """This worker's samples, in batches."""
        count = tensorflow.shape(_first(data))[0]
        return tensorflow.cast(count, tensorflow.float32) / float(self.batch)


def _counted(dataset, steps):
    """Keras makes better plans when it knows how many there are; rebatch() does not tell."""
    if steps is None:
        return dataset
    return dataset.apply(tensorflow.data.experimental.assert_cardinality(steps))


def _first(parts):
    return tensorflow.nest.flatten(parts)[0]


def _batch_size(dataset):
    """What Dataset.batch() was told, however many steps ago, and whether all batches but one have
    that size for certain."""
    waiting, plain = [dataset], True
    while waiting:
        each = waiting.pop(0)
        size = getattr(each, "_batch_size", None)
        if size is not None:
            return int(tensorflow.get_static_value(size)), plain
        kind = type(each).__name__.lstrip("_").removesuffix("Dataset")
        plain = plain and kind in _BATCH_BY_BATCH
        waiting += each._inputs()
    return None, False


def apply(session):
    """From now on the session hears of it."""
    atexit.register(session.at_exit)
    _watch_fit(session)
    _watch_optimizers(session)
    _watch_files(session)


def _watch_fit(session):
    own = keras.Model.fit

    @functools.wraps(own)
    def fit(model, *args, **kwargs):
        default = not tensorflow.distribute.has_strategy()
        if not default and session.active():
            session.step_aside("the script uses tf.distribute itself")
        if not session.active() or session.in_fit:
            return own(model, *args, **kwargs)
        return session.fit(own, model, *args, **kwargs)

    keras.Model.fit = fit


def _watch_optimizers(session):
    own = base_optimizer.BaseOptimizer.apply

    @functools.wraps(own)
    def apply_gradients(optimizer, *args, **kwargs):
        session.before_apply()
        return own(optimizer, *args, **kwargs)

    base_optimizer.BaseOptimizer.apply = apply_gradients


def _watch_files(session):
    def writing(own):
        @functools.wraps(own)
        def write(model, filepath, *args, **kwargs):
            if session.keeps_file(filepath):
                return own(model, filepath, *args, **kwargs)
            return None

        return write

    def reading(own, place):
        @functools.wraps(own)
        def read(*args, **kwargs):
            session.before_load(args[place] if len(args) > place else kwargs.get("filepath"))
            return own(*args, **kwargs)

        return read

    for name in ("save_model", "save_weights"):
        changed = writing(getattr(saving_api, name))
        setattr(saving_api, name, changed)
        if hasattr(keras.saving, name):
            setattr(keras.saving, name, changed)
    keras.models.save_model = saving_api.save_model
    keras.Model.export = writing(keras.Model.export)
    saving_api.load_model = reading(saving_api.load_model, 0)
    saving_api.load_weights = reading(saving_api.load_weights, 1)
    keras.saving.load_model = keras.models.load_model = saving_api.load_model
