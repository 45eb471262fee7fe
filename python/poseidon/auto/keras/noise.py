# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a training step (dropout, noise, time steps) are each worker's own, and follow from the
seed: those of worker 0 are the ones of a single process. What orders data is drawn alike by all."""

import functools
import weakref

import tensorflow

_STRIDE = 2654435761  # between the numbers of two workers
_generators = weakref.WeakSet()  # of TensorFlow, that the script has made
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
    for each in states:
        if id(each) not in _own:
            _own[id(each)] = each
            value = each.numpy()
            value[-1] += type(value[-1])(rank * _STRIDE % (1 << 31))
            each.assign(value)


def graph_seed(seed, rank):
    """Of a step's graph, for operations with a state."""
    return (seed + _STRIDE * rank) % (1 << 31) if rank > 0 else seed
