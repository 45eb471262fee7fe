# SPDX-License-Identifier: Apache-2.0
"""kill -9 of servers with rows of sparse tables that have copies in others (replicas=1): no row is lost, no bit changes."""

import os
import signal
import sys

import pytest

from helpers import BRISK, HERE, digests, result, wait_for
from test_survive_copies import WAYS, kill_in_turn, wait_until_whole

GATE = ("--hold", "closing:gate")


def train(start, *options, servers=2, name="job", arguments=(), replicas=1):
    return start(*BRISK, "--workers", 2, "--servers", servers, "--replicas", replicas, *options, "-o", "logs", "--",
                 sys.executable, HERE / "rows_worker.py", *map(str, arguments), name=name)


def calm_digests(start, *options, **how):
    calm = train(start, *options, name="calm", replicas=0, **how)
    assert calm.wait(120) == 0, calm.stderr()
    return digests(calm)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("servers", [2, 3])
def test_server_killed_loses_no_row(start, way, servers):
    """If this fails, the death of a server that has a copy ends a job with sparse tables, changes a row, or a push that was
    under way is lost or counts twice."""
    expected = calm_digests(start, *WAYS[way], servers=servers)
    job = train(start, *WAYS[way], servers=servers, arguments=GATE)
    kill_in_turn(job, servers, servers)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected
    assert [one["process"] for one in result(job)["failovers"]] == [f"server{i}" for i in range(servers)]


def test_rounds_close_while_a_large_table_is_copied(start):
    """If this fails, a copy of a table that takes many pieces has other rows than its owner."""
    large = ("--large", "--steps", 40)
    expected = calm_digests(start, arguments=large)
    job = train(start, arguments=(*large, *GATE))
    kill_in_turn(job, 2, 3)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected


def test_server_and_master_killed_together(start):
    """If this fails, a master that returns does not know that a copy has all rows of a dead server."""
    expected = calm_digests(start)
    job = train(start, arguments=GATE)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    os.kill(job.pid_of("master"), signal.SIGKILL)
    wait_for(lambda: "holding" in job.stdout() or job.process.poll() is not None, 60,
             lambda: f"all steps\n{job.stdout()}\n{job.stderr()}\n{job.log('master').decode()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected


def test_a_worker_and_then_a_server_killed(start):
    """If this fails, a replacement does not see the rows of the step that it repeats, or those that went with it, once their
    server is dead, too."""
    arguments = ("--die", "none", "--steps", 60)
    expected = calm_digests(start, arguments=arguments)
    job = train(start, "--on_worker_death=wait", arguments=("--die", "1:40", "--steps", 60, "--hold", "30:gate", "--hold", "closing:gate2"))
    job.wait_for_output("holding")
    wait_until_whole(job, 2)
    (job.directory / "gate").touch()
    wait_for(lambda: "MEMBER-LOST worker 1" in job.log("master").decode() or job.process.poll() is not None, 60, "worker 1 is dead")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    job.wait_for_output("holding", 2, seconds=60)
    (job.directory / "gate2").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected
    assert [one["process"] for one in result(job)["failovers"]] == ["server0"]
