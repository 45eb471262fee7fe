# SPDX-License-Identifier: Apache-2.0
"""psd_run scale --servers: servers come and go under load, places move, training goes on, no bit changes."""

import json
import os
import re
import signal
import subprocess
import uuid

import pytest

from helpers import BRISK, digests, program, python_worker, result, wait_for

# Eleven chunks a table, with momentum: what moves is values and the rule's state. The table of sums has none of its own.
UPDATES = ("--awkward", "--elements", 700_000, "--rule", "momentum")
SUMS = ("--sum", "--awkward", "--elements", 300_000)


def train(start, *options, servers=1, arguments=UPDATES, steps=150, name="job"):
    title = f"servers-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--workers", 2, "--servers", servers, "--name", title, *options, "-o", "logs", "--",
                *python_worker(*arguments, "--steps", steps), name=name)
    job.title = title
    return job


def scale(job, *options):
    return subprocess.run([program("psd_run"), "scale", job.title, *map(str, options)], capture_output=True, text=True,
                          timeout=60)


def shown(job):
    told = subprocess.run([program("psd_run"), "show", job.title, "--json"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    return {one["name"]: one for one in json.loads(told.stdout)["processes"]}


def parts(job):
    told = subprocess.run([program("psd_run"), "show", job.title, "--json"], capture_output=True, text=True, timeout=60)
    return json.loads(told.stdout)["redundancy"]


def places(job):
    """How many lanes each server has, by its name."""
    count = {}
    for line in job.log("master").decode().splitlines():
        joined = re.search(r"MEMBER-JOINED server (\d+) lane (\d+) joined", line)
        moved = re.search(r"PLACE-MOVED lane (\d+) of server (\d+) has moved to server (\d+)", line)
        if joined:
            count.setdefault((int(joined[1]), int(joined[2])), int(joined[1]))
        if moved:
            count[int(moved[2]), int(moved[1])] = int(moved[3])
    return {server: list(count.values()).count(server) for server in set(count.values())}


def wait_for_places(job, wanted):
    wait_for(lambda: places(job) == wanted or job.process.poll() is not None, 60,
             lambda: f"{wanted}, not {places(job)}\n{job.stderr()}\n{job.log('master').decode()}")
    assert job.process.poll() is None, job.stdout() + job.stderr()


def wait_until_gone(job, name):
    wait_for(lambda: f"{name} has nothing any more, and is ended" in job.stderr() or job.process.poll() is not None, 60,
             lambda: f"{name} has left\n{job.stderr()}\n{job.log('master').decode()}")


def wait_until_left(job, name):
    """It has gone in peace: nobody would take that for a failure."""
    wait_until_gone(job, name)
    wait_for(lambda: shown(job)[name]["state"] != "running", 30, f"{name} has ended")
    one = shown(job)[name]
    said = job.log(name).decode()
    assert (one["state"], one["code"]) == ("left", 0), (one, said)
    assert "JOB-END" in said and " error " not in said and "SENT-AWAY" not in said, said


@pytest.mark.parametrize("arguments, options", [
    (UPDATES, ()),
    (UPDATES, ("--transport=tcp",)),
    (SUMS, ()),
], ids=["updates", "updates over tcp", "sums"])
def test_a_job_grows_and_shrinks(start, arguments, options):
    """If this fails, a server that is added to a job does not get its share, or gets more, or one that is removed takes what it
    has with it, or a step is lost, or a bit changes."""
    calm = train(start, arguments=arguments, name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, "--max_servers=3", *options, arguments=(*arguments, "--hold", "closing:gate"))
    job.wait_for_output("step 8\n", 2)
    told = scale(job, "--servers", "+1")
    assert (told.returncode, told.stdout) == (
        0, "server1 is started on localhost: its share moves there while training goes on\n"), told.stderr
    wait_for_places(job, {0: 3, 1: 3})
    assert scale(job, "--servers", 3).returncode == 0
    wait_for_places(job, {0: 2, 1: 2, 2: 2})
    told = scale(job, "--servers=-1")
    assert (told.returncode, told.stdout) == (
        0, "server2 is to leave: what it has moves to the others first\n"), told.stderr
    wait_until_left(job, "server2")
    assert scale(job, "--servers", 1).returncode == 0
    wait_until_left(job, "server1")
    (job.directory / "gate").touch()
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    told = result(job)
    moves = told["moves"]
    whole = 2 * 4 * int(arguments[arguments.index("--elements") + 1])  # of values, in two tables
    assert len(moves) == 3 + 2 + 2 + 3
    for some, to, servers in ((moves[:3], "server1", 2), (moves[3:5], "server2", 3)):
        assert {move["to"] for move in some} == {to}  # nothing between those that were there
        assert 0 < sum(move["bytes"] for move in some) <= 1.2 / servers * whole
    assert told["failovers"] == [] and told["exit_code"] == 0
    assert "2 servers came on the way, 2 left: 10 places moved" in job.stderr()


def test_a_checkpoint_far_ahead_is_in_nobodys_way(start):
    """If this fails, a job with --checkpoint_every Nsteps gives new servers nothing, and lets none leave, before the next
    checkpoint, which may be hours ahead."""
    job = train(start, "--max_servers=2", "--checkpoint", "saved", "--checkpoint_every", "1000000steps",
                arguments=(*UPDATES, "--hold", "closing:gate"))
    job.wait_for_output("step 8\n", 2)
    assert scale(job, "--servers", 2).returncode == 0
    wait_for_places(job, {0: 2, 1: 2})
    assert scale(job, "--servers", 1).returncode == 0
    wait_until_left(job, "server1")
    (job.directory / "gate").touch()
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()


@pytest.mark.all
@pytest.mark.parametrize("arguments", [("--zoo", "--awkward", "--elements", 70_000), (*UPDATES, "--memory", "view"),
                                       (*UPDATES, "--split")], ids=["kinds", "values in place", "push, then pull"])
def test_whatever_moves(start, arguments):
    """If this fails, a stale, an asynchronous or a sum table beside others does not move, or workers that read values where the
    server has them see others after a move."""
    calm = train(start, arguments=arguments, steps=60, name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, "--max_servers=2", arguments=(*arguments, "--hold", "closing:gate"), steps=60)
    job.wait_for_output("step 4\n", 2)
    assert scale(job, "--servers", 2).returncode == 0
    wait_for_places(job, {0: 2, 1: 2})
    assert scale(job, "--servers", 1).returncode == 0
    wait_until_gone(job, "server1")
    (job.directory / "gate").touch()
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_with_copies(start):
    """If this fails, servers that have copies cannot come and go, or redundancy does not come back, or a server that has what has
    just moved to it cannot die."""
    calm = train(start, servers=2, name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, "--max_servers=3", "--replicas", 1, servers=2, arguments=(*UPDATES, "--hold", "closing:gate"))
    job.wait_for_output("step 8\n", 2)
    assert scale(job, "--servers", 3).returncode == 0
    wait_for_places(job, {0: 2, 1: 2, 2: 2})
    wait_for(lambda: job.log("master").decode().count("COPY-MOVED") == 2 or job.process.poll() is not None, 60,
             lambda: f"its share of the copies\n{job.log('master').decode()}")
    os.kill(job.pid_of("server2"), signal.SIGKILL)
    wait_for(lambda: "is back after" in job.stderr() or job.process.poll() is not None, 30,
             lambda: f"server 2 is back\n{job.stderr()}\n{job.log('master').decode()}")
    (job.directory / "gate").touch()
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def is_moving(job, server):
    """Has the server come, and is a lane of it to have a place?"""
    said = job.log("master").decode()
    return f"STANDS-BY server {server} lane 0" in said and f" gets a copy in server {server}," in said


@pytest.mark.parametrize("arguments, replicas", [(UPDATES, 0), (SUMS, 0), (UPDATES, 1)], ids=["updates", "sums", "copies"])
def test_a_newcomer_killed_while_a_place_moves(start, arguments, replicas):
    """If this fails, the death of a server in the middle of a move ends the job or changes a bit, or the move is half done, or the
    server that is started in its stead gets nothing."""
    servers = 1 + replicas
    calm = train(start, servers=servers, arguments=arguments, name="calm")
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, "--max_servers=3", "--replicas", replicas, "--move_mib_per_s=1", "--log_level=debug", servers=servers,
                arguments=(*arguments, "--hold", "closing:gate"))
    job.wait_for_output("step 8\n", 2)
    assert scale(job, "--servers", "+1").returncode == 0
    new = f"server{servers}"
    wait_for(lambda: is_moving(job, servers) or job.process.poll() is not None, 30,
             lambda: f"a move is under way\n{job.log('master').decode()}")
    os.kill(job.pid_of(new), signal.SIGKILL)
    wait_for(lambda: shown(job)[new]["restarts"] == 1 or job.process.poll() is not None, 30,
             lambda: f"{new} is started again\n{job.stderr()}\n{job.log('master').decode()}")
    wait_for_places(job, {server: 6 // (servers + 1) for server in range(servers + 1)})
    (job.directory / "gate").touch()
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_server_that_nobody_has_room_for_stays(start, replicas):
    """If this fails, a server is ended although what it has, or a copy that it has, fits nowhere else, or the job tries that without
    end, or nobody is told why the server stays."""
    servers = 2 + replicas
    job = train(start, f"--max_servers={servers}", "--replicas", replicas, "--memory_max_mib=12", servers=servers, steps=40,
                arguments=("--elements", 900_000, "--hold", "4:gate"))
    job.wait_for_output("holding")
    wait_for(lambda: not replicas or job.log("master").decode().count("COPY-WHOLE") >= servers or job.process.poll() is not None,
             30, lambda: f"all have copies\n{job.log('master').decode()}")
    name = f"server{servers - 1}"
    assert scale(job, "--servers=-1").returncode == 0
    wait_for(lambda: f"{name} cannot leave: " in job.stderr() or job.process.poll() is not None, 30,
             lambda: f"it is told\n{job.stderr()}\n{job.log('master').decode()}")
    assert "memory_max_mib" in re.search(f"{name} cannot leave: (.*)", job.stderr())[1], job.stderr()
    wait_for(lambda: not replicas or all(part["copy"] == "whole" for part in parts(job)) or job.process.poll() is not None, 30,
             lambda: f"redundancy is back\n{job.log('master').decode()}")
    assert f"{name} has nothing any more" not in job.stderr()
    assert shown(job)[name]["state"] == "running"
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()


def test_what_is_refused(start):
    """If this fails, a job gets more servers than it may have or fewer than it can do with, or it is not said why not."""
    job = train(start, "--max_servers=2", arguments=("--elements", 1000, "--hold", "4:gate"), steps=8)
    job.wait_for_output("holding")
    for options, code, text in (
            (("--servers", 3), 3, "2 more: 1 of --max_servers 2 are there"),
            (("--servers", 0), 3, "to no servers, and it takes 1"),
            (("--servers=-1",), 3, "1 fewer of 1 leaves none, and it takes 1"),
            (("--servers", "+1", "--host", "elsewhere"), 3, "--host elsewhere: no machine of this job"),
            (("--servers", "many"), 2, "scale: many: how many servers?"),
            (("--servers", 2, "--workers", 2), 2, "one at a time")):
        told = scale(job, *options)
        assert told.returncode == code and text in told.stderr, (options, told)
    told = scale(job, "--servers", 1)
    assert (told.returncode, told.stdout) == (0, "there are so many already\n")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stderr()
    for options, text in ((("--max_servers=1", "--servers", 2), "max_servers 1: the job has 2 servers from the start"),
                          (("--max_servers=2", "--sum_failover=off"), "not with sum_failover=off"),
                          (("--max_servers=2", "--on_worker_death=wait"), "with on_worker_death=wait only with --replicas 1")):
        refused = start(*options, "--", "true", name=f"refused{len(text)}")
        assert refused.wait(60) == 2 and text in refused.stderr(), refused.stderr()


def test_a_server_that_cannot_start(start):
    """If this fails, a server that does not come, because it ends at once, ends the job that it was added to."""
    job = train(start, "--max_servers=2", "--memory_max_mib=1", arguments=("--elements", 1000, "--hold", "20:gate"), steps=40)
    job.wait_for_output("holding")
    assert scale(job, "--servers", 2).returncode == 0
    wait_for(lambda: shown(job).get("server1", {}).get("pid"), 30, "server 1 is started")
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    wait_for(lambda: "server1 has not come" in job.stderr() or shown(job)["server1"]["restarts"] > 0, 30,
             lambda: f"it is given up, or started again\n{job.stderr()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
