# SPDX-License-Identifier: Apache-2.0
"""psd_run restart --servers: all servers are restarted one after the other under load, training goes on, no bit changes."""

import json
import os
import re
import signal
import subprocess
import time
import uuid

import pytest

from helpers import BRISK, digests, program, python_worker, result, wait_for

UPDATES = ("--awkward", "--elements", 150_000)
SUMS = ("--sum", *UPDATES)


def train(start, *options, servers=2, arguments=UPDATES, steps=400, name="job"):
    title = f"roll-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--workers", 2, "--servers", servers, "--name", title, *options, "-o", "logs", "--",
                *python_worker(*arguments, "--steps", steps), name=name)
    job.title = title
    return job


def restart(job, *options):
    return subprocess.Popen([program("psd_run"), "restart", job.title, "--servers", *map(str, options)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def longest_pause(job, until):
    """Seconds without a step of any worker, while the condition does not hold."""
    seen, since, longest = 0, time.monotonic(), 0.0
    while not until():
        steps = job.stdout().count("step ")
        now = time.monotonic()
        longest = max(longest, now - since)
        if steps != seen:
            seen, since = steps, now
        time.sleep(0.005)
    return longest


@pytest.mark.parametrize("servers, arguments, options", [
    (2, UPDATES, ("--replicas", 1)),
    (3, (*UPDATES, "--rule", "adam"), ("--replicas", 1, "--transport=tcp")),
    (2, SUMS, ()),
    (1, SUMS, ()),
], ids=["copies", "copies of three over tcp", "sums", "sums on one"])
def test_servers_are_restarted_under_load(start, servers, arguments, options, record_property):
    """If this fails, restarting the servers of a job stops it, ends it, or changes what it computes. How long training paused is
    told (-s), and not judged."""
    calm = train(start, servers=servers, arguments=arguments, name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, *options, servers=servers, arguments=arguments)
    job.wait_for_output("step 8\n", 2)
    before = [job.pid_of(f"server{i}") for i in range(servers)]
    asked = restart(job)
    pause = longest_pause(job, lambda: asked.poll() is not None or job.process.poll() is not None)
    said, complaint = asked.communicate(timeout=120)
    assert asked.returncode == 0, said + complaint + job.stderr() + job.log("master").decode()
    assert re.findall(r"server (\d+) .*is restarted", said) == [str(i) for i in range(servers)]
    assert len(re.findall(r"is back, and nothing is missing, after [\d.]+ s", said)) == servers
    assert re.search(rf"{servers} servers? w\w+ restarted in", said)
    after = [job.pid_of(f"server{i}") for i in range(servers)]
    assert not set(before) & set(after)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    assert [(one["process"], one["why"]) for one in result(job)["failovers"]] == [
        (f"server{i}", "psd_run restart --servers") for i in range(servers)]
    slowest = max(one["seconds"] for one in result(job)["failovers"])
    record_property("longest_pause_s", round(pause, 3))
    print(f"\nlongest pause {pause:.3f} s, the slowest fail-over {slowest:.3f} s")


def test_servers_that_would_be_missed(start, tmp_path):
    """If this fails, psd_run restart ends a job: its servers have what nobody else has."""
    gate = tmp_path / "gate"
    job = train(start, arguments=(*UPDATES, "--hold", f"8:{gate}"), steps=20)
    job.wait_for_output("holding")
    refused = restart(job)
    said, complaint = refused.communicate(timeout=120)
    assert refused.returncode == 3, said + complaint
    assert "server 0 has what nobody else has, and it would be lost" in complaint and "--replicas 1" in complaint
    vague = subprocess.run([program("psd_run"), "restart", job.title], capture_output=True, text=True, timeout=120)
    assert vague.returncode == 2 and "psd_run restart JOB --servers" in vague.stderr
    gate.touch()
    assert job.wait(60) == 0, job.stderr()
    assert result(job)["failovers"] == []


def shown(job, *options):
    told = subprocess.run([program("psd_run"), "show", job.title, *options], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    return told.stdout


def parts(job):
    return [(one["server"], one["by"], one["copy"], one["copy_in"]) for one in json.loads(shown(job, "--json"))["redundancy"]]


def test_roles_are_shown(start, tmp_path):
    """If this fails, nobody sees which server may die, and whose copy has whose part."""
    gate = tmp_path / "gate"
    job = train(start, "--replicas", 1, arguments=(*UPDATES, "--hold", f"8:{gate}"), steps=20)
    job.wait_for_output("holding")
    wait_for(lambda: parts(job) == [("server0", "server0", "whole", "server1"), ("server1", "server1", "whole", "server0")],
             20, lambda: f"both have whole copies: {shown(job)}")
    assert "replicas 1 (as told)" in shown(job)
    assert re.search(r"^server0 +server0 +server1 +whole$", shown(job), re.M), shown(job)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    wait_for(lambda: parts(job) == [("server0", "server1", "whole", "server0"), ("server1", "server1", "whole", "server0")],
             20, lambda: f"server 1 has both parts, and server 0 both copies: {shown(job)}")
    servers = {one["name"]: (one["primary_of"], one["copy_of"]) for one in json.loads(shown(job, "--json"))["processes"]
               if one["role"] == "server"}
    assert servers == {"server0": ([], ["server0", "server1"]), "server1": (["server0", "server1"], [])}
    gate.touch()
    assert job.wait(60) == 0, job.stderr()


@pytest.mark.parametrize("arguments, copy", [(UPDATES, "none: its death ends the job"),
                                             (SUMS, "not needed: workers can make anew what it has")])
def test_what_is_shown_without_copies(start, tmp_path, arguments, copy):
    """If this fails, people believe that a server may die which may not, or the other way round."""
    gate = tmp_path / "gate"
    job = train(start, arguments=(*arguments, "--hold", f"8:{gate}"), steps=20)
    job.wait_for_output("holding")
    assert "replicas 0 (auto: all servers are on one machine)" in shown(job)
    assert re.search(rf"^server1 +server1 +- +{copy}$", shown(job), re.M), shown(job)
    gate.touch()
    assert job.wait(60) == 0, job.stderr()
