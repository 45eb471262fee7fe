#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts without the seconds that a framework takes to be imported.

A server process imports the framework once. A client, which psd_run or a test starts in place of Python, hands it all that
makes its process: arguments, environment, directory, open files. The server forks; the child takes these over and runs the
script, and the client ends as the child does. So the worker that psd_run sees is a process of its own, with real pipes and
sockets, and what it is told by signals reaches the script.

In the child the framework is hidden until the script imports it: the hook of psd_run, which waits for that import, acts when
it would have. Not the same as in a fresh process, so tests of these start one: the order of sets (PYTHONHASHSEED), options
of Python, what happens while a framework is imported, the pid that psd_run knows, processes that are left behind, the end
of the interpreter (class End).

    warm.python(FRAMEWORK)             the path to be used in place of sys.executable: a program that is the client
    warm.py serve FRAMEWORK SOCKET OWNER

All processes of one call of pytest share the servers, which end with it."""

import contextlib
import json
import os
import signal
import socket
import sys

MESSAGE_BYTES = 1 << 17
OWNER = "owner"
FILES = 64
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
CLIENT = """#!{python} -SE
import sys
sys.path.insert(0, {here!r})
import warm
warm.run({socket!r}, sys.argv[1:])
"""
IMPORT_S = 300  # on busy cores


def python(framework):
    """A program that runs scripts as Python does. The first call of all processes of pytest starts the server."""
    import fcntl

    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()  # this process, or the one of all workers
    directory = f"/tmp/psd_warm.{owner}.{framework}"  # paths of sockets are short
    client = os.path.join(directory, "python")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    assert os.stat(directory).st_uid == os.getuid(), f"{directory} is another user's"
    with open(os.path.join(directory, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = os.path.join(directory, "socket")
        if not _serves(path):
            with contextlib.suppress(FileNotFoundError):  # of a server that was killed, whose owner had this number, too
                os.unlink(path)
            _start_server(framework, path, owner)
            with open(client, "w", encoding="utf-8") as file:
                file.write(CLIENT.format(python=sys.executable, here=os.path.dirname(os.path.abspath(__file__)), socket=path))
            os.chmod(client, 0o755)
    return client


def _serves(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        return connection.connect_ex(path) == 0


def _start_server(framework, path, owner):
    import select
    import subprocess

    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PSD_", "PYTHON"))}
    server = subprocess.Popen([sys.executable, __file__, "serve", framework, path, str(owner)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, env={
                                  **clean, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
                                  "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                                  "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})
    assert select.select([server.stdout], [], [], IMPORT_S)[0], f"{framework} is not imported after {IMPORT_S} s"
    assert server.stdout.readline() == b"ready\n", f"no server for {framework}"
    server.stdout.close()


# ---- the client


def run(path, arguments):
    """Ends as the script does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    numbers = [number for number in range(256) if number != connection.fileno() and _is_open(number)]
    order = json.dumps({"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ),
                        "files": numbers}).encode()
    assert len(order) < MESSAGE_BYTES and len(numbers) < FILES, "too much to hand over"
    for number in FORWARDED:
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    socket.send_fds(connection, [order], numbers)
    answer = connection.recv(64)
    code = int(answer) if answer else 125  # the server has died
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False


# ---- the server


def serve(framework, path, owner):
    """Forks for every client. Returns in a child, which then has its script to run."""
    import gc
    import selectors

    FRAMEWORKS[framework]()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads after the import of {framework}: a fork would have one of them"
    gc.collect()
    gc.freeze()  # so that children do not write to what they share
    events = selectors.DefaultSelector()
    events.register(os.pidfd_open(int(owner)), selectors.EVENT_READ, OWNER)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    events.register(listener, selectors.EVENT_READ)
    print("ready")
    os.dup2(0, 1)  # who has read that listens no longer
    while True:
        for key, _ in events.select():
            if key.data is OWNER:
                _end(events, path)
            if key.fileobj is listener:
                order = _accept(events, listener)
                if order is not None:
                    return order
            elif isinstance(key.fileobj, socket.socket):
                _hear(events, key)
            else:
                _bury(events, key)


def _end(events, path):
    """Nobody is left who waits for a script."""
    import shutil

    for key in events.get_map().values():
        if isinstance(key.data, int):
            _kill(key.data)
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    os._exit(0)


def _accept(events, listener):
    """In the child: what it is to be."""
    import selectors

    connection, _ = listener.accept()
    message, files = b"", []
    with contextlib.suppress(ConnectionResetError):
        message, files, *_ = socket.recv_fds(connection, MESSAGE_BYTES, FILES)
    if not message:
        connection.close()
        return None
    child = os.fork()
    if child == 0:
        os.setsid()
        keys = [*events.get_map().values()]
        events.close()
        for key in keys:
            os.close(key.fd)
        connection.close()
        return {**json.loads(message), "received": files}
    for number in files:
        os.close(number)
    process = os.pidfd_open(child)
    events.register(process, selectors.EVENT_READ, (child, connection))
    events.register(connection, selectors.EVENT_READ, child)
    return None


def _hear(events, key):
    """A signal for the child, or the end of the client."""
    if key.fileobj.fileno() < 0:
        return  # the child was buried a moment ago
    numbers = b""
    with contextlib.suppress(ConnectionResetError):
        numbers = key.fileobj.recv(64)
    for number in numbers:
        os.kill(key.data, number)
    if not numbers:
        _kill(key.data)
        events.unregister(key.fileobj)


def _kill(child):
    """With its own children, unless it has just begun. It was not waited for, so its number is still its own."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)


def _bury(events, key):
    child, connection = key.data
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):  # the client was killed
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    with contextlib.suppress(KeyError):  # and that was heard
        events.unregister(connection)
    events.unregister(key.fileobj)
    os.close(key.fileobj)
    connection.close()


def _torch():
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, too
    torch.set_num_threads(1)


def _tensorflow():
    import tensorflow  # noqa: F401


def _lightning():
    _torch()
    import lightning  # noqa: F401


FRAMEWORKS = {"torch": _torch, "tensorflow": _tensorflow, "lightning": _lightning}


# ---- the child

# What the hook waits for, with what of that each of them imports.
WATCHED = {"torch": (), "tensorflow": ("keras",), "keras": (), "lightning.pytorch.trainer.trainer": (),
           "lightning": ("torch", "lightning.pytorch.trainer.trainer")}


class Hidden:
    """Finds modules that are here already when they are imported."""

    def __init__(self, names):
        self._modules = {name: sys.modules.pop(name) for name in names if name in sys.modules}

    def find_spec(self, name, path=None, target=None):
        """As a finder of sys.meta_path."""
        from importlib.machinery import ModuleSpec

        if name not in self._modules:
            return None
        module = self._modules[name]
        spec = ModuleSpec(name, Found(module), origin=module.__file__, is_package=hasattr(module, "__path__"))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations = list(module.__path__)
        return spec


class Found:
    """Loads a module that is loaded."""

    def __init__(self, module):
        self._module = module

    def create_module(self, spec):
        """As a loader."""
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module):
        """As a loader. The hook is to see what it imports, too."""
        from importlib import import_module

        module.__spec__, module.__loader__ = self._spec, self._spec.loader
        for name in WATCHED[module.__name__]:
            import_module(name)


def become(order):
    """The process that was asked for."""
    import numpy

    base = sys.path[1:]
    _take_files(order["files"], order["received"])
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["arguments"]
    sys.orig_argv[:] = [sys.executable, *order["arguments"]]
    numpy.random.seed()  # Python's own are new in every child
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    sys.meta_path.insert(0, Hidden(WATCHED))
    sys.path[:] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each] + base
    sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError:
        pass
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))


def _take_files(numbers, received):
    """Each under its number, which others may have now."""
    import fcntl

    received = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 256) for number in received]
    os.closerange(3, 256)
    for number, file in zip(numbers, received):
        os.dup2(file, number)
        os.close(file)


def start(script):
    """As Python runs a script."""
    main = type(sys)("__main__")
    main.__file__, main.__builtins__ = script, __builtins__
    sys.modules["__main__"] = main
    with open(script, encoding="utf-8") as file:
        text = file.read()
    exec(compile(text, script, "exec"), main.__dict__)


class End:
    """Ends the process as Python does: threads are waited for, functions of atexit called, the script's own objects gone, all
    text written. It does not take the framework apart, which takes longer than most scripts of the tests."""

    def __init__(self):
        import atexit

        self._code = None
        atexit.register(self._now)  # before the framework registers anything: what comes first is called last

    def of(self, function, *arguments):
        """Calls it, and keeps the exit code that the interpreter will end with."""
        try:
            function(*arguments)
            self._code = 0
        except SystemExit as exit:
            self._code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
            raise
        except Exception:
            self._code = 1
            raise

    def _now(self):
        import gc

        if self._code is None:
            return  # of a signal, say: the interpreter knows how
        sys.last_value = sys.last_traceback = None  # they have the script's objects, too
        sys.modules["__main__"].__dict__.clear()
        gc.collect()
        with contextlib.suppress(AttributeError):  # there may be no such file
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self._code & 0xff)


if __name__ == "__main__":
    end = End()
    become(serve(*sys.argv[2:]))
    end.of(start, sys.argv[0])
