# SPDX-License-Identifier: Apache-2.0
"""Functions and values on their way to another process of the same Python on the same machine, and
back, without pickle.

A function of a module goes by its name. One of a notebook or a script goes as its code, with what
it refers to: modules by their names, other functions like itself, and plain values. Plain values are None, numbers,
text, bytes, tuples, lists, sets, dictionaries of such, and NumPy arrays of numbers."""

from __future__ import annotations

import builtins
import dis
import importlib
import io
import marshal
import sys
import types
from typing import Any, Callable

import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_GROUPS: dict[str, Callable] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def pack(value: Any, what: str) -> bytes:
    """`what` names the value in messages."""
    return marshal.dumps(_Packer().put(value, what))


def unpack(packed: bytes) -> Any:
    """What pack() was given."""
    return _Unpacker().get(marshal.loads(packed))


def _find(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _place(value: Any) -> tuple[str, str] | None:
    """The module and the name under which another process finds this very function or class."""
    path = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    name = getattr(value, "__module__", None) or type(value).__module__  # ufuncs of NumPy
    module = sys.modules.get(name)
    if not isinstance(path, str) or name == "__main__" or module is None or \
            getattr(module, "__spec__", None) is None or _find(module, path) is not value:
        return None
    return name, path


def _names(code: types.CodeType) -> set[str]:
    """Every global name that a function looks up, also in functions inside it; not attributes."""
    names = {each.argval for each in dis.get_instructions(code)
             if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


class _Packer:
    def __init__(self) -> None:
        self._functions: dict[int, int] = {}  # by id: those under way or done, for recursion

    def put(self, value: Any, what: str) -> tuple:
        if type(value) in _PLAIN:
            return "plain", value
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value), isinstance(value, np.generic), what)
        if type(value).__name__ in _GROUPS and type(value) in _GROUPS.values():
            return type(value).__name__, [self.put(each, what) for each in value]
        if type(value) is dict:
            return "dict", [(self.put(key, what), self.put(each, what))
                            for key, each in value.items()]
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        place = _place(value)
        if place is not None:
            return "name", *place
        if isinstance(value, types.FunctionType):
            return self._function(value)
        raise TypeError(
            f"{what}: a {type(value).__module__}.{type(value).__qualname__} cannot be carried to "
            "another process: give numbers, text, bytes, lists, dictionaries or arrays of numbers, "
            "make it inside the function, or put the function into a module")

    @staticmethod
    def _array(array: np.ndarray, scalar: bool, what: str) -> tuple:
        if array.dtype.hasobject:
            raise TypeError(f"{what}: an array of objects cannot be carried to another process")
        stream = io.BytesIO()
        np.save(stream, array, allow_pickle=False)
        return ("scalar" if scalar else "array"), stream.getvalue()

    def _function(self, function: types.FunctionType) -> tuple:
        if id(function) in self._functions:
            return "again", self._functions[id(function)]
        number = self._functions[id(function)] = len(self._functions)
        cells = [self.put(cell.cell_contents, f"{function.__name__}: variable {name}")
                 for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())]
        uses = {name: self.put(function.__globals__[name], f"{function.__name__}: {name}")
                for name in sorted(_names(function.__code__) & set(function.__globals__))}
        defaults = self.put(function.__defaults__, f"{function.__name__}: defaults")
        keywords = self.put(function.__kwdefaults__, f"{function.__name__}: defaults")
        return "function", number, function.__code__, cells, uses, defaults, keywords


class _Unpacker:
    def __init__(self) -> None:
        self._functions: dict[int, types.FunctionType] = {}

    def get(self, packed: tuple) -> Any:
        kind, *rest = packed
        if kind == "plain":
            return rest[0]
        if kind in ("array", "scalar"):
            array = np.load(io.BytesIO(rest[0]), allow_pickle=False)
            return array[()] if kind == "scalar" else array
        if kind in _GROUPS:
            return _GROUPS[kind](self.get(each) for each in rest[0])
        if kind == "dict":
            return {self.get(key): self.get(each) for key, each in rest[0]}
        if kind == "module":
            return importlib.import_module(rest[0])
        if kind == "name":
            return _find(importlib.import_module(rest[0]), rest[1])
        if kind == "again":
            return self._functions[rest[0]]
        return self._function(*rest)

    def _function(self, number: int, code: types.CodeType, cells: list, uses: dict,
                  defaults: tuple, keywords: tuple) -> types.FunctionType:
        scope: dict[str, Any] = {"__builtins__": builtins, "__name__": "__poseidon_run__"}
        closure = tuple(types.CellType() for _ in cells)
        function = types.FunctionType(code, scope, code.co_name, None, closure)
        self._functions[number] = function
        for cell, packed in zip(closure, cells):
            cell.cell_contents = self.get(packed)
        for name, packed in uses.items():
            scope[name] = self.get(packed)
        function.__defaults__ = self.get(defaults)
        function.__kwdefaults__ = self.get(keywords)
        return function
