# SPDX-License-Identifier: Apache-2.0
"""TensorFlow with workers that come and go, by Horovod's names: `hvd.elastic` of `import poseidon.tensorflow as hvd`.
docs/elastic.md is the manual."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from .. import elastic
from .._errors import InvalidError, MismatchError
from ..elastic import HostsUpdatedInterrupt, ObjectState, State, StateLost, members, run, samples
from ..elastic.state import Part
from . import elastic_ops

__all__ = ["ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "StateLost", "TensorFlowKerasState",
           "TensorFlowState", "members", "run", "samples"]


class ElasticSampler(elastic.ElasticSampler):
    """See poseidon.elastic.ElasticSampler. Data are read ahead here, so it is not the loop that tells which batch a step has:
    each step takes the next one.

        def batches():
            for indices in sampler.batches():
                yield images[indices], labels[indices]"""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.follows_rounds = True


class _Variables(Part):
    """Their values, as bytes."""

    def pack(self) -> Any:
        return [np.frombuffer(np.ascontiguousarray(variable.numpy()).tobytes(), np.uint8) for variable in self.thing]

    def load(self, state: Any) -> None:
        if len(state) != len(self.thing):
            raise MismatchError(f"the state has {len(state)} variables, this worker {len(self.thing)}: all must build the same model "
                                "and optimizer before elastic.run")
        for variable, raw in zip(self.thing, state):
            dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
            variable.assign(np.frombuffer(raw.tobytes(), dtype).reshape(tuple(variable.shape)))


class TensorFlowState(State):
    """Variables, and whatever else all workers have alike: numbers, text, arrays, samplers."""

    def __init__(self, variables: Sequence[Any] = (), **attributes: Any):
        trained = [variable for variable in variables if variable.trainable]
        if trained:
            elastic_ops.use(trained)
        super().__init__(variables=list(variables), **attributes)

    def part_of(self, value: Any) -> Part | None:
        """Lists of variables are parts, too."""
        if isinstance(value, list) and value and all(hasattr(each, "assign") for each in value):
            return _Variables(value)
        return super().part_of(value)


class TensorFlowKerasState(TensorFlowState):
    """A model of Keras and its optimizer, and whatever else all workers have alike.

    model      built, so that its weights are there
    optimizer  default: the one that it was compiled with"""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **attributes: Any):
        del backend
        if not model.built:
            raise InvalidError("TensorFlowKerasState: the model has no weights yet: give it an Input layer, or call it once")
        optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        variables = list(model.weights)
        if optimizer is not None:
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            variables += list(optimizer.variables)
        elastic_ops.use(model.trainable_variables)
        self.model, self.optimizer = model, optimizer
        State.__init__(self, variables=variables, **attributes)
