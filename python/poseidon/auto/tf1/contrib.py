# SPDX-License-Identifier: Apache-2.0
"""tf.contrib and tf.nn.rnn_cell, which left TensorFlow: what scripts of 2017 use most is brought back, the rest
says what replaces it."""

import os
import sys
import types

from tensorflow.compat import v1

from . import contrib_layers

_FRAMEWORK = {name: getattr(v1.train, name) for name in (
    "get_or_create_global_step", "get_global_step", "create_global_step", "assert_global_step")}
_CELLS = "write the cell with tf.get_variable and tf.while_loop, or use tf.keras.layers.LSTM and GRU in a " \
         "script of TensorFlow 2"
_INSTEAD = {
    "rnn": _CELLS, "seq2seq": _CELLS,
    "slim": "use tf.layers or tf.contrib.layers for its layers, tf.get_variable for the rest",
    "learn": "train by a session, or with Keras", "estimator": "train by a session, or with Keras",
    "data": "use tf.data", "lookup": "use tf.lookup", "summary": "use tf.summary",
    "losses": "use tf.losses", "metrics": "use tf.metrics", "image": "use tf.image", "opt": "use tf.train",
    "distribute": "let psd_run distribute the script", "tensorboard": "use tf.summary",
}


def refusal(name):
    """What is said of tf.contrib.NAME."""
    part = name.split(".")[0]
    return (f"tf.contrib.{name} is no part of TensorFlow any more, nor among what --auto tf1 brings back "
            f"(framework's global step, layers): {_INSTEAD.get(part, 'what the script uses of it has to be replaced')}")


class _Package(types.ModuleType):
    """A part of tf.contrib with what is left of it."""

    def __init__(self, name, members):
        super().__init__(f"tensorflow.contrib{name and f'.{name}'}")
        self.__path__ = []  # importing from it looks here first
        self._name = name
        self.__dict__.update(members)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(refusal(f"{self._name}.{name}".lstrip(".")))


class _Cells(types.ModuleType):
    """tf.nn.rnn_cell."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"tf.nn.rnn_cell.{name} is no part of TensorFlow any more, nor among what --auto "
                             f"tf1 brings back: {_CELLS}")


def _members(module):
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)}


framework = _Package("framework", _FRAMEWORK)
layers = _Package("layers", _members(contrib_layers))
contrib = _Package("", {"framework": framework, "layers": layers})


def install():
    """`import tensorflow.contrib.framework` finds it, too."""
    for module in (contrib, framework, layers):
        sys.modules[module.__name__] = module
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() not in ("1", "true"):  # Keras 2 has them
        v1.nn.rnn_cell = _Cells("tensorflow.nn.rnn_cell")
