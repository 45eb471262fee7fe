# SPDX-License-Identifier: Apache-2.0
"""A plain MNIST script whose servers are killed again and again, each after a minute of serving, ends with the weights, to
the bit, of a training that nobody disturbed. With default settings: nobody has to know of servers to survive them."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from bed import SshJob, hosts, seen_inside
from helpers import Job, bin_directory, marked_processes, result, wait_for

pytest.importorskip("torch", reason="no PyTorch here (tools/setup.sh frameworks)")

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
SCRIPT = HERE / "plain" / "mnist_paced.py"
MNIST = pathlib.Path(os.environ.get("MNIST_DATA", TREE / "data" / "mnist")).resolve()
KILLS = 5
SERVED_S = 61  # a life that served for a minute does not count against server_restarts
BACK_S = 60  # also for the first step, after PyTorch was imported
LASTS_S = KILLS * (SERVED_S + 15) + 60  # so long the training goes on, at least
END_S = 300  # ... and this much longer at most

pytestmark = [pytest.mark.all,
              pytest.mark.skipif(not (MNIST / "train-images-idx3-ubyte.gz").exists(),
                                 reason="no MNIST files (examples/mnist/fetch.sh, MNIST_DATA)")]


@pytest.fixture(name="train")
def fixture_train(tmp_path):
    """Starts a training of two workers; calm: one that rests for no time."""
    jobs = []

    def begin(name, servers, rest_s=0.0):
        library = (bin_directory() / "ps_server").resolve().parent / "libpsd.so.0"
        jobs.append(Job(tmp_path / name, "--workers", 2, "--servers", servers, "--", sys.executable, SCRIPT, MNIST, rest_s,
                        environment={"OMP_NUM_THREADS": "1", "PSD_LIB": str(library)}))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()


def trained(job):
    """(weights, steps); all workers have the same."""
    (weights,) = set(re.findall(r"WEIGHTS (\w{64})", job.stdout()))
    (count,) = set(re.findall(r"TRAINED (\d+) steps", job.stdout()))
    return weights, int(count)


def steps(job):
    return len(re.findall(r"STEP \d+\n", job.stdout()))


def wait_for_step(job, meanwhile=lambda: None):
    """Somebody takes one more."""
    before = steps(job)

    def is_taken():
        meanwhile()
        return steps(job) > before or job.process.poll() is not None

    wait_for(is_taken, BACK_S, lambda: f"a step\n{job.stderr()}")
    assert job.process.poll() is None, job.stderr()


def kill_after_a_minute(job, name, kill, meanwhile=lambda: None):
    """Kills a server that has served for a minute, and returns when training goes on with its next life. One that a busy
    machine gave no time, so that it was replaced meanwhile, begins anew."""
    served = None
    wait_for_step(job)
    while served != job.pid_of(name):
        served, begin = job.pid_of(name), time.monotonic()
        wait_for(lambda: time.monotonic() >= begin + SERVED_S or job.pid_of(name) != served or job.process.poll() is not None,
                 SERVED_S + 5, "a minute of serving")
        assert job.process.poll() is None, job.stdout()[-500:] + job.stderr()
        wait_for_step(job)
    back = job.stderr().count(" is back after ")
    kill(served)

    def is_back():
        meanwhile()
        return job.stderr().count(" is back after ") > back or job.process.poll() is not None

    wait_for(is_back, BACK_S, lambda: f"{name} is back\n{job.stderr()}")
    wait_for_step(job, meanwhile)


def kill_here(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_server_killed_five_times_changes_no_weight(train):
    """If this fails, a plain script does not outlive the deaths of its only server, or trains something else after one."""
    calm = train("calm", 1)
    assert calm.wait(END_S) == 0, calm.stderr()
    weights, count = trained(calm)
    job = train("killed", 1, rest_s=LASTS_S / count)
    for _ in range(KILLS):
        kill_after_a_minute(job, "server0", kill_here)
    assert job.wait(END_S) == 0, job.stderr()
    assert trained(job) == (weights, count)
    failovers = result(job)["failovers"]
    print(f"\n{count} steps in {job.seconds:.0f} s; back after", [one["seconds"] for one in failovers])
    assert len(failovers) >= KILLS and {one["process"] for one in failovers} == {"server0"}


def test_a_server_that_never_returns_changes_no_weight(train):
    """If this fails, a plain script does not outlive one of two servers that dies whenever it is started, or the deaths of the
    other one, which has the parts of both from then on."""
    calm = train("calm", 2)
    assert calm.wait(END_S) == 0, calm.stderr()
    weights, count = trained(calm)
    job = train("killed", 2, rest_s=LASTS_S / count)
    wait_for_step(job)

    def keep_away():
        """Whenever the other one is started, it dies."""
        if job.pid_of("server1") in marked_processes(job.mark):
            kill_here(job.pid_of("server1"))

    def is_given_up():
        keep_away()
        return "another server takes its part" in job.stderr()

    wait_for(is_given_up, BACK_S, lambda: f"server 1 is given up\n{job.stderr()}")
    wait_for_step(job, keep_away)
    for _ in range(KILLS):
        kill_after_a_minute(job, "server0", kill_here, keep_away)
    assert job.wait(END_S) == 0, job.stderr()
    assert trained(job) == (weights, count)
    failovers = result(job)["failovers"]
    print(f"\n{count} steps in {job.seconds:.0f} s; back after",
          [(one["process"], one["by"], one["seconds"]) for one in failovers])
    assert [one["process"] for one in failovers].count("server0") >= KILLS
    assert "another server" in [one["by"] for one in failovers if one["process"] == "server1"]
    assert max(one["seconds"] for one in failovers) < BACK_S


# ---------------------------------------------------------------------------- between machines ---


@pytest.fixture(name="bed")
def fixture_bed():
    why = hosts.missing()
    if why is not None:
        pytest.skip(f"no hosts: {why}")
    made = hosts.Testbed(3)
    yield made
    made.remove()


def sent(host):
    """What the host has said, in bytes."""
    table = subprocess.run(host.inside("cat", "/proc/net/dev"), capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in table.splitlines() if "eth0:" in line]
    return int(line.partition(":")[2].split()[8])


def test_a_server_of_another_machine_changes_no_weight(bed):
    """If this fails, a plain script whose workers add up their gradients on their machine does not outlive the deaths of its
    server on another, or trains something else after one."""
    def train(rest_s, **variables):
        config = {"worker_nodes": ["host1", "host1"], "server_nodes": ["host2"], "master_node": "host3",
                  "env": {"OMP_NUM_THREADS": "1", **variables}}
        return SshJob(bed, config, f"{sys.executable} {seen_inside(SCRIPT)} {MNIST} {rest_s}")

    def kill_there(pid):
        subprocess.run(bed.hosts[2].inside("kill", "-9", pid), check=True)

    calm = train(0, PSD_HIERARCHY="off")
    assert calm.wait(END_S) == 0, calm.stderr()
    weights, count = trained(calm)
    each_alone = sent(bed.hosts[1])
    job = train(LASTS_S / count)
    for _ in range(KILLS):
        kill_after_a_minute(job, "server0", kill_there)
    assert job.wait(END_S) == 0, job.stderr()
    assert trained(job) == (weights, count)
    failovers = result(job)["failovers"]
    assert len(failovers) >= KILLS and {one["process"] for one in failovers} == {"server0"}
    together = sent(bed.hosts[1]) - each_alone
    print(f"\n{count} steps in {job.seconds:.0f} s; sums of both workers: {together / each_alone:.2f} of the bytes; back after",
          [one["seconds"] for one in failovers])
    assert together < 0.75 * each_alone
