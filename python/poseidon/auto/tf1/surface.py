# SPDX-License-Identifier: Apache-2.0
"""`import tensorflow` as it was in version 1: --auto tf1.

The module that scripts get looks a name up among those of tf.compat.v1 first, and then in TensorFlow
itself. Modules below it are TensorFlow's own; tf.layers, the global step of tf.contrib.framework,
tf.contrib.layers and the tutorial's reader of MNIST with its model are back."""

import importlib.abc
import importlib.util
import os
import sys
import types

import tensorflow
from tensorflow.compat import v1

from . import contrib, layers

_MNIST = "tensorflow.examples.tutorials.mnist"
_BACK = {"layers": layers, "contrib": contrib.contrib}
_FILES = {f"{_MNIST}.input_data": "mnist_data.py", f"{_MNIST}.mnist": "mnist_model.py"}
_PACKAGES = ("tensorflow.examples", "tensorflow.examples.tutorials", _MNIST)


class _Version1(types.ModuleType):
    """Stands for tensorflow in sys.modules."""

    def __getattr__(self, name):
        if name == "estimator":
            raise AttributeError("tf.estimator is no part of TensorFlow any more: train by a session")
        if name in _BACK:
            return _BACK[name]
        return getattr(v1, name) if hasattr(v1, name) else getattr(tensorflow, name)

    def __setattr__(self, name, value):
        setattr(v1, name, value)

    def __dir__(self):
        return sorted({*dir(v1), *dir(tensorflow)})


class _Tutorials(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """tensorflow.examples.tutorials.mnist: its data and its model, which left TensorFlow with version 2."""

    def find_spec(self, name, path=None, target=None):
        """The packages on the way are empty."""
        if name.startswith("tensorflow.contrib."):
            raise ModuleNotFoundError(contrib.refusal(name.split(".", 2)[2]), name=name)
        if name in _PACKAGES:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        if name in _FILES:
            file = os.path.join(os.path.dirname(os.path.abspath(__file__)), _FILES[name])
            return importlib.util.spec_from_file_location(name, file)
        return None

    def create_module(self, spec):
        """The usual one."""
        return None

    def exec_module(self, module):
        """Nothing is in them."""


def show_version_1():
    """From now on."""
    v1.disable_v2_behavior()
    shown = _Version1("tensorflow")
    for name in ("__path__", "__file__", "__spec__", "__version__"):
        shown.__dict__[name] = getattr(tensorflow, name)
    sys.modules["tensorflow"] = shown
    sys.meta_path.append(_Tutorials())
    contrib.install()
