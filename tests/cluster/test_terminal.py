# SPDX-License-Identifier: Apache-2.0
"""psd_run on a terminal: the line at the bottom, colours, and that neither spoils the output."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from helpers import BRISK, program, python_worker, wait_for, worker_environment

ROWS, COLUMNS = 24, 100


class Terminal:
    """A program on a terminal of its own; everything it printed, and what one would see."""

    def __init__(self, directory, *command):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.bytes = b""
        self.process = subprocess.Popen(
            [str(word) for word in command], cwd=directory, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, env={**os.environ, **worker_environment(), "TERM": "xterm"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        try:
            while part := os.read(self.master, 65536):
                self.bytes += part
        except OSError:
            pass  # the last one closed it

    def wait(self, seconds=30):
        code = self.process.wait(seconds)
        self.reader.join(seconds)
        os.close(self.master)
        return code

    def text(self):
        return self.bytes.decode(errors="replace")

    def screen(self):
        """The lines as they stay: what a carriage return and an erasure took away is gone."""
        lines = []
        for line in self.text().replace("\r\n", "\n").split("\n"):
            line = line.split("\r\x1b[K")[-1]
            lines.append(re.sub(r"\x1b\[[0-9;]*m", "", line))
        return lines


@pytest.fixture
def terminal(tmp_path):
    made = []

    def begin(*command):
        made.append(Terminal(tmp_path, *command))
        return made[-1]

    yield begin
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_status_line(terminal, tmp_path):
    """If this fails, people do not see how far their training is, or see an old rate."""
    gate = tmp_path / "gate"
    run = terminal(program("psd_run"), *BRISK, "--workers", 2, "--", *python_worker(
        "--steps", 10000, "--hold", f"9900:{gate}"))
    wait_for(lambda: re.search(r"\d+ s  workers 2/2  step \d+  [\d.]+ steps/s  loss [\d.e-]+",
                               run.text()), 60, "a status line")
    gate.touch()
    assert run.wait() == 0
    lines = run.screen()
    assert [line for line in lines if line == "[worker0] step 9999"]
    assert not [line for line in lines if "workers 2/2" in line], "the line is gone at the end"
    rates = [float(rate) for rate in re.findall(r"step \d+  ([\d.]+) steps/s", run.text())]
    assert rates and max(rates) > 0
    assert all(len(line) < COLUMNS for line in re.findall(r"\r\x1b\[K(\d+ s  workers [^\r\n]*)",
                                                          run.text()))


def test_interrupt_from_the_keyboard(terminal):
    """If this fails, Ctrl-C kills processes behind psd_run's back, or leaves the line standing."""
    run = terminal(program("psd_run"), "--workers", 2,
                   "sh -c 'trap \"echo saved; exit 0\" TERM; echo up; while :; do sleep 0.05; done'")
    wait_for(lambda: run.text().count("up") >= 2, 20, "both run")
    os.write(run.master, b"\x03")
    assert run.wait() == 128 + signal.SIGINT
    assert run.text().count("saved") == 2
    assert any("stopped by signal 2" in line for line in run.screen())


def test_suspension_is_refused(terminal):
    """If this fails, Ctrl-Z leaves a job without anybody who watches it."""
    run = terminal(program("psd_run"), "sh -c 'echo up; exec sleep 100'")
    wait_for(lambda: "up" in run.text(), 20, "it runs")
    os.write(run.master, b"\x1a")
    wait_for(lambda: "a job cannot be suspended" in run.text(), 10, "the refusal")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 143


def test_stuck_terminal_stops_no_interrupt(terminal):
    """If this fails, Ctrl-S and Ctrl-C in this order hang a job for ever."""
    run = terminal(program("psd_run"), "--workers", 2, "yes")
    wait_for(lambda: len(run.bytes) > 10000, 20, "it prints")
    os.write(run.master, b"\x13")  # Ctrl-S
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 1, 5, "the buffers fill")
    run.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not [line for line in os.popen(
        f"ps --no-headers -o pid --ppid {run.process.pid}").read().split()], 10, "all ended")
    os.write(run.master, b"\x11")
    assert run.wait() == 143
