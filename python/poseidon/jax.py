# SPDX-License-Identifier: Apache-2.0
"""Poseidon for JAX: pytrees that all workers average, and optax transformations that do so.

    import poseidon
    import poseidon.jax as psd

    poseidon.init()
    params = psd.broadcast(params)
    optimizer = psd.distributed(optax.adam(1e-3))
    gradients = jax.grad(loss)(params, batch)             # of this worker's batch
    updates, state = optimizer.update(gradients, state, params)

push_pull() works on values and inside jax.jit, where it is a callback in the order of the program. Small leaves of one
type share a table: a model of many small tensors costs a round trip, not one for each.
Checkpoint is the program's state in the checkpoints of psd_run (_jax_checkpoint.py). Embedding has its rows with the servers,
by id (_jax_rows.py)."""

from __future__ import annotations

import time
import weakref
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import io_callback

import poseidon

from ._ahead import prefetched  # noqa: F401  (a name of this module)
from ._errors import InvalidError
from ._jax_checkpoint import Checkpoint  # noqa: F401  (likewise)
from ._jax_rows import Embedding  # noqa: F401  (likewise)
from ._memory import dtype_name
from ._packs import plan as _plan_packs

TIMEOUT_MS = 1_800_000  # for the slowest worker to come to the same place
_PRIORITY_MAX = 255

# By context and name: the leaves of a tree, and how they travel. Tables are the context's: they would keep it.
_trees: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Pack(NamedTuple):
    """Leaves that travel as one table."""

    table: str  # its name
    numbers: list[int]  # of the leaves


def _open(leaves: list[Any], numbers: list[int], name: str, reduce: str) -> _Pack:
    """Early leaves overtake."""
    first, more = leaves[numbers[0]], len(numbers) - 1
    shape = tuple(first.shape) if more == 0 else (sum(leaves[number].size for number in numbers),)
    full = f"jax.{name}.{numbers[0]}" + (f" and {more} more" if more > 0 else "")
    poseidon.Table(full, shape, dtype_name(first.dtype), use="sum", reduce=reduce, nan_policy="allow",
                   priority=max(1, _PRIORITY_MAX - numbers[0]))
    return _Pack(full, numbers)


def _packs(leaves: list[Any], name: str, reduce: str) -> list[_Pack]:
    """Those of a tree, opened when they are first used."""
    known = _trees.setdefault(poseidon.context(), {})
    kinds = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]
    if name not in known:
        planned = _plan_packs((number, dtype_name(leaf.dtype), leaf.size * leaf.dtype.itemsize)
                              for number, leaf in enumerate(leaves))
        known[name] = kinds, [_open(leaves, numbers, name, reduce) for numbers in planned]
    before, packs = known[name]
    if len(before) != len(kinds):
        raise InvalidError(f"push_pull {name}: the tree has {len(kinds)} leaves now, and had {len(before)}: "
                           "give trees of another kind another name")
    for number, (was, now) in enumerate(zip(before, kinds)):
        if was != now:
            raise InvalidError(f"push_pull {name}: leaf {number} is {now} now, and was {was}: "
                               "give trees of another kind another name")
    return packs


_ended_ns = 0  # when the last exchange did, and JAX went on computing


def _joined(leaves: list[Any], numbers: list[int]) -> np.ndarray:
    """In memory of our own: JAX's may not change."""
    if len(numbers) == 1:
        return np.array(leaves[numbers[0]], order="C")
    return np.concatenate([np.asarray(leaves[number]).reshape(-1) for number in numbers])


def _exchange(leaves: list[Any], packs: list[_Pack]) -> list[np.ndarray]:
    """All of them at once. What JAX computed since the last time is one program: update, forward, backward."""
    global _ended_ns  # pylint: disable=global-statement
    tables = [poseidon.context()._tables[pack.table] for pack in packs]
    sent = [_joined(leaves, pack.numbers) for pack in packs]
    if _ended_ns and tables:
        poseidon.mark(tables[0].step, "compute", _ended_ns, time.monotonic_ns())
    futures = [table.push_pull(values, values, timeout_ms=TIMEOUT_MS) for table, values in zip(tables, sent)]
    for future in futures:
        future.wait()
    _ended_ns = time.monotonic_ns()
    outputs: list[Any] = [None] * len(leaves)
    for pack, values in zip(packs, sent):
        begin, flat = 0, values.reshape(-1)
        for number in pack.numbers:
            leaf = leaves[number]
            outputs[number] = flat[begin:begin + leaf.size].reshape(leaf.shape)
            begin += leaf.size
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
    packs = _packs(leaves, name or f"{_default_name(leaves, structure)}.{reduce}", reduce)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        made = _exchange(leaves, packs)
        return structure.unflatten([jax.numpy.asarray(value) for value in made])
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    made = io_callback(lambda *values: _exchange(list(values), packs), shapes, *leaves,
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
