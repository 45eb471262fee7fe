# SPDX-License-Identifier: Apache-2.0
"""The state of a Keras script in the checkpoints of psd_run --checkpoint, and where it goes on from (--resume).

    keras.utils.set_random_seed(1)
    ...
    state = psd.Checkpoint(model)
    state.fit(dataset, epochs=10, callbacks=[psd.BroadcastCallback(), EarlyStopping()])

fit() is Model.fit. In a job that goes on it comes to the batch after which the checkpoint was written without computing
(fit_points.py), and trains from there."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

import poseidon

from .. import _due, _elastic, _parts
from . import fit_points
from .fit_points import NotKept

_TIMEOUT_S = 1800.0
_MONITORS = "$monitors"  # a callback knows which way its metric goes
_OF_KERAS = {"_model", "params", "validation_data"}  # in callbacks


class Checkpoint(fit_points.Owner):
    """Of one model, which has been compiled. What is given by name are numbers, text, lists, dictionaries and arrays that
    the script keeps besides: attributes, which each worker gets back. All workers make one, with the same names."""

    def __init__(self, model: Any, **values: Any):
        if _elastic.current() is not None:
            raise poseidon.StateError("Checkpoint: a job whose workers come and go keeps its state in poseidon.elastic")
        self._model, self._names = model, list(values)
        taken = [name for name in values if hasattr(type(self), name) or name in vars(self)]
        if taken:
            raise poseidon.InvalidError(f"Checkpoint({taken[0]}=...): that name means something else here; choose another")
        vars(self).update(values)
        self._callbacks: list[Any] = []
        self._fitted = False
        found = poseidon.context().checkpoint_resumed()
        self._kept = None if found is None else self._checked(_parts.decode(found[1]))
        self.resumed = self._kept is not None
        self._due = _due.Due(_TIMEOUT_S) if _due.wanted() else None

    @staticmethod
    def _checked(kept: Any) -> dict[str, Any]:
        if not isinstance(kept, dict) or kept.get("kind") != "keras":
            raise poseidon.MismatchError("the checkpoint that the job goes on from is not of poseidon.tensorflow.Checkpoint")
        if len(kept["workers"]) != poseidon.size():
            raise poseidon.MismatchError(f"the checkpoint is of {len(kept['workers'])} workers, the job has {poseidon.size()}: go on "
                                         "with as many, or begin anew")
        return kept

    def fit(self, x: Any = None, *words: Any, callbacks: Any = None, **named: Any) -> Any:
        """Model.fit, once."""
        if self._fitted:
            raise poseidon.StateError("Checkpoint.fit: a checkpoint is a place in one fit; train longer with epochs=")
        self._fitted = True
        if (self._due is not None or self.resumed) and tf_context.context()._seed is None:
            raise poseidon.InvalidError("Checkpoint.fit: call keras.utils.set_random_seed(NUMBER) before data and model are made: without "
                                        "it the data would come in another order when the job goes on")
        self._callbacks = list(tf.nest.flatten(callbacks)) if callbacks is not None else []
        points = fit_points.FitPoints(self, self._due, self._kept, x)
        return self._model.fit(x, *words, callbacks=[_Passing(points), *points.callbacks(self._callbacks)], **named)

    # ---- what FitPoints asks

    def look(self) -> None:
        if self._model.run_eagerly:
            raise NotKept("a model that runs eagerly may change what nobody sees")

    def keep(self) -> Any:
        return {"values": {name: getattr(self, name) for name in self._names},
                "callbacks": [[type(each).__name__, attributes_of(each)] for each in self._callbacks]}

    def put_back(self, kept: Any) -> None:
        if sorted(kept["values"]) != sorted(self._names):
            raise NotKept(f"the checkpoint has {sorted(kept['values'])}, the script gives {sorted(self._names)}")
        names = [type(each).__name__ for each in self._callbacks]
        if [name for name, _ in kept["callbacks"]] != names:
            raise NotKept(f"its callbacks are {names}, and were {[name for name, _ in kept['callbacks']]}")
        vars(self).update(kept["values"])
        for each, (_, attributes) in zip(self._callbacks, kept["callbacks"]):
            put_attributes(each, attributes)

    def cannot(self, problem: str) -> None:
        raise poseidon.InvalidError(f"Checkpoint.fit: no checkpoint can be written: {problem}")

    def refuse(self, problem: str) -> None:
        raise poseidon.MismatchError(f"Checkpoint.fit: the job goes on from a checkpoint, but {problem}")


class _Passing(keras.callbacks.Callback):
    """The first of the callbacks: nothing is computed on the way."""

    def __init__(self, points: fit_points.FitPoints):
        super().__init__()
        self._points = points
        self._own: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self._points.passes_over:
            self._own, self.model.train_function = self.model.train_function, self._points.passing(self.model.train_function)

    def on_train_end(self, logs: Any = None) -> None:
        if self._own is not None:
            self.model.train_function = self._own


def attributes_of(callback: Any) -> dict[str, Any]:
    """What a callback keeps, and can be put back. Those of Keras itself may have open files and writers, which are opened again."""
    found = {_MONITORS: True} if getattr(callback, "monitor_op", None) is not None else {}
    is_of_keras = type(callback).__module__.split(".")[0] in ("keras", "poseidon")
    for name, value in vars(callback).items():
        if name in _OF_KERAS or callable(value) or isinstance(value, keras.Model):
            continue
        if _can_be_kept(value):
            found[name] = value
        elif not is_of_keras:
            raise NotKept(f"its callback {type(callback).__name__} has {name}, a {type(value).__name__}, which may hold what cannot be kept")
    return found


def put_attributes(callback: Any, kept: dict[str, Any]) -> None:
    """The same, in another process."""
    if kept.get(_MONITORS) and callback.monitor_op is None:
        callback._set_monitor_op()  # else Keras does at the end of the next epoch, and turns min_delta around once more
    vars(callback).update({name: value for name, value in kept.items() if name != _MONITORS})


def _can_be_kept(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_can_be_kept, (*value.keys(), *value.values())))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_can_be_kept, value))
    if isinstance(value, np.ndarray):
        return value.dtype.name in _parts.NAMES
    return value is None or isinstance(value, (bool, int, float, str, bytes, np.generic))
