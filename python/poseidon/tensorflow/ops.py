# SPDX-License-Identifier: Apache-2.0
"""push, pull, push_pull and broadcast for graphs, tf.function and eager code.

A table has a name, the same on every worker, and belongs to one place in the program: each of its
steps takes one contribution of every worker. Names that are not given are counted, so workers that
make their operations in the same order agree on them."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

import poseidon

from .. import _elastic
from .._errors import InvalidError, LibraryError
from .._library import library as libpsd
from . import elastic_ops

# A function's operations with a state run one after the other, in the order of the program. For those
# that meet other workers that would be a deadlock: workers may have different orders, and it would
# keep gradients waiting for each other.
auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= {"PoseidonPushPull",
                                                              "PoseidonBroadcast"}

TIMEOUT_MS = 1_800_000  # for the slowest worker to come to the same operation


@functools.lru_cache(maxsize=1)
def _native() -> tuple[Any, ctypes.CDLL]:
    """The operations as TensorFlow knows them, and the functions that tell them of tables."""
    from .build import library_file

    path = str(library_file())
    try:
        operations = tf.load_op_library(path)
    except tf.errors.OpError as error:
        raise LibraryError(f"{path} does not fit this TensorFlow {tf.__version__}: {error}; build "
                           "it again (python -m poseidon.tensorflow.build FILE)") from None
    functions = ctypes.CDLL(path)
    functions.poseidon_ops_problem.restype = ctypes.c_char_p
    functions.poseidon_ops_use.restype = ctypes.c_char_p
    functions.poseidon_ops_use.argtypes = [ctypes.c_char_p]
    functions.poseidon_ops_add.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p]
    functions.poseidon_ops_enter.argtypes = [ctypes.c_void_p]
    problem = functions.poseidon_ops_problem()
    if problem:
        raise LibraryError(f"poseidon.tensorflow with TensorFlow {tf.__version__}: "
                           f"{problem.decode()}")
    missing = functions.poseidon_ops_use(libpsd()._name.encode())
    if missing:
        raise LibraryError(f"{libpsd()._name} has no {missing.decode()}: it is of another build "
                           "than the package")
    return operations, functions


class _Tables:
    """Those of one job that operations use, and how unnamed ones are called."""

    def __init__(self) -> None:
        self._context: Any = None
        self._tables: dict[str, poseidon.Table] = {}
        self._counts: dict[str, int] = {}

    def _enter(self) -> None:
        context = poseidon.context()
        if self._context is not context:
            self._context, self._tables, self._counts = context, {}, {}
            _native()[1].poseidon_ops_enter(context._check())
            context.before_leaving(_native()[1].poseidon_ops_forget)

    def next_name(self, kind: str) -> str:
        """The same on every worker that gets here in the same order."""
        self._enter()
        number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        return f"{kind}{number}"

    def step(self, name: str) -> int | None:
        """Of the table of that name; None: there is none yet."""
        self._enter()
        found = self._tables.get(name)
        return None if found is None else found.step

    def add(self, name: str, shape: tuple[int, ...], dtype: str, *, group: str | None = None,
            **settings: Any) -> poseidon.Table:
        """Opens it, unless this process has it already. group: see ready.h."""
        self._enter()
        found = self._tables.get(name)
        if found is None:
            found = poseidon.Table(name, shape, dtype, **settings)
            self._register(found, group)
        elif found.shape != shape or found.dtype != dtype:
            raise InvalidError(f"table {name} is {found.dtype}{list(found.shape)} here, and is "
                               f"asked for as {dtype}{list(shape)}: use another name")
        return found

    def _register(self, table: poseidon.Table, group: str | None = None) -> None:
        told = None if group is None else group.encode()
        if _native()[1].poseidon_ops_add(table.name.encode(), table._handle, told) != 0:
            raise poseidon.MemoryError(f"table {table.name}: no memory")
        self._tables[table.name] = table

    def use(self, table: poseidon.Table) -> poseidon.Table:
        """One that the program opened itself."""
        self._enter()
        if self._tables.get(table.name) is not table:
            self._register(table)
        return table


_tables = _Tables()


def _static_shape(what: str, tensor: tf.Tensor) -> tuple[int, ...]:
    if not tensor.shape.is_fully_defined():
        raise InvalidError(f"{what}: the shape {tensor.shape} is not known when the graph is made; "
                           "set_shape() it, or pad to a fixed size: servers hold tensors of one "
                           "size")
    return tuple(tensor.shape.as_list())


def push_pull(tensor: Any, name: str | None = None, *, reduce: str = "mean", priority: int = 0,
              timeout_ms: int = TIMEOUT_MS) -> tf.Tensor:
    """The mean (or sum) of all workers' tensors. float16, bfloat16, float32, float64."""
    return _push_pull(tensor, name, reduce, priority, timeout_ms)


def average_gradient(tensor: Any, group: str, name: str, priority: int, timeout_ms: int) -> tf.Tensor:
    """The mean of one of the gradients of an optimizer or tape, whose name is the group's."""
    in_graph = not tf.executing_eagerly()  # eagerly all are ready before the first one is sent
    return _push_pull(tensor, f"{group}.{name}", "mean", priority, timeout_ms, group if in_graph else None)


def _push_pull(tensor: Any, name: str | None, reduce: str, priority: int, timeout_ms: int,
               group: str | None = None) -> tf.Tensor:
    tensor = tf.convert_to_tensor(tensor)
    if _elastic.current() is not None:
        return elastic_ops.reduce(tensor, reduce == "mean")
    name = name or _tables.next_name("tensorflow.push_pull")
    shape = _static_shape(f"push_pull {name}", tensor)
    if math.prod(shape) == 0:
        return tf.identity(tensor)
    _tables.add(name, shape, tensor.dtype.name, use="sum", reduce=reduce, nan_policy="allow",
                priority=priority, group=group)
    return _native()[0].poseidon_push_pull(gradient=tensor, table=name, timeout_ms=timeout_ms)


def push(tensor: Any, table: poseidon.Table, *, timeout_ms: int = TIMEOUT_MS) -> Any:
    """Gives a gradient to a poseidon.Table; an operation in a graph, None otherwise."""
    tensor = tf.convert_to_tensor(tensor)
    return _native()[0].poseidon_push(gradient=tensor, table=_tables.use(table).name,
                                      timeout_ms=timeout_ms)


def pull(table: poseidon.Table, *, timeout_ms: int = TIMEOUT_MS) -> tf.Tensor:
    """The values of a poseidon.Table."""
    values = _native()[0].poseidon_pull(T=tf.as_dtype(table.dtype), dims=list(table.shape),
                                        table=_tables.use(table).name, timeout_ms=timeout_ms)
    return tf.ensure_shape(values, table.shape)


def push_pull_table(tensor: Any, table: poseidon.Table, *, timeout_ms: int = TIMEOUT_MS
                    ) -> tf.Tensor:
    """Gives a gradient to a poseidon.Table and gets the values of the next step."""
    tensor = tf.convert_to_tensor(tensor)
    return _native()[0].poseidon_push_pull(gradient=tensor, table=_tables.use(table).name,
                                           timeout_ms=timeout_ms)


def broadcast(tensor: Any, root: int = 0, name: str | None = None, *,
              timeout_ms: int = TIMEOUT_MS) -> tf.Tensor:
    """The root's tensor on every worker, bit for bit, of any numeric type."""
    tensor = tf.convert_to_tensor(tensor)
    if _elastic.current() is not None:
        return elastic_ops.broadcast(tensor, root)
    name = name or _tables.next_name("tensorflow.broadcast")
    if not 0 <= root < poseidon.size():
        raise InvalidError(f"broadcast {name}: root {root}, the job has ranks 0 to "
                           f"{poseidon.size() - 1}")
    size = math.prod(_static_shape(f"broadcast {name}", tensor)) * tensor.dtype.size
    if size == 0:
        return tf.identity(tensor)
    _tables.add(name, ((size + 1) // 2,), "float32", use="sum", reduce="sum", nan_policy="allow")
    return _native()[0].poseidon_broadcast(value=tensor, is_root=poseidon.rank() == root,
                                           table=name, timeout_ms=timeout_ms)
