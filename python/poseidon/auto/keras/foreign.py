# SPDX-License-Identifier: Apache-2.0
"""Kinds of Keras that nobody distributes: Keras 3 on another backend than TensorFlow, and Keras 2 (tf_keras). A
script that trains with one is stopped when it begins to. Nothing in here needs TensorFlow."""

import functools
import sys

from ..common.session import Session


class ForeignSession(Session):
    """Thread: that of the script which trains."""

    def __init__(self, watch, reason, advice):
        super().__init__(watch)
        self._reason, self._advice = reason, advice

    def before_training(self):
        """A model is about to be trained, or an optimizer to change weights."""
        if self.active():
            self.refuse(self._reason, self._advice)

    def watch(self, owner, *names):
        """From now on the session hears of these functions."""
        for name in names:
            own = getattr(owner, name, None)
            if own is not None:
                setattr(owner, name, self._watched(own))

    def _watched(self, own):
        @functools.wraps(own)
        def train(*args, **kwargs):
            self.before_training()
            return own(*args, **kwargs)

        return train

    def step_aside(self, reason):
        """The session of the framework beneath tells why."""
        self.aside = True


def backend():
    """That of Keras 3, which is being imported or was."""
    import keras

    return keras.backend.backend()


def watch_other_backend(watch):
    """Keras runs on JAX, PyTorch or OpenVINO."""
    import keras
    from keras.src.optimizers import base_optimizer

    session = ForeignSession(
        watch, f"it trains with Keras on {backend()}, where every worker would train by itself on the "
        "same samples", "set KERAS_BACKEND=tensorflow, or run it with --auto off")
    if watch.reason is not None:
        return None
    session.watch(keras.Model, "fit", "train_on_batch")
    session.watch(base_optimizer.BaseOptimizer, "apply", "stateless_apply")
    return session


def watch_keras_2(watch):
    """tf_keras, also as tf.keras with TF_USE_LEGACY_KERAS."""
    keras_2 = sys.modules["tf_keras"]
    session = ForeignSession(
        watch, "it trains with Keras 2 (tf_keras, or tf.keras with TF_USE_LEGACY_KERAS), where every "
        "worker would train by itself on the same samples",
        "use Keras 3, poseidon.tensorflow with tapes in the script, or --auto off")
    if watch.reason is not None:
        return None
    session.watch(keras_2.Model, "fit", "train_on_batch")
    session.watch(keras_2.optimizers.Optimizer, "apply_gradients")
    legacy = getattr(keras_2.optimizers, "legacy", None)
    if legacy is not None:
        session.watch(legacy.Optimizer, "apply_gradients")
    return session
