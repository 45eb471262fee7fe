# SPDX-License-Identifier: Apache-2.0
"""kill -9 and SIGSTOP of servers of a job that only sums: it goes on, and no bit changes; and who is told what when it
cannot."""

import itertools
import json
import os
import re
import signal
import subprocess
import time
import uuid

import pytest

from helpers import BRISK, DEAD_MS, digests, program, python_worker, result, wait_for

# Three chunks a table, and a small table whose values go another way.
SUMS = ("--sum", "--awkward", "--elements", 150_000, "--steps", 60)
WAYS = {"shared memory": (), "tcp": ("--transport=tcp",)}


def train(start, *options, servers=1, name="job", arguments=SUMS):
    return start(*BRISK, "--workers", 2, "--servers", servers, *options, "-o", "logs", "--",
                 *python_worker(*arguments), name=name)


def kill(job, name, times):
    """Each time when the last is over, and a step later."""
    for count in range(1, times + 1):
        job.wait_for_output(f"step {4 * count}\n", 2)
        os.kill(job.pid_of(name), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == count or job.process.poll() is not None, 20,
                 f"{name} is back\n{job.stderr()}")


@pytest.mark.parametrize("way, memory", [*itertools.product(WAYS, ["ordinary", "region"]), ("tcp", "view")])
@pytest.mark.parametrize("servers", [1, 2])
def test_server_killed_changes_no_bit(start, way, servers, memory):
    """If this fails, the death of a server ends a job that only sums, or changes what it computes."""
    arguments = (*SUMS, "--memory", memory)
    calm = train(start, *WAYS[way], servers=servers, name="calm", arguments=arguments)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, *WAYS[way], servers=servers, arguments=arguments)
    kill(job, "server0", 3)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)
    told = re.findall(r"server 0 .*was killed by signal 9 .*; it is started again, .*and the job goes on", job.stderr())
    assert len(told) == 3, job.stderr()
    failovers = result(job)["failovers"]
    assert [one["process"] for one in failovers] == ["server0"] * 3
    assert all(0 < one["seconds"] < 20 for one in failovers)


@pytest.mark.parametrize("way", WAYS)
def test_sums_that_nobody_has_read_yet(start, tmp_path, way):
    """If this fails, a push that was answered is lost when its server dies before anybody has pulled the sum."""
    arguments = (*SUMS, "--split")
    calm = train(start, *WAYS[way], name="calm", arguments=arguments)
    assert calm.wait(60) == 0, calm.stderr()
    gates = [tmp_path / f"gate{step}" for step in (7, 20)]
    job = train(start, *WAYS[way], arguments=(*arguments, "--hold", f"pushed7:{gates[0]}", "--hold", f"pushed20:{gates[1]}"))
    for count, gate in enumerate(gates, 1):
        job.wait_for_output("holding", count)  # worker 0 has pushed, and not pulled
        os.kill(job.pid_of("server0"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == count or job.process.poll() is not None, 20, job.stderr)
        gate.touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)


def test_what_is_shown_of_a_server_that_was_started_again(start, tmp_path):
    """If this fails, a server that runs is shown with the signal that ended an earlier life of it; or those who watch do
    not see that it was replaced."""
    name = f"back-{uuid.uuid4().hex[:8]}"
    gate = tmp_path / "gate"
    job = train(start, "--name", name, arguments=(*SUMS, "--hold", f"20:{gate}"))
    kill(job, "server0", 1)

    def shown(*more):
        return subprocess.run([program("psd_run"), "show", *more, name], capture_output=True, text=True, timeout=120,
                              check=True).stdout

    row = next(line for line in shown().splitlines() if line.startswith("server0"))
    assert f" {job.pid_of('server0')} " in row and "running, restarted 1x" in row and "signal" not in row, row
    story = json.loads(shown("--json"))
    server = next(process for process in story["processes"] if process["name"] == "server0")
    assert [server[key] for key in ("state", "code", "signal", "ended", "restarts")] == ["running", None, None, None, 1]
    told = [event["text"] for event in story["feed"]["events"] if event["kind"] == "failover"]
    assert len(told) == 2 and "it is started again" in told[0] and "is back after" in told[1], story["feed"]["events"]
    wait_for(lambda: json.loads(shown("--json"))["feed"]["job"]["survived"] == "1 fail-over", 30, "it is counted")
    gate.touch()
    assert job.wait(60) == 0, job.stderr()
    assert re.search(r"server0 died and was back after (\d+ ms|\d+\.\d s)\n", job.stderr()), job.stderr()


def test_silent_server_makes_room_for_another_life(start):
    """If this fails, a server that hangs holds a job that only sums, or the job ends of it."""
    job = train(start, servers=2)
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server1"), signal.SIGSTOP)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert re.search(rf"server 1 \(pid \d+\) was silent for {DEAD_MS} ms and was killed; it is started again", job.stderr())
    assert [one["process"] for one in result(job)["failovers"]] == ["server1"]


def test_server_that_dies_too_often_ends_the_job(start):
    """If this fails, a server that cannot live is started for ever, or nobody learns why it is not."""
    job = train(start, "--server_restarts", 1, arguments=(*SUMS[:-1], 1_000_000))
    kill(job, "server0", 1)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    assert job.wait(60) == 137, job.stderr()
    assert "it was not started again: 1 short life before this one (--server_restarts)" in job.stderr()
    assert len(result(job)["failovers"]) == 1


@pytest.mark.parametrize("way", WAYS)
def test_another_server_takes_the_part_of_one_that_stays_away(start, way):
    """If this fails, a job that only sums cannot do without a server that is never started again, or computes
    something else without it."""
    calm = train(start, *WAYS[way], servers=2, name="calm")
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, *WAYS[way], "--server_restarts", 0, servers=2)
    kill(job, "server1", 1)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert digests(job) == digests(calm)
    assert re.search("server 1 .*was killed by signal 9 .*; another server takes its part, and the job goes on", job.stderr())
    assert [(one["process"], one["by"]) for one in result(job)["failovers"]] == [("server1", "another server")]


def test_how_long_a_part_was_lost_with_another_server(start):
    """If this fails, a part that another server had taken, and that was lost with it, is said to have been lost since its own
    server died."""
    job = train(start, "--server_restarts", 1, servers=2, arguments=(*SUMS[:-1], 1_000_000))
    kill(job, "server1", 1)
    os.kill(job.pid_of("server1"), signal.SIGKILL)  # once too often: the other one has both parts
    wait_for(lambda: "the part of server 1" in job.stderr(), 20, lambda: f"the part of server 1 is back\n{job.stderr()}")
    begin, back = time.monotonic(), job.stderr().count("is back after")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    wait_for(lambda: job.stderr().count("is back after") >= back + 2, 30, lambda: f"both parts are back\n{job.stderr()}")
    passed = time.monotonic() - begin
    told = [float(number) / (1000 if unit == "ms" else 1)
            for number, unit in re.findall(r"is back after ([\d.]+) (m?s)", job.stderr())]
    job.process.send_signal(signal.SIGTERM)
    job.wait(60)
    assert max(told[back:]) <= passed + 0.1, job.stderr()


# -------------------------------------------------------------------------------- by hand ---


def begin(hand, *settings, sums=True, steps=1_000_000):
    """A job of which everybody has taken some steps: master, server, workers."""
    master = hand.master(2, 1, *BRISK, *settings)
    server = hand.server()
    kind = ("--sum",) if sums else ()
    workers = [hand.worker(rank, *kind, "--elements", 150_000, "--steps", steps) for rank in range(2)]
    workers[0].wait_for_output("step 4\n")
    server.signal(signal.SIGKILL)
    return master, workers


def test_server_started_again_by_hand(hand):
    """If this fails, only psd_run can start a server again, or a person does not learn that it would help."""
    master, workers = begin(hand, steps=60)
    master.wait_for_output("for ps_server --index 0 --lanes 1 to be started again (server_wait_ms)")
    server = hand.server(name="again")
    assert [process.wait(60) for process in (*workers, master, server)] == [0, 0, 0, 0], master.output()
    assert "server 0 is back, in another life" in master.output()


def test_server_that_nobody_starts_again(hand):
    """If this fails, a job waits for ever for a server, or its workers are not told for which."""
    master, workers = begin(hand, "--server_wait_ms=500")
    why = r"server 0 \(.*\) lost: .*; not started again in 500 ms \(server_wait_ms\)"
    assert master.wait(60) == 71
    assert re.search(f"JOB-END {why}", master.output())
    for worker in workers:
        assert worker.wait(60) == 1
        assert re.search(f"error PSD_ERR_PEER_LOST: .*{why}", worker.output())


@pytest.mark.parametrize("settings, sums, why", [
    (("--sum_failover=off",), True, "it is not waited for (sum_failover is off)"),
    (("--on_worker_death=wait",), True, "(with psd_run --servers 2 --replicas 1 another server keeps a copy)"),
    ((), False, "its part of table table0 is lost with it"),
], ids=["off", "wait", "update tables"])
def test_server_that_is_not_waited_for(hand, settings, sums, why):
    """If this fails, a job waits for a server that it cannot go on with, or does not say why it ends."""
    master, workers = begin(hand, *settings, sums=sums)
    assert master.wait(60) == 71
    assert why in master.output().splitlines()[-1]
    for worker in workers:
        assert worker.wait(60) == 1
        assert why in worker.output()


def test_another_server_takes_the_part_by_hand(hand):
    """If this fails, a job without psd_run ends with a server although another one is there, or that one cannot be
    told from an impostor."""
    master = hand.master(2, 2, *BRISK, "--server_return_ms=100")
    servers = [hand.server(index) for index in range(2)]
    workers = [hand.worker(rank, "--sum", "--elements", 150_000, "--steps", 60) for rank in range(2)]
    workers[0].wait_for_output("step 4\n")
    servers[1].signal(signal.SIGKILL)
    assert [process.wait(60) for process in (*workers, master, servers[0])] == [0, 0, 0, 0], master.output()
    assert "server 1 was not started again in 100 ms: server 0 is to take its part" in master.output()
    assert re.search("TAKE-PLACE.* becomes lane 0 of server 1, which is lost", servers[0].output())


def test_the_end_of_a_server_is_told(start):
    """If this fails, the master waits for a dead server to renew its connection, although psd_run has seen it end."""
    job = train(start, "--server_grace_ms=15000", servers=2)
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert "lost: its process has ended" in job.log("master").decode()
    assert [one["process"] for one in result(job)["failovers"]] == ["server0"]
    assert result(job)["failovers"][0]["seconds"] < 14
