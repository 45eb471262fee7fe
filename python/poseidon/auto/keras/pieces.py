# SPDX-License-Identifier: Apache-2.0
"""The data of Model.fit, and which part of it is this worker's.

Arrays: the batches of one process with W times the batch size, each cut by rows. Everything else: W
consecutive batches of the dataset make one step, worker r takes the r-th, however many rows it has.
Where fewer than W are left, some workers share one and cut it by rows.

With each part travel words about it (Words), by which the workers weigh their gradients and see whether
their parts make the whole."""

import typing
import zlib

import keras
import numpy
import tensorflow
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_data_adapter

from ..common import witness
from . import digests, everyone

BATCH_SIZE = 32  # of Keras, when nothing is said
DIGEST_BYTES = 1 << 20  # of each array that the workers compare before an epoch


class Words(typing.NamedTuple):
    """What is known of a worker's part of a step. Numbers, as float64."""

    share: typing.Any  # its rows; a share of them where others have the same rows
    part: typing.Any  # how much of its batch it is, likewise
    digest: typing.Any  # of all batches of the step
    element: typing.Any  # the number of its batch in the step
    first_row: typing.Any  # of its rows in that batch
    counts: typing.Any  # 1, or 0 where another worker counts for the same rows

    def packed(self):
        """As one tensor."""
        return tensorflow.stack([tensorflow.cast(each, tensorflow.float64) for each in self])


class Pieces:
    """What this worker trains on: a dataset of (data, words)."""

    def __init__(self, session, x, y, sample_weight, batch_size, shuffle, class_weight, steps):
        self._session, self._world, self._rank = session, session.world, session.rank
        self.samples = None  # of an epoch, where it is known
        self.elements = None  # batches of an epoch, of the script's size, where it is known
        self.even = False  # whether all parts have the same number of rows
        if array_data_adapter.can_convert_arrays((x, y, sample_weight)):
            cut, count = self._of_arrays(x, y, sample_weight, batch_size, shuffle, class_weight,
                                         steps)
        else:
            cut, count = self._of_dataset(x, y, sample_weight, class_weight, shuffle)
        if count is not None:  # Keras makes better plans when it knows how many there are
            cut = cut.apply(tensorflow.data.experimental.assert_cardinality(count))
        self.dataset = cut.prefetch(tensorflow.data.AUTOTUNE) if steps is None else _as_asked(cut)

    # ---- arrays

    def _of_arrays(self, x, y, sample_weight, batch_size, shuffle, class_weight, steps):
        arrays = [each for each in tensorflow.nest.flatten((x, y, sample_weight))
                  if each is not None]
        self._compare(arrays)
        self.samples = int(arrays[0].shape[0])
        self._batch = batch_size or (-(-self.samples // steps) if steps else BATCH_SIZE)
        together = self._batch * self._world
        self.even = self.samples % together == 0
        self.rows = f"{together} samples a step"
        whole = data_adapters.get_data_adapter(
            x=x, y=y, sample_weight=sample_weight, batch_size=together, shuffle=shuffle,
            class_weight=class_weight).get_tf_dataset()
        self._check(whole)
        return whole.map(_as_it_is(self._cut)), -(-self.samples // together)

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
        found = everyone.tell(self._session, [digest, int(arrays[0].shape[0])], "arrays")
        wrong = ("the workers' training arrays differ",
                 "shuffle with numpy.random or random, not with a generator of its own that is "
                 "seeded differently on each worker")
        if numpy.ptp(found[:, 1]) > 0:  # nobody could go on: workers would make different numbers of steps
            self._session.refuse(*wrong)
        if numpy.ptp(found[:, 0]) > 0:
            self._session.checks.say("order", *wrong)

    def _cut(self, *whole):
        digest = digests.of_rows(whole)
        mine, words = self._slice(whole, self._world, self._rank)
        if self.even:
            mine = tensorflow.nest.map_structure(
                lambda each: tensorflow.ensure_shape(each, [self._batch, *each.shape[1:]]), mine)
        return _as_one(mine), words._replace(digest=digest).packed()

    # ---- datasets, and what Keras makes one of

    def _of_dataset(self, x, y, sample_weight, class_weight, shuffle):
        shuffle = shuffle and isinstance(x, keras.utils.PyDataset)
        dataset = data_adapters.get_data_adapter(
            x=x, y=y, sample_weight=sample_weight, class_weight=class_weight,
            shuffle=shuffle).get_tf_dataset()
        if isinstance(x, tensorflow.data.Dataset):
            options = tensorflow.data.Options()
            options.deterministic = True  # all workers have one order
            dataset = dataset.with_options(options)
        self._check(dataset)
        specs = tensorflow.nest.flatten(dataset.element_spec)
        sizes = {spec.shape[0] if spec.shape.rank else None for spec in specs}
        # Batches of a fixed size: one process would have left out what does not fill one, too.
        self.even = len(sizes) == 1 and None not in sizes
        count = int(dataset.cardinality())
        steps = None
        if count >= 0:
            steps = count // self._world if self.even else -(-count // self._world)
            self.elements = steps * self._world if self.even else count
        self.rows = f"{self._world} batches a step"
        windows = dataset.window(self._world, drop_remainder=self.even)
        return windows.map(_as_it_is(self._take)), steps

    def _take(self, *windows):
        """From W batches, or what is left of them."""
        window = tensorflow.data.Dataset.zip(windows if len(windows) > 1 else windows[0])
        count, digest = window.reduce((tensorflow.constant(0, tensorflow.int64),) * 2,
                                      _as_it_is(_count_and_digest))
        mine = self._rank * count // self._world
        element = window.skip(mine).take(1).get_single_element()
        element = element if isinstance(element, tuple) else (element,)
        if self.even:
            rows = tensorflow.shape(_first(element))[0]
            words = Words(rows, 1, digest, mine, 0, 1)
        else:
            first, last = -(-mine * self._world // count), -(-(mine + 1) * self._world // count)
            element, words = self._slice(element, last - first, self._rank - first)
            words = words._replace(digest=digest, element=mine)
        return _as_one(element), words.packed()

    # ---- both

    def _check(self, whole):
        specs = tensorflow.nest.flatten(whole.element_spec)
        if not all(isinstance(spec, tensorflow.TensorSpec) for spec in specs):
            self._session.refuse("its training data has sparse or ragged tensors",
                                 "use dense ones, or poseidon.tensorflow in the script")
        if not specs or not specs[0].shape.rank:
            self._session.refuse("its training data does not come in batches",
                                 "batch it with Dataset.batch(n)")

    @staticmethod
    def _slice(whole, sharers, position):
        """This worker's rows, where some workers share a batch. Of one with fewer rows than workers
        everybody takes all, which is the same gradient."""
        rows = tensorflow.shape(_first(whole))[0]
        sharers, position = (tensorflow.cast(each, tensorflow.int32) for each in (sharers, position))
        few = rows < sharers
        begin = tensorflow.where(few, 0, rows * position // sharers)
        end = tensorflow.where(few, rows, rows * (position + 1) // sharers)

        def piece(tensor):
            if not tensor.shape.rank:
                return tensor
            fits = tensorflow.logical_or(sharers == 1, tensorflow.shape(tensor)[0] == rows)
            check = tensorflow.debugging.Assert(fits, [
                "a batch of the training data has tensors with different numbers of rows, and is to "
                "be cut for several workers: batch with drop_remainder=True, or use "
                "poseidon.tensorflow in the script"])
            with tensorflow.control_dependencies([check]):
                return tensor[begin:end]

        share = tensorflow.where(few, rows / sharers, tensorflow.cast(end - begin,
                                                                      tensorflow.float64))
        part = tensorflow.where(few, 1 / sharers, (end - begin) / rows)
        counts = tensorflow.logical_or(position == 0, tensorflow.logical_not(few))
        return (tensorflow.nest.map_structure(piece, whole),
                Words(share, part, 0, 0, begin, counts))


def _count_and_digest(state, *element):
    """Of one more batch."""
    count, digest = state
    return count + 1, tensorflow.bitwise.bitwise_and(
        digest + digests.of_rows(element, element=count), witness.MODULUS - 1)


_as_it_is = tensorflow.autograph.experimental.do_not_convert


def _as_asked(dataset):
    """Read no further than Keras asks. Where an epoch is a number of steps, a shuffle may begin anew while
    workers read ahead, one more often than another, and its next order would differ."""
    options = tensorflow.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    return dataset.with_options(options)


def _as_one(parts):
    return parts if len(parts) > 1 else parts[0]


def _first(parts):
    return tensorflow.nest.flatten(parts)[0]
