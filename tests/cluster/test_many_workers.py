# SPDX-License-Identifier: Apache-2.0
"""Jobs with many workers: 256 real ones, and more than a machine can run, simulated from kept plans (tests/sim/large)."""

import re
import subprocess
import sys

import pytest

from helpers import HERE, SANITIZED, Job, program

LARGE = HERE.parent / "sim" / "large"
WORKERS, VICTIM, STEPS, LAST = 256, 77, 10, 3

# Takes part in three of the steps of examples/hello.c, and is killed when the third is over for everybody.
DIES = f"""
import os, signal
import numpy
import poseidon

poseidon.init()
table = poseidon.Table("sums", shape=(4,), dtype="float32", reduce="sum", rule="add")
for step in range({LAST}):
    table.push_pull(numpy.ones(4, "float32"), numpy.empty(4, "float32")).wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(SANITIZED, reason="256 processes under a sanitizer take minutes")
def test_many_real_workers(tmp_path):
    """If this fails, 256 processes do not get through a start, ten steps, a death among them and a clean end; or those that
    are left disagree about what the dead one counted for."""
    worker = f'if [ $PSD_RANK = {VICTIM} ]; then exec "$0" "$1"; else exec "$2"; fi'
    dies = tmp_path / "dies.py"
    dies.write_text(DIES)
    job = Job(tmp_path / "job", "--workers", WORKERS, "--servers", 1, "--on_worker_death=continue", "--",
              "sh", "-c", worker, sys.executable, dies, program("hello"),
              environment={"PYTHONPATH": str(HERE.parents[1] / "python")})
    assert job.wait(120) == 0, job.stderr()[-2000:]
    sums = re.findall(r"hello from worker (\d+): (\d+)$", job.stdout(), re.M)
    assert {int(rank) for rank, _ in sums} == set(range(WORKERS)) - {VICTIM}
    assert {int(total) for _, total in sums} == {WORKERS * LAST + (WORKERS - 1) * (STEPS - LAST)}
    assert f"(worker {VICTIM} died on the way)" in job.stderr()


@pytest.mark.all
def test_a_thousand_workers():
    """If this fails, a thousand workers do not get through a hundred steps, ten deaths among them and a clean end; or the
    cost of one worker grows with the number of the others."""
    done = subprocess.run([program("psd_sim"), "--plan", LARGE / "thousand_workers.plan", "--seeds", "1"],
                          capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout
    counts = {name: int(number) for name, number in re.findall(r"^  (\w+) +(\d+)$", done.stdout, re.M)}
    assert counts["worker_kills"] == 10 and counts["jobs_finished"] == 1, done.stdout
    assert counts["steps"] >= 990 * 100, done.stdout
    assert counts["frames"] < 20 * counts["steps"], done.stdout
