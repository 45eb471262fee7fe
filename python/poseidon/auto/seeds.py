# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are the same on all workers of a job, and others in the next.

Data that is shuffled or split without a seed would otherwise be another on each worker: pieces of it
would overlap, and what one evaluates with another would train on. A seed that the script sets itself comes later and counts. Graphs of
TensorFlow 1 have seeds of their own and keep them: their workers choose their data themselves, and
should choose differently."""

import hashlib
import os
import sys


def _seed():
    digest = hashlib.sha256(os.environ.get("PSD_JOB_ID", "").encode()).digest()
    return int.from_bytes(digest[:4], "little")


def plant_in_torch():
    """For initial weights, random_split() and whatever is drawn before the first epoch."""
    import torch

    torch.manual_seed(_seed())


def withdraw_from_torch():
    """The script distributes itself: its workers draw each for itself again, unless it has set a
    seed."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.initial_seed() == _seed():
        torch.seed()


def plant_in_tensorflow():
    """For datasets, which take it when they are made."""
    import tensorflow

    tensorflow.random.set_seed(_seed())


def plant_in_python():
    """For arrays, and for initial weights."""
    import random

    import numpy

    random.seed(_seed())
    numpy.random.seed(_seed())
