# SPDX-License-Identifier: Apache-2.0
"""psd_run scale --workers: a job that runs gets more workers, or fewer, and nothing is lost."""

import json
import re
import subprocess
import sys
import uuid

import pytest

from helpers import BRISK, HERE, program, python_worker, result, wait_for

TREE = HERE.parents[1]


def train(start, *options, workers=2, arguments=(), steps=400, equal=True, name="job"):
    """Worker 0 stands before step 200 until the gate is open, and the others with it."""
    title = f"scale-{uuid.uuid4().hex[:8]}"
    gates = [f"{step}:gate{step}" for step in (20, 200)]
    job = start(*BRISK, "--workers", workers, "--servers", 2, "--name", title, *options, "-o", "logs", "--",
                *python_worker(*(("--equal",) if equal else ()), "--pull_first", "--leave_on_term", "--steps", steps,
                               *(word for gate in gates for word in ("--hold", gate)), *arguments), name=name)
    job.title = title
    job.wait_for_output("holding")
    return job


def open_gate(job, step):
    (job.directory / f"gate{step}").touch()


def scale(job, *options):
    return subprocess.run([program("psd_run"), "scale", job.title, *map(str, options)], capture_output=True, text=True,
                          timeout=60)


def processes(job):
    shown = subprocess.run([program("psd_run"), "show", job.title, "--json"], capture_output=True, text=True, timeout=60)
    return {process["name"]: process for process in json.loads(shown.stdout)["processes"]}


def furthest_step(job):
    shown = subprocess.run([program("psd_run"), "show", job.title, "--json"], capture_output=True, text=True, timeout=60)
    return max(process.get("step") or 0 for process in json.loads(shown.stdout)["feed"]["processes"])


def test_a_job_grows_and_shrinks(start):
    """If this fails, a worker that is added to a job does not count, or one that is asked to leave loses its step or takes
    the job along, or nobody can see since which step who counted."""
    job = train(start, "--max_workers=4", "--on_worker_death=continue")
    told = scale(job, "--workers", "+2")
    assert (told.returncode, told.stdout) == (
        0, "worker2 is started on localhost\nworker3 is started on localhost\n"), told.stderr
    job.wait_for_output("[worker2] joined 2 1")
    job.wait_for_output("[worker3] joined 3 1")
    open_gate(job, 20)
    job.wait_for_output("holding", 2)
    began = {name: process.get("counts_from") for name, process in processes(job).items()}
    assert began["worker0"] is None and 20 < began["worker2"] <= began["worker3"] < 30
    told = scale(job, "--workers", 3)
    assert (told.returncode, told.stdout) == (0, "worker3 is asked to leave, by SIGTERM, in 30 s\n"), told.stderr
    assert processes(job)["worker3"]["state"] == "running"
    open_gate(job, 200)
    assert job.wait(60) == 0, job.stderr()
    left = re.search(r"\[worker3\] leaves before step (\d+)", job.stdout())
    assert left and "[worker3] closed" in job.stdout()
    said = job.stderr()
    assert f"worker2 counts from step {began['worker2']} on" in said
    assert f"worker3 has left: who counts is another set from step {int(left[1]) + 1} on" in said
    assert "2 workers joined on the way, 1 was asked to leave" in said
    ended = {process["name"]: process for process in result(job)["processes"]}
    assert ended["worker3"]["counts_until"] == int(left[1]) + 1 and ended["worker3"]["code"] == 0
    assert [ended[f"worker{rank}"]["state"] for rank in (2, 3)] == ["done", "left"]
    hashes = re.findall(r"\[worker[01]\] values (\w+)", job.stdout())
    assert len(hashes) == 2 and len(set(hashes)) == 1


def schedule(start, name):
    """Worker 2 counts from step 250 on, worker 3 from step 260: what worker 0 saw in all steps."""
    job = train(start, "--max_workers=4", arguments=("--awkward", "--elements", 70_000), equal=False, name=name)
    open_gate(job, 20)
    job.wait_for_output("holding", 2)
    for count, step in ((3, 250), (4, 260)):
        told = scale(job, "--workers", count, "--at_step", step)
        assert told.stdout == f"worker{count - 1} is started on localhost, to count from step {step} on\n", told.stderr
        job.wait_for_output(f"[worker{count - 1}] joined {count - 1} 1")
    open_gate(job, 200)
    assert job.wait(90) == 0, job.stderr()
    ended = {process["name"]: process for process in result(job)["processes"]}
    assert [ended[f"worker{rank}"].get("counts_from") for rank in range(4)] == [None, None, 250, 260]
    assert "[worker2] step 250\n" in job.stdout() and "[worker2] step 249\n" not in job.stdout()
    hashes = re.findall(r"\[worker[01]\] values (\w+)", job.stdout())
    assert len(hashes) == 2 and len(set(hashes)) == 1
    return hashes[0]


def test_a_schedule_of_joins_gives_the_same_bits(start):
    """If this fails, workers that are added do not count from the step that was asked for, or what a job learns depends on
    more than that."""
    assert len({schedule(start, f"run{number}") for number in range(3)}) == 1


def test_a_step_that_cannot_be_had_is_refused(start):
    """If this fails, a worker that is to count from a step that may be over joins with another one, or it is not said which
    it could have."""
    job = train(start, "--max_workers=3", "--on_worker_death=continue")
    open_gate(job, 20)
    job.wait_for_output("holding", 2)
    wait_for(lambda: furthest_step(job) >= 199, 60, "psd_run knows how far the job is")
    for options, code, text in (
            (("--workers", "+1", "--at_step", 100), 3, "--at_step 100: its workers have ended step 199, and 202 is the first that a new one may have"),
            (("--workers=-1", "--at_step", 300), 2, "scale: --at_step 300 is for workers that come"),
            (("--workers", 1, "--at_step", 300), 3, "--at_step 300 is for workers that come: 1 would leave"),
            (("--servers", 3, "--at_step", 300), 2, "scale: --at_step 300 is for workers that come"),
            (("--workers", "+1", "--at_step", 0), 2, "at_step")):
        told = scale(job, *options)
        assert told.returncode == code and text in told.stderr, (options, told)
    assert set(processes(job)) == {"master", "server0", "server1", "worker0", "worker1"}
    open_gate(job, 200)
    assert job.wait(60) == 0, job.stderr()


def test_one_that_does_not_leave_is_killed(start):
    """If this fails, a program that does not heed SIGTERM is never rid of, or its end is the job's."""
    job = train(start, "--max_workers=3", "--on_worker_death=continue", arguments=("--deaf",))
    assert scale(job, "--workers", "+1").returncode == 0
    job.wait_for_output("[worker2] joined 2 1")
    open_gate(job, 20)
    job.wait_for_output("holding", 2)
    assert scale(job, "--workers=-1", "--grace", 1).returncode == 0
    wait_for(lambda: processes(job)["worker2"]["signal"] == 9, 60, "worker 2 is killed")
    assert processes(job)["worker2"]["state"] == "left"  # nobody wants it back
    open_gate(job, 200)
    assert job.wait(60) == 0, job.stderr()


def test_mnist_leaves_when_it_is_asked_to(start):
    """If this fails, the example in C dies in the middle of a step when a worker of it is taken away, or trains on with images that
    are others' when one is added."""
    title = f"scale-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--workers", 2, "--servers", 1, "--max_workers", 3, "--on_worker_death=continue", "--name", title, "-o", "logs",
                "--", program("mnist"), "--model", "softmax", "--epochs", 100_000)
    job.title = title
    job.wait_for_output("[worker0] epoch 1/")
    assert scale(job, "--workers", "+1").returncode == 0
    job.wait_for_output("[worker2] mnist: worker 2 leaves: the job began with 2 workers")
    wait_for(lambda: processes(job)["worker2"]["state"] == "done", 60, "worker 2 has ended, and is not asked to leave")
    assert scale(job, "--workers=-1").returncode == 0
    job.wait_for_output("[worker1] worker 1 leaves before step")
    wait_for(lambda: processes(job)["worker1"]["state"] == "left", 60, "worker 1 has left")
    subprocess.run([program("psd_run"), "stop", title], check=True, timeout=60)
    assert job.wait(60) == 143, job.stderr()
    ended = {process["name"]: process for process in result(job)["processes"]}
    assert ended["worker1"]["code"] == 0, ended["worker1"]


def test_one_that_cannot_join_ends_nothing(start):
    """If this fails, a worker that is refused, or fails before it counts, ends the job that it was added to."""
    job = train(start, "--max_workers=3", arguments=("--die", "2:started"))
    assert scale(job, "--workers", 3).returncode == 0
    wait_for(lambda: processes(job)["worker2"]["signal"] == 9, 60, "worker 2 is dead")
    for step in (20, 200):
        open_gate(job, step)
    assert job.wait(60) == 0, job.stderr()


def test_what_is_refused(start):
    """If this fails, a job is made larger than it may be or smaller than it can be, or it is not said why not."""
    job = train(start, "--max_workers=3", "--min_workers=2")
    for options, code, text in (
            (("--workers", 4), 3, "2 more: 2 of --max_workers 3 ranks have been used, and none is used twice"),
            (("--workers", 0), 3, "to no workers: psd_run stop ends a job"),
            (("--workers=-2",), 3, "2 fewer of 2 leaves none"),
            (("--workers", 1), 3, "1 fewer of 2 leaves 1, and --min_workers is 2"),
            (("--workers", "+1", "--host", "elsewhere"), 3, "--host elsewhere: no machine of this job"),
            (("--workers", "many"), 2, "scale: many: how many workers?"),
            ((), 2, "no --workers, no --servers: how many workers?"),
            (("--servers", 3), 3, "a job that servers may come to, and leave, is started with --max_servers")):
        told = scale(job, *options)
        assert told.returncode == code and text in told.stderr, (options, told)
    told = scale(job, "--workers", 2)
    assert (told.returncode, told.stdout) == (0, "there are so many already\n")
    for step in (20, 200):
        open_gate(job, step)
    assert job.wait(60) == 0, job.stderr()
    fixed = train(start, "--on_worker_death=fail", name="fixed")
    assert "started with --max_workers" in scale(fixed, "--workers", "+1").stderr
    assert "--on_worker_death=continue" in scale(fixed, "--workers", 1).stderr
    for step in (20, 200):
        open_gate(fixed, step)
    assert fixed.wait(60) == 0, fixed.stderr()


@pytest.mark.parametrize("seed", (0, 3, 5))
def test_workers_come_and_go_at_random(tmp_path, seed):
    """If this fails, a gradient is lost or counts twice while workers join, leave and die, or psd_members tells of others than
    a step is made of, or the job hangs. `make elastic-runs` makes many of these."""
    done = subprocess.run([sys.executable, TREE / "tests" / "prove" / "elastic_runs.py", "--seed", str(seed), "--out", tmp_path],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
