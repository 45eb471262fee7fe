# SPDX-License-Identifier: Apache-2.0
"""psd_run on hosts of tests/testbed: started on the launcher by an ordinary user, with real ssh."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

from helpers import HERE, MARK, bin_directory, library_path, wait_for

sys.path.insert(0, str(HERE.parent / "testbed"))
import hosts  # noqa: E402

CHECKOUT = pathlib.Path("/opt/poseidon")
PYTHON = "/usr/bin/python3"
SANITIZER = {name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")
             if name in os.environ}


def seen_inside(path):
    """A path of the checkout as the hosts see it; others are the same there."""
    path = pathlib.Path(path).resolve()
    return CHECKOUT / path.relative_to(hosts.CHECKOUT) if path.is_relative_to(hosts.CHECKOUT) else path


def worker(*arguments):
    """worker.py with the hosts' own Python."""
    return " ".join([PYTHON, str(seen_inside(HERE / "worker.py")), *map(str, arguments)])


class SshJob:
    """psd_run on the launcher's host. Output goes to files in the user's home there."""

    def __init__(self, bed, config, *arguments, name=None, environment=None, program="psd_run"):
        launcher = bed.launcher
        self.bed = bed
        self.name = name or f"job-{uuid.uuid4().hex[:8]}"
        self.directory = launcher.directory / "home" / self.name
        self.directory.mkdir()
        os.chown(self.directory, hosts.USER_ID, hosts.USER_ID)
        self.mark = uuid.uuid4().hex
        words = []
        if config is not None:
            config = {"username": hosts.USER, **config}
            config = {key: value for key, value in config.items() if value is not None}
            config["env"] = {"PYTHONPATH": str(seen_inside(HERE)),
                             "PSD_LIB": str(seen_inside(library_path())),
                             "PYTHONDONTWRITEBYTECODE": "1", MARK: self.mark,
                             **config.get("env", {})}
            (self.directory / "cluster.json").write_text(json.dumps(config, indent=4))
            words = ["-c", "cluster.json"]
        variables = {"HOME": f"/home/{hosts.USER}", "USER": hosts.USER, "PATH": "/usr/bin:/bin",
                     "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": f"/home/{hosts.USER}", **SANITIZER, **(environment or {})}
        path = seen_inside(bin_directory() / program)
        self.begin = time.monotonic()
        with open(self.directory / "stdout", "wb") as out, open(self.directory / "stderr",
                                                                "wb") as err:
            self.process = subprocess.Popen(
                launcher.inside("env", "-i", *(f"{k}={v}" for k, v in variables.items()), path,
                                *(words + list(arguments) if not arguments or
                                  arguments[0] not in VERBS else arguments),
                                directory=f"/home/{hosts.USER}/{self.name}"),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def pid(self):
        """Of psd_run itself."""
        return wait_for(lambda: hosts.first_child(self.process.pid), 30, "psd_run runs")

    def stdout(self):
        return (self.directory / "stdout").read_text(errors="replace")

    def stderr(self):
        return (self.directory / "stderr").read_text(errors="replace")

    def run_log(self):
        path = self.directory / "poseidon_run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self):
        (directory,) = (self.directory / "logs").iterdir()
        return directory

    def log(self, name):
        return (self.logs() / f"{name}.log").read_bytes()

    def wait(self, seconds=30.0):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"psd_run did not end:\n{self.stderr()}\n{self.run_log()}")
        self.seconds = time.monotonic() - self.begin
        return code if code >= 0 else 128 - code

    def kill(self):
        pid = hosts.first_child(self.process.pid)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(60)

    def wait_for_output(self, text, count=1, seconds=30.0):
        wait_for(lambda: self.stdout().count(text) >= count or self.process.poll() is not None,
                 seconds, f"{count} x {text!r}\n{self.stdout()[-2000:]}\n{self.stderr()}")
        assert self.stdout().count(text) >= count, self.stderr()

    def pid_of(self, name):
        """The pid of a process of the job, as it is called on its own host."""
        for line in reversed(self.run_log().splitlines()):
            words = line.split()
            if words[2:5] == ["PROCESS", name, "pid"]:
                return int(words[5])
        raise AssertionError(f"{name} was not started:\n{self.run_log()}")

    def expect_nothing_left(self, seconds=12.0):
        """On no host, within the time that was promised."""
        def left():
            return {host.name: host.processes() for host in self.bed.hosts if host.processes()}

        wait_for(lambda: not left(), seconds, f"left: {left()}")


VERBS = ("show", "logs", "stop", "list", "secret", "-h", "--version")
