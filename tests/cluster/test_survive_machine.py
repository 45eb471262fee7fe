# SPDX-License-Identifier: Apache-2.0
"""The machine that carries the master, and a server, is lost: the job goes on on others."""

import json
import os
import re
import signal
import time
import uuid

import pytest

from bed import worker
from hosts import USER
from helpers import digests, result, wait_for

# The third host has the master and one of two servers, and no worker.
CENTRAL = {"worker_nodes": ["host1", "host2"], "server_nodes": ["host3", "host4"], "master_node": "host3"}


def command(*arguments, steps=150):
    return worker("--awkward", "--elements", 150_000, "--steps", steps, *arguments)


def steps(job):
    return job.stdout().count("] step ") or job.stdout().count("step ")


def seconds_without_a_step(job, since):
    """From the moment `since` to the first step that ends after all had stood still for a second."""
    still_since, seen = since, steps(job)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now, count = time.monotonic(), steps(job)
        if count > seen and now - still_since > 1:
            return now - since
        if count > seen:
            still_since, seen = now, count
        assert job.process.poll() is None, job.stdout()[-2000:] + job.stderr()
        time.sleep(0.02)
    raise AssertionError(f"no step in 60 s:\n{job.stderr()}\n{job.run_log()}")


def lose(host, way):
    """Returns when that was."""
    since = time.monotonic()
    if way == "cut":
        host.cut()
    else:
        host.power_off()
    return since


@pytest.mark.parametrize("way", ["cut", "powered off"])
@pytest.mark.parametrize("kind, servers, to", [
    (("--sum",), ["host3", "host4"], "host4"), (("--sum",), ["host3"], "host1"), ((), ["host3", "host4"], "host4"),
], ids=["sums", "sums on one server", "copies"])
def test_machine_of_master_and_server_is_lost(launch, four_hosts, kind, servers, to, way, record_property):
    """If this fails, a job that could go on ends with the machine of its master, or changes a bit; or people are not told.
    How long it takes is printed; make prove measures it."""
    config = {**CENTRAL, "server_nodes": servers}
    calm = launch(config, command(*kind))
    assert calm.wait(120) == 0, calm.stderr()
    job = launch(config, command(*kind))
    job.wait_for_output("step 10\n", 2)
    seconds = seconds_without_a_step(job, lose(four_hosts.hosts[3], way))
    shown = launch(None, "show", "--json")
    assert shown.wait() == 0, shown.stderr()
    print(f"{way}: {seconds:.2f} s from the cut to the next answer")
    record_property("seconds", round(seconds, 2))
    assert job.wait(120) == 0, job.stdout()[-2000:] + job.stderr() + job.run_log()
    if way == "cut":
        four_hosts.hosts[3].heal()
    assert digests(job) == digests(calm)
    assert "host3 (10.213.0.3) was lost" in job.stderr()
    assert f"master goes from host3 to {to}" in job.stderr()
    address = rf"tcp://10\.213\.0\.{to[4:]}:\d+"
    assert re.search(rf"the master listens at {address} now", job.stderr())
    assert re.search(rf"psd_run: .*(died twice|was back on {to})", job.stderr())
    told = {failover["process"]: failover for failover in result(job)["failovers"]}
    assert told["master"]["to"] == to and told["master"]["seconds"] > 4
    assert "server0" in told
    for document in (result(job), json.loads(shown.stdout())):
        assert re.fullmatch(address, document["master"])
        (master,) = [process for process in document["processes"] if process["name"] == "master"]
        assert master["machine"] == to, master
    job.expect_nothing_left(12)


@pytest.mark.parametrize("policy, code", [("fail", 70), ("continue", 0)])
def test_machine_of_master_server_and_worker_is_lost(launch, four_hosts, policy, code):
    """If this fails, a job that needs the worker does not say so, or one that does not ends with it."""
    config = {**CENTRAL, "worker_nodes": ["host1", "host2", "host3"]}
    job = launch(config, f"--on_worker_death={policy}", command("--sum", steps=300))
    job.wait_for_output("step 10\n", 3)
    since = lose(four_hosts.hosts[3], "powered off")
    if policy == "continue":
        print(f"{seconds_without_a_step(job, since):.2f} s from the cut to the next answer")
    assert job.wait(120) == code, job.stdout()[-2000:] + job.stderr() + job.run_log()
    assert "host3 (10.213.0.3) was lost" in job.stderr()
    if policy == "fail":
        assert re.search(r"job ended after .* with code 70: host3 \(10\.213\.0\.3\) was lost: .*worker2", job.stderr())
    else:
        assert job.stdout().count("closed") == 2 and "(worker 2 died on the way)" in job.stderr()
    job.expect_nothing_left(3)


@pytest.mark.parametrize("victim", ["ssh", "agent"])
def test_line_to_the_machine_of_the_master_ends(launch, four_hosts, victim):
    """If this fails, a master and a server that only psd_run does not reach any more end the job for all
    others, when their agent ends them."""
    calm = launch(CENTRAL, command("--sum"))
    assert calm.wait(120) == 0, calm.stderr()
    job = launch(CENTRAL, command("--sum"))
    job.wait_for_output("step 10\n", 2)
    if victim == "ssh":
        (pid,) = [pid for pid, line in four_hosts.launcher.processes().items() if "-- host3 " in line]
    else:
        pid = max(pid for pid, line in four_hosts.hosts[3].processes().items() if "psd_run --agent" in line)
    os.kill(pid, signal.SIGKILL)
    assert job.wait(120) == 0, job.stdout()[-2000:] + job.stderr() + job.run_log()
    assert digests(job) == digests(calm)
    assert "master goes from host3 to host4" in job.stderr()
    job.expect_nothing_left(12)


@pytest.mark.parametrize("kind", [("--sum",), ()], ids=["sums", "copies"])
def test_agent_of_the_master_is_stopped(launch, four_hosts, kind):
    """If this fails, members stay with a master that psd_run has replaced, because it still speaks to them; or
    what it, or the server beside it, still says counts."""
    calm = launch(CENTRAL, command(*kind))
    assert calm.wait(120) == 0, calm.stderr()
    gate = f"gate-{uuid.uuid4().hex[:8]}"  # in the home of the host that has rank 0
    job = launch(CENTRAL, command(*kind, "--hold", f"100:/home/{USER}/{gate}"))
    job.wait_for_output("step 10\n", 2)
    os.kill(max(pid for pid, line in four_hosts.hosts[3].processes().items() if "psd_run --agent" in line), signal.SIGSTOP)
    wait_for(lambda: "the master listens at" in job.stderr() or job.process.poll() is not None, 60,
             lambda: f"the next master\n{job.stderr()}\n{job.run_log()}")
    (four_hosts.hosts[1].directory / "home" / gate).touch()
    assert job.wait(120) == 0, job.stdout()[-2000:] + job.stderr() + job.run_log()
    assert digests(job) == digests(calm)
    assert "master goes from host3 to host4" in job.stderr()
    job.expect_nothing_left(20)


def test_machines_of_masters_are_lost_one_after_the_other(launch, four_hosts):
    """If this fails, members that have found a master elsewhere once do not find the next one, or follow the
    file of the last."""
    config = {"worker_nodes": ["host1"], "server_nodes": ["host3", "host4"], "master_node": "host2"}
    job = launch(config, command("--sum", steps=400))
    job.wait_for_output("step 10\n")
    four_hosts.hosts[2].power_off()
    wait_for(lambda: "is back after" in job.stderr() or job.process.poll() is not None, 30, "the master is back")
    first = re.search(r"master goes from host2 to (host\d)", job.stderr())[1]
    four_hosts.hosts[int(first[4:])].power_off()
    assert job.wait(120) == 0, job.stdout()[-2000:] + job.stderr() + job.run_log()
    assert re.search(rf"master goes from {first} to host\d", job.stderr())
    assert [one["process"] for one in result(job)["failovers"]].count("master") == 2
