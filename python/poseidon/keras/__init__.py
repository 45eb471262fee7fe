# SPDX-License-Identifier: Apache-2.0
"""poseidon.tensorflow.keras, as horovod.keras is horovod.tensorflow.keras for scripts that import keras."""

from ..tensorflow.keras import *  # noqa: F401,F403
from ..tensorflow.keras import __all__, __getattr__, callbacks
