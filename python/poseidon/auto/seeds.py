# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are the same on all workers of a job, and others in the next.

Data that is shuffled without a seed would otherwise have another order on each worker, and pieces of
it would overlap. A seed that the script sets itself comes later and counts."""

import hashlib
import os
import random

import numpy
import tensorflow


def plant():
    """Of the generators that Python, NumPy and TensorFlow keep for everybody."""
    digest = hashlib.sha256(os.environ.get("PSD_JOB_ID", "").encode()).digest()
    seed = int.from_bytes(digest[:4], "little")
    random.seed(seed)
    numpy.random.seed(seed)
    tensorflow.random.set_seed(seed)
