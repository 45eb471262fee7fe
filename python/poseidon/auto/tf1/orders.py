# SPDX-License-Identifier: Apache-2.0
"""Datasets of graphs that are random without a seed: alike on all workers of a job, as everybody takes
a part of what all of them read.

The order of a shuffle is a new one whenever its iterator is initialized, as in one process: its seed
is fed with the run that does so. Random numbers in functions of datasets (map) have a seed of their
place in the graph. Calls side by side would draw them in any order, so such a map makes one after the
other."""

import functools

import tensorflow.compat.v1 as tensorflow
from tensorflow.python.client import session as client
from tensorflow.python.data.ops import map_op, structured_function
from tensorflow.python.data.util import random_seed as dataset_seeds
from tensorflow.python.framework import random_seed

from ..common import notes, seeds

_STRIDE = 7919  # between the seeds of one place
_SEEDS = 1 << 31


def apply(session):
    """From now on the session is asked whether data is dealt out."""
    places = _Places(session)
    _seed_datasets(places)
    _seed_functions(places)
    _take_turns(places)
    _renew_at_initialization(session)


class _Places:
    """Where something random is made. Workers make their graphs alike, so these count alike."""

    def __init__(self, session):
        self.session = session
        self.functions = 0  # of datasets, that are being traced
        self.drawn = 0  # how often something random was made in one
        self.told = False
        self._made = 0

    def is_free(self, seed):
        """Whether nothing of the script says how it is seeded."""
        return seed is None and not tensorflow.executing_eagerly() and self.session.deals() and \
            tensorflow.get_default_graph().seed is None

    def next_seed(self):
        """Of one more place."""
        self._made += 1
        return (seeds.of_job() + self._made) % _SEEDS


class _Seed:
    """That of one dataset."""

    def __init__(self, tensor, first):
        self.tensor, self._first = tensor, first
        self._begun = 0

    def renewed(self):
        """For the next initialization."""
        self._begun += 1
        return (self._first + self._begun * _STRIDE) % _SEEDS


def _seed_datasets(places):
    own = dataset_seeds.get_seed

    @functools.wraps(own)
    def get_seed(seed):
        if not places.is_free(seed):
            return own(seed)
        first = places.next_seed()
        of_graph, of_place = own(first)
        graph = tensorflow.get_default_graph()
        if not graph.building_function:
            of_place = tensorflow.placeholder_with_default(of_place, [], "poseidon_order")
            if not hasattr(graph, "_poseidon_orders"):
                graph._poseidon_orders, graph._poseidon_order_runs = {}, {}
            graph._poseidon_orders[of_place.op.name] = _Seed(of_place, first)
        return of_graph, of_place

    dataset_seeds.get_seed = get_seed


def _seed_functions(places):
    own_seed, own_init = random_seed.get_seed, structured_function.StructuredFunctionWrapper.__init__

    @functools.wraps(own_seed)
    def get_seed(op_seed):
        if places.functions == 0:
            return own_seed(op_seed)
        places.drawn += 1
        return own_seed(places.next_seed() if places.is_free(op_seed) else op_seed)

    @functools.wraps(own_init)
    def init(*args, **kwargs):
        places.functions += 1
        try:
            own_init(*args, **kwargs)
        finally:
            places.functions -= 1

    random_seed.get_seed = get_seed
    structured_function.StructuredFunctionWrapper.__init__ = init


def _take_turns(places):
    own = map_op._ParallelMapDataset

    @functools.wraps(own, updated=())
    def parallel(input_dataset, map_func, num_parallel_calls, deterministic,
                 use_inter_op_parallelism=True, preserve_cardinality=False,
                 use_legacy_function=False, use_unbounded_threadpool=False, name=None):
        before = places.drawn
        made = own(input_dataset, map_func, num_parallel_calls, deterministic,
                   use_inter_op_parallelism, preserve_cardinality, use_legacy_function,
                   use_unbounded_threadpool, name)
        if places.drawn == before or tensorflow.executing_eagerly() or not places.session.deals():
            return made
        if not places.told and places.session.rank == 0:
            notes.tell(f"Dataset.map of {notes.script_name()} draws random numbers: it makes one "
                       "element after the other, so that all workers have the same")
        places.told = True
        return map_op._MapDataset(input_dataset, map_func, preserve_cardinality=preserve_cardinality,
                                  use_legacy_function=use_legacy_function, name=name)

    map_op._ParallelMapDataset = parallel


def _renew_at_initialization(session):
    own = client.BaseSession.run

    @functools.wraps(own)
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        orders = _orders_of(self.graph, fetches) if session.joined and session.deals() else ()
        if orders:
            feed_dict = {**(feed_dict or {}), **{each.tensor: each.renewed() for each in orders}}
        return own(self, fetches, feed_dict, options, run_metadata)

    client.BaseSession.run = run


def _orders_of(graph, fetches):
    """The seeds that a run with these fetches takes."""
    if not hasattr(graph, "_poseidon_orders"):
        return ()
    from poseidon.tensorflow import v1

    operations = v1.operations_of(graph, fetches)
    names = tuple(each.name for each in operations)
    known, found = graph._poseidon_orders, graph._poseidon_order_runs
    if names not in found:
        found[names] = [known[each.name] for each in v1.ancestors(operations) if each.name in known]
    return found[names]
