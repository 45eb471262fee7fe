# SPDX-License-Identifier: Apache-2.0
"""poseidon.elastic with real processes: workers are killed, started and asked to leave while they train. The script
elastic/counting.py counts in the sums which samples were in them."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import uuid

import pytest

from conftest import environment
from elastic_jobs import ended
from helpers import BRISK, Job, program, wait_for

HERE = pathlib.Path(__file__).resolve().parent
COUNTING = HERE / "elastic" / "counting.py"


def test_a_worker_dies_and_one_comes(elastic_job):
    """If this fails, samples are lost or counted twice when a worker dies or comes, or the models of workers part."""
    made = elastic_job(3)
    gate = made.directory / "gate"
    workers = made.begin_all(COUNTING, "--samples", 1501, "--batch", 7, "--hold", f"40:{gate}")
    workers[0].wait_for_output("holding 40")
    made.kill(workers[1])
    newcomer = made.begin(COUNTING, "--samples", 1501, "--batch", 7)
    made.daemons[0].wait_for_output("worker 3 counts from")
    gate.touch()
    done = ended([workers[0], workers[2], newcomer])
    assert len(set(done)) == 1 and "seen 3002" in done[0]
    assert re.search(r"begin epoch 0 step 4\d worker 2 of 3 members \(0, 2, 3\)", newcomer.output())


@pytest.mark.parametrize("seed", range(4))
def test_they_come_and_go_at_random(elastic_job, seed):
    """If this fails, a step that a worker died in is counted in part, samples are lost, or a job hangs when many things happen
    at once: deaths in the middle of steps, of synchronizing and of joining."""
    chance = random.Random(seed)
    made = elastic_job(4)
    samples = chance.choice((2003, 140_001))  # in one chunk, or in several
    common = ("--samples", samples, "--batch", samples // 300, "--epochs", 3, "--commit-every", chance.choice((1, 1, 5)))
    steps = sorted(chance.sample(range(3, 95), 5))
    gates = [(step, made.directory / f"gate{step}") for step in steps]
    holds = [word for step, gate in gates for word in ("--hold", f"{step}:{gate}")]
    workers = made.begin_all(COUNTING, *common, *holds)
    alive = list(workers)
    for number, (step, gate) in enumerate(gates):
        workers[0].wait_for_output(f"holding {step}", 60)
        comes, dies = chance.choice(((True, False), (False, True), (True, True)))
        if comes:
            alive.append(made.begin(COUNTING, *common))
            if chance.random() < 0.7:
                alive[-1].wait_for_output("here", 60)
        victim = chance.choice(alive[1:]) if dies and len(alive) > 2 else None
        if victim is not None and chance.random() < 0.5:
            made.kill(victim)
        gate.touch()
        if victim is not None:
            if victim.process.poll() is None:
                made.kill(victim)
            alive.remove(victim)
    done = ended(alive)
    assert len(set(done)) == 1 and f"seen {3 * samples}" in done[0], done


def test_one_is_asked_to_leave(elastic_job):
    """If this fails, SIGTERM ends a worker in the middle of a step, or others take it for dead, or wait for it."""
    made = elastic_job(3)
    gate = made.directory / "gate"
    workers = made.begin_all(COUNTING, "--samples", 901, "--hold", f"20:{gate}")
    workers[0].wait_for_output("holding 20")
    workers[0].signal(signal.SIGTERM)  # the one that has the state
    gate.touch()
    assert workers[0].wait() == 0
    assert "worker 0 leaves: as it was asked to" in workers[0].output()
    done = ended(workers[1:])
    assert len(set(done)) == 1
    log = made.daemons[0].output()
    assert "MEMBER-DONE worker 0 done" in log and "MEMBER-LOST" not in log


def test_the_training_ends_before_one_is_taken_in(elastic_job):
    """If this fails, a worker that comes too late waits for ever, or fails the job."""
    made = elastic_job(2)
    gate = made.directory / "gate"
    arguments = ("--samples", 200, "--epochs", 1, "--commit-every", 1000)
    workers = made.begin_all(COUNTING, *arguments, "--hold", f"5:{gate}")
    workers[0].wait_for_output("holding 5")
    newcomer = made.begin(COUNTING, *arguments)
    newcomer.wait_for_output("here")
    gate.touch()
    assert len(set(ended(workers))) == 1
    assert newcomer.wait() == 0
    assert "ended" in newcomer.output() and "before they took" in newcomer.output() and "begin" not in newcomer.output()


def test_all_that_had_the_model_are_gone(elastic_job):
    """If this fails, a worker that was about to get the model begins without one, waits for ever, or does not say
    from where training can go on."""
    made = elastic_job(1)
    gate = made.directory / "gate"
    worker = made.begin(COUNTING, "--samples", 300, "--hold", f"5:{gate}", rank=0)
    worker.wait_for_output("holding 5")
    newcomer = made.begin(COUNTING, "--samples", 300)
    newcomer.wait_for_output("here")
    made.daemons[0].wait_for_output("worker 1 counts from")
    made.kill(worker)
    assert newcomer.wait(60) == 1
    assert "all workers that had the model are gone" in newcomer.output()
    assert "from the last checkpoint, if the job was started with --checkpoint DIR (--resume DIR), from a file" in newcomer.output()


def test_a_newcomer_with_another_model(elastic_job):
    """If this fails, a worker with other parameters holds up those that train, and nobody says why."""
    made = elastic_job(2)
    gate = made.directory / "gate"
    workers = made.begin_all(COUNTING, "--samples", 400, "--hold", f"5:{gate}")
    workers[0].wait_for_output("holding 5")
    newcomer = made.begin(COUNTING, "--samples", 401)
    newcomer.wait_for_output("here", 60)
    gate.touch()
    assert newcomer.wait(60) == 1
    assert "trains another number of parameters than the job does" in newcomer.output()
    assert len(set(ended(workers))) == 1


def test_workers_that_do_different_things(elastic_job):
    """If this fails, a program that decides by its rank hangs, or trains something else, and nobody says why."""
    made = elastic_job(2)
    script = made.directory / "parting.py"
    script.write_text("""
import numpy as np
import poseidon
from poseidon import elastic

poseidon.init()
gradient = np.zeros(10, np.float32)
elastic.use([gradient])


@elastic.run
def train(state):
    elastic.average([gradient])
    if elastic.rank() == 0:
        return
    elastic.average([gradient])


train(elastic.State(epoch=0))
""")
    workers = made.begin_all(script)
    assert [worker.wait() for worker in workers] == [1, 1]
    assert "worker 0 has ended its training (elastic.run), worker 1 gives gradients: all must do the same" in workers[1].output()
    assert "worker 1 gives gradients, worker 0 has ended its training" in workers[0].output()


def test_a_plain_script_is_not_joined(elastic_job, tmp_path):
    """If this fails, a worker joins a script whose model it cannot get, or is not told what to do instead."""
    made = elastic_job(1)
    gate = made.directory / "gate"
    first = made.begin(COUNTING, "--samples", 300, "--hold", f"5:{gate}", rank=0)
    first.wait_for_output("holding 5")
    plain = tmp_path / "plain.py"
    plain.write_text("import sys\nimport types\nsys.modules['poseidon.torch'] = types.ModuleType('torch')\n"
                     "import poseidon\nposeidon.init()\n")
    second = made.begin(plain)
    assert second.wait() == 1
    assert "cannot join it" in second.output() and "poseidon.elastic" in second.output()
    gate.touch()
    ended([first])


def test_a_newcomer_with_a_model_of_the_same_size(elastic_job):
    """If this fails, a worker whose parameters have other shapes, or another order, adds its gradients to those of others."""
    made = elastic_job(1)
    gate = made.directory / "gate"
    common = ("--samples", 300)
    worker = made.begin(COUNTING, *common, "--hold", f"5:{gate}", rank=0)
    worker.wait_for_output("holding 5")
    other = made.directory / "other.py"
    other.write_text(COUNTING.read_text().replace("elastic.use([np.zeros(args.samples, np.float32)])",
                                                  "elastic.use([np.zeros((2, args.samples // 2), np.float32)])"))
    newcomer = made.begin(other, *common)
    made.daemons[0].wait_for_output("worker 1 counts from")
    gate.touch()
    assert newcomer.wait(60) == 1
    assert "worker 0 has other parameters to train (their number, shapes or types)" in newcomer.output()
    ended([worker])


def test_a_worker_that_dies_in_the_middle_of_a_step_is_in_none_of_it(elastic_job):
    """If this fails, a part of a dead worker's gradient counts in a step, and the rest of it does not."""
    made = elastic_job(3)
    script = made.directory / "half.py"
    script.write_text("""
import os
import signal
import numpy as np
import poseidon
from poseidon import _elastic, elastic
from poseidon.elastic.control import Kind

poseidon.init()
mine = 10.0 ** poseidon.rank()
gradients = [np.zeros(70_000, np.float32), np.zeros(10, np.float64)]
elastic.use(gradients)


def give_one_of_two(group):
    '''The sums of the first table are there, so its rounds have closed with this worker. The second one gets nothing.'''
    group.begin(Kind.GRADIENTS, samples=1, batch_size=1)
    part, = group.wire._parts["float32"]
    part.push(np.full(70_000, mine, np.float32), 1.0, group.wire._marks["float32"].of([group.rank]))
    part.wait()
    os.kill(os.getpid(), signal.SIGKILL)


@elastic.run
def train(state):
    while state.step < 6:
        if state.step == 3 and poseidon.rank() == 1:
            give_one_of_two(_elastic.current())
        for gradient in gradients:
            gradient[:] = mine
        elastic.average(gradients)
        found = {float(value) for gradient in gradients for value in np.unique(gradient)}
        print("step", state.step, sorted(found), flush=True)
        state.step += 1
        state.commit()
    print("DONE", state.step)


train(elastic.State(step=0))
poseidon.close()
""")
    workers = made.begin_all(script)
    assert workers[1].wait(60) == 137
    ended([workers[0], workers[2]])
    for worker in (workers[0], workers[2]):
        assert re.findall(r"step (\d) \[(.*)\]", worker.output()) == [(str(step), "37.0" if step < 3 else "50.5") for step in range(6)]


def test_psd_run_scales_it(tmp_path):
    """If this fails, `psd_run scale` cannot add workers to a Python training, or those that it takes away die in a step."""
    title = f"elastic-{uuid.uuid4().hex[:8]}"
    gates = {step: tmp_path / f"gate{step}" for step in (20, 60)}
    holds = [word for step, gate in gates.items() for word in ("--hold", f"{step}:{gate}")]
    job = Job(tmp_path / "job", *BRISK, "--workers", 2, "--servers", 1, "--name", title, "--max_workers", 4,
              "--on_worker_death=continue", "--", sys.executable, COUNTING, "--samples", 1501, "--batch", 7, *holds,
              environment=environment(PYTHONHASHSEED="0"))
    job.wait_for_output("holding 20", 2)
    subprocess.run([program("psd_run"), "scale", title, "--workers", "+2"], check=True, capture_output=True, timeout=60)
    for rank in (2, 3):
        job.wait_for_output(f"[worker{rank}] here")
    gates[20].touch()
    job.wait_for_output("holding 60", 4)
    subprocess.run([program("psd_run"), "scale", title, "--workers", "3"], check=True, capture_output=True, timeout=60)
    gates[60].touch()
    assert job.wait(90) == 0, job.stdout() + job.stderr()
    said = job.stdout() + job.stderr()
    assert "worker 3 leaves: as it was asked to" in said
    done = re.findall(r"\[worker\d\] (DONE .*)", said)
    assert len(done) == 3 and len(set(done)) == 1 and "seen 3002" in done[0], done


PACED = ("--pause", 0.03)  # a step that is over before its checkpoint is asked for is left out


def counting(directory, *options, workers=2, arguments=()):
    return Job(directory, *BRISK, "--workers", workers, "--servers", 1, "--max_workers", 8, "--on_worker_death=continue", *options,
               "--", sys.executable, COUNTING, "--samples", 1501, "--batch", 7, *arguments, environment=environment(PYTHONHASHSEED="0"))


def result_of(job):
    assert job.wait(90) == 0, job.stdout() + job.stderr()
    done = re.findall(r"\[worker\d\] (DONE .*)", job.stdout())
    assert len(set(done)) == 1 and "seen 3002" in done[0], done
    return done[0]


@pytest.mark.parametrize("every", ["10steps", "epoch"])
def test_all_are_killed_and_the_job_goes_on(tmp_path, every):
    """If this fails, an elastic job whose processes all die begins anew, or loses samples or counts them twice when it goes on;
    or it needs as many workers as before."""
    calm = result_of(counting(tmp_path / "calm"))
    saved = tmp_path / "saved"
    gate = tmp_path / "gate"
    keep = ("--checkpoint", saved, "--checkpoint_every", every)
    job = counting(tmp_path / "killed", *keep, arguments=("--hold", f"120:{gate}", *PACED))
    job.wait_for_output("holding 120", 2)
    wait_for(lambda: list(saved.glob("manifest-*")), 30, "a checkpoint is there")
    job.process.kill()  # and with psd_run all that it has started
    job.process.wait()
    job.expect_nothing_left()
    gate.touch()
    again = counting(tmp_path / "again", *keep, "--resume", saved)
    assert result_of(again) == calm  # to the last bit
    begun = [int(step) for step in re.findall(r"begin epoch \d step (\d+)", again.stdout())]
    assert 0 < min(begun) <= 120
    result_of(counting(tmp_path / "more", "--resume", saved, workers=3))


def test_the_job_begins_again_by_itself(tmp_path):
    """If this fails, an elastic job that has lost all its workers is not begun again from its last checkpoint, or counts samples
    twice."""
    saved = tmp_path / "saved"
    job = counting(tmp_path / "job", "--checkpoint", saved, "--checkpoint_every", "10steps", "--restart=on-failure",
                   "--restart_scope=group", arguments=("--hold", f"120:{tmp_path / 'gate'}", *PACED))
    job.wait_for_output("holding 120", 2)
    wait_for(lambda: list(saved.glob("manifest-*")), 30, "a checkpoint is there")
    victims = [job.pid_of(f"worker{rank}") for rank in range(2)]
    (tmp_path / "gate").touch()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    result_of(job)
    begun = [int(step) for step in re.findall(r"begin epoch \d step (\d+)", job.stdout())]
    assert begun[:2] == [0, 0] and len(begun) == 4 and min(begun[2:]) > 0


def test_what_cannot_be_saved_or_gone_on_from(tmp_path):
    """If this fails, a state that cannot be saved stops training, or nobody is told why there is no checkpoint; or a program goes
    on from what another one has saved."""
    script = tmp_path / "script.py"
    script.write_text("""
import sys
import time
import numpy as np
import poseidon
from poseidon import elastic

poseidon.init()
elastic.use([np.zeros(4, np.float32)])

@elastic.run
def train(state):
    while state.step < 40:
        elastic.average([np.ones(4, np.float32)])
        state.step += 1
        state.commit()
        time.sleep(0.05)  # a step that is over before its checkpoint is asked for is left out

train(elastic.State(step=0, **{name: np.zeros(2, complex) if name == "odd" else 1 for name in sys.argv[1:]}))
print("DONE", flush=True)
""")

    def run(name, *words, options=()):
        job = Job(tmp_path / name, *BRISK, "--workers", 1, "--servers", 1, "--max_workers", 2, "--on_worker_death=continue", *options,
                  "--", sys.executable, script, *words, environment=environment())
        return job.wait(90), job.stdout() + job.stderr()

    saved = tmp_path / "saved"
    keep = ("--checkpoint", saved, "--checkpoint_every", "10steps")
    code, said = run("odd", "odd", options=keep)
    assert code == 0 and "no checkpoints are written: it['values']['odd'] is an array of complex128" in said, said
    assert not list(saved.glob("manifest-*"))
    assert run("one", "a", options=keep)[0] == 0
    code, said = run("other", "b", options=("--resume", saved))
    assert code != 0 and "the checkpoint has a, step, the state of this program b, step" in said, said
