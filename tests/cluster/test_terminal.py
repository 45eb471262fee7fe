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

import pytest

from helpers import BRISK, end_all, program, python_worker, wait_for, worker_environment

ROWS, COLUMNS = 24, 100


class Terminal:
    """A program on a terminal of its own; everything it printed, and what one would see."""

    def __init__(self, directory, *command, columns=COLUMNS):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
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

    def begin(*command, **how):
        made.append(Terminal(tmp_path, *command, **how))
        return made[-1]

    yield begin
    end_all(made)


def test_status_line(terminal, tmp_path):
    """If this fails, people do not see how far their training is, or see an old rate."""
    first, second = tmp_path / "first", tmp_path / "second"
    run = terminal(program("psd_run"), *BRISK, "--workers", 2, "--", *python_worker(
        "--steps", 200, "--hold", f"10:{first}", "--hold", f"150:{second}"))
    wait_for(lambda: re.search(r"\d+ s  workers 2/2  step 9\b", run.text()), 60, "step 9")
    first.touch()  # between two answers of the master the job goes on by 140 steps, in whatever time
    shown = wait_for(lambda: re.search(
        r"\d+ s  workers 2/2  step 149  ([\d.]+) steps/s  loss [\d.e-]+", run.text()), 60, "a rate")
    assert float(shown.group(1)) > 0
    second.touch()
    assert run.wait() == 0
    lines = run.screen()
    assert [line for line in lines if line == "[worker0] step 199"]
    assert not [line for line in lines if "workers 2/2" in line], "the line is gone at the end"
    assert all(len(line) < COLUMNS for line in re.findall(r"\r\x1b\[K(\d+ s  workers [^\r\n]*)",
                                                          run.text()))


def test_tables_fit_the_window(terminal, tmp_path):
    """If this fails, the rows of `show` are broken into pieces in a window of 80 columns, or a pipe gets less than all."""
    gate, name = tmp_path / "gate", f"narrow-{os.getpid()}"
    run = terminal(program("psd_run"), *BRISK, "--workers", 2, "--name", name, "--", *python_worker(
        "--steps", 20, "--hold", f"10:{gate}"))
    wait_for(lambda: re.search(r"step 9\b", run.text()), 60, "step 9")
    for words in (["show", name], ["list"]):
        narrow = terminal(program("psd_run"), *words, columns=80)
        assert narrow.wait() == 0
        lines = narrow.screen()
        own = [line for line in lines if re.match(rf"{name}|PROCESS|JOB|server|worker|master|\(", line)]
        assert len(own) >= 3 and all(len(line) <= 80 for line in own), lines
        assert "--no_trunc" in "".join(lines), "what was left out is named"
        assert all(word in "".join(lines) for word in ("PID", "STATUS")), lines
        wide = subprocess.run([program("psd_run"), *words], cwd=tmp_path, env={**os.environ, **worker_environment()},
                              capture_output=True, text=True, check=True, timeout=120).stdout
        assert "COMMAND" in wide and "CREATED" in wide and "--no_trunc" not in wide
    gate.touch()
    assert run.wait() == 0


def test_interrupt_from_the_keyboard(terminal):
    """If this fails, Ctrl-C kills processes behind psd_run's back, or leaves the line standing."""
    run = terminal(program("psd_run"), "--workers", 2,
                   "sh -c 'trap \"echo saved; exit 0\" TERM; echo up; while :; do sleep 0.05; done'")
    wait_for(lambda: run.text().count("up") >= 2, 30, "both run")
    os.write(run.master, b"\x03")
    assert run.wait() == 128 + signal.SIGINT
    assert run.text().count("saved") == 2
    assert any("stopped by Ctrl-C" in line for line in run.screen())


def test_time_left_after_an_interrupt(terminal):
    """If this fails, nobody knows whether workers that ignore Ctrl-C will ever be ended."""
    run = terminal(program("psd_run"), "sh -c 'trap \"\" TERM INT; echo up; while :; do sleep 1; done'")
    wait_for(lambda: "up" in run.text(), 30, "it runs")
    os.write(run.master, b"\x03")
    wait_for(lambda: re.search(r"stopping, [1-5] s left", run.text()), 30, "the time that is left")
    os.write(run.master, b"\x03")
    assert run.wait() == 128 + signal.SIGINT


def test_nobody_is_waited_for_once_the_job_begins(terminal):
    """If this fails, the line under a job that runs says that a machine is waited for."""
    run = terminal(program("psd_run"), "--workers", 2, "sh -c 'echo up; exec sleep 0.2'")
    assert run.wait() == 0
    before, begins, after = run.text().partition("job begins")
    assert begins and "waiting for" not in after


def test_local_job_waits_for_no_ssh(terminal):
    """If this fails, a job of this machine alone seems to need ssh."""
    run = terminal(program("psd_run"), "--workers", 2, "true")
    assert run.wait() == 0
    assert "ssh" not in run.text()


def test_suspension_is_refused(terminal):
    """If this fails, Ctrl-Z leaves a job without anybody who watches it."""
    run = terminal(program("psd_run"), "sh -c 'echo up; exec sleep 100'")
    wait_for(lambda: "up" in run.text(), 30, "it runs")
    os.write(run.master, b"\x1a")
    wait_for(lambda: "a job cannot be suspended" in run.text(), 30, "the refusal")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 143


LINE = "y" * 99
FLOOD = 30000 * 100  # bytes: more than a console that takes nothing has room for


def test_stuck_terminal_stops_no_interrupt(terminal, tmp_path):
    """If this fails, Ctrl-S and Ctrl-C in this order hang a job for ever."""
    run = terminal(program("psd_run"), "--workers", 2,
                   f"sh -c 'echo up; cat; yes {LINE} | head -c {FLOOD}; exec sleep 1000'")
    wait_for(lambda: run.text().count("up") >= 2, 30, "it prints")
    os.write(run.master, b"\x13")  # Ctrl-S
    wait_for(lambda: [path.stat().st_size for path in tmp_path.glob("logs/*/worker?.log")] ==
             [FLOOD + 3] * 2, 60, "all of it in the logs")
    run.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not [line for line in os.popen(
        f"ps --no-headers -o pid --ppid {run.process.pid}").read().split()], 10, "all ended")
    os.write(run.master, b"\x11")
    assert run.wait() == 143


def test_stuck_terminal_stops_no_job(terminal, tmp_path):
    """If this fails, Ctrl-S stops what everybody prints, or lines are missing in silence."""
    ready = tmp_path / "ready"
    run = terminal(program("psd_run"), "--personality", "torch", "--", "sh", "-c",
                   f"echo up; while [ ! -e {ready} ]; do sleep 0.01; done; yes {LINE} | head -c {FLOOD}")
    wait_for(lambda: "up" in run.text(), 30, "it runs")
    os.write(run.master, b"\x13")
    ready.touch()
    wait_for(lambda: list(tmp_path.glob("logs/*/result.json")), 60, "the end of the job")
    (log,) = tmp_path.glob("logs/*/worker0.log")
    assert log.stat().st_size == FLOOD + 3
    os.write(run.master, b"\x11")
    assert run.wait() == 0
    lines = [line.strip() for line in run.screen()]
    (missing,) = re.findall(r"psd_run: (\d+) lines are missing here", run.text())
    assert lines.count(f"[worker0] {LINE}") + int(missing) == FLOOD / 100
    assert any("job ended well" in line for line in lines)
