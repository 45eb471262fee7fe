# SPDX-License-Identifier: Apache-2.0
"""kill -9 of servers of jobs that add rows (sparse tables with use="sum"): they go on, and no bit changes."""

import itertools
import os
import re
import signal
import sys

import pytest

from helpers import BRISK, HERE, digests, result, wait_for
from test_survive_copies import kill_in_turn

WAYS = {"shared memory": (), "tcp": ("--transport=tcp",)}
PATIENT = (*BRISK, "--dead_heartbeats=50")  # deaths are told; who has no time on a busy machine is not dead


def train(start, *options, servers=1, workers=2, name="job", arguments=()):
    return start(*PATIENT, "--workers", workers, "--servers", servers, *options, "-o", "logs", "--",
                 sys.executable, HERE / "row_sums_worker.py", *map(str, arguments), name=name)


def calm_digests(start, **how):
    calm = train(start, name="calm", **how)
    assert calm.wait(120) == 0, calm.stderr()
    assert_all_counted(calm)
    return digests(calm)


def assert_all_counted(job):
    (count,) = set(re.findall(r"rows (\d+ of \d+)\n", job.stdout()))
    seen, pushed = count.split(" of ")
    assert seen == pushed, job.stdout()


def kill(job, names, every=4):
    """Each when the last is back, and some steps later. Then the job may end."""
    for count, name in enumerate(names, 1):
        job.wait_for_output(f"step {every * count}\n", 2, seconds=60)
        os.kill(job.pid_of(name), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == count or job.process.poll() is not None, 30,
                 lambda: f"{name} is back\n{job.stderr()}\n{job.log('master').decode()}")
    (job.directory / "gate").touch()


def assert_same(job, expected, killed):
    assert job.wait(120) == 0, job.stdout()[-2000:] + job.stderr() + job.log("master").decode()
    assert_all_counted(job)
    assert digests(job) == expected
    assert [one["process"] for one in result(job)["failovers"]] == list(killed)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("servers", [1, 2])
def test_server_killed_changes_no_sum_of_rows(start, way, servers):
    """If this fails, the death of a server ends a job that adds rows, loses some, or counts some twice."""
    expected = calm_digests(start, servers=servers)
    job = train(start, *WAYS[way], "--lanes=2", servers=servers, arguments=("--hold", "closing:gate"))
    killed = [name for name, _ in zip(itertools.cycle([f"server{i}" for i in range(servers)]), range(3))]
    kill(job, killed)
    assert_same(job, expected, killed)


@pytest.mark.parametrize("way", WAYS)
def test_sums_of_more_rows_than_a_frame_holds(start, way):
    """If this fails, a server that dies among the parts of a push or of its sum leaves half of the rows, or some twice."""
    large = ("--large", "--steps", 10)
    expected = calm_digests(start, arguments=large)
    job = train(start, *WAYS[way], arguments=(*large, "--hold", "closing:gate"))
    kill(job, ["server0"] * 2, every=3)
    assert_same(job, expected, ["server0"] * 2)


@pytest.mark.parametrize("way", WAYS)
def test_another_server_adds_the_rows_of_one_that_stays_away(start, way):
    """If this fails, a job that adds rows cannot do without a server that is never started again."""
    expected = calm_digests(start, servers=2)
    job = train(start, *WAYS[way], "--server_restarts", 0, servers=2, arguments=("--hold", "closing:gate"))
    kill(job, ["server1"])
    assert_same(job, expected, ["server1"])
    assert [one["by"] for one in result(job)["failovers"]] == ["another server"]


def test_copies_of_other_tables_do_not_matter(start):
    """If this fails, sums of rows do not outlive a server of a job whose servers have copies of what they keep."""
    expected = calm_digests(start, servers=2)
    job = train(start, "--replicas", 1, servers=2, arguments=("--hold", "closing:gate"))
    kill(job, ["server0", "server1"])
    assert_same(job, expected, ["server0", "server1"])


def test_copies_where_workers_are_replaced(start):
    """If this fails, sums of rows do not outlive a server where workers must not make them anew, though it has a copy."""
    expected = calm_digests(start, servers=2)
    job = train(start, "--on_worker_death=wait", "--replicas", 1, servers=2, arguments=("--hold", "closing:gate"))
    kill_in_turn(job, 2, 3)
    assert_same(job, expected, ["server0", "server1", "server0"])


def test_master_and_server_killed_together(start):
    """If this fails, a master that returns does not know that workers can make the sums of rows anew."""
    expected = calm_digests(start, servers=2)
    job = train(start, servers=2, arguments=("--hold", "closing:gate"))
    job.wait_for_output("step 4\n", 2)
    for name in ("server0", "master"):
        os.kill(job.pid_of(name), signal.SIGKILL)
    wait_for(lambda: job.stderr().count("is back after") == 2 or job.process.poll() is not None, 30,
             lambda: f"both are back\n{job.stderr()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout()[-2000:] + job.stderr() + job.log("master").decode()
    assert_all_counted(job)
    assert digests(job) == expected
    assert sorted(one["process"] for one in result(job)["failovers"]) == ["master", "server0"]


def test_worker_and_server_killed_together(start):
    """If this fails, a job that goes on without the dead waits for ever for the rows that one of them gave to a server that
    died with it, or those who are left are given different sums."""
    job = train(start, "--on_worker_death=continue", workers=3, arguments=("--die", "2:40", "--hold", "closing:gate"))
    job.wait_for_output("dying")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    wait_for(lambda: "is back after" in job.stderr() or job.process.poll() is not None, 30, lambda: f"it is back\n{job.stderr()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout()[-2000:] + job.stderr() + job.log("master").decode()
    assert len(set(digests(job))) == 1


@pytest.mark.parametrize("settings, why", [
    (("--sum_failover=off",), "it is not waited for (sum_failover is off)"),
    (("--on_worker_death=wait",), "its part of table mean is lost with it (with psd_run --servers 2 --replicas 1 another"),
], ids=["off", "wait"])
def test_server_that_is_not_waited_for(start, settings, why):
    """If this fails, a job that cannot make sums of rows anew goes on with wrong ones, or does not say why it ends."""
    job = train(start, *settings, arguments=("--steps", 1_000_000))
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    assert job.wait(60) == 137, job.stderr()
    assert why in job.stderr() + job.log("master").decode()
