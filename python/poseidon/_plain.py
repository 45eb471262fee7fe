# SPDX-License-Identifier: Apache-2.0
"""Whether a function of a notebook trains by itself: with a framework, and with nothing of Poseidon."""

from __future__ import annotations

import dis
import sys
import types
from typing import Any, Iterator

_FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "optax", "flax"}
# Modules that cannot call Poseidon on the function's behalf. Others might, so nothing is concluded then.
_NEUTRAL = {"numpy", "torchvision", "builtins"} | set(sys.stdlib_module_names)


def trains_by_itself(function: Any) -> str | None:
    """The framework that it uses, when every worker would train on all of the data and share nothing."""
    if not isinstance(function, types.FunctionType) or function.__module__ not in ("__main__", None):
        return None  # of a module: what that calls is not known
    used = set(_modules(function, set()))
    found = sorted(used & _FRAMEWORKS)
    return found[0] if found and used <= _FRAMEWORKS | _NEUTRAL else None


def _modules(function: types.FunctionType, seen: set[int]) -> Iterator[str]:
    """Top-level names of the modules that a function refers to, also by functions that go along with it."""
    seen.add(id(function))
    cells = {name: cell.cell_contents for name, cell
             in zip(function.__code__.co_freevars, function.__closure__ or ())}
    for code in _codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname == "IMPORT_NAME":
                yield each.argval.split(".")[0]
            elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
                value = cells.get(each.argval, function.__globals__.get(each.argval))
                if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
                    if id(value) not in seen:
                        yield from _modules(value, seen)
                elif isinstance(value, types.ModuleType):
                    yield value.__name__.split(".")[0]
                elif callable(value):
                    yield (getattr(value, "__module__", None) or type(value).__module__).split(".")[0]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
