# SPDX-License-Identifier: Apache-2.0
"""psd_run with many processes: how quickly they run, how much they may print, what it costs."""

import os
import pathlib
import re
import sys
import time

from helpers import SANITIZED, wait_for

WORKERS = 16
WRITE_S = 3
MIB = 1 << 20

# As many numbered lines as possible, whole ones, and at last how many there were.
WRITER = """
import os, sys, time
rank, end, count, out = os.environ["PSD_RANK"], time.monotonic() + {seconds}, 0, sys.stdout
while time.monotonic() < end:
    out.write("".join(f"{{rank}} {{count + i}}\\n" for i in range(500)))
    count += 500
out.write(f"{{rank}} end {{count}}\\n")
"""


def peak_memory(pid):
    """VmHWM of a process."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * 1024


def cpu_seconds(pid):
    """What a process has used so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_sixteen_workers_run_at_once(start):
    """If this fails, a job of many workers does not start."""
    job = start("--workers", WORKERS, "sh -c 'echo up; exec sleep 100'")
    job.wait_for_output("up", WORKERS)
    seconds = time.monotonic() - job.begin
    job.process.terminate()
    assert job.wait() == 143
    print(f"\n{WORKERS} workers run after {seconds:.2f} s")


def test_sixteen_workers_print_as_fast_as_they_can(start, tmp_path):
    """If this fails, lines are lost or torn, or psd_run keeps in memory what it cannot write."""
    script = tmp_path / "writer.py"
    script.write_text(WRITER.format(seconds=WRITE_S))
    job = start("--workers", WORKERS, "--show", "none", "--", sys.executable, script)
    wait_for(lambda: "PROCESS worker15" in job.run_log(), 30, "all run")
    pids = [job.process.pid, job.agent_pid()]
    peaks = [0, 0]

    def has_ended():
        for i, pid in enumerate(pids):
            try:
                peaks[i] = max(peaks[i], peak_memory(pid))
            except (OSError, AttributeError):
                pass  # it ended while we looked
        return job.process.poll() is not None

    wait_for(has_ended, 120, "end of the job")
    assert job.wait() == 0, job.stderr()
    lines = 0
    for rank in range(WORKERS):
        text = job.log(f"worker{rank}").decode().splitlines()
        assert text[-1] == f"{rank} end {len(text) - 1}"
        assert all(line == f"{rank} {i}" for i, line in enumerate(text[:-1]))
        lines += len(text)
    print(f"\n{lines} lines; psd_run {peaks[0] / MIB:.0f} MiB, agent {peaks[1] / MIB:.0f} MiB")
    if not SANITIZED:
        assert max(peaks) < 64 * MIB


def test_psd_run_is_idle_when_its_job_is(start):
    """If this fails, the launcher takes time from the training it watches."""
    job = start("--workers", 4, "sh -c 'echo up; exec sleep 100'")
    job.wait_for_output("up", 4)
    pids = [job.process.pid, job.agent_pid()]
    before = sum(map(cpu_seconds, pids))
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 4, 30, "four seconds")
    share = (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - began)
    job.process.terminate()
    assert job.wait() == 143
    print(f"\npsd_run and its agent use {100 * share:.1f} % of a core")
    assert share < (0.25 if SANITIZED else 0.05)
