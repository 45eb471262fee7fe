# SPDX-License-Identifier: Apache-2.0
"""Poseidon for JAX: pytrees that all workers average, and optax transformations that do so.

    import poseidon
    import poseidon.jax as psd

    poseidon.init()
    params = psd.broadcast(params)
    optimizer = psd.distributed(optax.adam(1e-3))
    gradients = jax.grad(loss)(params, batch)             # of this worker's batch
    updates, state = optimizer.update(gradients, state, params)

push_pull() works on values and inside jax.jit, where it is a callback in the order of the program.
Checkpoint is the program's state in the checkpoints of psd_run (_jax_checkpoint.py)."""

from __future__ import annotations

import time
import zlib
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

import poseidon

from ._errors import InvalidError
from ._jax_checkpoint import Checkpoint  # noqa: F401  (a name of this module)
from ._memory import dtype_name

TIMEOUT_MS = 1_800_000  # for the slowest worker to come to the same place
_PRIORITY_MAX = 255


def _tables(leaves: list[Any], name: str, reduce: str) -> list[poseidon.Table]:
    """One for each leaf, opened when they are first used. Early leaves overtake."""
    context = poseidon.context()
    found = []
    for number, leaf in enumerate(leaves):
        full = f"jax.{name}.{number}"
        table = context._tables.get(full)
        if table is None:
            table = poseidon.Table(full, tuple(leaf.shape), dtype_name(leaf.dtype), use="sum",
                                   reduce=reduce, nan_policy="allow",
                                   priority=max(1, _PRIORITY_MAX - number))
        elif table.shape != tuple(leaf.shape) or table.dtype != dtype_name(leaf.dtype):
            raise InvalidError(f"push_pull {name}: leaf {number} is {leaf.dtype}"
                               f"{list(leaf.shape)} now, and was {table.dtype}{list(table.shape)}: "
                               "give trees of another kind another name")
        found.append(table)
    return found


_ended_ns = 0  # when the last exchange did, and JAX went on computing


def _exchange(leaves: list[Any], tables: list[poseidon.Table]) -> list[np.ndarray]:
    """All of them at once. What JAX computed since the last time is one program: update, forward, backward."""
    global _ended_ns  # pylint: disable=global-statement
    outputs = [np.array(leaf, order="C") for leaf in leaves]  # of our own: JAX's may not change
    if _ended_ns and tables:
        poseidon.mark(tables[0].step, "compute", _ended_ns, time.monotonic_ns())
    futures = [table.push_pull(output, output, timeout_ms=TIMEOUT_MS)
               for table, output in zip(tables, outputs)]
    for future in futures:
        future.wait()
    _ended_ns = time.monotonic_ns()
    return outputs


def _default_name(leaves: list[Any], structure: Any) -> str:
    """Trees of one kind share their tables: every worker exchanges them in the same order."""
    kind = f"{structure} {[(leaf.shape, str(leaf.dtype)) for leaf in leaves]}"
    return f"tree{zlib.crc32(kind.encode()):08x}"


def push_pull(tree: Any, name: str | None = None, *, reduce: str = "mean") -> Any:
    """The mean (or sum) of all workers' trees, leaf by leaf: float16, bfloat16, float32, float64.
    Every worker calls it with trees of the same kind, in the same order."""
    leaves, structure = jax.tree.flatten(tree)
    leaves = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf, np.float32) for leaf in leaves]
    tables = _tables(leaves, name or f"{_default_name(leaves, structure)}.{reduce}", reduce)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        made = _exchange(leaves, tables)
        return structure.unflatten([jax.numpy.asarray(value) for value in made])
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    made = io_callback(lambda *values: _exchange(list(values), tables), shapes, *leaves,
                       ordered=True)
    return structure.unflatten(made)


def broadcast(tree: Any, root: int = 0) -> Any:
    """The root's tree on every worker, bit for bit, of any numeric type."""
    leaves, structure = jax.tree.flatten(tree)
    sent = [poseidon.broadcast(np.array(leaf, order="C"), root, f"leaf {number}")
            for number, leaf in enumerate(leaves)]
    return structure.unflatten([jax.numpy.asarray(value) for value in sent])


def distributed(optimizer: Any, name: str | None = None) -> Any:
    """An optax transformation whose gradients are the means of all workers."""
    import optax

    inner = optax.with_extra_args_support(optimizer)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return inner.update(push_pull(gradients, name), state, params, **extra)

    return optax.GradientTransformationExtraArgs(inner.init, update)
