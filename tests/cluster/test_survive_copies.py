# SPDX-License-Identifier: Apache-2.0
"""kill -9 of servers that hold parameters and have copies in others (replicas=1): nothing is lost, no bit changes."""

import json
import os
import re
import signal

import pytest

from helpers import BRISK, python_worker, wait_for

WAYS = {"shared memory": (), "tcp": ("--transport=tcp",)}
# Three chunks a table: they lie on all servers.
UPDATES = ("--awkward", "--elements", 150_000, "--steps", 120)


def train(start, *options, servers=2, name="job", arguments=UPDATES, replicas=1):
    return start(*BRISK, "--workers", 2, "--servers", servers, "--replicas", replicas, *options, "-o", "logs", "--",
                 *python_worker(*arguments), name=name)


def digests(job):
    """Of all that workers were given, in all steps; both are given the same."""
    found = re.findall(r"values ([0-9a-f]{40})", job.stdout())
    assert len(found) == 2, job.stdout() + job.stderr()
    return sorted(found)


def result(job):
    (directory,) = (job.directory / "logs").iterdir()
    return json.loads((directory / "result.json").read_text())


def is_whole(job, server):
    """Has the server a copy that lacks nothing, by what the master said last?"""
    said = [line for line in job.log("master").decode().splitlines()
            if re.search(rf"(COPY-WHOLE|COPY-LOST|MEMBER-LOST) server {server} ", line)]
    return bool(said) and "COPY-WHOLE" in said[-1]


def wait_until_whole(job, servers):
    wait_for(lambda: all(is_whole(job, server) for server in range(servers)) or job.process.poll() is not None, 30,
             lambda: f"all servers have copies\n{job.stderr()}\n{job.log('master').decode()}")
    assert job.process.poll() is None, job.stdout() + job.stderr()


def kill_in_turn(job, servers, times):
    """One after the other, each when redundancy is back, and a step later."""
    for time in range(times):
        steps = job.stdout().count("step ")
        job.wait_for_output("step ", steps + 4)
        wait_until_whole(job, servers)
        os.kill(job.pid_of(f"server{time % servers}"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == time + 1 or job.process.poll() is not None, 20,
                 lambda: f"server {time % servers} is back\n{job.stderr()}\n{job.log('master').decode()}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("servers", [2, 3])
def test_server_killed_loses_nothing(start, way, rule, servers):
    """If this fails, the death of a server that has a copy ends the job, or changes what it computes."""
    arguments = (*UPDATES, "--rule", rule)
    calm = train(start, *WAYS[way], servers=servers, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, *WAYS[way], servers=servers, arguments=arguments)
    kill_in_turn(job, servers, servers)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    assert [one["process"] for one in result(job)["failovers"]] == [f"server{i}" for i in range(servers)]
