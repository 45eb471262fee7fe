# SPDX-License-Identifier: Apache-2.0
"""Servers that are silent, and pairs that cannot speak to each other: who is waited for, who is deposed, and that whoever is
out learns it, says so, and leaves."""

import os
import re
import signal

import pytest

from helpers import BRISK, DEAD_MS, SERVER_WAIT_MS, digests, free_port, program, python_worker, wait_for

UPDATES = ("--awkward", "--elements", 150_000, "--steps", 60)


def digest(worker):
    """Of all that a worker was given."""
    (found,) = re.findall(r"values ([0-9a-f]{40})", worker.output())
    return found


def steps(worker):
    return worker.output().count("step ")


def wait_for_steps(worker, more):
    """It takes so many more steps."""
    before = steps(worker)
    wait_for(lambda: steps(worker) >= before + more or worker.process.poll() is not None, 30,
             lambda: f"{worker.name} takes {more} more steps\n{worker.output()}")


# -------------------------------------------------------------------------------- silence ---


def test_stopped_server_that_nobody_can_replace_is_waited_for(start):
    """If this fails, a server that is stopped for a while ends a job that could have waited for it, or changes what the job
    computes."""
    options = (*BRISK, "--workers", 2, "--servers", 2, "-o", "logs", "--", *python_worker(*UPDATES))
    calm = start(*options, name="calm")
    assert calm.wait(60) == 0, calm.stderr()
    job = start(*options)
    job.wait_for_output("step 4\n", 2)
    victim = job.pid_of("server1")
    os.kill(victim, signal.SIGSTOP)
    waits = rf"server 1 \(.*\) silent for {DEAD_MS} ms; nobody can take its part of table table0, so the job waits for it"
    wait_for(lambda: re.search(waits, job.stderr()), 20, lambda: f"the master misses it\n{job.stderr()}")
    os.kill(victim, signal.SIGCONT)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)
    assert re.search(r"server 1 \(.*\) speaks again after \d+ ms: the job goes on", job.log("master").decode())


def test_stopped_server_is_not_waited_for_without_end(start):
    """If this fails, a server that hangs holds a job for ever, or nobody learns which."""
    job = start(*BRISK, "--workers", 2, "--servers", 2, f"--server_wait_ms={SERVER_WAIT_MS}", "-o", "logs", "--",
                *python_worker("--steps", 1_000_000))
    job.wait_for_output("step 10", 2)
    os.kill(job.pid_of("server1"), signal.SIGSTOP)
    assert job.wait(60) == 71, job.stderr()
    assert re.search(rf"with code 71: server 1 \(pid \d+\) was silent for {SERVER_WAIT_MS} ms, although its machine answers",
                     job.stderr())


# -------------------------------------------------------------------------------- fencing ---


def begin(hand, kind, *settings, steps=150):
    """A job by hand that nobody watches: master, two servers, two workers."""
    master = hand.master(2, 2, *BRISK, "--server_return_ms=100", *settings)
    servers = [hand.server(index, *settings) for index in range(2)]
    workers = [hand.worker(rank, *kind, "--awkward", "--elements", 150_000, "--steps", steps) for rank in range(2)]
    return master, servers, workers


def undisturbed(hand, kind, steps=150):
    """What its workers are given if nothing happens."""
    calm = type(hand)(hand.directory / "calm")
    calm.directory.mkdir()
    try:
        master, servers, workers = begin(calm, kind, steps=steps)
        assert [process.wait(60) for process in (*workers, master, *servers)] == [0] * 5, master.output()
    finally:
        calm.kill_all()
    return [digest(worker) for worker in workers]


@pytest.mark.parametrize("kind, settings, taken", [
    (("--sum",), (), "server 0 is to take its part"),
    ((), ("--replicas=1",), "server 1: its copy has its places after"),
], ids=["sums", "copies"])
def test_stopped_server_is_out_when_it_wakes(hand, kind, settings, taken):
    """If this fails, a server that was stopped, and whose part another one has, goes on as if nothing had happened, holds up
    the others, or leaves without a word."""
    expected = undisturbed(hand, kind)
    master, servers, workers = begin(hand, kind, *settings)
    workers[0].wait_for_output("step 4\n")
    if settings:
        master.wait_for_output("COPY-WHOLE", count=2)
    servers[1].signal(signal.SIGSTOP)
    master.wait_for_output(f"server 1 ({server_address(servers[1])}) lost: silent for {DEAD_MS} ms")
    master.wait_for_output(taken)
    wait_for_steps(workers[0], 3)  # without it
    servers[1].signal(signal.SIGCONT)
    assert servers[1].wait(60) == 75, servers[1].output()
    last = servers[1].output().splitlines()[-1]
    assert re.search(rf"JOB-END .*server 1 was declared dead: silent for {DEAD_MS} ms", last), servers[1].output()
    assert [process.wait(60) for process in (*workers, master, servers[0])] == [0, 0, 0, 0], master.output()
    assert [digest(worker) for worker in workers] == expected


def test_stopped_guest_is_sent_away_when_it_wakes(hand):
    """If this fails, a server that only has places which it took when it stood by, and was stopped until they were given away
    again, goes on to serve them, or says nothing. If one of its lanes still stands by, it does not end."""
    master, servers, workers = begin(hand, (), "--replicas=1", steps=1_000_000)
    workers[0].wait_for_output("step 4\n")
    copies = 2
    master.wait_for_output("COPY-WHOLE", count=copies)
    for index in range(2):  # each begins another life, and stands by; the first one then has the places of both
        servers[index].signal(signal.SIGKILL)
        servers[index].wait(60)
        servers[index] = hand.server(index, "--replicas=1")
        servers[index].wait_for_output("STANDS-BY")
        copies += 2
        master.wait_for_output("COPY-WHOLE", count=copies)
    servers[0].signal(signal.SIGSTOP)
    master.wait_for_output("its copy has its places after", count=5)  # one, both, and both again
    wait_for_steps(workers[0], 3)
    servers[0].signal(signal.SIGCONT)
    servers[0].wait_for_output("SENT-AWAY a lane that had the place of another server's ends: ", count=2)
    servers[0].signal(signal.SIGKILL)
    assert servers[0].wait(60) in (128 + signal.SIGKILL, 75), servers[0].output()
    servers[0] = hand.server(0, "--replicas=1")  # with all of its lanes again
    master.wait_for_output("COPY-WHOLE", count=copies + 2)
    wait_for_steps(workers[0], 3)
    for process in (*workers, *servers, master):
        process.signal(signal.SIGKILL)
        process.wait(60)


def server_address(server):
    """Where its first lane listens."""
    return re.search(r"JOINED lane 0 of \d+ listens on (\S+),", server.output()).group(1)


# --------------------------------------------------------- pairs that cannot speak to each other ---


def begin_apart(hand, hosts, kind, *settings):
    """A job on two hosts by hand: master, server 0 and worker 0 on the first, server 1 and worker 1 on the second."""
    port = free_port()
    address = f"tcp://{hosts.addresses[0]}:{port}"
    master = hand.start("master", *hosts.inside(0, program("ps_master"), "--workers", 2, "--servers", 2, "--bind",
                                                hosts.addresses[0], "--port", port, *BRISK, "--server_return_ms=100", *settings))
    replicas = [word for word in settings if word.startswith("--replicas")]
    servers = [hand.start(f"server{i}", *hosts.inside(i, program("ps_server"), "--index", i, "--master_address", address,
                                                      "--bind", hosts.addresses[i], "--lanes=1", *replicas))
               for i in range(2)]
    workers = [hand.start(f"worker{i}", *hosts.inside(i, *python_worker(*kind, "--awkward", "--elements", 150_000, "--steps", 60)),
                          environment={"PSD_MASTER_ADDRESS": address, "PSD_RANK": str(i), "PSD_HIERARCHY": "off"})
               for i in range(2)]
    workers[1].wait_for_output("step 4\n")
    return master, servers, workers


def port_of(address):
    return int(address.rpartition(":")[2])


# What the worker says is lost, or what the server says: one direction is enough to end a conversation.
WAYS = {"worker to server": (0, "dport"), "server to worker": (1, "sport")}


@pytest.mark.parametrize("way", WAYS)
def test_server_that_half_of_the_workers_do_not_reach_is_deposed(hand, hosts, way):
    """If this fails, a cut between a worker and a server, both of which reach the master, holds up a job that could do without
    the server; or the deposed server goes on."""
    expected = undisturbed(hand, ("--sum",), 60)
    master, servers, workers = begin_apart(hand, hosts, ("--sum",))
    host, side = WAYS[way]
    address = server_address(servers[0])
    hosts.drop(host, side, port_of(address))
    master.wait_for_output("UNREACHED worker 1 does not reach server 0")
    assert servers[0].wait(60) == 75, servers[0].output()
    assert "server 0 was declared dead: 1 of 2 workers do not reach it" in servers[0].output().splitlines()[-1]
    assert [process.wait(60) for process in (*workers, master, servers[1])] == [0, 0, 0, 0], master.output()
    assert [digest(worker) for worker in workers] == expected
    assert "server 1 is to take its part" in master.output()


@pytest.mark.parametrize("way", WAYS)
def test_worker_that_does_not_reach_a_server_that_nobody_can_replace(hand, hosts, way):
    """If this fails, a worker that is cut off from a server waits until its operations give up, and nobody learns why."""
    master, servers, workers = begin_apart(hand, hosts, ())
    host, side = WAYS[way]
    hosts.drop(host, side, port_of(server_address(servers[0])))
    assert master.wait(60) == 70, master.output()
    why = r"does not reach server 0 \(tcp://.*\), which nobody can replace: "
    assert re.search(rf"JOB-END worker 1 \(.*\) lost: {why}", master.output()), master.output()
    for worker in workers:
        assert worker.wait(60) == 1
        assert re.search(why, worker.output()), worker.output()
    assert [server.wait(60) for server in servers] == [70, 70]


def test_server_that_does_not_reach_its_copy_goes_on_without(hand, hosts):
    """If this fails, a cut between a server and its copy, both of which reach the master, holds up the job for ever."""
    expected = undisturbed(hand, (), 60)
    master, servers, workers = begin_apart(hand, hosts, (), "--replicas=1")
    master.wait_for_output("COPY-WHOLE", count=2)
    copy = re.search(r"COPY-WHOLE server 0 has a copy in server 1 \((\S+)\)", master.output()).group(1)
    hosts.drop(1, "dport", port_of(copy))
    master.wait_for_output("COPY-LOST server 0 goes on without its copy in server 1")
    assert [process.wait(60) for process in (*workers, master, *servers)] == [0] * 5, master.output()
    assert [digest(worker) for worker in workers] == expected
    assert "MEMBER-LOST" not in master.output()
