# SPDX-License-Identifier: Apache-2.0
"""kill -9 of servers that hold parameters and have copies in others (replicas=1): nothing is lost, no bit changes."""

import json
import os
import re
import signal

import pytest

from helpers import BRISK, digests, python_worker, result, wait_for

WAYS = {"shared memory": (), "tcp": ("--transport=tcp",)}
# Three chunks a table: they lie on all servers.
UPDATES = ("--awkward", "--elements", 150_000, "--steps", 120)


def train(start, *options, servers=2, name="job", arguments=UPDATES, replicas=1):
    return start(*BRISK, "--workers", 2, "--servers", servers, "--replicas", replicas, *options, "-o", "logs", "--",
                 *python_worker(*arguments), name=name)


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


@pytest.mark.parametrize("way", WAYS)
def test_tables_of_all_kinds(start, way):
    """If this fails, a stale, an asynchronous or a sum table beside others does not survive its server."""
    arguments = ("--zoo", "--awkward", "--elements", 70_000, "--steps", 40)
    calm = train(start, *WAYS[way], name="calm", arguments=arguments, replicas=0)
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, *WAYS[way], arguments=arguments)
    kill_in_turn(job, 2, 2)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_values_read_in_place(start):
    """If this fails, workers that read values where the server has them see others after its death."""
    arguments = (*UPDATES, "--memory", "view")
    calm = train(start, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=arguments)
    kill_in_turn(job, 2, 2)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_server_killed_again_and_again(start):
    """If this fails, a server that was started again and stands by is missed when it dies once more, and the job ends."""
    job = train(start, arguments=(*UPDATES, "--hold", "60:gate"))
    job.wait_for_output("holding")
    for time in range(3):
        wait_until_whole(job, 2)
        os.kill(job.pid_of("server0"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == time + 1 or job.process.poll() is not None, 20,
                 lambda: f"server 0 is back\n{job.stderr()}\n{job.log('master').decode()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert [one["process"] for one in result(job)["failovers"]] == ["server0"] * 3


def test_server_that_is_not_started_again(start):
    """If this fails, a job needs the dead server back, although its copy has all that it had."""
    job = train(start, "--server_restarts", 0)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert [(one["process"], one["by"]) for one in result(job)["failovers"]] == [("server1", "another server")]


def test_silent_server_is_fenced(start):
    """If this fails, a server that hangs holds up a job that has all that it had."""
    job = train(start)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server1"), signal.SIGSTOP)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert [one["process"] for one in result(job)["failovers"]] == ["server1"]


def test_server_and_master_killed_together(start):
    """If this fails, a master that returns does not know that a copy has all that a dead server had."""
    calm = train(start, name="calm", replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    os.kill(job.pid_of("master"), signal.SIGKILL)
    assert job.wait(90) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_sums_have_no_copies(start):
    """If this fails, a job that only sums pays for copies, and its load is spread worse after a server's death."""
    arguments = ("--sum", "--awkward", "--elements", 150_000, "--steps", 40)
    calm = train(start, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=arguments)
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    assert [(one["process"], one["by"]) for one in result(job)["failovers"]] == [("server1", "restart")]
    assert b"COPY" not in job.log("master")


@pytest.mark.parametrize("servers, replicas, options, said", [
    (2, 0, (), "(replicas=1, psd_run --replicas 1, keeps a copy)"),
    (2, "auto", (), "(replicas=1, psd_run --replicas 1, keeps a copy)"),
    (1, "auto", (), "(with psd_run --servers 2 --replicas 1 another server keeps a copy)"),
    (2, "auto", ("--on_worker_death=wait",), "(no copy can be kept with on_worker_death=wait)"),
])
def test_without_copies_the_option_is_named(start, servers, replicas, options, said):
    """If this fails, nobody learns what would have saved the job."""
    job = train(start, *options, servers=servers, replicas=replicas)
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    assert job.wait(60) == 137, job.stderr()
    assert said in job.stderr()
    assert "from what its workers have saved: --restart=on-failure --restart_scope=group" in job.stderr()


@pytest.mark.parametrize("options, text", [
    (("--servers", 1), "--replicas 1: the job has 1 server, and a copy is in another one: give --servers 2 or more"),
    (("--servers", 2, "--on_worker_death=wait"), "--replicas 1: not with on_worker_death=wait"),
    (("--servers", 2, "--sum_failover=off"), "--replicas 1: not with sum_failover=off"),
])
def test_replicas_that_a_job_cannot_have(start, options, text):
    """If this fails, somebody believes in copies that are not there."""
    job = start("--workers", 1, *options, "--replicas", 1, "--", "true")
    assert job.wait(20) == 2, job.stderr()
    assert text in job.stderr()


@pytest.mark.parametrize("servers, options, said", [
    (["node1", "node2"], (), "replicas 1 (auto: the servers are on 2 machines)"),
    (["node1", "node1"], (), "replicas 0 (auto: all servers are on one machine)"),
    (["node1"], (), "replicas 0 (auto: one server)"),
    (["node1", "node2"], ("--on_worker_death=wait",), "replicas 0 (auto: on_worker_death=wait)"),
    (["node1", "node2"], ("--restart=on-failure",), "replicas 0 (auto: on_worker_death=wait)"),
    (["node1", "node2"], ("--sum_failover=off",), "replicas 0 (auto: sum_failover=off)"),
    (["node1", "node2"], ("--replicas=0",), "replicas 0 (as told)"),
    (["node1", "node1"], ("--replicas=1",), "replicas 1 (as told)"),
])
def test_copies_by_default(start, tmp_path, servers, options, said):
    """If this fails, servers on two machines have no copies, or a job that cannot have any is refused for it."""
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"master_node": "node1", "worker_nodes": ["node1", "node2"], "server_nodes": servers}))
    job = start("-c", cluster, "--dry_run", *options, "true")
    assert job.wait(20) == 0, job.stderr()
    assert f"{said}\n" in job.stdout()
    assert job.stdout().count(f"--replicas={said.split()[1]}") == 1 + len(servers)
