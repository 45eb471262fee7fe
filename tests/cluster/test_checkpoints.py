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

from helpers import BRISK, Job, marked_processes, program, python_worker, saved_digests, wait_for

STEPS = 60
EVERY = 20
MODEL = ["--tables", 2, "--elements", 20000, "--awkward"]


def train(directory, *options, steps=STEPS, save=None, servers=2, model=MODEL, holds=(), prefix=()):
    """holds: before these steps the job waits for files of these names in its directory."""
    saving = ["--save", save] if save else []
    holding = [word for step in holds for word in ("--hold", f"{step}:hold{step}")]
    return Job(directory, "--workers", 2, "--servers", servers, "--page", "off", "--lanes", 1, "--log_level", "debug", *options,
               "--", *python_worker("--steps", steps, *model, *saving, *holding), prefix=prefix)


def manifests(directory):
    return {int(path.stem.split("-")[1]) for path in directory.glob("manifest-*.json")}


def ordered(job, step, servers=2, tables=2):
    """Do all servers know that they shall save that step of both tables? One that is past when they hear it is left
    out."""
    logs = list(job.directory.glob("logs/*/server*.log"))
    return len(logs) == servers and all(f"CHECKPOINT-ORDERED step {step}, {tables} tables" in path.read_text() for path in logs)


def master_says(job, text):
    return any(text in path.read_text() for path in job.directory.glob("logs/*/master.log"))


def go_on(job, step, condition, what):
    """The job, which holds at a step until then, goes on when that is so. Its speed does not matter."""
    wait_for(lambda: condition() or job.process.poll() is not None, 60,
             lambda: f"{what}\n{job.stdout()}\n{job.stderr()}\n{job.run_log()}")
    assert job.process.poll() is None, job.stdout() + job.stderr()
    (job.directory / f"hold{step}").touch()


def ended_well(job):
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    return job


def checkpoint(*arguments, cwd):
    return subprocess.run([program("psd_run"), "checkpoint", *map(str, arguments)], cwd=cwd,
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a job without checkpoints has at its end."""
    job = ended_well(train(tmp_path_factory.mktemp("plain"), save="end"))
    return saved_digests(job.directory / "end")


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory, undisturbed):
    """A job that wrote some, to the same end."""
    directory = tmp_path_factory.mktemp("written")
    job = train(directory, "--checkpoint", "saved", "--checkpoint_every", f"{EVERY}steps", "--keep", "3", save="end",
                holds=[1, EVERY + 1, 2 * EVERY + 1])
    go_on(job, 1, lambda: ordered(job, EVERY), "step 20 is asked for")
    go_on(job, EVERY + 1, lambda: 1 in manifests(directory / "saved") and ordered(job, 2 * EVERY), "one is there")
    go_on(job, 2 * EVERY + 1, lambda: 2 in manifests(directory / "saved"), "two are there")
    ended_well(job)
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
    assert 2 <= len(steps) <= 3  # the job may end before its last step is saved
    assert steps == {number: number * EVERY for number in steps}
    assert not [name for name in os.listdir(checkpointed) if name.endswith(".tmp")]


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_resumed_job_ends_with_the_same_bits(checkpointed, undisturbed, tmp_path, servers):
    """If this fails, a job that goes on from a checkpoint is another one."""
    job = ended_well(train(tmp_path, "--resume", checkpointed, save="end", servers=servers))
    assert "the job goes on from step" in job.stderr()
    step = max(steps_of(checkpointed).values())
    assert f"step {step - 1}\n" not in job.stdout() and (f"step {step}\n" in job.stdout() or step == STEPS)
    assert saved_digests(tmp_path / "end") == undisturbed


# Values that rank 0 gives, a chunk and a bit of them; two states; a master of a narrow type.
KINDS = """
import array, os, time
import psdlib
context = psdlib.Context()
count, steps = 70000, 90
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
    deadline = time.monotonic() + 60
    while step in (1, 71) and not os.path.exists(f"hold{step}"):
        assert time.monotonic() < deadline, f"hold{step}: nobody made it"
        time.sleep(0.01)
    wide.push_pull(step, gradients[step % 7], values).wait()
    narrow.push_pull(step, ones, halves).wait()
if context.rank == 0:
    context.save("end", steps)
context.close()
"""


def test_every_kind_of_table_goes_on(tmp_path):
    """If this fails, optimizer state, the master of a narrow table, or values that rank 0 gave are lost when a job goes on."""
    jobs = []
    for name, options in [("whole", ["--servers", 2, "--checkpoint", tmp_path / "saved", "--checkpoint_every", "70steps"]),
                          ("resumed", ["--resume", tmp_path / "saved", "--servers", 3])]:
        jobs.append(Job(tmp_path / name, "--page", "off", "--workers", 2, "--lanes", 1, "--log_level", "debug", *options, "--",
                        sys.executable, "-c", KINDS))
        go_on(jobs[-1], 1, lambda: name == "resumed" or ordered(jobs[-1], 70), "step 70 is asked for")
        go_on(jobs[-1], 71, lambda: manifests(tmp_path / "saved"), "a checkpoint")
        ended_well(jobs[-1])
    assert steps_of(tmp_path / "saved") == {1: 70}
    assert "begins at 70 70" in jobs[1].stdout()
    assert saved_digests(tmp_path / "resumed" / "end") == saved_digests(tmp_path / "whole" / "end")


# Each step closes with the gradients of two of three workers, all of ones: a value says how many steps there were.
SPARE = """
import array, os, time
import psdlib
context = psdlib.Context()
count, steps = 70000, 60
tables = [context.table(name, [count], rule=psdlib.SGD, rule_args={"learning_rate": 1.0}, backup_workers=1)
          for name in ("first", "second")]
values = array.array("f", [0]) * count
ones = array.array("f", [1.0]) * count
print("begins at", *(table.step() for table in tables), flush=True)
for step in range(tables[0].step(), steps):
    deadline = time.monotonic() + 60
    while step in (1, 41) and not os.path.exists(f"hold{step}"):
        assert time.monotonic() < deadline, f"hold{step}: nobody made it"
        time.sleep(0.01)
    for table in tables:
        try:
            table.push_pull(step, ones, values).wait()
        except psdlib.PsdError as error:
            if "PSD_ERR_DROPPED" not in str(error):
                raise
            continue
        assert values[0] == values[-1] == -(step + 1), (step, values[0], values[-1])
        if step == steps - 1:
            print("ends at", values[0], flush=True)
context.close()
"""


def test_tables_with_backup_workers_go_on(tmp_path):
    """If this fails, a job whose rounds close without some of the workers cannot go on from its checkpoint, or goes on at another step than
    its values are of."""
    jobs = []
    for name, options in [("whole", ["--servers", 2, "--checkpoint", tmp_path / "saved", "--checkpoint_every", "40steps"]),
                          ("resumed", ["--resume", tmp_path / "saved", "--servers", 3])]:
        jobs.append(Job(tmp_path / name, "--page", "off", "--workers", 3, "--lanes", 1, "--log_level", "debug", *options, "--",
                        sys.executable, "-c", SPARE))
        go_on(jobs[-1], 1, lambda: name == "resumed" or ordered(jobs[-1], 40), "step 40 is asked for")
        go_on(jobs[-1], 41, lambda: manifests(tmp_path / "saved"), "a checkpoint")
        ended_well(jobs[-1])
    assert steps_of(tmp_path / "saved") == {1: 40}
    assert jobs[1].stdout().count("begins at 40 40") == 3, jobs[1].stdout()
    assert jobs[1].stdout().count("ends at -60.0") >= 2, jobs[1].stdout()


# Of four chunks and a bit only the first ever changes; its gradient is of one element.
FROZEN = """
import array, os, time
import psdlib
context = psdlib.Context()
count, steps = 4 * 65536 + 100, 45
table = context.table("frozen", [count], rule=psdlib.SGD, rule_args={"learning_rate": 0.5}, init=psdlib.UNIFORM, init_value=1.0)
values = array.array("f", [0]) * count
gradient = array.array("f", [0.0]) * count
print("begins at", table.step(), flush=True)
for step in range(table.step(), steps):
    deadline = time.monotonic() + 60
    while step % 10 == 1 and not os.path.exists(f"hold{step}"):
        assert time.monotonic() < deadline, f"hold{step}: nobody made it"
        time.sleep(0.01)
    gradient[3] = 1.0 + step
    table.push_pull(step, gradient, values).wait()
if context.rank == 0:
    context.save("end", steps)
context.close()
"""


def test_what_did_not_change_is_not_written_again(tmp_path):
    """If this fails, a checkpoint of a large table of which little changes takes the time and the space of all of it; or what refers to
    earlier checkpoints is not shown, exported, pruned or resumed from as if it were whole."""
    saved = tmp_path / "saved"
    options = ["--page", "off", "--workers", 2, "--lanes", 1, "--log_level", "debug"]
    job = Job(tmp_path / "whole", *options, "--servers", 2, "--checkpoint", saved, "--checkpoint_every", "10steps", "--", sys.executable,
              "-c", FROZEN)
    for number, step in enumerate([1, 11, 21, 31, 41]):
        go_on(job, step, lambda: number in {0} | manifests(saved) and (step > 40 or ordered(job, step + 9, tables=1)),
              f"generation {number}")
    ended_well(job)
    steps = steps_of(saved)
    newest = max(steps)
    assert steps[newest] == 40 and 1 in steps and (saved / "params-1.safetensors").exists()  # the others refer to it
    changed = saved / f"params-{newest}.changes"
    assert changed.stat().st_blocks * 512 < 400000 < (saved / "params-1.safetensors").stat().st_blocks * 512
    listed = checkpoint("list", saved, cwd=tmp_path).stdout
    assert re.search(rf"^{newest} .*intact; 0.3 MiB since generation 1", listed, re.MULTILINE), listed
    assert checkpoint("export", saved, tmp_path / "out.safetensors", cwd=tmp_path).returncode == 0
    pruned = checkpoint("prune", "--keep", 1, saved, cwd=tmp_path)
    assert pruned.returncode == 0 and "generation 1 " not in pruned.stdout, pruned.stdout
    assert checkpoint("verify", saved, cwd=tmp_path).returncode == 0
    (tmp_path / "resumed").mkdir()
    (tmp_path / "resumed" / "hold41").touch()
    resumed = ended_well(Job(tmp_path / "resumed", *options, "--servers", 3, "--resume", saved, "--", sys.executable, "-c", FROZEN))
    assert "begins at 40" in resumed.stdout()
    assert saved_digests(tmp_path / "resumed" / "end") == saved_digests(tmp_path / "whole" / "end")
    data = bytearray((saved / "params-1.safetensors").read_bytes())
    data[-1] ^= 1
    (saved / "params-1.safetensors").write_bytes(data)
    result = checkpoint("verify", saved, cwd=tmp_path)
    assert result.returncode == 3 and result.stdout.count("damaged") == result.stdout.count("generation ")


def test_what_a_worker_saves_is_the_same_file(checkpointed, tmp_path):
    """If this fails, psd_save and the servers write the same step in two ways."""
    step = max(steps_of(checkpointed).values())
    ended_well(train(tmp_path, save="end", steps=step, servers=1))
    assert saved_digests(tmp_path / "end") == saved_digests(checkpointed)


def test_damage_is_named_and_passed_over(checkpointed, undisturbed, tmp_path):
    """If this fails, a job goes on from a file that is not what was written, or an older generation that
    is intact is not used, or not named."""
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpointed, damaged)
    generations = sorted(steps_of(damaged))
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
    (["--tables", 3, "--elements", 20000], "not in generation"),
    ([*MODEL, "--rule", "sgd"], "its rule is momentum"),
])
def test_other_tables_are_refused_by_name(checkpointed, tmp_path, model, said):
    """If this fails, a job goes on from the weights of another model, or fails without saying why."""
    job = train(tmp_path, "--resume", checkpointed, model=model)
    assert job.wait() != 0
    assert said in job.stdout() + job.stderr()
    assert "load table" in job.stdout() + job.stderr()


@pytest.mark.parametrize("masters, servers", [(2, 1), (2, None), (None, 2)])
def test_daemons_that_go_on_from_different_steps(checkpointed, hand, masters, servers):
    """If this fails, tables have the values of one step and the number of another, and nobody is told. Of servers that were
    started by hand one may have been given another checkpoint, or none."""
    options = [["--resume", checkpointed, "--generation", number] if number else [] for number in (masters, servers)]
    daemons = [hand.master(1, 1, *BRISK, *options[0]), hand.server(0, *options[1])]
    worker = hand.worker(0, "--steps", STEPS, *MODEL)
    assert worker.wait() == 1
    begins, goes_on = ((number or 0) * EVERY for number in (masters, servers))
    assert (f"table table0 begins at step {begins}, but server 0 was started to go on from step {goes_on}"
            in worker.output())
    assert 0 not in [daemon.wait() for daemon in daemons]


def test_server_that_is_there_before_the_directory(hand, tmp_path):
    """If this fails, a server that was started before the master may not write into the directory that the master has made
    since, and every checkpoint fails; or one that cannot have it says so only then."""
    server = hand.server(0, "--checkpoint", tmp_path / "saved", "--log_level=debug")
    server.wait_for_output("SETTINGS")
    master = hand.master(1, 1, *BRISK, "--checkpoint", tmp_path / "saved", "--checkpoint_every", "3steps")
    worker = hand.worker(0, "--steps", 6, "--hold", f"1:{tmp_path}/hold1", "--hold", f"5:{tmp_path}/hold5")
    server.wait_for_output("CHECKPOINT-ORDERED step 3, 2 tables")
    (tmp_path / "hold1").touch()
    master.wait_for_output("step 3 is saved: generation 1")
    (tmp_path / "hold5").touch()
    assert [process.wait() for process in (worker, master, server)] == [0, 0, 0]
    nowhere = hand.server(0, "--checkpoint", tmp_path / "no" / "such", name="nowhere")
    assert nowhere.wait() not in (0, None)
    assert f"make directory {tmp_path}/no/such: No such file or directory" in nowhere.output()


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
    held = rng.randrange(5, 50)  # where the last one may be under way for as long as it likes
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", "3steps", holds=[1, 4, held, held + 1])
    go_on(job, 1, lambda: ordered(job, 3), "step 3 is asked for")
    go_on(job, 4, lambda: manifests(tmp_path / "saved"), "a first checkpoint")
    job.wait_for_output("holding", 3)
    (tmp_path / f"hold{held}").touch()
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
                "on-failure", "--restart_scope", "group", "--server_restarts", 0, save="end", holds=[1, 7])
    go_on(job, 1, lambda: ordered(job, 5), "step 5 is asked for")
    wait_for(lambda: manifests(tmp_path / "saved"), 30, "a first checkpoint")
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    (tmp_path / "hold7").touch()
    ended_well(job)
    assert "the whole job starts again" in job.stderr()
    assert "the job goes on from step" in job.stderr()
    assert saved_digests(tmp_path / "end") == undisturbed


def test_master_that_returns_finds_what_the_job_went_on_from(checkpointed, undisturbed, tmp_path):
    """If this fails, a job that went on from a checkpoint, and has written enough newer ones, dies with its master or with a
    server that would live again: the one that they ask for was removed."""
    saved = tmp_path / "saved"
    saved.mkdir()
    for kind, ending in (("manifest", "json"), ("params", "safetensors"), ("state", "safetensors")):
        shutil.copy(checkpointed / f"{kind}-2.{ending}", saved)
    first = 2 * EVERY  # 40: so 42, 45 and 48 follow
    job = train(tmp_path, "--resume", "saved", "--checkpoint", "saved", "--checkpoint_every", "3steps", save="end",
                holds=[first + 1, first + 3, first + 6, first + 9])
    for number, step in enumerate((first + 2, first + 5, first + 8), 3):
        held = first + 1 if number == 3 else step - 2
        go_on(job, held, lambda: (number == 3 or number - 1 in manifests(saved)) and ordered(job, step), f"step {step}")
    wait_for(lambda: 5 in manifests(saved), 30, "the third")
    wait_for(lambda: manifests(saved) == {2, 4, 5}, 30, lambda: f"two are kept, and that one: {manifests(saved)}")
    os.kill(job.pid_of("master"), signal.SIGKILL)
    (tmp_path / f"hold{first + 9}").touch()
    ended_well(job)
    assert job.run_log().count(" PROCESS master pid ") == 2
    assert saved_digests(tmp_path / "end") == undisturbed


def test_warning_before_the_end_saves_and_asks_for_more(tmp_path):
    """If this fails, a batch system's limit costs the steps since the last checkpoint, or the job that was requeued
    begins at its beginning."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\nls "{tmp_path}/saved" >"{tmp_path}/there"\necho "$@" >"{tmp_path}/asked"\n')
    scontrol.chmod(0o755)
    environment = {"SLURM_JOB_ID": "4711", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    options = ["--local", "--workers", 2, "--servers", 2, "--page", "off", "--checkpoint", tmp_path / "saved",
               "--checkpoint_every", "1h", "--", program("mnist"), "--model", "softmax", "--epochs", "100000"]
    job = Job(tmp_path / "first", *options, environment=environment)
    job.wait_for_output("step 47")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(60) == 143
    step = int(re.search(r"the job is saved at step (\d+)", job.stderr()).group(1))
    assert steps_of(tmp_path / "saved") == {1: step}
    assert (tmp_path / "asked").read_text() == "requeue 4711\n"
    assert "manifest-1.json" in (tmp_path / "there").read_text()  # after the commit
    again = Job(tmp_path / "again", *options, environment={**environment, "SLURM_RESTART_COUNT": "1"})
    again.wait_for_output(f"goes on at step {step}")
    (tmp_path / "asked").unlink()
    again.process.send_signal(signal.SIGINT)
    assert again.wait(60) == 130
    assert steps_of(tmp_path / "saved") == {1: step}  # Ctrl-C does not wait for a checkpoint
    third = Job(tmp_path / "third", "--name", f"third{os.getpid()}", "--resume", tmp_path / "saved", *options, environment=environment)
    third.wait_for_output(f"goes on at step {step}")
    subprocess.run([program("psd_run"), "stop", f"third{os.getpid()}"], check=True, timeout=120)
    assert third.wait(60) == 143
    assert max(steps_of(tmp_path / "saved")) == 2  # saved, but whoever stops it does not want it back
    assert not (tmp_path / "asked").exists()


def test_checkpoints_of_another_run_are_not_replaced(tmp_path):
    """If this fails, a command that is given once more, without --resume, begins at step 0 and removes what it had saved."""
    command = ["--workers", 1, "--servers", 1, "--page", "off", "--checkpoint", tmp_path / "saved", "--checkpoint_every", "1h", "--",
               program("mnist"), "--model", "softmax", "--epochs", 100_000]
    first = Job(tmp_path / "first", *command)
    first.wait_for_output("step 47")
    first.process.send_signal(signal.SIGTERM)  # it saves once more before it ends
    assert first.wait() == 143, first.stderr()
    kept = steps_of(tmp_path / "saved")
    assert kept
    again = Job(tmp_path / "again", *command)
    assert again.wait() == 3
    assert f"--checkpoint {tmp_path}/saved: it holds checkpoints already" in again.stderr()
    assert f"add --resume {tmp_path}/saved" in again.stderr()
    assert steps_of(tmp_path / "saved") == kept


@pytest.mark.parametrize("options, signalled", [(["--checkpoint", "/shared/saved"], "TERM"), ([], "USR1")])
def test_emitted_script_asks_for_the_warning(tmp_path, options, signalled):
    """If this fails, Slurm ends a job at its limit without a word, and what it did since its last checkpoint is lost."""
    script = subprocess.run([program("psd_run"), "--emit", "sbatch", "--workers", "2", *options, "true"], cwd=tmp_path,
                            capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.search(rf"^#SBATCH --signal=B:{signalled}@\d+$", script, re.M)
    assert "#SBATCH --requeue" in script
    assert not options or "--checkpoint" in script.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_full_disk_stops_no_training(undisturbed, tmp_path):
    """If this fails, a full disk ends the job, or takes the last good checkpoint with it."""
    (tmp_path / "saved").mkdir()
    mount = "mount -t tmpfs -o size=200k none saved && exec \"$@\""
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", "10steps", holds=[15],
                prefix=("unshare", "-m", "sh", "-c", mount, "sh"))
    go_on(job, 15, lambda: master_says(job, "CHECKPOINT-FAILED"), "it is told")
    ended_well(job)
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
    assert "checkpoint lst: unknown; expected list, verify" in checkpoint("lst", copy, cwd=tmp_path).stderr


@pytest.mark.parametrize("arguments, said", [
    (["--checkpoint", "d", "--checkpoint_every", "10"], "expected a time such as"),
    (["--checkpoint_every", "10m"], "works only with --checkpoint"),
    (["--checkpoint", "d", "--keep", "1"], "--keep"),
])
def test_options_that_make_no_sense(tmp_path, arguments, said):
    """If this fails, a mistake on the command line is found out when the checkpoint is needed."""
    job = Job(tmp_path, *arguments, "--", "true")
    assert job.wait() == 2
    assert said in job.stderr()
