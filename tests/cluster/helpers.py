# SPDX-License-Identifier: Apache-2.0
"""What tests of real processes share: where the programs are, waiting for a condition, finding
processes by a mark in their environment."""

import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

import pytest

MARK = "PSD_TEST_MARK"
HERE = pathlib.Path(__file__).resolve().parent
MNIST_DEFAULT = HERE.parents[1] / "data" / "mnist"
MNIST_DATA = pathlib.Path(os.environ.get("MNIST_DATA", MNIST_DEFAULT))

# Programs built with a sanitizer are slower and larger; their bounds are wider.
SANITIZED = bool(os.environ.get("PSD_SANITIZED"))

# A silent process is dead after 8 x 200 ms, a cut connection after 100 ms. Less than that is no silence on a machine
# that has more to do: processes that share two cores with fifteen others wait for nearly a second now and then.
HEARTBEAT_MS = 400 if SANITIZED else 200
DEAD_MS = 8 * HEARTBEAT_MS
SERVER_WAIT_MS = DEAD_MS + 800  # a server that nobody can replace
BRISK = (f"--heartbeat_ms={HEARTBEAT_MS}", "--lost_grace_ms=100")

needs_mnist = pytest.mark.skipif(
    not (MNIST_DATA / "train-images-idx3-ubyte.gz").exists(), reason=f"no MNIST in {MNIST_DATA}"
)


def bin_directory():
    """The programs under test: $PSD_BIN, else bin/ of the checkout."""
    default = pathlib.Path(__file__).resolve().parents[2] / "bin"
    return pathlib.Path(os.environ.get("PSD_BIN", default))


def program(name):
    """A program as an absolute path: jobs run in directories of their own."""
    return str((bin_directory() / name).absolute())


def library_path():
    """libpsd.so: beside the real programs in a build, in ../lib* of them when installed.

    PSD_LIB overrides it: Python cannot load a library built with a sanitizer.
    """
    if os.environ.get("PSD_LIB"):
        return pathlib.Path(os.environ["PSD_LIB"])
    folder = (bin_directory() / "ps_server").resolve().parent
    found = [*folder.glob("libpsd.so"), *folder.parent.glob("lib*/**/libpsd.so")]
    return found[0] if found else folder / "libpsd.so"


def python_worker(*arguments):
    """The command line of worker.py."""
    return [sys.executable, str(HERE / "worker.py"), *map(str, arguments)]


def worker_environment():
    """What a Python worker needs to find psdlib and libpsd."""
    return {"PYTHONPATH": str(HERE), "PSD_LIB": str(library_path()),
            "PYTHONDONTWRITEBYTECODE": "1"}


# For processes that shall find no secret at all.
NO_SECRET = {"PSD_SECRET_FILE": "", "PSD_SECRET_FD": ""}
INSECURE = {**NO_SECRET, "PSD_INSECURE": "1"}


def make_secret(path):
    """A secret of its own, as a person makes one."""
    subprocess.run([program("psd_run"), "secret", str(path)], check=True)
    return path


# The kernel gives ports from here on to whoever connects, at any time.
PORTS_OF_THE_KERNEL = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
_reserved = []  # locked files: a port stays this process's until it ends


def free_port():
    """A port that nobody listens on, that no connection gets by chance, and that no other tests on this machine are given."""
    directory = pathlib.Path(tempfile.gettempdir(), f"poseidon-ports-{os.getuid()}")
    directory.mkdir(exist_ok=True)
    for port in random.SystemRandom().sample(range(PORTS_OF_THE_KERNEL // 2, PORTS_OF_THE_KERNEL), 1000):
        mine = open(directory / str(port), "w", encoding="ascii")
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            mine.close()
            continue
        _reserved.append(mine)
        return port
    raise AssertionError("of a thousand ports none is free")


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def saved_digests(directory):
    """SHA-256 of the newest parameters and optimizer state of a checkpoint directory."""
    manifests = pathlib.Path(directory).glob("manifest-*.json")
    newest = max(int(path.stem.split("-")[1]) for path in manifests)
    return [sha256(pathlib.Path(directory) / f"{part}-{newest}.safetensors")
            for part in ("params", "state")]


def descriptors(pid):
    """How many a process has open."""
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def resident_bytes(pid):
    """VmRSS of a process."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def wait_for(condition, seconds=30.0, what="condition"):
    """Polls until condition() is true and returns its value; fails when the deadline passes. what: for what it was waited; a
    function is asked in the end."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what() if callable(what) else what}: not within {seconds} s"
        time.sleep(0.01)


def digests(job):
    """Of all that two workers were given, in all steps; theirs may differ by what lies behind their gradients."""
    found = re.findall(r"values ([0-9a-f]{40})", job.stdout())
    assert len(found) == 2, job.stdout() + job.stderr()
    return sorted(found)


def result(job):
    (directory,) = (job.directory / "logs").iterdir()
    return json.loads((directory / "result.json").read_text())


def end_all(left):
    """Kills what a failed test leaves: things that have a process."""
    for one in left:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def marked_processes(mark):
    """The command lines of the live processes whose environment carries the mark, by pid."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue  # it ended while we looked, or is not ours to look at
    return found


class Job:
    """psd_run in a directory of its own. Output goes to files, so nobody blocks on a pipe."""

    def __init__(self, directory, *arguments, environment=None, prefix=(), bin_path=None):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.begin = time.monotonic()
        psd_run = pathlib.Path(bin_path or bin_directory()).absolute() / "psd_run"
        with open(self.directory / "stdout", "wb") as out, open(
            self.directory / "stderr", "wb"
        ) as err:
            self.process = subprocess.Popen(
                [*prefix, str(psd_run), *map(str, arguments)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **worker_environment(), **(environment or {}),
                     MARK: self.mark},
            )

    def stdout(self):
        return (self.directory / "stdout").read_text(errors="replace")

    def stderr(self):
        return (self.directory / "stderr").read_text(errors="replace")

    def run_log(self):
        path = self.directory / "poseidon_run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, name, out="logs", ending="log"):
        """The bytes of one process's log, or of another file beside it."""
        (directory,) = (self.directory / out).iterdir()
        return (directory / f"{name}.{ending}").read_bytes()

    def wait(self, seconds=60.0):
        """The exit code; afterwards nothing of the job may be left."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"psd_run did not end:\n{self.stderr()}\n{self.run_log()}")
        self.seconds = time.monotonic() - self.begin
        self.expect_nothing_left()
        return code

    def expect_nothing_left(self, seconds=20.0):
        wait_for(
            lambda: not marked_processes(self.mark),
            seconds,
            f"processes left: {marked_processes(self.mark)}",
        )

    def wait_for_output(self, text, count=1, seconds=60.0):
        wait_for(
            lambda: self.stdout().count(text) >= count or self.process.poll() is not None,
            seconds,
            lambda: f"{count} x {text!r}\n{self.stdout()}\n{self.stderr()}",
        )
        assert self.stdout().count(text) >= count, self.stderr()

    def pid_of(self, name):
        """The pid of a process of the job, from psd_run's log."""
        for line in reversed(self.run_log().splitlines()):
            words = line.split()
            if words[2:5] == ["PROCESS", name, "pid"]:
                return int(words[5])
        raise AssertionError(f"{name} was not started:\n{self.run_log()}")

    def master_address(self):
        """Where the master listens, once it does."""
        def find():
            for line in self.run_log().splitlines():
                if " READY master at " in line:
                    return line.split()[-1]
            assert self.process.poll() is None, self.stderr()
            return None

        return wait_for(find, 30, "the master is ready")

    def nodes(self):
        return nodes_at(self.master_address())

    def wait_for_step(self, rank, step, seconds=90.0):
        """Until the master knows that a worker has come to a step."""
        address = self.master_address()

        def reached():
            assert self.process.poll() is None, f"the job ended early:\n{self.stderr()}"
            return any(node["role"] == "worker" and node["rank"] == rank and (node["step"] or 0) >= step
                       for node in nodes_at(address))

        wait_for(reached, seconds, f"worker {rank} at step {step}")

    def agent_pid(self):
        """The child of psd_run."""
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if path.exists():
            return int(path.read_text().split()[0])
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == self.process.pid:
                    return int(entry.name)
        raise AssertionError("no agent")


def nodes_at(address, environment=None):
    """The table of a job as `psd_run show --json` prints it; [] when the master is gone."""
    result = subprocess.run([program("psd_run"), "show", "--master", address, "--json"],
                            capture_output=True, text=True, timeout=120, check=False,
                            env={**os.environ, **(environment or {})})
    return json.loads(result.stdout) if result.returncode == 0 else []


class Flood:
    """So many strangers at each of the ports, renewed as they are closed, until end()."""

    def __init__(self, count, ports):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "flooder.py"), str(count), *map(str, ports)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def end(self):
        """How often they knocked, and how often they said a whole greeting."""
        said, _ = self.process.communicate(timeout=120)
        knocks, greetings = re.findall(r"\d+", said)
        return int(knocks), int(greetings)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Process:
    """One program started by hand. Output, both streams, goes to a file."""

    def __init__(self, name, path, mark, command, environment):
        self.name = name
        self.path = path
        with open(path, "wb") as out:
            self.process = subprocess.Popen(
                [str(word) for word in command], cwd=path.parent, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **worker_environment(), **environment, MARK: mark},
            )
        self.pid = self.process.pid

    def output(self):
        return self.path.read_text(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=60.0):
        """The exit code as a shell tells it: 128 + signal for a killed process."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end:\n{self.output()}") from None
        return code if code >= 0 else 128 - code

    def wait_for_output(self, text, seconds=60.0, count=1):
        wait_for(lambda: self.output().count(text) >= count or self.process.poll() is not None, seconds,
                 lambda: f"{self.name}: {count} x {text!r}\n{self.output()}")
        assert self.output().count(text) >= count, f"{self.name} ended without {text!r}:\n{self.output()}"


class Hand:
    """The processes of a job, or of none, started one by one."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.mark = uuid.uuid4().hex
        self.processes = []
        self.port = free_port()
        self.environment = {}  # of every process, under what start() is given

    address = property(lambda self: f"tcp://127.0.0.1:{self.port}")

    def start(self, name, *command, environment=None):
        path = self.directory / f"{name}.out"
        self.processes.append(Process(name, path, self.mark, command,
                                      {**self.environment, **(environment or {})}))
        return self.processes[-1]

    def master(self, workers=1, servers=1, *arguments, name="master"):
        is_told = any(str(word).startswith("--heartbeat_ms") for word in arguments)
        slow = ["--heartbeat_ms=1000"] if SANITIZED and not is_told else []  # a turn of a daemon takes longer
        return self.start(name, program("ps_master"), "--workers", workers, "--servers", servers,
                          "--port", self.port, *slow, *arguments)

    def server(self, index=0, *arguments, name=None):
        return self.start(name or f"server{index}", program("ps_server"), "--index", index,
                          "--master_address", self.address, "--lanes=1", *arguments)

    def worker(self, rank, *arguments, name=None, environment=None):
        return self.start(name or f"worker{rank}", *python_worker(*arguments),
                          environment={"PSD_MASTER_ADDRESS": self.address, "PSD_RANK": str(rank),
                                       **(environment or {})})

    def expect_nothing_left(self, seconds=20.0):
        wait_for(lambda: not marked_processes(self.mark), seconds,
                 f"processes left: {marked_processes(self.mark)}")

    def kill_all(self):
        for process in self.processes:
            if process.process.poll() is None:
                process.signal(signal.SIGCONT)
                process.process.kill()
                process.process.wait()


def ip(*words, check=True):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check)


class Hosts:
    """Two namespaces and a cable between them."""

    def __init__(self):
        mark = f"{os.getpid() % 10000}"
        self.names = [f"psd{mark}a", f"psd{mark}b"]
        self.interfaces = [f"v{mark}a", f"v{mark}b"]
        self.addresses = ["10.213.7.1", "10.213.7.2"]
        ip("netns", "add", self.names[0])
        ip("netns", "add", self.names[1])
        ip("link", "add", self.interfaces[0], "netns", self.names[0], "type", "veth", "peer",
           "name", self.interfaces[1], "netns", self.names[1])
        for name, interface, address in zip(self.names, self.interfaces, self.addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def inside(self, host, *command):
        return ("ip", "netns", "exec", self.names[host], *map(str, command))

    def bytes(self, host):
        """What has come in and gone out through the host's end of the cable, in bytes."""
        table = subprocess.run(self.inside(host, "cat", "/proc/net/dev"), capture_output=True,
                               text=True, check=True).stdout
        (line,) = [line for line in table.splitlines() if f"{self.interfaces[host]}:" in line]
        fields = line.partition(":")[2].split()
        return int(fields[0]), int(fields[8])

    def drop(self, host, *selector):
        """The host loses what the cable brings and the selector names, such as ("dport", 4242), and says nothing to that."""
        name = self.names[host]
        if "from all lookup local" in ip("-n", name, "rule", "show", "pref", "0").stdout:
            ip("-n", name, "rule", "add", "pref", "10", "lookup", "local")  # else it comes before all others
            ip("-n", name, "rule", "del", "pref", "0")
        ip("-n", name, "rule", "add", "pref", "5", "iif", self.interfaces[host], "ipproto", "tcp", *map(str, selector),
           "blackhole")

    def remove(self):
        for name in self.names:
            ip("netns", "del", name, check=False)
