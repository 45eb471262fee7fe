# SPDX-License-Identifier: Apache-2.0
"""A named tensor that the servers hold."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
from ctypes import byref, c_void_p, pointer, sizeof
from typing import TYPE_CHECKING, Any, Iterable, TypedDict

import numpy as np

from ._arguments import filled
from ._context import Context, context as default_context
from ._errors import InvalidError, MismatchError, StateError
from ._future import Future
from ._library import (DIMS_MAX, DTYPES, INITS, NAN_POLICIES, REDUCES, RULES, SCHEDULES,
                       TRANSFER_CHECKED, TRANSFER_VIEW, UNBOUNDED, USES, RuleArgs, TableArgs,
                       Transfer, check, library)
from ._memory import Lent, describe, dtype_name, lend_input, lend_output, numpy_dtype

if TYPE_CHECKING:
    from typing import Unpack  # Python 3.11


class RuleNumbers(TypedDict, total=False):
    """The numbers of a rule and of its schedule. A zero means the default that psd.h names."""

    learning_rate: float
    momentum: float
    beta1: float
    beta2: float
    epsilon: float
    l1: float
    l2: float
    ftrl_beta: float
    weight_decay: float
    clip_value: float
    warmup: int
    period: int
    decay: float
    floor: float


_VERBS = {(True, False): "push", (False, True): "pull", (True, True): "push_pull"}


def _one_of(table: str, field: str, known: dict[str, int], value: Any) -> int:
    if value not in known:
        raise InvalidError(f"table {table}: {field} is {value!r}, expected one of "
                           f"{', '.join(known)}")
    return known[value]


def _staleness(table: str, value: Any) -> int:
    if value is None or value in ("unbounded", math.inf):
        return UNBOUNDED
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f'table {table}: staleness is {value!r}, expected a number of steps, or "unbounded"') from None


def _check_names(kind: type, table: str, numbers: RuleNumbers) -> None:
    """What no argument of the constructor has the name of is taken for a number of the rule."""
    rule = list(RuleNumbers.__annotations__)
    own = [name for name, each in inspect.signature(kind).parameters.items() if each.kind is each.KEYWORD_ONLY]
    for name in sorted(set(numbers) - set(rule)):
        close = difflib.get_close_matches(name, own + rule, 1)
        advice = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(own)}, and of rules {', '.join(rule)}"
        raise TypeError(f"table {table}: unknown argument {name!r}: {advice}")


def _rule_args(kind: type, table: str, rule: str, schedule: str, numbers: RuleNumbers) -> RuleArgs:
    _check_names(kind, table, numbers)
    return filled(RuleArgs, f"table {table}", rule=_one_of(table, "rule", RULES, rule),
                  schedule=_one_of(table, "schedule", SCHEDULES, schedule), **numbers)


class Table:
    """Opens a table, or joins the one that another worker opened under this name: every worker
    opens the same tables with the same arguments (values and priority aside).

    name            1 to 255 bytes of UTF-8, unique in the job
    shape, dtype    of the tensor; float32 (default), float64, float16, bfloat16. Or give:
    values          what to begin with; rank 0's count, shape and type are taken from them
    use             "update": servers own the values and apply the rule. "sum": servers add the
                    gradients and return the result; the caller applies it
    reduce          "mean" or "sum" of the gradients of one step
    rule            sgd, add, momentum, nesterov, adagrad, rmsprop, adam, adamw, ftrl, and its
                    numbers: learning_rate, momentum, beta1, beta2, epsilon, l1, l2, ftrl_beta,
                    weight_decay, clip_value; schedule ("constant", "step", "cosine"), warmup,
                    period, decay, floor. A zero means the default that psd.h names
    staleness       0: all gradients of a step meet. N: workers may be N steps apart. None:
                    asynchronous
    backup_workers  a round closes without so many of the workers
    nan_policy      "reject", "skip", "allow": gradients with a NaN or an infinity
    init            "zero", "rank0" (what values imply), "constant", "uniform", "normal", with
                    init_value and seed
    priority        0..255; higher ones overtake: give the first layers more
    """

    def __init__(self, name: str, shape: int | Iterable[int] | None = None, dtype: Any = None,
                 values: Any = None, *, use: str = "update", reduce: str = "mean",
                 rule: str = "sgd", schedule: str = "constant",
                 staleness: int | float | str | None = 0, backup_workers: int = 0,
                 nan_policy: str = "reject", init: str | None = None, init_value: float = 0.0,
                 seed: int = 0, priority: int = 0, context: Context | None = None,
                 **rule_numbers: Unpack[RuleNumbers]):
        self.name = str(name)
        self.use = use
        self.context = context or default_context()
        self.context._check()
        self._set_type(shape, dtype, values)
        self._step = 0  # where the library keeps none: asynchronous and empty tables
        self._staleness = _staleness(self.name, staleness)
        self._bytes = math.prod(self.shape) * self._numpy.itemsize
        self._handle: int | None = None
        self._dropped = False
        self._view: np.ndarray | None = None
        init = init or ("zero" if values is None else "rank0")
        lent = self._initial_values(init, values)
        args = filled(
            TableArgs, f"table {self.name}", name=self.name.encode(), dtype=DTYPES[self.dtype],
            dims=len(self.shape) or 1, use=_one_of(self.name, "use", USES, use),
            reduce=_one_of(self.name, "reduce", REDUCES, reduce), staleness=self._staleness,
            backup_workers=backup_workers,
            nan_policy=_one_of(self.name, "nan_policy", NAN_POLICIES, nan_policy),
            init=_one_of(self.name, "init", INITS, init), init_value=init_value, seed=seed,
            values=lent.address if lent else None, priority=priority)
        args.rule = pointer(_rule_args(type(self), self.name, rule, schedule, rule_numbers))
        args.shape[: args.dims] = self.shape or (1,)
        self._open(args)
        self.context._tables[self.name] = self

    def _set_type(self, shape: int | Iterable[int] | None, dtype: Any, values: Any) -> None:
        """self.shape and self.dtype, from what was said or from the values."""
        if values is None:
            if shape is None:
                raise InvalidError(f"table {self.name}: give a shape, or values to begin with")
            found = dtype_name(dtype or "float32")
            sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        else:
            if isinstance(values, (int, float, list, tuple)):
                values = np.array(values, numpy_dtype(dtype_name(dtype or "float32")))
            found, sizes = describe(f"table {self.name}: values", values)
            if dtype is not None and dtype_name(dtype) != found:
                found = dtype_name(dtype)  # lend_input() tells both
            if shape is not None:
                sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        self.shape: tuple[int, ...] = tuple(operator.index(size) for size in sizes)
        self.dtype: str = found
        if len(self.shape) > DIMS_MAX or any(size < 0 for size in self.shape):
            raise InvalidError(f"table {self.name}: shape {self.shape}: expected at most "
                               f"{DIMS_MAX} dimensions, none negative")

    def _initial_values(self, init: str, values: Any) -> Lent | None:
        if values is None:
            return None
        if init != "rank0":
            raise InvalidError(f"table {self.name}: values with init {init!r}: give one of them")
        return lend_input(f"table {self.name}: values", values, self.dtype, self.shape)

    def _open(self, args: TableArgs) -> None:
        empty = self._bytes == 0
        if empty:
            # Servers hold no empty tables. One that nobody uses stands in, so that a rank which
            # has elements under this name is told.
            args.use, args.dims, args.staleness, args.backup_workers = USES["sum"], DIMS_MAX, 0, 0
            args.shape[:] = (1,) * DIMS_MAX
            args.rule, args.init, args.init_value = None, INITS["zero"], 0.0
        handle = c_void_p()
        try:
            self.context._calls.make(library().psd_table_open, self.context._check(), byref(args),
                                     byref(handle))
        except MismatchError as error:
            if not empty:
                raise
            raise MismatchError(f"{error}; here it has no elements: shape {self.shape}") from None
        self._handle = handle.value

    def __repr__(self) -> str:
        return f"<poseidon.Table {self.name}: {self.dtype}{list(self.shape)} {self.use}>"

    @property
    def _numpy(self) -> np.dtype:
        return numpy_dtype(self.dtype)

    def _check(self) -> int | None:
        self.context._check()
        if self._dropped:
            raise StateError(f"table {self.name}: it was dropped")
        return self._handle

    @property
    def step(self) -> int:
        """The step to push next: 0 in a new job, the saved one after load(), the one to repeat in a
        replacement, the one the others have come to after a DroppedError (of this table, or of
        another with as many backup workers)."""
        return self._next_step(self._check())

    def _next_step(self, handle: int | None) -> int:
        if self._bytes == 0 or self._staleness == UNBOUNDED:
            return self._step
        return library().psd_table_step(handle)

    @property
    def saved(self) -> bool:
        """Whether save() writes it."""
        return self.use == "update" and self._bytes > 0

    def _resume(self, step: int) -> None:
        self._step = step

    # ---- transfers

    def push(self, gradient: Any, step: int | None = None, priority: int | None = None, *,
             timeout_ms: int = 0) -> Future:
        """Gives a gradient. The future ends when the gradients of all workers are in."""
        lent = lend_input(f"push table {self.name}", gradient, self.dtype, self.shape)
        return self._start(lent, None, None, step, priority, timeout_ms)

    def pull(self, out: Any = None, step: int | None = None, priority: int | None = None, *,
             view: bool = False, timeout_ms: int = 0) -> Future:
        """Gets the values. The future's result is `out`, or a new array; with view=True it is
        view(), where the values are read in place."""
        return self._start(None, *self._target("pull", out, view), step, priority, timeout_ms)

    def push_pull(self, gradient: Any, out: Any = None, step: int | None = None,
                  priority: int | None = None, *, view: bool = False, timeout_ms: int = 0
                  ) -> Future:
        """Gives a gradient and gets the values of the next step, in one message each way."""
        lent = lend_input(f"push_pull table {self.name}", gradient, self.dtype, self.shape)
        return self._start(lent, *self._target("push_pull", out, view), step, priority, timeout_ms)

    def _target(self, verb: str, out: Any, view: bool) -> tuple[Lent | None, Any]:
        """Where values go, and what the caller gets."""
        if view:
            if out is not None:
                raise InvalidError(f"{verb} table {self.name}: give out or view=True, not both")
            return None, self.view()
        if out is None:
            out = np.empty(self.shape, self._numpy)
        return lend_output(f"{verb} table {self.name}", out, self.dtype, self.shape), out

    def _start(self, gradient: Lent | None, values: Lent | None, result: Any, step: int | None,
               priority: int | None, timeout_ms: int) -> Future:
        keep = (gradient, values, result)
        return self.transfer(gradient.address if gradient else None,
                             values.address if values else None, keep=keep, priority=priority,
                             view=result is not None and values is None, step=step,
                             timeout_ms=timeout_ms, result=result,
                             finish=values.finish if values else None)

    def transfer(self, gradient_address: int | None, values_address: int | None = None, *,
                 keep: tuple = (), priority: int | None = None, view: bool = False,
                 step: int | None = None, checked: bool = False, first: int = 0, count: int = 0,
                 timeout_ms: int = 0, result: Any = None, finish: Any = None, reap: bool = True) -> Future:
        """The raw call, for frameworks: contiguous memory by address, of the table's type and
        size (or of the range `first`, `count`: multiples of 65,536 elements). A gradient alone is
        a push, values (or view=True) alone a pull, both a push_pull.

        keep     objects that own the memory: held until the operation has ended
        checked  the gradient is known to be finite: it is not looked at
        result   what the future returns; finish: called without arguments when the values are there
        reap     false: the caller waits for it at once. Operations before it that ended, and whose futures nobody
                 has, are noticed by others, and the context's own thread is not woken to drive this one
        """
        handle = self._check()
        gives, takes = gradient_address is not None, values_address is not None or view
        if not (gives or takes):
            raise InvalidError(f"table {self.name}: neither a gradient nor a place for values")
        verb = _VERBS[gives, takes]
        if step is None:
            step = self._next_step(handle)
        if gives:
            self._step = step + 1
        what = f"{verb} table {self.name} step {step}"
        if self._bytes == 0:
            return Future(None, None, what, result=result)
        if reap and self.context._live:
            self.context._reap()
        flags = (TRANSFER_VIEW if view else 0) | (TRANSFER_CHECKED if checked else 0)
        transfer = Transfer(sizeof(Transfer), step, gradient_address, values_address, first, count,
                            priority or 0, timeout_ms, flags)
        op = c_void_p()
        check(getattr(library(), f"psd_{verb}")(handle, byref(transfer), byref(op)))
        future = Future(self.context, op.value, what, keep, result, finish)
        self.context._adopt(op.value, future)
        return future

    def view(self) -> np.ndarray:
        """Where pulls with view=True leave the values: one array, read-only, valid until the
        context is closed. On one machine these are the server's own values, so they may change as
        soon as this worker pushes the next step."""
        handle = self._check()
        if self._view is None:
            array = np.zeros(self.shape, self._numpy)
            if self._bytes != 0:
                address = c_void_p()
                check(library().psd_view(handle, byref(address)))
                array = self.context._mappings.array(address.value or 0, self.shape, self._numpy)
            array.flags.writeable = False
            self._view = array
        return self._view

    def view_changes(self) -> int:
        """How often pages of the view were replaced by others, by operations of this worker that have ended since. A device
        that was given the pages before reads the old ones."""
        handle = self._check()
        return library().psd_view_changes(handle) if self._bytes != 0 else 0

    def drop(self) -> None:
        """This process needs it no more. Servers keep it until the job is over."""
        self.context._check()
        self._dropped = True
        self.context._tables.pop(self.name, None)
