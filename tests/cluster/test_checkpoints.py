# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that nobody calls for: psd_run --checkpoint, --resume, checkpoint list and the rest, with
real processes. Every comparison is of all bits of the model and of the optimizer's state."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys

import pytest

from helpers import Job, marked_processes, program, saved_digests, wait_for

STEPS = 240
MNIST = ["--model", "softmax", "--epochs", "3", "--steps", str(STEPS), "--momentum", "0.5"]


def train(directory, *options, save=None, workers=2, servers=2, model=MNIST, prefix=()):
    saving = ["--save", save] if save else []
    return Job(directory, "--workers", workers, "--servers", servers, "--page", "off", *options,
               "--", program("mnist"), *model, *saving, prefix=prefix)


def ended_well(job):
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    return job


def checkpoint(*arguments, cwd):
    return subprocess.run([program("psd_run"), "checkpoint", *map(str, arguments)], cwd=cwd,
                          capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a job without checkpoints has at its end."""
    job = ended_well(train(tmp_path_factory.mktemp("plain"), save="end"))
    return saved_digests(job.directory / "end")


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory, undisturbed):
    """A job that wrote some, to the same end."""
    directory = tmp_path_factory.mktemp("written")
    job = ended_well(train(directory, "--checkpoint", "saved", "--checkpoint_every", "20steps",
                           "--keep", "3", save="end"))
    assert saved_digests(directory / "end") == undisturbed
    assert re.search(r"CHECKPOINT step \d+ is saved: generation 1", job.log("master").decode())
    return directory / "saved"


def steps_of(directory):
    """Step by generation, of all that are there and intact."""
    result = checkpoint("list", directory, cwd=directory)
    assert result.returncode == 0, result.stdout + result.stderr
    return {int(line.split()[0]): int(line.split()[1]) for line in result.stdout.splitlines()[1:]}


def test_steps_are_those_that_were_asked_for(checkpointed):
    """If this fails, checkpoints come at other steps, more are kept than were asked for, or something
    half-written is left behind."""
    steps = steps_of(checkpointed)
    assert 1 <= len(steps) <= 3
    assert all(step % 20 == 0 and step <= STEPS for step in steps.values())
    assert not [name for name in os.listdir(checkpointed) if name.endswith(".tmp")]


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_resumed_job_ends_with_the_same_bits(checkpointed, undisturbed, tmp_path, servers):
    """If this fails, a job that goes on from a checkpoint is another one."""
    job = ended_well(train(tmp_path, "--resume", checkpointed, save="end", servers=servers))
    assert "the job goes on from step" in job.stderr()
    assert re.search(r"goes on at step \d+0\b", job.stdout())
    assert saved_digests(tmp_path / "end") == undisturbed


# Values that rank 0 gives, a chunk and a bit of them; two states; a master of a narrow type.
KINDS = """
import array, sys
import psdlib
context = psdlib.Context()
count, steps = 70000, 3000
first = array.array("f", [3.0]) * count
given = {"values": first.buffer_info()[0]} if context.rank == 0 else {}
wide = context.table("wide", [count], rule=psdlib.ADAM, rule_args={"learning_rate": 0.01}, init=psdlib.RANK0, **given)
narrow = context.table("narrow", [9], dtype=psdlib.BF16, rule=psdlib.MOMENTUM,
                       rule_args={"learning_rate": 0.01, "momentum": 0.5}, init=psdlib.CONSTANT, init_value=1.0)
values = array.array("f", [0]) * count
halves = array.array("H", [0]) * 9
gradients = [array.array("f", [0.1 * i + context.rank]) * count for i in range(7)]
ones = array.array("H", [0x3f80]) * 9
print("begins at", wide.step(), narrow.step(), flush=True)
for step in range(wide.step(), steps):
    wide.push_pull(step, gradients[step % 7], values).wait()
    narrow.push_pull(step, ones, halves).wait()
if context.rank == 0:
    context.save("end", steps)
context.close()
"""


def test_every_kind_of_table_goes_on(tmp_path):
    """If this fails, optimizer state, the master of a narrow table, or values that rank 0 gave are lost when a job goes on."""
    jobs = []
    for name, options in [("whole", ["--checkpoint", tmp_path / "saved", "--checkpoint_every", "700steps"]),
                          ("resumed", ["--resume", tmp_path / "saved", "--servers", 3])]:
        job = Job(tmp_path / name, "--page", "off", "--workers", 2, *options, "--", sys.executable, "-c", KINDS)
        jobs.append(ended_well(job))
    step = max(steps_of(tmp_path / "saved").values())
    assert step % 700 == 0
    assert f"begins at {step} {step}" in jobs[1].stdout()
    assert saved_digests(tmp_path / "resumed" / "end") == saved_digests(tmp_path / "whole" / "end")


def test_what_a_worker_saves_is_the_same_file(checkpointed, tmp_path):
    """If this fails, psd_save and the servers write the same step in two ways."""
    step = max(steps_of(checkpointed).values())
    model = [str(step) if word == str(STEPS) else word for word in MNIST]
    ended_well(train(tmp_path, save="end", model=model, servers=1))
    assert saved_digests(tmp_path / "end") == saved_digests(checkpointed)


def test_damage_is_named_and_passed_over(checkpointed, undisturbed, tmp_path):
    """If this fails, a job goes on from a file that is not what was written, or an older generation that
    is intact is not used, or not named."""
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpointed, damaged)
    generations = sorted(steps_of(damaged))
    if len(generations) < 2:
        pytest.skip("the job was too quick for two checkpoints")
    newest = damaged / f"params-{generations[-1]}.safetensors"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 4
    newest.write_bytes(data)
    result = checkpoint("verify", damaged, cwd=tmp_path)
    assert result.returncode == 3 and f"{newest.name}: damaged between" in result.stdout
    job = ended_well(train(tmp_path / "job", "--resume", damaged, save="end"))
    assert f"{newest.name}: damaged" in job.stderr() and "an older generation" in job.stderr()
    assert saved_digests(tmp_path / "job" / "end") == undisturbed
    for generation in generations:
        os.truncate(damaged / f"state-{generation}.safetensors", 100)
    job = train(tmp_path / "none", "--resume", damaged)
    assert job.wait() == 3
    assert "state-" in job.stderr() or "params-" in job.stderr()


@pytest.mark.parametrize("model, said", [
    (["--model", "mlp"], "not in generation"),
    (["--model", "softmax"], "its rule is momentum"),
])
def test_other_tables_are_refused_by_name(checkpointed, tmp_path, model, said):
    """If this fails, a job goes on from the weights of another model, or fails without saying why."""
    job = train(tmp_path, "--resume", checkpointed, model=[*model, "--epochs", "1"])
    assert job.wait() != 0
    assert said in job.stdout() + job.stderr()
    assert "load table" in job.stdout() + job.stderr()


def test_second_job_is_told_whose_directory_it_is(tmp_path):
    """If this fails, two jobs write into one directory, and each removes what the other wrote."""
    slow = ["-c", "import time, psdlib; c = psdlib.Context(); print('here', flush=True); time.sleep(60)"]
    first = Job(tmp_path / "first", "--page", "off", "--name", "first", "--checkpoint", tmp_path / "saved", "--",
                sys.executable, *slow)
    first.wait_for_output("here")
    second = train(tmp_path / "second", "--checkpoint", tmp_path / "saved")
    assert second.wait() == 3
    assert re.search(r"process \d+ on .* writes there already", second.stderr() + second.run_log())
    first.process.send_signal(signal.SIGTERM)
    first.wait()


@pytest.mark.parametrize("seed", range(4))
def test_kill_of_everything_leaves_an_intact_one(undisturbed, tmp_path, seed):
    """If this fails, there is a moment at which the power may not fail."""
    rng = random.Random(seed)
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", "3steps")
    wait_for(lambda: list(tmp_path.glob("saved/manifest-*.json")) or job.process.poll() is not None, 30,
             "a first checkpoint")
    wait_for(lambda: len(list(tmp_path.glob("saved/*.tmp"))) >= rng.randrange(4), 30, "one on its way")
    for pid in marked_processes(job.mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.process.wait()
    job.expect_nothing_left()
    assert steps_of(tmp_path / "saved")
    again = ended_well(train(tmp_path / "again", "--resume", tmp_path / "saved", "--checkpoint",
                             tmp_path / "saved", save="end", servers=1 + seed % 3))
    assert "goes on from step" in again.stderr()
    assert saved_digests(tmp_path / "again" / "end") == undisturbed


def test_lost_server_costs_the_steps_since_the_last_one(undisturbed, tmp_path):
    """If this fails, a job that begins anew by itself begins at its beginning, or with other bits."""
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", "5steps", "--restart",
                "on-failure", "--restart_scope", "group", "--server_restarts", 0, save="end")
    wait_for(lambda: list(tmp_path.glob("saved/manifest-*.json")), 30, "a first checkpoint")
    for pid in marked_processes(job.mark):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                name = file.read().strip()
            if name == "ps_server":
                os.kill(pid, signal.SIGKILL)
                break
        except (ProcessLookupError, FileNotFoundError):
            continue
    ended_well(job)
    assert "the whole job starts again" in job.stderr()
    assert "the job goes on from step" in job.stderr()
    assert saved_digests(tmp_path / "end") == undisturbed


def test_warning_before_the_end_saves_and_asks_for_more(tmp_path):
    """If this fails, a batch system's limit costs the steps since the last checkpoint, or the job that was requeued
    begins at its beginning."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\nls "{tmp_path}/saved" >"{tmp_path}/there"\necho "$@" >"{tmp_path}/asked"\n')
    scontrol.chmod(0o755)
    environment = {"SLURM_JOB_ID": "4711", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    options = ["--local", "--workers", 2, "--servers", 2, "--page", "off", "--checkpoint", tmp_path / "saved",
               "--checkpoint_every", "1h", "--", program("mnist"), *MNIST]
    long = [word if word not in ("3", str(STEPS)) else "100000" for word in map(str, options)]
    job = Job(tmp_path / "first", *long, environment=environment)
    job.wait_for_output("step 47")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(60) == 143
    step = int(re.search(r"the job is saved at step (\d+)", job.stderr()).group(1))
    assert steps_of(tmp_path / "saved") == {1: step}
    assert (tmp_path / "asked").read_text() == "requeue 4711\n"
    assert "manifest-1.json" in (tmp_path / "there").read_text()  # after the commit
    again = Job(tmp_path / "again", *long, environment={**environment, "SLURM_RESTART_COUNT": "1"})
    again.wait_for_output(f"goes on at step {step}")
    again.process.send_signal(signal.SIGINT)
    assert again.wait(60) == 130
    assert steps_of(tmp_path / "saved") == {1: step}  # Ctrl-C does not wait for a checkpoint


@pytest.mark.parametrize("options, signalled", [(["--checkpoint", "/shared/saved"], "TERM"), ([], "USR1")])
def test_emitted_script_asks_for_the_warning(tmp_path, options, signalled):
    """If this fails, Slurm ends a job at its limit without a word, and what it did since its last checkpoint is lost."""
    script = subprocess.run([program("psd_run"), "--emit", "sbatch", "--workers", "2", *options, "true"], cwd=tmp_path,
                            capture_output=True, text=True, timeout=30, check=True).stdout
    assert re.search(rf"^#SBATCH --signal=B:{signalled}@\d+$", script, re.M)
    assert "#SBATCH --requeue" in script
    assert not options or "--checkpoint" in script.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_full_disk_stops_no_training(undisturbed, tmp_path):
    """If this fails, a full disk ends the job, or takes the last good checkpoint with it."""
    (tmp_path / "saved").mkdir()
    mount = "mount -t tmpfs -o size=200k none saved && exec \"$@\""
    model = [word if word != "softmax" else "mlp" for word in MNIST]
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", "10steps", model=model,
                prefix=("unshare", "-m", "sh", "-c", mount, "sh"))
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    log = job.log("master").decode()
    assert log.count("CHECKPOINT-FAILED") == 1
    assert "No space left on device; training goes on" in log


def test_export_and_prune(checkpointed, tmp_path):
    """If this fails, other programs do not read what was saved, or pruning takes what is needed."""
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    copy = tmp_path / "copy"
    shutil.copytree(checkpointed, copy)
    assert checkpoint("export", copy, "one.safetensors", cwd=tmp_path).returncode == 0
    assert checkpoint("export", "--format", "numpy", copy, "arrays", cwd=tmp_path).returncode == 0
    tensors = safetensors.load_file(tmp_path / "one.safetensors")
    assert tensors
    for name, tensor in tensors.items():
        array = numpy.load(tmp_path / "arrays" / f"{name}.npy", allow_pickle=False)
        assert array.shape == tensor.shape and array.tobytes() == tensor.tobytes()
    again = checkpoint("export", copy, "one.safetensors", cwd=tmp_path)
    assert again.returncode == 3 and "File exists" in again.stderr
    before = steps_of(copy)
    assert checkpoint("prune", "--keep", 1, copy, cwd=tmp_path).stdout.count("removed") == len(before) - 1
    assert steps_of(copy) == {max(before): before[max(before)]}
    assert checkpoint("list", tmp_path / "arrays", cwd=tmp_path).returncode == 3
    assert checkpoint("list", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("arguments, said", [
    (["--checkpoint", "d", "--checkpoint_every", "epoch"], "servers know steps and not epochs"),
    (["--checkpoint", "d", "--checkpoint_every", "10"], "expected a time such as"),
    (["--checkpoint_every", "10m"], "works only with --checkpoint"),
    (["--checkpoint", "d", "--keep", "1"], "--keep"),
])
def test_options_that_make_no_sense(tmp_path, arguments, said):
    """If this fails, a mistake on the command line is found out when the checkpoint is needed."""
    job = Job(tmp_path, *arguments, "--", "true")
    assert job.wait() == 2
    assert said in job.stderr()
