# SPDX-License-Identifier: Apache-2.0
"""A view of files of its own for a worker where the kernel permits no mount namespace (files.py): in most containers.

Paths are mapped. What the worker writes goes to its scratch directory, at the same place below it, and is read from
there; what it removes is noted; everything else is read where it is. Functions of Python do it (layer_hooks.py), and
those of native code that are known by name; other native code, and programs that the script starts, use the files
themselves.

Thread: any thread of the script, as in files.py."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import Any, Callable

from . import files
from .places import Places

_LINKS_MAX = 40  # in one path, as the kernel has it


class Layers(files.View):
    """Of this worker, which is not worker 0. inherited: what a process of the script finds in its environment."""

    def __init__(self, script: bytes, places: Places, inherited: str = ""):
        super().__init__(script, places)
        since, _, top = inherited.partition(":")
        self._top = top or files.scratch(0)
        self._upper = os.path.join(self._top, "upper")
        self._gone: set[str] = set()  # places that the script has removed
        self._old: set[str] = set()  # directories that were there before this worker began
        if inherited:
            self._since, self.state, self._certain = float(since), "on", True
            with open(os.path.join(self._top, "gone"), "rb") as file:
                self._gone = {os.fsdecode(place) for place in file.read().split(b"\0")}
        else:
            os.mkdir(self._upper)
            with open(os.path.join(self._top, "gone"), "wb"):
                pass

    def begin(self) -> None:
        if self._is_wanted():
            self.state = "on"
            os.environ[files.MARK] = f"{self._since}:{self._top}"  # for processes of the script

    def owns(self, path: str) -> bool:
        """Whether it is where this worker's files are: an open file tells its name."""
        return os.path.abspath(path).startswith(self._upper + "/")

    def written(self) -> list[str]:
        return [name for _, _, names in os.walk(self._upper) for name in names]

    def _give_back(self) -> None:
        files.copy_missing(self._upper, "/")

    def _has_written(self) -> bool:
        return bool(os.listdir(self._upper))

    # ---- where a file is

    def to_read(self, path: Any, follow: bool = True) -> Any:
        """Where the script finds a file: path itself, or this worker's."""
        return self._mapped(path, follow, self._where)

    def to_write(self, path: Any, follow: bool = True, keep: bool = False, fresh: bool = False) -> Any:
        """Where the script writes it. keep: what is in it stays. fresh: there must be none."""
        def find(place: str) -> str:
            where = self._where(place)
            if fresh and os.path.lexists(where):
                return where
            self._make_above(place)
            if keep and where == place and os.path.lexists(place):
                self._copy_up(place)
            return self._upper + place

        return self._mapped(path, follow, find)

    def to_list(self, path: Any) -> tuple[str, list[str]] | None:
        """A directory that is this worker's in part: where it is, and what the script finds in it."""
        with self._looking() as free:
            place = self._place(path, True) if free and self.state == "on" else None
            if place is None or not os.path.isdir(self._where(place)):
                return None
            names = set()
            with contextlib.suppress(OSError):
                names.update(os.listdir(self._upper + place))
            if not self._is_hidden(place):
                with contextlib.suppress(OSError):
                    names.update(name for name in os.listdir(place) if not self._is_hidden(f"{place}/{name}"))
            return place, sorted(names)

    def logical(self, path: str) -> str:
        """The place of a file of this worker's, as the script knows it."""
        return path[len(self._upper):] or "/" if (path + "/").startswith(self._upper + "/") else path

    # ---- what the script removes and moves

    def remove(self, path: Any, own: Callable[[Any], Any]) -> bool:
        """own: removes what is in this worker's layer. False: the file is not the view's business."""
        with self._looking() as free:
            place = self._place(path, False) if free and self.state == "on" else None
            if place is None:
                return False
            where = self._where(place)
            if not os.path.lexists(where):
                if self._may_be_gone(place):
                    return True
                own(where)  # says that it is not there
            if where == self._upper + place:
                own(where)
            if not self._is_hidden(place):
                self._forget(place)
            return True

    def _may_be_gone(self, place: str) -> bool:
        """Whether worker 0 may have been faster. If it was never there, worker 0 says so."""
        if self._is_hidden(place):
            return False
        above = os.path.dirname(place)
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        return files.changed(above) >= self._since

    def remove_directory(self, path: Any, own: Callable[[Any], Any]) -> bool:
        """The same of an empty one."""
        found = self.to_list(path)
        if found is not None and found[1]:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        return self.remove(path, lambda where: shutil.rmtree(where) if os.path.isdir(where) else own(where))

    def move(self, source: Any, target: Any) -> bool:
        """False: neither is the view's business."""
        with self._looking() as free:
            on = free and self.state == "on"
            start, end = (self._place(path, False) if on else None for path in (source, target))
            if start is None and end is None:
                return False
            where = source if start is None else self._where(start)
            if not os.path.lexists(where):
                if start is not None and end is not None and os.path.lexists(self._where(end)):
                    return True  # worker 0 was faster, and moved the same
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source, None, target)
            into = target
            if end is not None:
                self._make_above(end)
                into = self._upper + end
            self._take(start, where, into, end)
            if start is not None and not self._is_hidden(start):
                self._forget(start)
            return True

    def _take(self, start: str | None, where: Any, into: Any, end: str | None) -> None:
        if os.path.isdir(where) and not os.path.islink(where):
            if start is not None:
                self._copy_up(start)
                where = self._upper + start
            if end is not None and os.path.isdir(into):
                os.rmdir(into)  # as the kernel: it has to be empty
            shutil.move(where, into)
        elif start is None or where == start:  # the file itself is worker 0's to move
            shutil.copy2(where, into, follow_symlinks=False)
        else:
            shutil.move(where, into, copy_function=lambda a, b: shutil.copy2(a, b, follow_symlinks=False))

    # ---- how places are found

    def _mapped(self, path: Any, follow: bool, find: Callable[[str], str]) -> Any:
        with self._looking() as free:
            place = self._place(path, follow) if free and self.state == "on" else None
            if place is None:
                return path
            found = find(place)
            return path if found == place else os.fsencode(found) if isinstance(path, bytes) else found

    def _place(self, path: Any, follow: bool) -> str | None:
        """Where it is for the script, without links. None: shared, or no path at all."""
        try:
            text = os.path.join(self.logical(os.getcwd()), os.fsdecode(path))
        except (TypeError, ValueError, OSError):
            return None
        if self._places.are_shared(text):  # most: those of Python, of caches
            return None
        place, todo, links = "", text.split("/"), 0
        while todo:
            name = todo.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                place = os.path.dirname(place).rstrip("/")
                continue
            place = f"{place}/{name}"
            where = self._where(place)
            if (todo or follow) and os.path.islink(where):
                links += 1
                if links > _LINKS_MAX:
                    return None  # the kernel says what it thinks of it
                target = os.readlink(where)
                place = "" if target.startswith("/") else os.path.dirname(place).rstrip("/")
                todo = target.split("/") + todo
        return place if place and self._places.root_for(place) is not None else None

    def _where(self, place: str) -> str:
        """Where the bytes are, or would be."""
        upper = self._upper + place
        return upper if os.path.lexists(upper) or self._is_hidden(place) else place

    def _is_hidden(self, place: str) -> bool:
        """What is there is not for this worker: it has removed it, or worker 0 has made it since."""
        above = place
        while above != "/":
            if above in self._gone:
                return True
            above = os.path.dirname(above)
        above, old = place, set()
        while above != "/" and above not in self._old:
            if self._is_new(above):
                return self._places.root_for(above) is not None
            if os.path.isdir(above):
                old.add(above)
            above = os.path.dirname(above)
        self._old |= old
        return False

    def _make_above(self, place: str) -> None:
        """The directory of a file, if there is one for the script."""
        above = os.path.dirname(place)
        if os.path.isdir(self._where(above)):
            os.makedirs(self._upper + above, exist_ok=True)

    def _copy_up(self, place: str) -> None:
        """A file or directory as the script finds it becomes this worker's."""
        upper = self._upper + place
        if os.path.isdir(place) and not os.path.islink(place):
            os.makedirs(upper, exist_ok=True)
            for name in os.listdir(place):
                below = f"{place}/{name}"
                if self._where(below) == below:
                    self._copy_up(below)
        elif not os.path.lexists(upper):
            shutil.copy2(place, upper, follow_symlinks=False)

    def _forget(self, place: str) -> None:
        self._gone.add(place)
        with open(os.path.join(self._top, "gone"), "ab") as file:
            file.write(os.fsencode(place) + b"\0")
