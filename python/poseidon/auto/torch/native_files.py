# SPDX-License-Identifier: Apache-2.0
"""Native code that takes paths, where a worker's own files are not at the places that the script names (layers.py)."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

import torch

from ..common import files


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def to_write(target: Any) -> Any:
    """What to give to native code that writes a file."""
    layers = files.layers()
    return target if layers is None or not _is_path(target) else layers.to_write(target)


def to_read(source: Any) -> Any:
    """The same for one that reads it."""
    layers = files.layers()
    return source if layers is None or not _is_path(source) else layers.to_read(source)


def apply() -> None:
    """For those that are known: torch.jit and safetensors. torch.save and torch.load ask themselves."""
    if files.layers() is None:
        return
    torch.jit.save = _second(torch.jit.save, to_write)
    for kind in (torch.jit.ScriptModule, torch.jit.RecursiveScriptModule):
        if "save" in vars(kind):
            kind.save = _second(kind.save, to_write)
    torch.jit.load = _first(torch.jit.load, to_read)
    try:
        import safetensors
    except ImportError:
        return
    safetensors.serialize_file = _second(safetensors.serialize_file, to_write, "filename")
    safetensors.safe_open = _first(safetensors.safe_open, to_read, "filename")


def _first(own: Callable, find: Callable, name: str = "f") -> Callable:
    @functools.wraps(own)
    def call(*args, **kwargs):
        if args:
            return own(find(args[0]), *args[1:], **kwargs)
        return own(**{**kwargs, name: find(kwargs[name])})

    return call


def _second(own: Callable, find: Callable, name: str = "f") -> Callable:
    @functools.wraps(own)
    def call(first, *args, **kwargs):
        if args:
            return own(first, find(args[0]), *args[1:], **kwargs)
        return own(first, **{**kwargs, name: find(kwargs[name])})

    return call
