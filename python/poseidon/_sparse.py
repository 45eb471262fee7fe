# SPDX-License-Identifier: Apache-2.0
"""Rows by id that the servers hold: embeddings."""

from __future__ import annotations

from ctypes import byref, c_void_p, pointer, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments import filled, yes_or_no
from ._context import Context, context as default_context
from ._future import Future
from ._library import (DTYPES, FULLS, INITS, NAN_POLICIES, OK, REDUCES, UNBOUNDED, USES, Rows,
                       SparseArgs, check, library)
from ._memory import Lent, dtype_name, elements, lend_input, lend_output, numpy_dtype
from ._table import _one_of, _rule_args, _staleness

if TYPE_CHECKING:
    from typing import Unpack  # Python 3.11

    from ._table import RuleNumbers


def id_array(what: str, given: Any) -> np.ndarray:
    """Ids as the library reads them: 64 bits each, contiguous."""
    array, name = elements(what, given)
    if array.size == 0:
        return np.zeros(array.shape, np.uint64)
    if array.dtype.kind == "V":  # of DLPack
        array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} of type {name}: expected integers")
    wide = array.astype(np.int64 if array.dtype.kind == "i" else np.uint64, order="C", copy=False)
    return wide.view(np.uint64)


class SparseTable:
    """Opens a sparse table, or joins the one that another worker opened under this name: every
    worker opens it with the same arguments (priority aside). docs/sparse.md says what to choose.

    name            1 to 255 bytes of UTF-8, unique in the job
    width           numbers of a row, 1 to 4,096
    dtype           float32 (default), float16, bfloat16
    use             "update": servers hold the rows and apply the rule. "sum": they hold nothing.
                    push() brings the rows that all workers pushed in the step, added, for callers
                    that make their steps themselves; only reduce, nan_policy and priority are for it
    rule            and its numbers, reduce, staleness, backup_workers, nan_policy: as of Table. A
                    mean is divided by the workers of the step, not by those that had the row
    init            of rows: "zero", "constant", "uniform", "normal", with init_value and seed
    admit_after     a row is created when its id was pushed in so many steps, counted for about
                    admit_window steps; admit_share: with that probability, by a hash
    capacity_rows   never more rows, shared by the servers' lanes alike; full says what happens
                    then: "refuse", "oldest" (these go), "spill" (these go to the servers' disks, and
                    come back when they are wanted)
    idle_steps      rows that were not pushed for longer go, as do those with a norm below norm_min
    row_wise        adagrad: one number of state per row
    group_lasso     ftrl: rows whose norm stays below it become 0

    Ids are integers of 64 bits, in arrays of any shape; the rows of ids have one more dimension, of
    `width`. They may come in any order and several times.
    """

    def __init__(self, name: str, width: int, dtype: Any = "float32", *, use: str = "update",
                 reduce: str = "mean", rule: str = "sgd", schedule: str = "constant",
                 staleness: int | float | str | None = 0, backup_workers: int = 0,
                 nan_policy: str = "reject", init: str = "zero", init_value: float = 0.0,
                 seed: int = 0, admit_after: int = 0, admit_window: int = 0,
                 admit_share: float = 0.0, capacity_rows: int = 0, full: str = "refuse",
                 idle_steps: int = 0, norm_min: float = 0.0, sweep_every: int = 0,
                 row_wise: bool = False, group_lasso: float = 0.0, priority: int = 0,
                 context: Context | None = None, **rule_numbers: Unpack[RuleNumbers]):
        self.name = str(name)
        self.dtype = dtype_name(dtype)
        self.use = use
        self.saved = use == "update"  # that save() cannot write it yet, it says
        self.context = context or default_context()
        self._staleness = _staleness(self.name, staleness)
        self._step = 0  # where the library keeps none: asynchronous tables
        self._learnt: Any = None  # gradients that layers have left (_rows.py)
        args = filled(
            SparseArgs, f"sparse table {self.name}", name=self.name.encode(), dtype=DTYPES[self.dtype],
            width=width, use=_one_of(self.name, "use", USES, use),
            reduce=_one_of(self.name, "reduce", REDUCES, reduce),
            staleness=self._staleness, backup_workers=backup_workers,
            nan_policy=_one_of(self.name, "nan_policy", NAN_POLICIES, nan_policy),
            init=_one_of(self.name, "init", INITS, init), init_value=init_value, seed=seed,
            priority=priority, admit_after=admit_after, admit_window=admit_window,
            admit_share=admit_share, capacity_rows=capacity_rows,
            full=_one_of(self.name, "full", FULLS, full), idle_steps=idle_steps,
            norm_min=norm_min, sweep_every=sweep_every,
            row_wise=yes_or_no(f"sparse table {self.name}: row_wise", row_wise), group_lasso=group_lasso)
        if use == "update" or (rule, schedule) != ("sgd", "constant") or rule_numbers:
            args.rule = pointer(_rule_args(type(self), self.name, rule, schedule, rule_numbers))
        self.width = args.width
        handle = c_void_p()
        self.context._calls.make(library().psd_sparse_open, self.context._check(), byref(args),
                                 byref(handle))
        self._handle = handle.value
        self.context._tables[self.name] = self

    def __repr__(self) -> str:
        return f"<poseidon.SparseTable {self.name}: {self.dtype}[*, {self.width}]>"

    def _check(self) -> int | None:
        self.context._check()
        return self._handle

    @property
    def step(self) -> int:
        """The step to push next, as of Table."""
        return self._next_step(self._check())

    def _next_step(self, handle: int | None) -> int:
        return self._step if self._staleness == UNBOUNDED else library().psd_table_step(handle)

    def _resume(self, step: int) -> None:
        self._step = step

    # ---- transfers

    def lookup(self, ids: Any, out: Any = None, step: int | None = None,
               priority: int | None = None, *, timeout_ms: int = 0) -> Future:
        """Gets rows. The future's result is `out`, or a new array, of shape ids.shape + (width,).
        An id that has no row gets its initial value, and no row."""
        asked = self._ids("lookup", ids)
        return self._start("lookup", None, None, asked, self._target("lookup", asked, out), step,
                           priority, timeout_ms)

    def push(self, ids: Any, gradients: Any, step: int | None = None,
             priority: int | None = None, *, timeout_ms: int = 0) -> Future:
        """Gives gradients of rows, perhaps of none: every worker pushes in every step. They may be
        changed as soon as this returns. With use="sum" the future's result is what all workers gave:
        the ids, each once and rising, as an array of int64 (those of 2**63 and more are negative,
        and come last), and their rows, of shape (len(ids), width)."""
        pushed = self._ids("push", ids)
        return self._start("push", pushed, self._gradients("push", pushed, gradients), None, None,
                           step, priority, timeout_ms)

    def push_lookup(self, ids: Any, gradients: Any, lookup_ids: Any, out: Any = None,
                    step: int | None = None, priority: int | None = None, *,
                    timeout_ms: int = 0) -> Future:
        """Gives gradients, and gets rows as they are in the next step, in one message each way."""
        pushed, asked = self._ids("push", ids), self._ids("lookup", lookup_ids)
        return self._start("push_lookup", pushed, self._gradients("push", pushed, gradients), asked,
                           self._target("lookup", asked, out), step, priority, timeout_ms)

    def _ids(self, verb: str, given: Any) -> np.ndarray:
        return id_array(f"{verb} sparse table {self.name}: ids", given)

    def _gradients(self, verb: str, ids: np.ndarray, given: Any) -> Lent:
        return lend_input(f"{verb} sparse table {self.name}", given, self.dtype,
                          (*ids.shape, self.width))

    def _target(self, verb: str, ids: np.ndarray, out: Any) -> tuple[Lent, Any]:
        """Where values go, and what the caller gets."""
        shape = (*ids.shape, self.width)
        if out is None:
            out = np.empty(shape, numpy_dtype(self.dtype))
        return lend_output(f"{verb} sparse table {self.name}", out, self.dtype, shape), out

    def _start(self, verb: str, pushed: np.ndarray | None, gradients: Lent | None,
               asked: np.ndarray | None, target: tuple[Lent, Any] | None, step: int | None,
               priority: int | None, timeout_ms: int) -> Future:
        handle = self._check()
        values, result = target if target is not None else (None, None)
        if step is None:
            step = self._next_step(handle)
        if pushed is not None:
            self._step = step + 1
        if self.context._live:
            self.context._reap()
        rows = Rows(
            sizeof(Rows), step, pushed.size if pushed is not None else 0,
            pushed.ctypes.data if pushed is not None else None,
            gradients.address if gradients is not None else None,
            asked.size if asked is not None else 0, asked.ctypes.data if asked is not None else None,
            values.address if values is not None else None, priority or 0, timeout_ms)
        op = c_void_p()
        check(getattr(library(), f"psd_sparse_{verb}")(handle, byref(rows), byref(op)))
        what = f"{verb} sparse table {self.name} step {step}"
        if self.use == "sum":
            future: Future = SumFuture(self, op.value, what)
        else:
            future = Future(self.context, op.value, what, (values, result), result,
                            values.finish if values is not None else None)
        self.context._adopt(op.value, future)
        return future


class SumFuture(Future):
    """What comes is known when it is there."""

    def __init__(self, table: SparseTable, op: int | None, what: str):
        super().__init__(table.context, op, what)
        self._width, self._numpy = table.width, numpy_dtype(table.dtype)

    def _end(self, op: int | None, status: int) -> None:
        if status == OK:
            count = library().psd_sparse_sum_count(op)
            ids, rows = np.empty(count, np.int64), np.empty((count, self._width), self._numpy)
            check(library().psd_sparse_sum_read(op, ids.ctypes.data, rows.ctypes.data))
            self._result = ids, rows
        super()._end(op, status)
