# SPDX-License-Identifier: Apache-2.0
"""What a graph reads by itself: iterators of tf.data, and queues.

Where an iterator is read, a run that trains reads W elements (batches, as a rule), and worker r keeps
the r-th; any other run reads one. So training and evaluation may share an iterator, whatever kind it
is of. All workers come to the end of the data in the same step. When less than W are left, who has
none keeps the first one, and shares its weight with all who do.

Queues are each worker's own, as the original Poseidon had it: every worker reads everything, in an
order of its own."""

import functools

import tensorflow.compat.v1 as tensorflow
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.ops import data_flow_ops
from tensorflow.python.training import input as queues

from . import orders
from .feeds import DIGESTS

SCOPE = "poseidon_read"  # names of what is added to graphs begin with it
_SEED_STRIDE = 1_000_003  # between workers


class Read:
    """One place in a graph where an iterator is read."""

    def __init__(self, iterator, first, rank):
        """first: the element that the script would get."""
        self._iterator, self._rank = iterator, rank
        self.parts = tensorflow.placeholder_with_default(  # how many to read
            tensorflow.constant(1, tensorflow.int64), [], "parts")
        self.first = _tensors(first)
        self.digest = digest(self.first)
        count, *kept = self._keep(self.first)
        self.tensors = kept
        self.kept = tensorflow.nest.pack_sequence_as(first, kept, expand_composites=True)
        lonely = tensorflow.logical_or(tensorflow.equal(rank, 0), count <= rank)
        holders = tensorflow.where(lonely, self.parts - count + 1, tensorflow.ones_like(count))
        self.weight = _size(self.kept) / _size(first) / tensorflow.cast(holders, tensorflow.float64)

    def _keep(self, first):
        """How many there were, and this worker's."""
        # The first is read before the others. Its value is needed here, not that it was read: who feeds the
        # element reads nothing then, whatever TensorFlow's optimizer makes of the graph.
        left = self.digest >= 0
        if not any(map(_has_digest, first)):
            with tensorflow.control_dependencies(first):
                left = tensorflow.identity(left)
        begin = [tensorflow.constant(1, tensorflow.int64), left, *first]
        count, _, *kept = tensorflow.while_loop(
            lambda number, left, *_: tensorflow.logical_and(number < self.parts, left), self._next,
            begin, [each.shape for each in begin], parallel_iterations=1, back_prop=False)
        return count, *kept

    def _next(self, number, left, *kept):
        with tensorflow.control_dependencies([left]):  # one after the other
            found = self._iterator.get_next_as_optional()
        left = found.has_value()
        kept = tensorflow.cond(
            tensorflow.logical_and(left, tensorflow.equal(number, self._rank)),
            lambda: _tensors(found.get_value()),
            lambda: [tensorflow.identity(each) for each in kept])
        kept = list(kept) if isinstance(kept, (list, tuple)) else [kept]
        return number + tensorflow.cast(left, tensorflow.int64), left, *kept


def rows(values):
    """How many all of them have; 0 where they have none, or not the same number."""
    found = {len(each) if each.ndim > 0 else 0 for each in values}
    return found.pop() if len(found) == 1 else 0


def is_optional(operation):
    """Whether a script reads there and looks itself whether there is more."""
    return operation.type == "IteratorGetNextAsOptional" and \
        not operation.name.startswith(SCOPE)


def _tensors(element):
    """Of a dictionary, of a sparse or ragged tensor and so on."""
    return tensorflow.nest.flatten(element, expand_composites=True)


def _size(element):
    """Its samples: its rows, where all its tensors have some."""
    dense = [each for each in tensorflow.nest.flatten(element) if tensorflow.is_tensor(each)
             and not isinstance(each, (tensorflow.SparseTensor, tensorflow.RaggedTensor))]
    if not dense or any(each.shape.rank == 0 for each in dense):
        return tensorflow.constant(1.0, tensorflow.float64)
    rows = tensorflow.shape(dense[0])[:1]
    return tensorflow.cast(tensorflow.reduce_prod(rows), tensorflow.float64)


def _has_digest(tensor):
    return tensor.dtype not in (tensorflow.variant, tensorflow.resource)


def digest(tensors):
    """A number below DIGESTS, of all there is in them."""
    numbers = [tensorflow.constant(0)]  # where there is none
    for each in filter(_has_digest, tensors):
        flat = tensorflow.reshape(each, [1, -1])
        found = tensorflow.raw_ops.Fingerprint(data=flat, method="farmhash64")
        high, low = tensorflow.unstack(tensorflow.cast(found[0, :2], tensorflow.int32))
        numbers.append(high * 256 + low)
    return tensorflow.floormod(tensorflow.add_n(numbers), DIGESTS)


def apply(session):
    """From now on the session hears of it."""
    _watch_iterators(session)
    _watch_datasets(session)
    orders.apply(session)
    _watch_queues(session)


def _watch_iterators(session):
    own = iterator_ops.Iterator.get_next

    @functools.wraps(own)
    def get_next(iterator, name=None):
        element = own(iterator, name)
        graph = tensorflow.get_default_graph()
        if not session.deals() or tensorflow.executing_eagerly() or graph.building_function:
            return element
        with tensorflow.name_scope(f"{SCOPE}/"), tensorflow.device("/device:CPU:0"):
            read = Read(iterator, element, session.rank)
        session.add_read(graph, read)
        return read.kept

    iterator_ops.Iterator.get_next = get_next


def _watch_datasets(session):
    """One that is dealt out by the script itself is left alone."""
    own_shard = dataset_ops.DatasetV2.shard

    @functools.wraps(own_shard)
    def shard(dataset, num_shards, *args, **kwargs):
        known = tensorflow.get_static_value(num_shards)
        if not tensorflow.executing_eagerly() and (known is None or known == session.world):
            session.leave_data("it calls Dataset.shard()")
        return own_shard(dataset, num_shards, *args, **kwargs)

    dataset_ops.DatasetV2.shard = shard


def _watch_queues(session):
    """Workers read in different orders, also where a seed says which, or none is to be shuffled."""
    own_producer = queues.input_producer
    own_init = data_flow_ops.RandomShuffleQueue.__init__
    made = 0

    def apart(seed):
        nonlocal made
        if seed is None and tensorflow.get_default_graph().seed is None:
            return None
        made += 1
        return (made if seed is None else seed) + session.rank * _SEED_STRIDE

    @functools.wraps(own_producer)
    def input_producer(input_tensor, element_shape=None, num_epochs=None, shuffle=True, seed=None,
                       *args, **kwargs):
        if session.deals() and session.rank > 0:
            seed = apart(seed)
            if not shuffle:
                input_tensor = tensorflow.convert_to_tensor(input_tensor)
                begin = tensorflow.shape(input_tensor)[0] * session.rank // session.world
                input_tensor = tensorflow.roll(input_tensor, -begin, 0)
        return own_producer(input_tensor, element_shape, num_epochs, shuffle, seed, *args, **kwargs)

    @functools.wraps(own_init)
    def init(queue, capacity, min_after_dequeue, dtypes, shapes=None, names=None, seed=None,
             *args, **kwargs):
        if session.deals() and session.rank > 0:
            seed = apart(seed)
        own_init(queue, capacity, min_after_dequeue, dtypes, shapes, names, seed, *args, **kwargs)

    queues.input_producer = tensorflow.train.input_producer = input_producer
    data_flow_ops.RandomShuffleQueue.__init__ = init
