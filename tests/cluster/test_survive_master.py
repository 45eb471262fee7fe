# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the master: the others go on, it comes back and knows everything again, and no bit changes."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import uuid

import pytest

from helpers import BRISK, digests, program, python_worker, result, wait_for

KINDS = {"sums": ("--sum",), "values": ()}
WAYS = {"shared memory": (), "tcp": ("--transport=tcp",)}


def train(start, *options, name="job", arguments=(), servers=2):
    return start(*BRISK, "--workers", 2, "--servers", servers, *options, "-o", "logs", "--",
                 *python_worker("--awkward", "--elements", 150_000, "--steps", 40, *arguments), name=name)


def take_port(thief, port):
    with contextlib.suppress(OSError):
        thief.bind(("127.0.0.1", port))
        thief.listen()
        return True
    return False


def kill_master(job, time=1):
    """The time-th time; until it is back."""
    os.kill(job.pid_of("master"), signal.SIGKILL)
    wait_for(lambda: job.stderr().count("is back after") == time or job.process.poll() is not None, 20,
             f"the master is back\n{job.stderr()}")


@pytest.mark.parametrize("kind", ["sums", "values"])
def test_master_killed_changes_no_bit(start, kind):
    """If this fails, the death of the master ends a job, or changes what it computes."""
    calm = train(start, name="calm", arguments=KINDS[kind])
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=KINDS[kind])
    for time in range(1, 4):
        job.wait_for_output(f"step {4 * time}\n", 2)
        kill_master(job, time)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)
    told = re.findall(r"master .*was killed by signal 9.*; it is started again, .*and the job goes on", job.stderr())
    assert len(told) == 3, job.stderr()
    failovers = result(job)["failovers"]
    assert [one["process"] for one in failovers] == ["master"] * 3
    assert all(0 < one["seconds"] < 20 for one in failovers)


def test_steps_are_shown_while_the_master_is_away(start):
    """If this fails, a job seems to have begun anew, at step 0, after its master was killed."""
    name = f"away-{uuid.uuid4().hex[:8]}"
    job = train(start, "--name", name, arguments=("--hold", "20:gate"))
    job.wait_for_output("holding")

    def steps():
        shown = subprocess.run([program("psd_run"), "show", name, "--json"], capture_output=True, text=True, timeout=120,
                               check=True)
        told = json.loads(shown.stdout)
        return [one["step"] for one in told["processes"] + told["feed"]["processes"] if one["role"] == "worker"]

    wait_for(lambda: steps() == [19] * 4, 30, "psd_run knows where its workers are")
    os.kill(job.pid_of("master"), signal.SIGKILL)
    seen = []
    wait_for(lambda: seen.append(steps()) or "is back after" in job.stderr(), 30, f"the master is back\n{job.stderr()}")
    seen += [steps() for _ in range(5)]
    assert all(one == [19] * 4 for one in seen), seen
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()


@pytest.mark.parametrize("kind", ["sums", "values"])
def test_port_of_the_master_is_taken(start, kind):
    """If this fails, whoever takes the port of a dead master ends the job, or members do not find the next one:
    servers, whose sandbox must let them look, or workers."""
    arguments = (*KINDS[kind], "--hold", "20:gate")
    calm = train(start, name="calm", arguments=KINDS[kind])
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=arguments)
    job.wait_for_output("holding")
    port = int(re.search(r"master at tcp://127\.0\.0\.1:(\d+)", job.stderr())[1])
    with socket.socket() as thief:
        os.kill(job.process.pid, signal.SIGSTOP)  # nobody starts the next life before the port is ours
        os.kill(job.pid_of("master"), signal.SIGKILL)
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_for(lambda: take_port(thief, port), 30, "the port is free")
        os.kill(job.process.pid, signal.SIGCONT)
        wait_for(lambda: "is back after" in job.stderr() or job.process.poll() is not None, 20,
                 f"the master is back\n{job.stderr()}")
        (job.directory / "gate").touch()
        assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)
    (now,) = re.findall(r"the master listens at tcp://127\.0\.0\.1:(\d+) now", job.stderr())
    assert int(now) != port and result(job)["master"].endswith(f":{now}")
    assert [one["process"] for one in result(job)["failovers"]] == ["master"]


@pytest.mark.parametrize("first", ["master", "server0"])
def test_master_and_server_killed_together(start, first):
    """If this fails, the death of a server that no master sees is never noticed, or ends a job that only sums."""
    arguments = (*KINDS["sums"], "--hold", "20:gate")
    calm = train(start, name="calm", arguments=KINDS["sums"])
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=arguments)
    job.wait_for_output("holding")
    for name in (first, "server0" if first == "master" else "master"):
        os.kill(job.pid_of(name), signal.SIGKILL)
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("first", ["master", "servers"])
@pytest.mark.parametrize("way", WAYS)
def test_master_killed_with_all_servers(start, way, first, servers):
    """If this fails, a job that only sums ends because nobody but its workers knows it any more, or computes something else."""
    arguments = (*KINDS["sums"], "--hold", "20:gate")
    calm = train(start, *WAYS[way], name="calm", arguments=KINDS["sums"], servers=servers)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, *WAYS[way], arguments=arguments, servers=servers)
    job.wait_for_output("holding")
    names = [f"server{index}" for index in range(servers)]
    for name in ["master", *names] if first == "master" else [*names, "master"]:
        os.kill(job.pid_of(name), signal.SIGKILL)
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    assert sorted(one["process"] for one in result(job)["failovers"]) == sorted(["master", *names])


def test_master_killed_with_all_servers_again_and_again(start):
    """If this fails, what workers told of the job once is not enough to tell it again."""
    job = train(start, "--master_restarts", 9, "--server_restarts", 9, arguments=(*KINDS["sums"], "--hold", "20:gate"),
                servers=1)
    job.wait_for_output("holding")
    for time in range(3):
        os.kill(job.pid_of("server0"), signal.SIGKILL)
        os.kill(job.pid_of("master"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == 2 * time + 2 or job.process.poll() is not None, 30,
                 f"both are back\n{job.stderr()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()


def test_master_killed_with_the_only_server_of_values(start):
    """If this fails, a job whose parameters are lost is not told so, or is blamed on the master."""
    job = train(start, arguments=("--hold", "20:gate"), servers=1)
    job.wait_for_output("holding")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    os.kill(job.pid_of("master"), signal.SIGKILL)
    assert job.wait(60) == 137, job.stderr()
    assert "its part of table" in job.stderr()
    assert "with psd_run --servers 2 --replicas 1 another server keeps a copy" in job.stderr()


def test_master_and_server_killed_when_one_worker_is_done(start, tmp_path):
    """If this fails, a worker that is done is missed because those who knew are dead."""
    gate = tmp_path / "gate"
    job = train(start, arguments=(*KINDS["sums"], "--hold", f"closing:{gate}"), servers=1)
    job.wait_for_output("closed\n")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    os.kill(job.pid_of("master"), signal.SIGKILL)
    gate.touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()


def test_master_killed_during_a_barrier(start, tmp_path):
    """If this fails, workers wait for ever in a barrier, or pass one to which others have not come."""
    gate = tmp_path / "gate"
    job = train(start, arguments=("--meet", "--hold", f"20:{gate}"))
    job.wait_for_output("holding")
    job.wait_for_output("step 19\n", 2)  # the other one waits in the barrier
    kill_master(job)
    assert "step 20\n" not in job.stdout()
    gate.touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_master_killed_when_one_worker_is_done(start, tmp_path, policy):
    """If this fails, a worker that is done is missed by a master that did not hear it say so."""
    gate = tmp_path / "gate"
    job = train(start, f"--on_worker_death={policy}", arguments=("--hold", f"closing:{gate}"))
    job.wait_for_output("closed\n")
    kill_master(job)
    gate.touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()


def test_master_killed_at_the_end(start):
    """If this fails, a job that is about to end does not, or not well."""
    job = train(start)
    job.wait_for_output("values ")
    with contextlib.suppress(ProcessLookupError):  # it may have ended
        os.kill(job.pid_of("master"), signal.SIGKILL)
    assert job.wait(60) == 0, job.stdout() + job.stderr()


def test_master_that_nobody_starts_again(hand):
    """If this fails, a job without its master never ends, or does not wait for it."""
    master = hand.master(2, 1, *BRISK, "--master_grace_ms=4000")
    server = hand.server()
    workers = [hand.worker(rank, "--steps", 1_000_000) for rank in range(2)]
    workers[1].wait_for_output("step 20")
    master.signal(signal.SIGKILL)
    assert master.wait() == 137
    for worker in workers:
        assert worker.wait(60) == 1
        assert re.search("error PSD_ERR_.*master .* lost: silent for 4000 ms", worker.output())
    assert server.wait(60) == 72
    assert re.search("JOB-END .*master .* lost: silent for 4000 ms", server.output())


def test_master_that_dies_too_often(start):
    """If this fails, a master that cannot live is started for ever."""
    job = train(start, "--master_restarts", 1, arguments=("--hold", "30:never"))
    job.wait_for_output("holding")
    kill_master(job)
    os.kill(job.pid_of("master"), signal.SIGKILL)
    assert job.wait(60) == 137
    assert re.search(r"ps_master .*was killed by signal 9", job.stderr())


def test_master_that_hangs(start):
    """If this fails, a master that is stopped is waited for until the job dies of it."""
    calm = train(start, name="calm", arguments=KINDS["values"])
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=(*KINDS["values"], "--hold", "20:gate"))
    job.wait_for_output("holding")
    os.kill(job.pid_of("master"), signal.SIGSTOP)
    wait_for(lambda: "is back after" in job.stderr(), 30, f"the master is back\n{job.stderr()}")
    assert re.search(r"master .*was silent for \d+ ms and was killed; it is started again", job.stderr())
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)
