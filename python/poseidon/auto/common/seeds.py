# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are the same on all workers of a job, and others in the next.

Data that is shuffled or split without a seed would otherwise be another on each worker: pieces of it
would overlap, and what one evaluates with another would train on. A seed that the script sets itself
comes later and counts. Graphs of TensorFlow 1 keep their own seeds, but for datasets (orders.py)."""

import contextlib
import functools
import hashlib
import itertools
import os
import pickle
import sys

from . import resumed

_planted = {}  # generator: how to read its state, and what that was
_own_generator = []  # numpy.random.default_rng, while there is another in its place


def of_job():
    """A number of 32 bits. A job that goes on has that of the one before."""
    before = resumed.head().get("seed")
    if before is not None:
        return before
    digest = hashlib.sha256(os.environ.get("PSD_JOB_ID", "").encode()).digest()
    return int.from_bytes(digest[:4], "little")


def plant_in_torch():
    """For initial weights, random_split() and whatever is drawn before the first epoch."""
    import torch

    torch.manual_seed(of_job())


def withdraw():
    """The script distributes itself: its workers draw each for itself again, unless it has set a
    seed or drawn already."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.initial_seed() == of_job():
        torch.seed()
    for generator, (read, state) in _planted.items():
        if pickle.dumps(read()) == state:
            generator.seed()
    _planted.clear()
    if _own_generator:
        sys.modules["numpy"].random.default_rng = _own_generator.pop()


def plant_in_tensorflow():
    """For datasets, which take it when they are made."""
    import tensorflow

    tensorflow.random.set_seed(of_job())


def plant_in_python():
    """For arrays, splits and initial weights. Once: Keras may come after torch."""
    if _planted:
        return
    import random

    generators = [(random, random.getstate)]
    with contextlib.suppress(ImportError):  # torch does without
        import numpy

        generators.append((numpy.random, numpy.random.get_state))
        _plant_in_new_generators(numpy)
    for generator, read in generators:
        generator.seed(of_job())
        _planted[generator] = (read, pickle.dumps(read()))


def _plant_in_new_generators(numpy):
    """Those that are made without a seed have the same on all workers, each another one."""
    own = numpy.random.default_rng
    numbers = itertools.count()

    @functools.wraps(own)
    def default_rng(seed=None):
        return own([of_job(), next(numbers)] if seed is None else seed)

    _own_generator.append(own)
    numpy.random.default_rng = default_rng
