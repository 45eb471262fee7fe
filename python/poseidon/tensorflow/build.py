# SPDX-License-Identifier: Apache-2.0
"""Builds the operations (ops.c) for the TensorFlow that is installed here.

A C compiler and TensorFlow's own headers are all it takes; nothing is linked, the symbols are those of
the TensorFlow that loads the file. It happens when the first operation is used, once for each version
of TensorFlow and of the package: the file is kept in $XDG_CACHE_HOME/poseidon (~/.cache/poseidon).

Where workers have no compiler, build it elsewhere and name it in PSD_TF_OPS:

    python -m poseidon.tensorflow.build FILE
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

from .._errors import LibraryError
from .._library import NATIVE, PACKAGE, TREE

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("ops.c", "tables.c", "ready.c", "done.c")
HEADERS = ("tables.h", "ready.h", "done.h")
FLAGS = ("-std=c11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
COMPILERS = ("cc", "gcc", "clang")
BUILD_TIMEOUT_S = 300


def _compiler() -> list[str]:
    told = os.environ.get("CC")
    if told:
        return told.split()
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return [found]
    raise LibraryError(
        "poseidon.tensorflow: its operations have to be compiled once for this TensorFlow, and "
        f"there is no C compiler ({', '.join(COMPILERS)}, $CC): install one, or build the file on "
        "another machine with the same TensorFlow (python -m poseidon.tensorflow.build FILE) and "
        "set PSD_TF_OPS to it")


def _psd_headers() -> pathlib.Path:
    for folder in (NATIVE / "include", TREE / "include", PACKAGE.parents[3] / "include"):
        if (folder / "psd" / "psd.h").exists():
            return folder
    raise LibraryError(f"poseidon.tensorflow: psd/psd.h is neither in {NATIVE / 'include'} nor in "
                       f"{TREE / 'include'}: install the wheel, or build the tree (make)")


def _tensorflow_headers() -> str:
    import tensorflow as tf

    return tf.sysconfig.get_include()


def compile_to(target: pathlib.Path) -> None:
    """Leaves a complete file there, or nothing."""
    compiler = _compiler()
    target.parent.mkdir(0o700, parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(descriptor)
    command = [*compiler, *FLAGS, "-isystem", _tensorflow_headers(), f"-I{_psd_headers()}",
               *(str(HERE / name) for name in SOURCES), "-o", made, "-lpthread", "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S,
                              check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise LibraryError(f"poseidon.tensorflow: {' '.join(command)} failed:\n{done.stderr}")
        os.chmod(made, 0o755)
        os.rename(made, target)  # workers of one machine may build it at the same time
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryError(f"poseidon.tensorflow: {' '.join(command)}: {error}") from None
    finally:
        pathlib.Path(made).unlink(missing_ok=True)


def _identity() -> str:
    """Everything that the file depends on."""
    import tensorflow as tf

    digest = hashlib.sha256(f"{tf.__version__} {tf.version.COMPILER_VERSION} {FLAGS}".encode())
    for path in (*(HERE / name for name in SOURCES + HEADERS),
                 *sorted(_psd_headers().glob("psd/*.h"))):
        digest.update(path.read_bytes())
    return f"tensorflow-{tf.__version__}-{digest.hexdigest()[:16]}.so"


def _check_is_ours(path: pathlib.Path) -> None:
    """What is loaded runs with all our rights: a cache in /tmp may be somebody else's work."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        raise LibraryError(
            f"poseidon.tensorflow: {path} is a link, belongs to another user (it is user "
            f"{found.st_uid}'s, this is user {os.geteuid()}) or may be written by everybody (mode "
            f"{stat.S_IMODE(found.st_mode):04o}), so what it holds is not loaded: remove it, set "
            "XDG_CACHE_HOME to a directory of your own, or PSD_TF_OPS to a built file")


def library_file() -> pathlib.Path:
    """The compiled operations; built first where they are not there yet."""
    told = os.environ.get("PSD_TF_OPS")
    if told:
        return pathlib.Path(told)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    target = cache / "poseidon" / _identity()
    if os.path.lexists(target.parent):
        _check_is_ours(target.parent)
    if os.path.lexists(target):
        _check_is_ours(target)
    else:
        try:
            compile_to(target)
        except OSError as error:
            raise LibraryError(f"poseidon.tensorflow: {target.parent} cannot be written ({error}): "
                               "set XDG_CACHE_HOME, or PSD_TF_OPS to a built file") from None
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m poseidon.tensorflow.build FILE")
    compile_to(pathlib.Path(sys.argv[1]).absolute())
