# SPDX-License-Identifier: Apache-2.0
"""Keras optimizers and gradient tapes whose gradients are the means of all workers."""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers import trainer

from .._errors import InvalidError, StateError
from .gradients import Averager


class _Distributed:
    """Comes before an optimizer's own class."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Averages, then does what the optimizer does: clipping sees the means."""
        averaged = self._poseidon.average(list(grads))  # type: ignore[attr-defined]
        return super().apply(averaged, trainable_variables)  # type: ignore[misc]


@functools.lru_cache(maxsize=None)
def _distributed_class(kind: type) -> type:
    """Named as the original, so that saved models are those of a single process."""
    made = type(kind.__name__, (_Distributed, kind), {"__doc__": kind.__doc__})
    made.__module__, made.__qualname__ = kind.__module__, kind.__qualname__
    return made


def is_distributed(optimizer: Any) -> bool:
    """Whether its gradients are averaged."""
    return isinstance(optimizer, _Distributed)


def DistributedOptimizer(optimizer: Any) -> Any:  # pylint: disable=invalid-name
    """Makes this Keras 3 optimizer average its gradients over all workers, and returns it. Every
    worker calls it for its optimizers in the same order, after poseidon.init()."""
    if keras.backend.backend() != "tensorflow":
        raise InvalidError(f"DistributedOptimizer: Keras runs on {keras.backend.backend()}; set "
                           "KERAS_BACKEND=tensorflow")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InvalidError(f"DistributedOptimizer: {type(optimizer).__name__} is not an optimizer "
                           "of Keras 3; those of tf.compat.v1.train: poseidon.tensorflow.v1")
    if is_distributed(optimizer):
        raise StateError("DistributedOptimizer: this optimizer is distributed already")
    optimizer._poseidon = Averager()
    optimizer.__class__ = _distributed_class(type(optimizer))
    return optimizer


_averagers: dict[tuple, tuple[list[Any], Averager]] = {}  # of tapes, by what they are asked for


def _averager_for(sources: list[Any]) -> Averager:
    """Loops make a tape for every step: the same variables have the same tables in all of them."""
    key = tuple(id(source) if hasattr(source, "assign") else (source.dtype, str(source.shape))
                for source in sources)
    kept = [source for source in sources if hasattr(source, "assign")]  # so identities stay theirs
    return _averagers.setdefault(key, (kept, Averager()))[1]


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() is the mean of all workers'. Everything else is the
    tape's own."""

    def __init__(self, tape: tf.GradientTape):
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Of the same structure as the sources."""
        found = self._tape.gradient(target, sources, *args, **kwargs)
        return tf.nest.pack_sequence_as(
            sources, _averager_for(tf.nest.flatten(sources)).average(tf.nest.flatten(found)))


def _leave_xla_to_others() -> None:
    """jit_compile="auto" means "when everything can be compiled": operations that talk to servers
    cannot."""
    own = trainer.model_supports_jit

    @functools.wraps(own)
    def supports(model: Any) -> bool:
        return not is_distributed(getattr(model, "optimizer", None)) and own(model)

    trainer.model_supports_jit = supports


_leave_xla_to_others()
