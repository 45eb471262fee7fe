# SPDX-License-Identifier: Apache-2.0
"""The variables of a script, while it asks for its next batch: what of them has to be kept to go on from there.

A script that goes on from a checkpoint runs from its beginning, without computing. What does not depend on
what was computed is right then by itself. The rest is kept, if it is of a kind that can be put back: numbers, text, lists and
dictionaries of them, small arrays, attributes of the script's own objects, states of generators; and what a framework adds
(torch/variables.py, keras/variables.py). Large arrays have to be what they were. A variable of any other kind may hold what nobody can
put back, so it is named, and nothing is saved."""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import enum
import functools
import logging
import os
import pathlib
import random
import re
import sys
import threading
import types
import zlib
from typing import Any, Iterator

import numpy as np

from . import liveness

SMALL = 1 << 14  # bytes of an array that is kept as it is
_DEPTH, _ITEMS = 6, 10000
_PLAIN = (bool, int, float, str, bytes, type(None), np.generic)
# What does not change, or is right when the script has run as far as it had: iterators go as often as they went.
_RIGHT = (types.ModuleType, types.BuiltinFunctionType, functools.partial,
          pathlib.PurePath, re.Pattern, argparse.ArgumentParser, logging.Logger, logging.Handler,
          enum.Enum, range, slice, np.dtype, np.ufunc, types.GeneratorType, enumerate, zip, map, filter,
          type(iter([])), type(iter(())), type(iter(range(1))), type(iter({})), type(iter(set())), staticmethod, classmethod, property)
_LIBRARIES = ("tqdm", "itertools", "functools", "operator", "typing", "contextlib", "builtins", "zoneinfo", "datetime", "dataclasses",
              "abc")


class Unknown(Exception):
    """A variable that cannot be kept. Its text names it."""


def is_of_script(file: str) -> bool:
    """Whether code is the script's own, or of a module beside it."""
    return not (file.startswith("<") or "site-packages" in file or "dist-packages" in file or
                file.startswith((os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.dirname(__file__))))))


def frames(libraries: tuple[str, ...]) -> list[types.FrameType]:
    """Those of the script that lead to here, the innermost first. A library that loops for it is named."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        if is_of_script(file):
            found.append(frame)
        elif not found and not file.startswith("<") and not module.startswith(("_poseidon_auto", "poseidon", *libraries)):
            raise Unknown(f"its loop is that of {module.partition('.')[0]}, which has checkpoints of its own")
        frame = frame.f_back
    if not found:
        raise Unknown("its loop is nowhere in its own text")
    return found


class Variables:
    """Of a script, now: places by their names. They hold objects of the script, and are not kept for long."""

    libraries: tuple[str, ...] = ()  # of a framework: their objects are right by themselves

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}  # objects, by identity
        self.values: dict[str, Any] = {}  # as they are kept
        self._put: dict[str, Any] = {}  # how to put another value there
        self._all = frames((*_LIBRARIES, *self.libraries))
        for number, frame in enumerate(self._all):
            self._walk_frame(number, frame)
        for name, module in sorted(_modules_of_script(self._all)):
            self._walk_module(name, module)

    # ---- where they are

    def _walk_frame(self, number: int, frame: types.FrameType) -> None:
        if frame.f_code.co_name == "<module>":
            return  # its variables are those of the module
        values = frame.f_locals
        for name in sorted(_live(frame) & set(values)):
            self._walk(f"{name} (of {frame.f_code.co_name}{number})", values[name],
                       functools.partial(_put_into_frame, frame, name), 0)

    def _walk_module(self, label: str, module: types.ModuleType) -> None:
        needed = set()
        for frame in self._all:
            if frame.f_code.co_name == "<module>" and frame.f_globals is module.__dict__:
                needed |= _live(frame)
        for value in list(module.__dict__.values()):
            needed |= _names_read_by(value, module.__name__)
        for name in sorted(needed & set(module.__dict__)):
            if not name.startswith("__"):
                self._walk(f"{name} (of {label})", module.__dict__[name], functools.partial(module.__dict__.__setitem__, name), 0)

    # ---- what they are

    def _walk(self, name: str, value: Any, put: Any, depth: int) -> None:
        if len(self.values) > _ITEMS or depth > _DEPTH:
            raise Unknown(f"its variable {name} holds more than can be looked at")
        if isinstance(value, _PLAIN):
            self._keep(name, value, put)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = name
        for kinds, walk in self._walks():
            if isinstance(value, kinds):
                walk(name, value, put, depth)
                return
        self._walk_other(name, value, depth)

    def _walks(self) -> Iterator[tuple[Any, Any]]:
        yield from self._walks_of_framework()
        yield np.ndarray, self._walk_array
        yield (np.random.Generator, np.random.RandomState, random.Random), self._walk_generator
        yield types.FunctionType, self._walk_function
        yield types.MethodType, self._walk_method
        yield type, self._walk_class
        yield _RIGHT, lambda *_: None
        yield (list, collections.deque), self._walk_list
        yield dict, self._walk_dict
        yield (tuple, set, frozenset), self._walk_fixed

    def _walks_of_framework(self) -> Iterator[tuple[Any, Any]]:
        """Kinds of objects, and how they are kept."""
        yield from ()

    def _keep(self, name: str, value: Any, put: Any) -> None:
        self.values[name], self._put[name] = value, put

    def _walk_array(self, name: str, value: np.ndarray, put: Any, _depth: int) -> None:
        if value.dtype.hasobject:
            raise Unknown(f"its variable {name} is an array of objects")
        if value.nbytes <= SMALL and value.flags.writeable and value.dtype.kind in "fiub":
            self._keep(name, value.copy(), functools.partial(_put_array, value))
        else:
            self._keep(name, ("large", zlib.crc32(np.ascontiguousarray(value).view(np.uint8))), None)

    def _walk_generator(self, name: str, value: Any, _put: Any, _depth: int) -> None:
        if isinstance(value, random.Random):
            self._keep(name, value.getstate(), value.setstate)
        elif isinstance(value, np.random.RandomState):
            self._keep(name, value.get_state(legacy=False), value.set_state)
        else:
            self._keep(name, value.bit_generator.state, functools.partial(setattr, value.bit_generator, "state"))

    def _walk_function(self, name: str, value: Any, _put: Any, depth: int) -> None:
        if is_of_script(value.__code__.co_filename):
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                with contextlib.suppress(ValueError):  # it has nothing yet
                    self._walk(f"{variable} of {name}", cell.cell_contents, functools.partial(setattr, cell, "cell_contents"), depth + 1)

    def _walk_method(self, name: str, value: Any, _put: Any, depth: int) -> None:
        self._walk(f"{name}.__self__", value.__self__, None, depth)

    def _walk_class(self, name: str, value: type, _put: Any, depth: int) -> None:
        if is_of_script(getattr(sys.modules.get(value.__module__), "__file__", "<") or "<"):
            for attribute, held in list(vars(value).items()):
                if not attribute.startswith("__") and not isinstance(held, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                    self._walk(f"{name}.{attribute}", held, functools.partial(setattr, value, attribute), depth + 1)

    def _walk_list(self, name: str, value: Any, _put: Any, depth: int) -> None:
        if _is_plain(value):
            self._keep(name, list(value), functools.partial(_put_list, value))
            return
        for number, item in enumerate(value):
            self._walk(f"{name}[{number}]", item, functools.partial(value.__setitem__, number), depth + 1)
        self._keep(f"len({name})", len(value), None)

    def _walk_dict(self, name: str, value: dict, _put: Any, depth: int) -> None:
        if _is_plain(value):
            self._keep(name, dict(value), functools.partial(_put_dict, value))
            return
        for key, item in value.items():
            self._walk(f"{name}[{key!r}]", item, functools.partial(value.__setitem__, key), depth + 1)
        self._keep(f"len({name})", len(value), None)

    def _walk_fixed(self, name: str, value: Any, put: Any, depth: int) -> None:
        if _is_plain(value) and type(value) in (tuple, set, frozenset):
            self._keep(name, value, put)
            return
        for number, item in enumerate(value):
            self._walk(f"{name}[{number}]", item, None, depth + 1)

    def _walk_other(self, name: str, value: Any, depth: int) -> None:
        kind = type(value)
        if kind.__module__.startswith((*_LIBRARIES, *self.libraries)):
            return
        held = getattr(value, "__dict__", None)
        of_script = is_of_script(getattr(sys.modules.get(kind.__module__), "__file__", "<") or "<") or \
            isinstance(value, (argparse.Namespace, types.SimpleNamespace))
        if held is None or not of_script or isinstance(value, (threading.Thread, BaseException)):
            raise Unknown(f"its variable {name} is a {kind.__module__}.{kind.__qualname__}, which may hold what cannot be kept")
        for attribute, item in sorted(held.items()):
            self._walk(f"{name}.{attribute}", item, functools.partial(setattr, value, attribute), depth + 1)

    # ---- putting back

    def _arrays_are_same(self, _now: Any, _kept: Any) -> bool | None:
        """Of the framework's."""
        return None

    def put_back(self, kept: dict[str, Any]) -> None:
        """The values of another run of the script, which has come to the same place."""
        missing = sorted(set(kept) ^ set(self.values))
        if missing:
            raise Unknown(f"its variable {missing[0]} is there in one of the two runs only")
        for name, value in kept.items():
            if same(self.values[name], value, self._arrays_are_same):
                continue
            if self._put[name] is None:
                raise Unknown(f"its variable {name} is not what it was when the checkpoint was written, and is of a kind that "
                              "cannot be put back")
            self._put[name](value)


# ---- helpers

_known_live: dict[tuple[types.CodeType, int], set[str]] = {}


def _live(frame: types.FrameType) -> set[str]:
    key = frame.f_code, frame.f_lasti
    if key not in _known_live:
        _known_live[key] = liveness.live(frame)
    return _known_live[key]


def _names_read_by(value: Any, module: str) -> set[str]:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        return set().union(*(_names_read_by(each, module) for each in (value.fget, value.fset) if each))
    code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
    if isinstance(code, types.CodeType) and getattr(value, "__module__", None) == module:
        return liveness.read_by(code)
    if isinstance(value, type) and value.__module__ == module:
        return set().union(*(_names_read_by(each, module) for each in list(vars(value).values())))
    return set()


def _modules_of_script(found: list[types.FrameType]) -> list[tuple[str, types.ModuleType]]:
    names = {frame.f_globals.get("__name__") for frame in found}
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    return [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, types.ModuleType) and
            (name in names or name == "__main__" or (os.path.dirname(getattr(module, "__file__", None) or "<") == folder)) and
            is_of_script(getattr(module, "__file__", None) or "<") and not name.startswith(("_poseidon_auto", "sitecustomize", "__mp_main"))]


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if depth > 3 or type(value) not in (list, tuple, set, frozenset, dict, collections.deque, collections.defaultdict,
                                        collections.OrderedDict, collections.Counter):
        return False
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return len(value) <= _ITEMS and all(_is_plain(item, depth + 1) for item in items)


def same(now: Any, kept: Any, arrays_are_same: Any) -> bool:
    """Whether two values are. arrays_are_same: of a framework's arrays; None: they are none of these."""
    found = arrays_are_same(now, kept)
    if found is not None:
        return found
    if isinstance(now, np.ndarray) or isinstance(kept, np.ndarray):
        return type(now) is type(kept) and now.dtype == kept.dtype and np.array_equal(now, kept)
    if isinstance(now, dict) and isinstance(kept, dict):
        return list(now) == list(kept) and all(same(now[key], kept[key], arrays_are_same) for key in now)
    if isinstance(now, (list, tuple)) and type(now) is type(kept):
        return len(now) == len(kept) and all(same(one, other, arrays_are_same) for one, other in zip(now, kept))
    return type(now) is type(kept) and bool(now == kept)


def _put_into_frame(frame: types.FrameType, name: str, value: Any) -> None:
    values = frame.f_locals
    values[name] = value
    if sys.version_info < (3, 13):  # later f_locals writes through
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _put_array(now: np.ndarray, value: np.ndarray) -> None:
    if now.shape != value.shape:
        raise Unknown(f"an array of shape {now.shape} was one of {value.shape}")
    now[...] = value


def _put_list(now: Any, value: list) -> None:
    now.clear()
    now.extend(value)


def _put_dict(now: dict, value: dict) -> None:
    now.clear()
    now.update(value)
