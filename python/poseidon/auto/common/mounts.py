# SPDX-License-Identifier: Apache-2.0
"""What the kernel does for a private view of files: a mount namespace of this process and its children, and
overlays in it. All of it ends with the last of these processes, however they end."""

from __future__ import annotations

import ctypes
import os

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # unshare(2)
_BIND, _RECURSIVE, _SLAVE, _DETACH = 0x1000, 0x4000, 0x80000, 2  # mount(2), umount2(2)
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace() -> None:
    """Before there is a second thread: others would stay outside. Who is not root becomes so for mounts alone,
    and stays who they are for everything else."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _call("unshare", _NEW_MOUNTS)
    else:
        _call("unshare", _NEW_MOUNTS | _NEW_USER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    # What is mounted outside later is seen here, too; not the other way round.
    _call("mount", None, b"/", None, _RECURSIVE | _SLAVE, None)


def overlay(root: str, lower: int, upper: int, work: int) -> None:
    """Puts an overlay over root. Directories are open descriptors, so that no character of a name has to be
    escaped."""
    options = ",".join(f"{name}dir=/proc/self/fd/{number}"
                       for name, number in (("lower", lower), ("upper", upper), ("work", work)))
    if os.geteuid() != 0:
        options += ",userxattr"
    _call("mount", b"overlay", os.fsencode(root), b"overlay", 0, options.encode())


def memory(place: str) -> None:
    """A file system in memory."""
    _call("mount", b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"mode=0700")


def bind(source: int, place: str) -> None:
    """What an open directory is, with all that is mounted below it, is seen at a place."""
    _call("mount", f"/proc/self/fd/{source}".encode(), os.fsencode(place), None, _BIND | _RECURSIVE, None)


def detach(place: str) -> None:
    """Takes the uppermost mount away from new users."""
    _call("umount2", os.fsencode(place), _DETACH)


def below(root: str) -> list[str]:
    """Places below a directory where something is mounted, the upper ones first."""
    found = set()
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            place = os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))
            if place.startswith(root.rstrip("/") + "/"):
                found.add(place)
    return sorted(found, key=len)


def birth(path: str) -> float | None:
    """When a file was made, where the file system knows."""
    buffer = ctypes.create_string_buffer(256)
    _call("statx", _AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, buffer)
    if not int.from_bytes(buffer[0:4], "little") & _STATX_BTIME:
        return None
    seconds, nanoseconds = int.from_bytes(buffer[80:88], "little"), int.from_bytes(buffer[88:92], "little")
    return seconds + nanoseconds * 1e-9


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")
