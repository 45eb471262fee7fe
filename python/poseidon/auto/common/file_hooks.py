# SPDX-License-Identifier: Apache-2.0
"""Functions of Python that tell the private view (files.py) which files the script is about to use.

The kernel does the work: what is not seen here (native code, other programs) still writes into the view. These
functions only begin it, and take what worker 0 has made out of it before the script looks."""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import shutil
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .files import View

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_REPEATS = 100  # of rmtree, while worker 0 removes the same


def apply(view: View) -> None:
    """From now on the view knows."""
    _watch_opens(view)
    _watch_questions(view)
    _watch_changes(view)


def replace(name: str, wrap: Callable[[Callable], Callable]) -> None:
    """A function of os, which keeps what it can do with descriptors and links."""
    own = getattr(os, name)
    changed = functools.wraps(own)(wrap(own))
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if own in able:
            able.add(changed)
    setattr(os, name, changed)


def is_relative_to_descriptor(options: dict) -> bool:
    return any(options.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd"))


def _watch_opens(view: View) -> None:
    own = io.open

    @functools.wraps(own)
    def open_file(file, mode="r", *args, **kwargs):
        if not isinstance(file, int):
            if isinstance(mode, str) and not set(mode).isdisjoint("wax+"):
                view.before_write(file, True)
            else:
                view.before_read(file)
        return own(file, mode, *args, **kwargs)

    def wrap(own_open):
        def open_descriptor(path, flags, *args, **kwargs):
            if not is_relative_to_descriptor(kwargs):
                if flags & WRITE_FLAGS:
                    view.before_write(path, True)
                else:
                    view.before_read(path)
            return own_open(path, flags, *args, **kwargs)

        return open_descriptor

    builtins.open = io.open = open_file
    replace("open", wrap)


def _watch_questions(view: View) -> None:
    def question(own):
        def ask(path, *args, **kwargs):
            if not isinstance(path, int) and not is_relative_to_descriptor(kwargs):
                view.before_read(path, kwargs.get("follow_symlinks", True) and own.__name__ not in ("lstat", "readlink"))
            return own(path, *args, **kwargs)

        return ask

    def listing(own):
        def read(path=".", *args):
            if not isinstance(path, int):
                view.before_list("." if path is None else path)
            return own(path, *args)

        return read

    for name in ("stat", "lstat", "access", "readlink", "chdir"):
        replace(name, question)
    for name in ("listdir", "scandir"):
        replace(name, listing)


def _watch_changes(view: View) -> None:
    def change(own):
        def act(path, *args, **kwargs):
            if not isinstance(path, int) and not is_relative_to_descriptor(kwargs):
                view.before_write(path)
            return own(path, *args, **kwargs)

        return act

    def removal(own):
        def remove(path, *args, **kwargs):
            if is_relative_to_descriptor(kwargs):
                return own(path, *args, **kwargs)
            view.before_write(path)
            try:
                return own(path, *args, **kwargs)
            except FileNotFoundError:
                if not view.may_be_gone(path):
                    raise
                return None

        return remove

    def making(own):
        def make(source, target, *args, **kwargs):
            if not is_relative_to_descriptor(kwargs):
                view.before_write(target)
            return own(source, target, *args, **kwargs)

        return make

    for name in ("mkdir", "truncate", "chmod", "utime"):
        replace(name, change)
    for name in ("remove", "unlink", "rmdir"):
        replace(name, removal)
    for name in ("link", "symlink"):
        replace(name, making)
    for name in ("rename", "replace"):
        replace(name, functools.partial(_moving, view))
    shutil.rmtree = _rmtree(view)


def _moving(view: View, own: Callable) -> Callable:
    def move(source, target, **kwargs):
        if is_relative_to_descriptor(kwargs):
            return own(source, target, **kwargs)
        view.before_write(source)
        view.before_write(target)
        try:
            return own(source, target)
        except FileNotFoundError:
            if not (os.path.lexists(target) and view.may_be_gone(source)):
                raise
        except OSError as error:  # an overlay cannot move a directory that lies below it
            if error.errno != errno.EXDEV or not os.path.isdir(source) or not view.may_be_gone(target):
                raise
            shutil.copytree(source, target, symlinks=True)
            shutil.rmtree(source)
        return None

    return move


def _rmtree(view: View) -> Callable:
    own = shutil.rmtree

    @functools.wraps(own)
    def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
        for _ in range(_REPEATS):
            try:
                return own(path, *args, **kwargs)
            except FileNotFoundError:  # worker 0 removes the same
                if not view.may_be_gone(path):
                    raise
                if not os.path.lexists(path):
                    return None
        return own(path, *args, **kwargs)

    return rmtree
