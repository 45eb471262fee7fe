# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are the same on all workers of a job, and others in the next.

Data of Model.fit that is shuffled without a seed would otherwise have another order on each worker,
and pieces of it would overlap. A seed that the script sets itself comes later and counts. Graphs of
TensorFlow 1 have seeds of their own and keep them: their workers choose their data themselves, and
should choose differently."""

import hashlib
import os
import random

import numpy
import tensorflow


def _seed():
    digest = hashlib.sha256(os.environ.get("PSD_JOB_ID", "").encode()).digest()
    return int.from_bytes(digest[:4], "little")


def plant_in_tensorflow():
    """For datasets, which take it when they are made."""
    tensorflow.random.set_seed(_seed())


def plant_in_python():
    """For arrays, and for initial weights."""
    random.seed(_seed())
    numpy.random.seed(_seed())
