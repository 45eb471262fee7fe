# SPDX-License-Identifier: Apache-2.0
"""poseidon.tensorflow.keras.callbacks."""

from ..tensorflow.keras.callbacks import *  # noqa: F401,F403
from ..tensorflow.keras.callbacks import __all__
