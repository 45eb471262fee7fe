# SPDX-License-Identifier: Apache-2.0
"""tf.contrib, of which only what moved elsewhere in TensorFlow can be brought back."""

import sys
import types

from tensorflow.compat import v1

_GONE = "is no part of TensorFlow any more: what the script uses of it has to be replaced"
# What scripts of 2017 call by its first name.
_FRAMEWORK = {"get_or_create_global_step": v1.train.get_or_create_global_step,
              "get_global_step": v1.train.get_global_step,
              "create_global_step": v1.train.create_global_step,
              "assert_global_step": v1.train.assert_global_step}


def refusal(name):
    """What is said of tf.contrib.NAME."""
    return f"tf.contrib.{name} {_GONE}"


class _Package(types.ModuleType):
    """A part of tf.contrib with what is left of it."""

    def __init__(self, name, members):
        super().__init__(f"tensorflow.{name}")
        self.__path__ = []  # importing from it looks here first
        self._name = name
        self.__dict__.update(members)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"tf.{self._name}.{name} {_GONE}")


framework = _Package("contrib.framework", _FRAMEWORK)
contrib = _Package("contrib", {"framework": framework})


def install():
    """`import tensorflow.contrib.framework` finds it, too."""
    for module in (contrib, framework):
        sys.modules[module.__name__] = module
