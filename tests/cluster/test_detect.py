# SPDX-License-Identifier: Apache-2.0
"""Servers that are silent, and pairs that cannot speak to each other: who is waited for, who is deposed, and that whoever is
out learns it, says so, and leaves."""

import os
import re
import signal

import pytest

from helpers import BRISK, DEAD_MS, digests, python_worker, wait_for

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
    job = start(*BRISK, "--workers", 2, "--servers", 2, "--server_wait_ms=2500", "-o", "logs", "--",
                *python_worker("--steps", 1_000_000))
    job.wait_for_output("step 10", 2)
    os.kill(job.pid_of("server1"), signal.SIGSTOP)
    assert job.wait(30) == 71, job.stderr()
    assert re.search(r"with code 71: server 1 \(pid \d+\) was silent for 2500 ms, although its machine answers", job.stderr())


# -------------------------------------------------------------------------------- fencing ---


def begin(hand, kind, *settings):
    """A job by hand that nobody watches: master, two servers, two workers."""
    master = hand.master(2, 2, *BRISK, "--server_return_ms=100", *settings)
    servers = [hand.server(index, *settings) for index in range(2)]
    workers = [hand.worker(rank, *kind, "--awkward", "--elements", 150_000, "--steps", 150) for rank in range(2)]
    return master, servers, workers


@pytest.mark.parametrize("kind, settings, taken", [
    (("--sum",), (), "server 0 is to take its part"),
    ((), ("--replicas=1",), "server 1: its copy has its places after"),
], ids=["sums", "copies"])
def test_stopped_server_is_out_when_it_wakes(hand, tmp_path, kind, settings, taken):
    """If this fails, a server that was stopped, and whose part another one has, goes on as if nothing had happened, holds up
    the others, or leaves without a word."""
    calm = type(hand)(tmp_path / "calm")
    calm.directory.mkdir()
    try:
        _, _, undisturbed = begin(calm, kind)
        assert [worker.wait(60) for worker in undisturbed] == [0, 0]
    finally:
        wait_for(lambda: all(one.process.poll() is not None for one in calm.processes), 20, "the calm job is over")
    master, servers, workers = begin(hand, kind, *settings)
    workers[0].wait_for_output("step 4\n")
    if settings:
        master.wait_for_output("COPY-WHOLE", count=2)
    servers[1].signal(signal.SIGSTOP)
    master.wait_for_output(f"server 1 ({server_address(servers[1])}) lost: silent for {DEAD_MS} ms")
    master.wait_for_output(taken)
    wait_for_steps(workers[0], 3)  # without it
    servers[1].signal(signal.SIGCONT)
    assert servers[1].wait(20) == 75, servers[1].output()
    last = servers[1].output().splitlines()[-1]
    assert re.search(rf"JOB-END .*server 1 was declared dead: silent for {DEAD_MS} ms", last), servers[1].output()
    assert [process.wait(60) for process in (*workers, master, servers[0])] == [0, 0, 0, 0], master.output()
    assert [digest(worker) for worker in workers] == [digest(worker) for worker in undisturbed]


def server_address(server):
    """Where its first lane listens."""
    return re.search(r"JOINED lane 0 of \d+ listens on (\S+),", server.output()).group(1)
