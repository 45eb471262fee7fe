# SPDX-License-Identifier: Apache-2.0
"""Functions of Python that use the files which Layers (layers.py) has for this worker."""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
from typing import TYPE_CHECKING, Any, Callable

from .file_hooks import WRITE_FLAGS, is_relative_to_descriptor, replace

if TYPE_CHECKING:
    from .layers import Layers


def apply(layers: Layers) -> None:
    """From now on paths are mapped."""
    _map_opens(layers)
    _map_questions(layers)
    _map_listings(layers)
    _map_changes(layers)
    _map_removals(layers)


def _map_opens(layers: Layers) -> None:
    own = io.open

    @functools.wraps(own)
    def open_file(file, mode="r", *args, **kwargs):
        if not isinstance(file, int) and isinstance(mode, str):
            if set(mode).isdisjoint("wax+"):
                file = layers.to_read(file)
            else:
                file = layers.to_write(file, keep="w" not in mode, fresh="x" in mode)
        return own(file, mode, *args, **kwargs)

    def wrap(own_open):
        def open_descriptor(path, flags, *args, **kwargs):
            if not is_relative_to_descriptor(kwargs):
                path = layers.to_write(path, keep=not flags & os.O_TRUNC, fresh=bool(flags & os.O_EXCL)) \
                    if flags & WRITE_FLAGS else layers.to_read(path)
            return own_open(path, flags, *args, **kwargs)

        return open_descriptor

    builtins.open = io.open = open_file
    replace("open", wrap)


def _map_questions(layers: Layers) -> None:
    def question(own):
        def ask(path, *args, **kwargs):
            if not isinstance(path, int) and not is_relative_to_descriptor(kwargs):
                follow = kwargs.get("follow_symlinks", True) and own.__name__ not in ("lstat", "readlink")
                path = layers.to_read(path, follow)
            return own(path, *args, **kwargs)

        return ask

    for name in ("stat", "lstat", "access", "readlink", "chdir", "listxattr", "getxattr"):
        replace(name, question)
    own_place = os.getcwd
    os.getcwd = functools.wraps(own_place)(lambda: layers.logical(own_place()))


class Entry:
    """What os.scandir yields."""

    def __init__(self, place: str, name: str, shown: str):
        self.name, self.path = name, os.path.join(shown, name)
        self._place = os.path.join(place, name)

    def __fspath__(self) -> str:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self._place, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return os.lstat(self._place).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self._place) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self._place) and (follow_symlinks or not self.is_symlink())

    def is_symlink(self) -> bool:
        return os.path.islink(self._place)


class Entries:
    """What it returns."""

    def __init__(self, entries: list[Entry]):
        self._rest = iter(entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> Entry:
        return next(self._rest)

    def close(self) -> None:
        self._rest = iter(())


def _map_listings(layers: Layers) -> None:
    def names(own):
        def read(path="."):
            path = "." if path is None else path
            found = None if isinstance(path, int) else layers.to_list(path)
            if found is None:
                return own(path if isinstance(path, int) else layers.to_read(path))
            return [os.fsencode(name) for name in found[1]] if isinstance(path, bytes) else found[1]

        return read

    def entries(own):
        def read(path="."):
            path = "." if path is None else path
            found = None if isinstance(path, (int, bytes)) else layers.to_list(path)
            if found is None:
                return own(path if isinstance(path, int) else layers.to_read(path))
            return Entries([Entry(found[0], name, os.fspath(path)) for name in found[1]])

        return read

    replace("listdir", names)
    replace("scandir", entries)


def _map_changes(layers: Layers) -> None:
    def change(own):
        def act(path, *args, **kwargs):
            if not isinstance(path, int) and not is_relative_to_descriptor(kwargs):
                path = layers.to_write(path, kwargs.get("follow_symlinks", True), keep=True)
            return own(path, *args, **kwargs)

        return act

    def making(own):
        def make(path, *args, **kwargs):
            if not is_relative_to_descriptor(kwargs):
                path = layers.to_write(path, False, fresh=True)
            return own(path, *args, **kwargs)

        return make

    def linking(own):
        def link(source, target, *args, **kwargs):
            if not is_relative_to_descriptor(kwargs):
                target = layers.to_write(target, False, fresh=True)
                source = layers.to_read(source, False) if own.__name__ == "link" else source
            return own(source, target, *args, **kwargs)

        return link

    for name in ("truncate", "chmod", "utime", "setxattr"):
        replace(name, change)
    replace("mkdir", making)
    for name in ("link", "symlink"):
        replace(name, linking)


def _map_removals(layers: Layers) -> None:
    def removal(find: Callable) -> Callable:
        def wrap(own):
            def remove(path, *args, **kwargs):
                if is_relative_to_descriptor(kwargs) or not find(path, own):
                    own(path, *args, **kwargs)

            return remove

        return wrap

    def moving(own):
        def move(source, target, **kwargs):
            if is_relative_to_descriptor(kwargs) or not layers.move(source, target):
                own(source, target, **kwargs)

        return move

    own_rmtree = shutil.rmtree

    @functools.wraps(own_rmtree)
    def rmtree(path, *args, **kwargs):
        if not layers.remove(path, lambda where: own_rmtree(where, *args, **kwargs)):
            own_rmtree(path, *args, **kwargs)

    for name in ("remove", "unlink"):
        replace(name, removal(layers.remove))
    replace("rmdir", removal(layers.remove_directory))
    for name in ("rename", "replace"):
        replace(name, moving)
    shutil.rmtree = rmtree
