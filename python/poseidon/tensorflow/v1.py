# SPDX-License-Identifier: Apache-2.0
"""Poseidon for code in the style of TensorFlow 1: graphs, sessions, hooks (tf.compat.v1).

    import poseidon.tensorflow.v1 as psd

    config = psd.ConfigProto(distributed=FLAGS.distributed, master_address=FLAGS.master_address,
                             client_id=FLAGS.client_id)
    psd.join(config)                                       # before the optimizer makes its part
    train = psd.DistributedOptimizer(tf.train.AdamOptimizer()).minimize(loss, global_step)
    with psd.Session(config=config) as session: ...

Workers train in step: a step is the same one on all of them, and so is the global step."""

from __future__ import annotations

import functools
import re
import weakref
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

import poseidon

from .._errors import InvalidError, StateError
from ..auto.tf1.proto import ConfigProto, plain
from .gradients import Averager
from .ops import TIMEOUT_MS

__all__ = ["BroadcastHook", "ConfigProto", "DistributedOptimizer", "DoneHook",
           "MonitoredTrainingSession", "Session", "StopAtStepHook", "broadcast_global_variables",
           "is_chief", "join"]


def join(config: ConfigProto | None = None) -> None:
    """Becomes a worker of the job: the one that psd_run prepared, or that the config tells of."""
    if poseidon.is_initialized() or (config is not None and not config.distributed):
        return
    if config is None or config.client_id < 0:
        poseidon.init()
    else:
        poseidon.init(config.master_address, config.client_id)


def is_chief() -> bool:
    """Whether this worker writes files and speaks for all."""
    return not poseidon.is_initialized() or poseidon.rank() == 0


# ---- gradients


def ancestors(operations: Any) -> Iterator[Any]:
    """These operations of a graph, and all that run before them."""
    waiting = [each for each in operations if each is not None]
    seen = set(waiting)
    while waiting:
        operation = waiting.pop()
        yield operation
        before = [*(each.op for each in operation.inputs), *operation.control_inputs]
        waiting += [each for each in before if each not in seen]
        seen.update(before)


def reaches_servers(operations: Any) -> bool:
    """Whether running these operations of a graph means to meet the other workers."""
    return any(operation.type == "PoseidonPushPull" for operation in ancestors(operations))


def are_averaged(pairs: Any) -> bool:
    """Whether gradients of a graph were made of averages."""
    return reaches_servers(getattr(gradient, "op", None) for gradient, _ in pairs)


def average_pairs(averager: Averager, pairs: Any) -> list[tuple[Any, Any]]:
    """(gradient, variable) pairs with the means of all workers. What is one already stays."""
    pairs = list(pairs)
    if are_averaged(pairs):
        return pairs
    dense = []
    for gradient, variable in pairs:
        if gradient is not None:
            gradient = tf.convert_to_tensor(gradient)
            gradient.set_shape(variable.shape)
        dense.append(gradient)
    return [(gradient, variable) for gradient, (_, variable) in zip(averager.average(dense), pairs)]


class _Distributed:
    """Comes before an optimizer's own class."""

    _poseidon: Callable[[], Averager]  # makes one

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The means: what clips them afterwards sees what one process would."""
        return average_pairs(self._poseidon(),  # of this call: one for each tower has tables of its own
                             super().compute_gradients(*args, **kwargs))  # type: ignore[misc]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Gradients that came from elsewhere (tf.gradients) are averaged here."""
        pairs = average_pairs(self._poseidon(), grads_and_vars)
        return super().apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]


_graphs_alone: Any = weakref.WeakSet()  # their optimizers were made before this process joined a job


def _check_order(graph: Any) -> None:
    """A worker whose gradients stay its own would train alone, and nobody would see it."""
    if poseidon.is_initialized() and graph in _graphs_alone:
        raise StateError("DistributedOptimizer was called before this process joined the job, so its "
                         "gradients are not averaged: call join(config), or poseidon.init(), before "
                         "DistributedOptimizer")


@functools.lru_cache(maxsize=None)
def _distributed_class(kind: type) -> type:
    return type(kind.__name__, (_Distributed, kind), {"__doc__": kind.__doc__})


def DistributedOptimizer(  # pylint: disable=invalid-name
        optimizer: Any, averager: Callable[[], Averager] = Averager) -> Any:
    """Makes this optimizer of tf.compat.v1.train average its gradients over all workers, and returns
    it. Every worker calls it for its optimizers in the same order, after join()."""
    if not isinstance(optimizer, tf.train.Optimizer):
        raise InvalidError(f"DistributedOptimizer: {type(optimizer).__name__} is not an optimizer "
                           "of tf.compat.v1.train; those of Keras: poseidon.tensorflow")
    if isinstance(optimizer, _Distributed):
        raise StateError("DistributedOptimizer: this optimizer is distributed already")
    if not poseidon.is_initialized():
        _graphs_alone.add(tf.get_default_graph())
        return optimizer  # distributed=False: a process by itself
    optimizer.__class__ = _distributed_class(type(optimizer))
    optimizer._poseidon = averager
    return optimizer


# ---- sessions


def broadcast_global_variables(session: Any, root: int = 0, names: Any = None) -> None:
    """Gives all workers the root's values of the graph's variables, or of those with these names."""
    poseidon.barrier(TIMEOUT_MS)  # workers prepare their data before, and need not be done together
    variables = [each for each in session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
                 if each.dtype.base_dtype != tf.string and (names is None or each.op.name in names)]
    for number, (variable, value) in enumerate(zip(variables, session.run(variables))):
        value = np.array(value, order="C")
        got = poseidon.broadcast(value, root, f"{number} {variable.name}"[:200])
        if poseidon.rank() != root:
            initial = variable.initializer.inputs[1]
            session.run(variable.initializer, {initial: got})


_WRITES = re.compile("(Resource)?(Sparse)?(Apply|Assign|Scatter(?!Nd$)|StridedSliceAssign|CountUpTo)")
_READS = {"VarHandleOp", "ReadVariableOp", "Variable", "VariableV2", "ResourceGather",
          "ResourceGatherNd", "VariableShape", "VarIsInitializedOp", "IsVariableInitialized"}
_PASS_ON = {"Enter", "RefEnter", "Switch", "RefSwitch", "Identity", "RefIdentity"}


class RunKind(NamedTuple):
    """What a run does, as its graph tells: the same on all workers."""

    meetings: list[Any]  # operations that meet the other workers
    trains: bool  # averaged gradients change variables
    written: frozenset[str]  # global variables that it changes otherwise ...
    apart: frozenset[str]  # ... to what may not be the same on all workers


_kinds: Any = weakref.WeakKeyDictionary()  # graph: names of what is fetched: RunKind


def kind_of(graph: Any, fetches: Any) -> RunKind:
    """Looks at a graph once for the same fetches."""
    operations = operations_of(graph, fetches)
    known = _kinds.setdefault(graph, {})
    names = tuple(operation.name for operation in operations)
    if names not in known:
        known[names] = _look_at(graph, operations)
    return known[names]


def _look_at(graph: Any, operations: list[Any]) -> RunKind:
    shared = {each.op.name for each in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)}
    meetings, targets = [], {}
    for each in ancestors(operations):
        if each.type == "PoseidonPushPull":
            meetings.append(each)
        elif found := _targets(each) & shared or ("Apply" in each.type and {each.name}):
            targets[each] = found
    trains = bool(meetings) and any(reaches_servers([each]) for each in targets)
    if trains:
        return RunKind(meetings, True, frozenset(), frozenset())
    apart = [found for each, found in targets.items()
             if any(_may_differ(before, shared) for before in ancestors([each]))]
    return RunKind(meetings, False, frozenset().union(*targets.values()),
                   frozenset().union(*apart))


def _targets(operation: Any) -> set[str]:
    """Names of the variables that an operation changes."""
    if _WRITES.match(operation.type) and operation.inputs:
        return {_origin(operation.inputs[0]).name}
    handles = [each for each in operation.inputs if each.dtype == tf.resource]
    if handles and _calls_writer(operation.graph, operation.node_def):
        return {_origin(each).name for each in handles}
    return set()


def _calls_writer(graph: Any, node: Any) -> bool:
    """Whether a function that is called there (a branch, a body) changes variables."""
    names = [each.name for value in node.attr.values() for each in (value.func, *value.list.func)]
    return any(_WRITES.match(inner.op) or _calls_writer(graph, inner)
               for name in filter(None, names)
               for inner in graph._get_function(name).cached_definition.node_def)


def _origin(tensor: Any) -> Any:
    """The operation that a reference to a variable comes from."""
    while tensor.op.type in _PASS_ON:
        tensor = tensor.op.inputs[0]
    return tensor.op


def _may_differ(operation: Any, shared: set[str]) -> bool:
    """Whether an operation may deliver something else on each worker where variables are the same:
    random numbers, files, what is fed, variables of a worker's own."""
    if operation.type in ("VarHandleOp", "Variable", "VariableV2"):
        return operation.name not in shared
    if operation.type in _READS or _WRITES.match(operation.type):
        return False
    return operation.type.startswith("Placeholder") or operation.op_def.is_stateful


class SharedVariables:
    """Variables of sessions are the same on all workers before each run that trains: all of them
    are those of worker 0 before the first one, and later what other runs wrote in between
    (initializers, assignments, load, restore)."""

    def __init__(self) -> None:
        self._apart: Any = weakref.WeakKeyDictionary()  # session: names; none before the first

    def written(self, session: Any, fetches: Any, fed: bool) -> None:
        """A run that does not train was made. What is fed may take the place of anything."""
        if session in self._apart:
            kind = kind_of(session.graph, fetches)
            self._apart[session] |= kind.written if fed else kind.apart

    def share(self, session: Any) -> None:
        """Every worker calls it, after the same runs."""
        names = self._apart.get(session)
        if names is None or names:
            broadcast_global_variables(session, names=names)
            self._apart[session] = set()


shared_variables = SharedVariables()


class Steps:
    """What happens around the runs of sessions that train: each one is a step of the job."""

    def __init__(self) -> None:
        self.count = 0

    def trains(self, graph: Any, fetches: Any) -> bool:
        """Whether a run with these fetches changes variables by averaged gradients."""
        return kind_of(graph, fetches).trains

    def before(self, session: Any) -> None:
        """A run that trains is about to begin."""
        shared_variables.share(session)

    def after(self) -> None:
        """It has ended: worker 0 counts for all."""
        self.count += 1
        poseidon.report(self.count)
        if poseidon.rank() == 0:
            poseidon.global_step(1)


def operations_of(graph: Any, fetches: Any) -> list[Any]:
    """What a run with these fetches runs for them."""
    return list(filter(None, (_operation(graph, each) for each in _leaves(fetches))))


def _leaves(fetches: Any) -> list[Any]:
    """Of nested lists, tuples and dictionaries, whose keys are anything."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        return [leaf for each in fetches for leaf in _leaves(each)]
    return [fetches]


def _operation(graph: Any, fetch: Any) -> Any:
    try:
        found = graph.as_graph_element(fetch, allow_tensor=True, allow_operation=True)
    except (TypeError, ValueError, KeyError):
        return None  # Session.run says what is wrong with it
    return getattr(found, "op", found)


_steps = Steps()


class Session(tf.Session):
    """tf.compat.v1.Session that takes Poseidon's ConfigProto; with distributed=True it belongs to
    a worker of a job."""

    def __init__(self, target: str = "", graph: Any = None, config: Any = None):
        if isinstance(config, ConfigProto):
            join(config)
        super().__init__(target, graph, plain(config))
        _check_order(self.graph)

    def run(self, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        """As always; a run that trains is a step of the job."""
        if not poseidon.is_initialized():
            return super().run(fetches, *args, **kwargs)
        trains = _steps.trains(self.graph, fetches)
        if trains:
            _steps.before(self)
        result = super().run(fetches, *args, **kwargs)
        if trains:
            _steps.after()
        else:
            shared_variables.written(self, fetches, bool(args and args[0] or
                                                         kwargs.get("feed_dict")))
        return result


def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:  # pylint: disable=invalid-name
    """tf.compat.v1.train.MonitoredTrainingSession: every worker makes its variables itself, worker 0
    alone keeps checkpoints and summaries. Give it BroadcastHook()."""
    names = ("master", "is_chief", "checkpoint_dir", "scaffold", "hooks", "chief_only_hooks",
             "save_checkpoint_secs", "save_summaries_steps", "save_summaries_secs", "config")
    kwargs.update(zip(names, args))
    if isinstance(kwargs.get("config"), ConfigProto):
        join(kwargs["config"])
    _check_order(tf.get_default_graph())
    kwargs["config"] = plain(kwargs.get("config"))
    if not is_chief():
        kwargs.update(checkpoint_dir=None, chief_only_hooks=None, summary_dir=None)
    kwargs["is_chief"] = True  # it initializes variables: they are this process's own
    return tf.train.MonitoredTrainingSession(**kwargs)


class BroadcastHook(tf.train.SessionRunHook):
    """When a session was made, all workers get the variables of the root."""

    def __init__(self, root: int = 0):
        self._root = root

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Variables are initialized or restored by now."""
        broadcast_global_variables(session, self._root)


class StopAtStepHook(tf.train.StopAtStepHook):
    """Stops all workers after exactly that step of the servers' global step
    (poseidon.global_step(), shown by psd_run), which worker 0 moves with each step of the job. A
    checkpoint with a later step moves it there; num_steps counts from where it is."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None):
        super().__init__(num_steps, last_step)
        self._offset = 0  # of the servers' step against this session's
        self._counted = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """All workers look where the job is, before one of them goes on."""
        self._counted = int(session.run(self._global_step_tensor))
        now = poseidon.global_step()
        poseidon.barrier(TIMEOUT_MS)
        if is_chief() and self._counted > now:
            poseidon.global_step(self._counted - now)
        self._offset = max(now, self._counted) - self._counted
        if self._last_step is None:
            self._last_step = self._offset + self._counted + self._num_steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Only runs that moved the global step count."""
        step = int(run_context.session.run(self._global_step_tensor))
        if is_chief() and step > self._counted:
            poseidon.global_step(step - self._counted)
        self._counted = step
        if self._offset + step >= self._last_step:
            run_context.request_stop()


class DoneHook(tf.train.SessionRunHook):
    """The end of training: this worker says farewell. Servers leave when all workers have, also
    when one of them died: the queues that did this in clusters of TensorFlow are not needed."""

    def end(self, session: Any) -> None:
        """The session is about to be closed."""
        poseidon.close()
