# SPDX-License-Identifier: Apache-2.0
"""psd_run scale with sparse tables: workers and servers come and go under load, and each push counts once."""

import re
import sys
import uuid

import pytest

from helpers import BRISK, HERE, digests
from test_scale import open_gate
from test_scale_servers import scale, wait_for_places, wait_until_left
from test_survive_copies import WAYS


def train(start, *options, workers=2, servers=1, arguments=(), name="job", worker="rows_worker.py"):
    title = f"rows-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--workers", workers, "--servers", servers, "--name", title, *options, "-o", "logs", "--",
                sys.executable, HERE / worker, *map(str, arguments), name=name)
    job.title = title
    return job


@pytest.mark.parametrize("way", WAYS)
def test_servers_come_and_go(start, way):
    """If this fails, rows do not move with their place, or a step is lost, or a bit changes."""
    arguments = ("--steps", 150)
    calm = train(start, *WAYS[way], arguments=arguments, name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, "--max_servers=3", *WAYS[way], arguments=(*arguments, "--hold", "closing:gateclosing"))
    job.wait_for_output("step 8\n", 2)
    assert scale(job, "--servers", 3).returncode == 0
    wait_for_places(job, {0: 2, 1: 2, 2: 2})
    assert scale(job, "--servers", 1).returncode == 0
    wait_until_left(job, "server2")
    wait_until_left(job, "server1")
    open_gate(job, "closing")
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


@pytest.mark.parametrize("way", WAYS)
def test_servers_of_sums_come_and_go(start, way):
    """If this fails, sums of rows do not outlive the move of their place, or a row is lost or counts twice, or a bit changes."""
    calm = train(start, *WAYS[way], worker="row_sums_worker.py", name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, "--max_servers=3", *WAYS[way], worker="row_sums_worker.py", arguments=("--hold", "closing:gateclosing"))
    job.wait_for_output("step 8\n", 2)
    assert scale(job, "--servers", 3).returncode == 0
    wait_for_places(job, {0: 2, 1: 2, 2: 2})
    assert scale(job, "--servers", 1).returncode == 0
    wait_until_left(job, "server2")
    wait_until_left(job, "server1")
    open_gate(job, "closing")
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_workers_come_and_go(start):
    """If this fails, a worker that joins cannot push to a sparse table, or what it pushed, or what was pushed by one that has left, is
    lost or counts twice."""
    job = train(start, "--max_workers=4", "--on_worker_death=continue", servers=2,
                arguments=("--ledger", "--steps", 150, "--hold", "20:gate20", "--leave", "3:100"))
    job.wait_for_output("holding")
    assert scale(job, "--workers", "+2").returncode == 0
    job.wait_for_output("joined 2 at")
    job.wait_for_output("joined 3 at")
    open_gate(job, 20)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    times = [int(one) for one in re.findall(r"pushed (\d+) times", job.stdout())]
    assert len(times) == 4 and sorted(times)[2:] == [150, 150] and 0 < sorted(times)[0] < 100
    totals = re.findall(r"ledger\d has (\d+)", job.stdout())
    assert totals == [str(200 * sum(times))] * 6, (totals, times)
