# SPDX-License-Identifier: Apache-2.0
"""What tests of real processes share: where the programs are, waiting for a condition, finding
processes by a mark in their environment."""

import os
import pathlib
import signal
import subprocess
import time
import uuid

MARK = "PSD_TEST_MARK"


def bin_directory():
    """The programs under test: $PSD_BIN, else bin/ of the checkout."""
    default = pathlib.Path(__file__).resolve().parents[2] / "bin"
    return pathlib.Path(os.environ.get("PSD_BIN", default))


def wait_for(condition, seconds=10.0, what="condition"):
    """Polls until condition() is true and returns its value; fails when the deadline passes."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


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
        program = pathlib.Path(bin_path or bin_directory()) / "psd_run"
        with open(self.directory / "stdout", "wb") as out, open(
            self.directory / "stderr", "wb"
        ) as err:
            self.process = subprocess.Popen(
                [*prefix, str(program), *map(str, arguments)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {}), MARK: self.mark},
            )

    def stdout(self):
        return (self.directory / "stdout").read_text(errors="replace")

    def stderr(self):
        return (self.directory / "stderr").read_text(errors="replace")

    def run_log(self):
        path = self.directory / "poseidon_run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, name, out="logs"):
        """The bytes of one process's log."""
        (directory,) = (self.directory / out).iterdir()
        return (directory / f"{name}.log").read_bytes()

    def wait(self, seconds=20.0):
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

    def expect_nothing_left(self, seconds=5.0):
        wait_for(
            lambda: not marked_processes(self.mark),
            seconds,
            f"processes left: {marked_processes(self.mark)}",
        )

    def wait_for_output(self, text, count=1, seconds=20.0):
        wait_for(
            lambda: self.stdout().count(text) >= count or self.process.poll() is not None,
            seconds,
            f"{count} x {text!r}\n{self.stdout()}\n{self.stderr()}",
        )
        assert self.stdout().count(text) >= count, self.stderr()

    def pid_of(self, name):
        """The pid of a process of the job, from psd_run's log."""
        for line in reversed(self.run_log().splitlines()):
            words = line.split()
            if words[2:5] == ["PROCESS", name, "pid"]:
                return int(words[5])
        raise AssertionError(f"{name} was not started:\n{self.run_log()}")

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
