# SPDX-License-Identifier: Apache-2.0
"""The points of Model.fit at which a job is saved, and from which it goes on: after a batch, and after an epoch.

All workers give their part at the same point (poseidon._due): worker 0 the variables of model, optimizers and metrics, each
worker those that differ from worker to worker (statistics, metrics, random states), its generators, and what its callbacks keep.

A fit that goes on begins as it did, and reads its data as ever, so that orders and random numbers of the data are what they were. Of
its batches only the first is computed, so that everything is there; callbacks hear of nothing. At the point everything is put back."""

from __future__ import annotations

import os
import random
import sys
from typing import Any, Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as tf_context

import poseidon

from .. import _alike, _due, _parts

OWN_BYTES = 1 << 24  # of each worker
_HELD = ("on_batch_begin", "on_batch_end", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end",
         "on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end")
_ANOTHER = "a worker has what cannot be kept"
_OF_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


class NotKept(Exception):
    """Something that cannot be saved, or put back. Its text names it."""


class Owner:
    """Who fits. A script with poseidon.tensorflow.Checkpoint, or one that knows nothing of it (auto/keras/points.py)."""

    def head(self) -> dict[str, str]:
        """More metadata of the part."""
        return {}

    def look(self) -> None:
        """Looks at what there is now, for what is asked next. Raises NotKept if something cannot be saved."""

    def variables(self) -> list[Any]:
        """More than those of the model."""
        return []

    def keep(self) -> Any:
        """What else this worker has, for _parts.encode()."""

    def put_back(self, kept: Any) -> None:
        """The same, at the point."""

    def begin_epoch(self) -> None:
        """Its batches are read."""

    def read(self, element: Any) -> None:
        """A batch was passed over."""

    def cannot(self, problem: str) -> None:
        """On worker 0: nothing is saved now."""
        raise NotImplementedError

    def refuse(self, problem: str) -> None:
        """The job cannot go on: raises."""
        raise NotImplementedError


class FitPoints:
    """Of one fit. Thread: the one that trains."""

    def __init__(self, owner: Owner, due: _due.Due | None, kept: dict[str, Any] | None, data: Any):
        self._owner, self._due, self._kept = owner, due, kept
        self.made_by_python = made_by_python(data)
        self.model: Any = None
        self.steps = self.epoch = 0
        self._saved_at = -1
        self._logs: dict[str, Any] = {}  # of the last step, or epoch
        self._computed = False
        self._own_output: Any = None
        self._own_test: Any = None

    @property
    def passes_over(self) -> bool:
        """Whether the fit has not come to its point."""
        return self._kept is not None

    def callbacks(self, given: list[Any]) -> list[Any]:
        """What fit gets in their place. Keras's own history would come behind the points, and hears of what is not true; it is
        put back with the rest."""
        histories = [each for each in given if isinstance(each, keras.callbacks.History)] or [keras.callbacks.History()]
        others = [each for each in given if each not in histories]
        return [*(_Held(each, self) if self.passes_over else each for each in others), *histories, _AtPoints(self)]

    # ---- on the way to the point

    def begin(self, model: Any) -> None:
        """Nothing was trained yet."""
        self.model = model
        if self._due is not None:
            self._due.offer()
        if not self.passes_over:
            return
        self._own_test, model.test_function = model.test_function, self._evaluate
        self._own_output = sys.stdout
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # it was printed before

    def passing(self, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that trains, which only reads on the way. The first batch is computed: optimizers and metrics get their
        variables then."""
        def train(iterator: Any) -> Any:
            if self._kept is None:
                return own(iterator)
            batches = self._read(iterator)
            for each in batches:
                self._owner.read(each)
            if not self._computed:
                self._computed = True
                own(iter(of_batches(batches, iterator.element_spec)))
            return dict(self._kept["logs"])

        return train

    def _read(self, iterator: Any) -> list[Any]:
        found: list[Any] = []
        for _ in range(self.model.steps_per_execution):
            try:
                found.append(next(iterator))
            except (StopIteration, tf.errors.OutOfRangeError):
                if not found:
                    raise StopIteration from None
                break
        return found

    def _evaluate(self, iterator: Any) -> Any:
        """Data of an evaluation are read, too: their orders may be random."""
        self._read(iterator)
        return {}

    # ---- points

    def begin_epoch(self, epoch: int) -> None:
        """It begins."""
        self.epoch = epoch
        self._owner.begin_epoch()

    def after_batch(self, logs: Any) -> None:
        """Callbacks have heard of it."""
        self.steps += 1
        self._at_point(logs, ended=False)

    def after_epoch(self, epoch: int, logs: Any) -> None:
        """Likewise."""
        self.epoch = epoch
        self._at_point(logs, ended=True)

    def _at_point(self, logs: Any, ended: bool) -> None:
        if self._kept is not None:
            if (self.steps, ended) == (self._kept["steps"], self._kept["ended"]):
                self._arrive()
                if logs is not None:
                    logs.clear()
                    logs.update(self._logs)  # for what Keras prints
            return
        self._logs = dict(logs or {})
        wanted = self._due is not None and self._due.after(self.steps, lambda: ended)
        if wanted and self._saved_at != self.steps:
            self._saved_at = self.steps
            self._give(ended)

    def ends(self) -> None:
        """fit is over."""
        if self._kept is not None:
            self._end()
            self._owner.refuse(f"its fit ended after {self.steps} steps, and the checkpoint was written after {self._kept['steps']}")

    def last_logs(self, logs: Any) -> Any:
        """For the end of training, which may follow on the point."""
        return self._logs if self._logs else logs

    # ---- saving

    def _give(self, ended: bool) -> None:
        variables, more, note, problem = [], None, b"", ""
        try:
            self._owner.look()
            variables, more = self._variables(), self._owner.keep()
        except NotKept as error:
            problem = str(error)
        counts = _alike.numbers([0 if problem else len(variables)], "counts")[:, 0]
        if (counts != counts[0]).any() or problem:
            if poseidon.rank() == 0:
                self._owner.cannot(problem or _ANOTHER)
            return
        values = [np.array(each.numpy(), order="C") for each in variables]
        own = _alike.different(values)
        try:
            note = _parts.encode({"own": [values[number] for number in own], "generators": self._generators(), "more": more})
            if len(note) > OWN_BYTES:
                raise NotKept(f"what differs from worker to worker takes {len(note)} bytes, more than {OWN_BYTES}")
        except (NotKept, TypeError) as error:
            note, problem = b"", str(error)
        notes = _alike.texts(note)
        if poseidon.rank() != 0:
            return
        if not all(notes):
            self._owner.cannot(problem or _ANOTHER)
            return
        self._write(ended, values, _describe(variables), own, notes)

    def _write(self, ended: bool, values: list[Any], described: list[Any], own: list[int], notes: list[bytes]) -> None:
        try:
            self._due.give(self.steps, _parts.encode({  # type: ignore[union-attr]
                "kind": "keras", "steps": self.steps, "epoch": self.epoch, "ended": ended, "stop": bool(self.model.stop_training),
                "logs": {name: float(value) for name, value in self._logs.items() if np.ndim(value) == 0},
                "described": described, "values": values, "own": own, "workers": notes,
                "history": self.model.history.history, "epochs": self.model.history.epoch}, **self._owner.head()))
        except TypeError as error:
            self._owner.cannot(str(error))

    def _variables(self) -> list[Any]:
        """Everything that training changes, each once, in the same order on all workers."""
        from keras.src.backend.common import global_state

        model = self.model
        found = [*model.variables, *model.metrics_variables]
        for optimizer in optimizers_of(model):
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            found += optimizer.variables
        shared = global_state.get_global_attribute("global_seed_generator")
        found += [shared.state] if shared is not None else []
        plain = [each.value if isinstance(each, keras.Variable) else each for each in [*found, *self._owner.variables()]]
        return list({id(each): each for each in plain if each.dtype not in (tf.resource, tf.variant, tf.string)}.values())

    def _generators(self) -> list[Any]:
        rng = tf_context.context()._rng
        mine = [None if rng is None else rng.getstate()]
        if not self.made_by_python:
            kind, *state = np.random.get_state()
            mine += [random.getstate(), kind, *state]
        return mine

    def _set_generators(self, kept: list[Any]) -> None:
        of_tensorflow, *others = kept
        if of_tensorflow is not None:
            tf_context.context()._rng.setstate(of_tensorflow)
        if others:
            random.setstate(others[0])
            np.random.set_state(tuple(others[1:]))

    # ---- at the point

    def _arrive(self) -> None:
        kept, problem = self._kept, ""
        assert kept is not None
        self._end()
        try:
            self._put_back(kept)
        except (NotKept, ValueError, KeyError) as error:
            problem = str(error)
        if problem:
            self._owner.refuse(problem)

    def _put_back(self, kept: dict[str, Any]) -> None:
        mine = _parts.decode(kept["workers"][poseidon.rank()])
        if self.epoch != kept["epoch"]:
            raise NotKept(f"after {self.steps} steps it is in epoch {self.epoch}, and was in {kept['epoch']}: its data have another length")
        self._owner.look()
        variables = self._variables()
        if (described := _describe(variables)) != kept["described"]:
            wrong = [pair for pair in zip(described, kept["described"]) if pair[0] != pair[1]]
            raise NotKept(f"its model has {wrong[0][0]}, in the checkpoint {wrong[0][1]}" if wrong else
                          f"its model has {len(described)} variables, in the checkpoint {len(kept['described'])}")
        values = dict(enumerate(kept["values"])) | dict(zip(kept["own"], mine["own"]))
        for number, variable in enumerate(variables):
            variable.assign(values[number])
        self.model.stop_training, self._logs = kept["stop"], dict(kept["logs"])
        self.model.history.history, self.model.history.epoch = kept["history"], kept["epochs"]
        self._owner.put_back(mine["more"])
        self._set_generators(mine["generators"])

    def _end(self) -> None:
        self._kept = None
        if self._own_output is not None:
            sys.stdout.close()
            sys.stdout, self._own_output = self._own_output, None
            self.model.test_function = self._own_test


class _AtPoints(keras.callbacks.Callback):
    """The last of the callbacks."""

    def __init__(self, points: FitPoints):
        super().__init__()
        self._points = points

    def on_train_begin(self, logs: Any = None) -> None:
        self._points.begin(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._points.begin_epoch(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._points.after_batch(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._points.after_epoch(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._points.ends()


class _Held(keras.callbacks.Callback):
    """A callback that hears of nothing on the way."""

    def __init__(self, inner: Any, points: FitPoints):
        super().__init__()
        self._inner, self._points = inner, points

    def set_params(self, params: Any) -> None:
        super().set_params(params)
        self._inner.set_params(params)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._inner.set_model(model)

    def on_train_begin(self, logs: Any = None) -> None:
        self._inner.on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        if not self._points.passes_over:  # else the fit is refused
            self._inner.on_train_end(self._points.last_logs(logs))


def _holding(name: str) -> Callable[..., None]:
    def hear(self: _Held, *words: Any, **named: Any) -> None:
        if not self._points.passes_over:
            getattr(self._inner, name)(*words, **named)

    return hear


for _name in _HELD:
    setattr(_Held, _name, _holding(_name))


# ---- helpers

def optimizers_of(model: Any) -> Iterator[Any]:
    """Those that it has as attributes, its own first."""
    found: dict[int, Any] = {}
    for each in (getattr(model, "optimizer", None), *vars(model).values()):
        if isinstance(each, keras.optimizers.Optimizer):
            found.setdefault(id(each), each)
    return iter(found.values())


def made_by_python(data: Any) -> bool:
    """Whether reading the data runs Python, which may draw random numbers, ahead of training."""
    if not isinstance(data, tf.data.Dataset):
        return not all(isinstance(each, (np.ndarray, tf.Tensor, list, tuple, int, float, type(None))) or hasattr(each, "__array__")
                       for each in tf.nest.flatten(data))
    waiting, seen = [data], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        waiting += each._inputs()
        for function in each._functions():
            graph = function.function.graph.as_graph_def()
            if any(node.op in _OF_PYTHON for nodes in (graph.node, *(one.node_def for one in graph.library.function)) for node in nodes):
                return True
    return False


def of_batches(batches: list[Any], specs: Any) -> Any:
    """A dataset that looks like the one they come from, so that no other graph is made for it."""
    def loosen(*parts: Any) -> Any:
        return tf.nest.map_structure(lambda each, spec: tf.compat.v1.placeholder_with_default(each, spec.shape), parts, specs)

    made = None
    for batch in batches:
        one = tf.data.Dataset.from_tensors(batch).map(tf.autograph.experimental.do_not_convert(loosen))
        made = one if made is None else made.concatenate(one)
    return made


def _describe(variables: list[Any]) -> list[list[Any]]:
    return [[each.name.rpartition("/")[2], list(each.shape), each.dtype.name] for each in variables]
