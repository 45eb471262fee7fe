# SPDX-License-Identifier: Apache-2.0
"""What a plain script does to files happens once: worker 0 works on the files themselves, every other worker on
a view of its own.

The view is an overlay in a mount namespace: what the worker, its native code and its processes write goes to a
scratch directory, and is read from there. So each worker finds what it has written, as one process would; nobody
waits for anybody. The kernel cannot hide one thing: what worker 0 makes shows through. What was made since this
worker began, and not by itself, is taken out of its view before the script asks for it (file_hooks.py).

View: *ready* (the namespace is there), *on* (overlays lie over places that the script writes to), *off* (files
are the script's own business, or the kernel refused). It is on from the beginning when the script has no word of
distributing itself, else when it has made an optimizer and did not.

Thread: any thread of the script; the lock is held while the view changes, and by who looks at it."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import threading
import time
from typing import Any, Iterator

from . import mounts, notes
from .places import Places, real_place

# Whoever has one of these in the script may distribute it: files are private from the first optimizer on.
_WORDS_OF_OTHERS = (b"import poseidon", b"from poseidon", b"horovod", b"torch.distributed", b"init_process_group", b"PSD_RANK", b"mpi4py")
_HIDE_S = 10.0  # for what worker 0 makes while it is taken out of the view
MARK = "PSD_AUTO_FILES"  # set in processes of the script, which are in the namespace already

_places: Places | None = None
_left = False
_shared: Any = None  # SharedWrites of this worker
view: View | None = None


class Overlay:
    """Over one directory."""

    def __init__(self, root: str, scratch: str):
        self.root = root
        self._real = os.open(root, os.O_PATH | os.O_DIRECTORY)
        self.lower = f"/proc/self/fd/{self._real}"
        self.upper = os.path.join(scratch, "upper")
        work = os.path.join(scratch, "work")
        for place in (self.upper, work):
            os.makedirs(place)
        os.chmod(self.upper, stat.S_IMODE(os.stat(root).st_mode))
        with _opened(self.upper) as upper, _opened(work) as workplace:
            mounts.overlay(root, self._real, upper, workplace)

    def close(self) -> None:
        """It is not mounted any more."""
        os.close(self._real)


class View:
    """Of this worker, which is not worker 0."""

    def __init__(self, script: bytes, places: Places):
        self._lock = threading.RLock()
        self._busy: set[int] = set()  # threads that look at files for the view itself
        self._since = _process_start()
        self._certain = _is_plain(script)
        self._trains = False
        self._overlays: dict[str, Overlay] = {}
        self._refused: set[str] = set()  # places that could not be made private
        self._home = os.getpid()
        self._places = places
        self.state = "ready"
        os.register_at_fork(after_in_child=self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._lock, self._busy = threading.RLock(), set()  # whoever held them is not here

    # ---- what the session says

    def be_certain(self) -> None:
        """The script trains, and does not distribute itself."""
        self._certain = self._trains = True
        self.begin()

    def begin(self) -> None:
        """Of the working directory, at once: native code writes, too."""
        with self._looking() as free:
            if free and self._is_wanted():
                self._overlay_for(self._places.here)

    def tell_what_goes(self) -> None:
        """A script that made no optimizer may have had work of another kind for each worker, and its files are
        missed."""
        if self._trains or self.state != "on" or os.getpid() != self._home or os.environ["PSD_RANK"] != "1":
            return
        names = self.written()
        if names:
            notes.tell(f"files: worker 0 wrote those of {notes.script_name()}, which trained nothing; what other "
                       f"workers wrote is gone ({len(names)} of worker 1, such as {min(names)}); --auto off keeps it")

    def written(self) -> list[str]:
        """Names of files that this worker has for itself."""
        return [name for overlay in self._overlays.values() for _, _, names in os.walk(overlay.upper) for name in names]

    def _has_written(self) -> bool:
        return bool(self._overlays)

    def leave(self, reason: str) -> None:
        """Files are the script's own business: what it has written so far goes where it belongs."""
        with self._lock:
            if self.state == "off":
                return
            self.state = "off"
            if not self._has_written() or os.getpid() != self._home:
                return
            notes.tell(f"files of {notes.script_name()} are not kept apart any more: {reason}")
            self._busy.add(threading.get_ident())
            try:
                self._give_back()
            finally:
                self._busy.discard(threading.get_ident())

    # ---- what the hooks say, before the script does something

    def before_read(self, path: Any, follow: bool = True) -> None:
        """The script asks for a file."""
        with self._looking() as free:
            if not free or not self._is_wanted():
                return
            try:
                found = os.stat(path, follow_symlinks=follow)
            except (OSError, ValueError):
                return
            if found.st_ctime >= self._since:
                self._show(real_place(path, follow))

    def before_list(self, path: Any) -> None:
        """The script reads a directory."""
        with self._looking() as free:
            if not free or not self._is_wanted():
                return
            place = real_place(path, True)
            if place is not None and changed(place) >= self._since:
                self._show(place)
                self._show_entries(place)

    def before_write(self, path: Any, follow: bool = False) -> None:
        """The script changes a file, or makes or removes one."""
        with self._looking() as free:
            if free and self._is_wanted():
                self._show(real_place(path, follow))

    def may_be_gone(self, path: Any) -> bool:
        """A file that the script wants to remove or to move is not there: whether worker 0 may have been faster.
        If it was never there, worker 0 says so."""
        with self._looking() as free:
            place = real_place(path, False) if free and self.state == "on" else None
            overlay = None if place is None else self._overlay_of(place)
            if overlay is None:
                return False
            above = os.path.dirname(place)
            while not os.path.isdir(lower := _joined(overlay.lower, overlay.root, above)):
                above = os.path.dirname(above)
            return changed(lower) >= self._since

    # ---- what is in the view

    @contextlib.contextmanager
    def _looking(self) -> Iterator[bool]:
        """False when it is the view itself that looks at files."""
        thread = threading.get_ident()
        if thread in self._busy or self.state == "off":
            yield False
            return
        with self._lock:
            self._busy.add(thread)
            try:
                yield True
            finally:
                self._busy.discard(thread)

    def _is_wanted(self) -> bool:
        return self.state == "on" or self._certain

    def _show(self, place: str | None) -> None:
        """Whatever is at a place now, the worker sees what it would without worker 0."""
        overlay = None if place is None else self._overlay_for(place)
        if overlay is None:
            return
        relative = ""
        for name in os.path.relpath(place, overlay.root).split("/"):
            relative = os.path.join(relative, name)
            if not self._is_from_another(overlay, relative):
                continue
            _remove(os.path.join(overlay.root, relative))
            return

    def _show_entries(self, place: str) -> None:
        overlay = self._overlay_of(place)
        if overlay is None:
            return
        relative = os.path.relpath(place, overlay.root)
        with contextlib.suppress(OSError):
            for name in os.listdir(os.path.join(overlay.lower, relative)):
                entry = os.path.normpath(os.path.join(relative, name))
                if self._is_from_another(overlay, entry):
                    _remove(os.path.join(overlay.root, entry))

    def _is_from_another(self, overlay: Overlay, relative: str) -> bool:
        """Whether it was made since this worker began, and not by this worker."""
        return self._is_new(os.path.join(overlay.lower, relative)) and \
            not os.path.lexists(os.path.join(overlay.upper, relative))

    def _is_new(self, path: str) -> bool:
        try:
            found = os.lstat(path)
            if found.st_ctime < self._since:
                return False
            born = mounts.birth(path)
            if born is not None:
                return born >= self._since
            if not stat.S_ISDIR(found.st_mode):
                return True  # or changed: nobody can tell
            return found.st_mtime >= self._since and \
                all(self._is_new(os.path.join(path, name)) for name in os.listdir(path))
        except OSError:
            return False

    # ---- overlays

    def _overlay_of(self, place: str | None) -> Overlay | None:
        while place is not None and place != "/":
            if place in self._overlays:
                return self._overlays[place]
            place = None if place in self._places.shared else os.path.dirname(place)
        return None

    def _overlay_for(self, place: str) -> Overlay | None:
        """The one that a place is in, which is made if it is not there yet. None: the place is shared."""
        found = self._overlay_of(place)
        if found is not None or os.getpid() != self._home:
            return found
        root = self._places.root_for(place)
        if root is None or root in self._refused:
            return None
        try:
            return self._cover(root)
        except OSError as error:
            self._refused.add(root)
            tell_refusal(f"no view of {root} of its own ({error})")
            return None

    def _cover(self, root: str) -> Overlay:
        """What is mounted below, and places that all workers share, stay as they are."""
        if os.geteuid() != 0 and os.stat(root).st_gid != os.getegid():
            raise OSError("its group is not the user's first one, and the kernel knows no other in a namespace of users")
        kept = set(mounts.below(root)) | {place for place in self._places.shared if place.startswith(root + "/")}
        with contextlib.ExitStack() as open_places:
            sources = [(place, open_places.enter_context(_opened(place))) for place in sorted(kept, key=len)
                       if os.path.isdir(place)]
            overlay = self._overlay_somewhere(root)
            for place, source in sources:
                mounts.bind(source, place)
        self._overlays[root] = overlay
        self.state = "on"
        with contextlib.suppress(OSError):
            os.chdir(os.getcwd())  # out of what is covered now
        return overlay

    def _overlay_somewhere(self, root: str) -> Overlay:
        """Not every file system can take what an overlay writes; memory can."""
        base = scratch(len(self._overlays) + len(self._refused))
        try:
            return Overlay(root, base)
        except OSError:
            place = os.path.join(base, "memory")
            os.makedirs(place)
            mounts.memory(place)
            return Overlay(root, place)

    def _give_back(self) -> None:
        overlays, self._overlays = self._overlays, {}
        for overlay in reversed(overlays.values()):
            here = os.getcwd()
            copy_missing(overlay.upper, overlay.lower)
            mounts.detach(overlay.root)
            overlay.close()
            with contextlib.suppress(OSError):
                os.chdir(here)


# ---- how it begins and ends

def begin(script: bytes) -> None:
    """A script that has to do with PyTorch begins, or PyTorch is there. Worker 0, and processes that a script
    starts, need nothing but to know which files are private."""
    global _places  # pylint: disable=global-statement
    if _places is not None:
        return
    _places = Places()
    inherited = os.environ.get(MARK, "")
    if ":" in inherited:
        _begin_layers(script, inherited)
    if os.environ["PSD_RANK"] != "0" and not inherited:
        os.environ[MARK] = "on"
        _begin_view(script)
    if not inherited:
        _begin_shared(script)


def _is_plain(script: bytes) -> bool:
    return not any(word in script for word in _WORDS_OF_OTHERS)


def _begin_view(script: bytes) -> None:
    global view  # pylint: disable=global-statement
    try:
        mounts.enter_namespace()
    except OSError as error:
        _begin_without_kernel(script, error)
        return
    from . import file_hooks

    view = View(script, _places)
    file_hooks.apply(view)
    atexit.register(view.tell_what_goes)
    view.begin()


def _begin_shared(script: bytes) -> None:
    global _shared  # pylint: disable=global-statement
    from .shared_writes import SharedWrites

    _shared = SharedWrites(_places, _is_plain(script), _process_start())
    _shared.apply()


def _begin_without_kernel(script: bytes, why: OSError) -> None:
    """As in most containers."""
    try:
        _begin_layers(script, "")
    except OSError as error:
        tell_refusal(f"no private view of files ({why}; {error})")
        return
    atexit.register(view.tell_what_goes)
    view.begin()
    if os.environ.get("PSD_RANK") == "1":
        notes.tell(f"files: this machine permits no private view of them ({why.strerror}), so functions of Python keep them "
                   "apart: programs that the script starts, and native code but torch's and safetensors', write on "
                   "every worker; docs/automatic.md, Files, says what to do")


def _begin_layers(script: bytes, inherited: str) -> None:
    global view  # pylint: disable=global-statement
    from . import layer_hooks
    from .layers import Layers

    view = Layers(script, _places, inherited)
    layer_hooks.apply(view)


def layers() -> Any:
    """The view of this worker, where it is one that maps paths; else None."""
    return view if view is not None and hasattr(view, "to_read") and view.state == "on" else None


def leave(reason: str) -> None:
    """Files are the script's own business."""
    global _left  # pylint: disable=global-statement
    _left = True
    if _shared is not None:
        _shared.rest()
    if view is not None:
        view.leave(reason)


def be_certain() -> None:
    """The script is a plain one, and trains."""
    if view is not None:
        view.be_certain()
    if _shared is not None and not _left:
        _shared.be_certain()


def can_be_private() -> bool:
    """Whether this worker does its part for files that are written once. All workers must."""
    return not _left and _places is not None and (os.environ["PSD_RANK"] == "0" or
                                                  view is not None and view.state == "on")


def is_private(path: str | os.PathLike) -> bool:
    """Whether every worker has a file for itself, if all of them can."""
    if _left or _places is None:
        return False
    mine = layers()
    return _places.are_private(path) or mine is not None and mine.owns(os.fspath(path))


def tell_refusal(reason: str) -> None:
    """Once for all workers: they are alike in this, mostly."""
    if os.environ.get("PSD_RANK") == "1":
        notes.tell(f"files: {reason}: torch.save writes on worker 0 alone, every other file is written by every "
                   "worker; docs/automatic.md, Files, says what to do")


# ---- helpers

def _joined(base: str, root: str, place: str) -> str:
    return os.path.join(base, os.path.relpath(place, root))


def scratch(number: int) -> str:
    """psd_run removes it when the job is over."""
    base = os.environ.get("PSD_SCRATCH")
    if base is None:
        raise OSError("psd_run could make no scratch directory")
    place = os.path.join(base, f"worker{os.environ['PSD_RANK']}.{os.getpid()}.{number}")
    os.mkdir(place, 0o700)
    return place


def changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> None:
    """From the view. Worker 0 may make more below it meanwhile."""
    deadline = time.monotonic() + _HIDE_S
    while os.path.lexists(path) and time.monotonic() < deadline:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
        except OSError:
            time.sleep(0.001)


def copy_missing(upper: str, lower: str) -> None:
    """What another worker has written already stays; so does what this one has removed."""
    for entry in os.scandir(upper):
        target = os.path.join(lower, entry.name)
        if entry.is_dir(follow_symlinks=False):
            os.makedirs(target, exist_ok=True)
            copy_missing(entry.path, target)
        elif (entry.is_symlink() or entry.is_file()) and not os.path.lexists(target):
            shutil.copy2(entry.path, target, follow_symlinks=False)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    number = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield number
    finally:
        os.close(number)


def _process_start() -> float:
    """When this process began, in seconds since 1970, a hundredth early at most."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age - 0.01
