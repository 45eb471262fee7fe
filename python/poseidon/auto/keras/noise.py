# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a training step (dropout, noise, time steps) are each worker's own, and follow from the
seed: those of worker 0 are the ones of a single process. What orders data is drawn alike by all."""

import contextlib
import functools
import sys
import weakref

import keras
import tensorflow
from tensorflow.python.eager import context

_STRIDE = 2654435761  # between the numbers of two workers
_WITH_STATE = ("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "ParameterizedTruncatedNormal", "TruncatedNormal",
               "RandomShuffle", "Multinomial", "RandomGamma", "RandomPoisson", "RandomPoissonV2")  # which nobody can read
_generators = weakref.WeakSet()  # of TensorFlow, that the script has made
_of_layers = []  # references to generators of Keras, likewise
_own = {}  # what is this worker's own by now, by identity


def watch_generators():
    """From now on it is known which there are."""
    kind = tensorflow.random.Generator
    own = kind.__init__

    @functools.wraps(own)
    def init(generator, *args, **kwargs):
        own(generator, *args, **kwargs)
        _generators.add(generator)

    kind.__init__ = init


def draw_apart(rank, model, variables):
    """variables: what the step's graph uses."""
    from keras.src.backend.common import global_state

    states = [each for each in model.variables if each.name == "seed_generator_state"]
    shared = global_state.get_global_attribute("global_seed_generator")
    states += [shared.state] if shared is not None else []
    used = {id(each) for each in variables}
    states += [each._state_var for each in _generators if id(each._state_var) in used]
    _move(states, rank)


def _move(states, rank):
    for each in states:
        if id(each) not in _own:
            _own[id(each)] = each
            value = each.numpy()
            value[-1] += type(value[-1])(rank * _STRIDE % (1 << 31))
            each.assign(value)


def watch_layers():
    """From now on it is known which states the random numbers of layers have."""
    kind = keras.random.SeedGenerator
    own = kind.__init__

    @functools.wraps(own)
    def init(generator, *args, **kwargs):
        own(generator, *args, **kwargs)
        # Layers that prepare data are used in datasets, too, which are the same on all workers.
        maker = sys._getframe(1).f_globals.get("__name__", "")
        if not maker.startswith("keras.src.layers.preprocessing"):
            _of_layers.append(weakref.ref(generator))

    kind.__init__ = init


def draw_apart_in_loops(rank, variables):
    """Those of a loop with a tape. variables: what its step uses, where it is known."""
    alive = [each for each in (reference() for reference in _of_layers) if each is not None]
    used = {id(each) for each in variables}
    states = [each.state for each in alive if not variables or id(each.state.value) in used]
    states += [each._state_var for each in _generators if id(each._state_var) in used]
    _move(states, rank)


@contextlib.contextmanager
def in_own_graph(rank):
    """Operations of a graph that is traced inside draw by this worker's own seed."""
    known = context.context()
    seed = known._seed
    if seed is None or rank == 0:
        yield
        return
    known._seed = graph_seed(seed, rank)
    try:
        yield
    finally:
        known._seed = seed


def graph_seed(seed, rank):
    """Of a step's graph, for operations with a state."""
    return (seed + _STRIDE * rank) % (1 << 31) if rank > 0 else seed


def drawn_with_state():
    """An operation of the graph that is being traced which draws random numbers from a state of its own; empty: there is none."""
    if tensorflow.executing_eagerly():
        return ""
    graph = tensorflow.compat.v1.get_default_graph().as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return next((node.op for node in nodes if node.op in _WITH_STATE), "")
