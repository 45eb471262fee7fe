# SPDX-License-Identifier: Apache-2.0
"""Keras optimizers and gradient tapes whose gradients are the means of all workers."""

from __future__ import annotations

import functools
import time
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers import trainer

from .._errors import InvalidError, StateError
from .gradients import Averager
from .reductions import reducer


class _Distributed:
    """Comes before an optimizer's own class."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Averages, then does what the optimizer does: clipping sees the means."""
        variables = list(self._trainable_variables if trainable_variables is None  # type: ignore[attr-defined]
                         else trainable_variables)
        averaged = self._poseidon.average(list(grads), variables)  # type: ignore[attr-defined]
        return super().apply(averaged, None if trainable_variables is None  # type: ignore[misc]
                             else variables)


@functools.lru_cache(maxsize=None)
def _distributed_class(kind: type) -> type:
    """Named as the original, so that saved models are those of a single process."""
    made = type(kind.__name__, (_Distributed, kind), {"__doc__": kind.__doc__})
    made.__module__, made.__qualname__ = kind.__module__, kind.__qualname__
    return made


def is_distributed(optimizer: Any) -> bool:
    """Whether its gradients are averaged."""
    return isinstance(optimizer, _Distributed)


def DistributedOptimizer(  # pylint: disable=invalid-name
        optimizer: Any, name: str | None = None, *, compression: Any = None, op: Any = None,
        gradient_predivide_factor: float = 1.0, backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False, process_set: Any = None, device_dense: str = "",
        device_sparse: str = "", sparse_as_dense: bool = True, num_groups: int = 0, groups: Any = None,
        use_locking: bool = False, scale_local_gradients: bool = True) -> Any:
    """Makes this Keras 3 optimizer, or one of tf.compat.v1.train, average its gradients over all workers,
    and returns it. Every worker calls it for its optimizers in the same order, after poseidon.init().

    compression       Compression.fp16: float32 and float64 gradients travel as float16
    op                Average, or Sum: gradients are the sums of all workers
    backward_passes_per_step, average_aggregated_gradients   so many steps are added up (or averaged)
                      before one is applied; gradient_accumulation_steps of Keras
    The others are Horovod's: taken, and nothing depends on them."""
    del name, device_dense, device_sparse, sparse_as_dense, num_groups, groups, use_locking
    del scale_local_gradients
    what, passes = "DistributedOptimizer", backward_passes_per_step
    averager = functools.partial(reducer, what, compression, op, gradient_predivide_factor, process_set,
                                 1.0 if average_aggregated_gradients else float(passes))
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from . import v1  # pylint: disable=import-outside-toplevel

        if passes != 1:
            raise InvalidError(f"{what}: backward_passes_per_step={passes} is not offered for "
                               "optimizers of tf.compat.v1.train")
        return v1.DistributedOptimizer(optimizer, averager)
    if keras.backend.backend() != "tensorflow":
        raise InvalidError(f"{what}: Keras runs on {keras.backend.backend()}; set "
                           "KERAS_BACKEND=tensorflow")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InvalidError(f"{what}: {type(optimizer).__module__}.{type(optimizer).__name__} is not an "
                           "optimizer of Keras 3")
    if is_distributed(optimizer):
        raise StateError(f"{what}: this optimizer is distributed already")
    if passes != 1:
        _accumulate(optimizer, passes)
    optimizer._poseidon = averager()
    optimizer.__class__ = _distributed_class(type(optimizer))
    return optimizer


def _accumulate(optimizer: Any, passes: int) -> None:
    """Keras itself adds up the gradients of several steps, and applies their mean."""
    if passes < 1:
        raise InvalidError(f"DistributedOptimizer: backward_passes_per_step={passes}: at least 1")
    if optimizer.built or optimizer.gradient_accumulation_steps:
        raise StateError("DistributedOptimizer: backward_passes_per_step is for an optimizer that has "
                         "neither been used nor has gradient_accumulation_steps of its own")
    optimizer.gradient_accumulation_steps = passes


_averagers: dict[tuple, tuple[list[Any], Averager]] = {}  # of tapes, by what they are asked for


def _averager_for(sources: list[Any], options: tuple) -> Averager:
    """Loops make a tape for every step: the same variables have the same tables in all of them."""
    key = options + tuple(id(source) if hasattr(source, "assign") else (source.dtype, str(source.shape))
                for source in sources)
    kept = [source for source in sources if hasattr(source, "assign")]  # so identities stay theirs
    if key not in _averagers:
        _averagers[key] = (kept, reducer("DistributedGradientTape", *options))
    return _averagers[key][1]


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() is the mean of all workers'. Everything else is the
    tape's own."""

    def __init__(self, gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                 compression: Any = None, sparse_as_dense: bool = True, op: Any = None,
                 gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None,
                 process_set: Any = None, scale_local_gradients: bool = True):
        del device_dense, device_sparse, sparse_as_dense, num_groups, groups, scale_local_gradients
        self._tape = gradtape
        self._options = (compression, op, gradient_predivide_factor, process_set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Of the same structure as the sources."""
        begin_ns = time.monotonic_ns()
        found = self._tape.gradient(target, sources, *args, **kwargs)
        flat = tf.nest.flatten(sources)
        averager = _averager_for(flat, self._options)
        if tf.executing_eagerly():
            averager.mark_backward(begin_ns, time.monotonic_ns())
        return tf.nest.pack_sequence_as(sources, averager.average(tf.nest.flatten(found), flat))


def _leave_xla_to_others() -> None:
    """jit_compile="auto" means "when everything can be compiled": operations that talk to servers
    cannot."""
    own = trainer.model_supports_jit

    @functools.wraps(own)
    def supports(model: Any) -> bool:
        return not is_distributed(getattr(model, "optimizer", None)) and own(model)

    trainer.model_supports_jit = supports


_leave_xla_to_others()
