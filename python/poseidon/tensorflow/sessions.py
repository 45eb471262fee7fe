# SPDX-License-Identifier: Apache-2.0
"""Horovod's names for graphs and sessions: variables of one worker for all."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._errors import InvalidError
from . import ops
from .v1 import BroadcastHook


def broadcast_global_variables(root_rank: int = 0) -> Any:
    """An operation that gives all workers the root's values of the graph's variables."""
    if tf.executing_eagerly():
        raise InvalidError("broadcast_global_variables: there is no graph: use "
                           "broadcast_variables(model.variables, root_rank=0)")
    return tf.group(*(variable.assign(ops.broadcast(variable, root_rank))
                      for variable in tf.compat.v1.global_variables()
                      if variable.dtype.base_dtype != tf.string))


class BroadcastGlobalVariablesHook(BroadcastHook):
    """When a session was made, all workers get the variables of the root."""

    def __init__(self, root_rank: int = 0, device: str = ""):
        del device
        super().__init__(root_rank)
