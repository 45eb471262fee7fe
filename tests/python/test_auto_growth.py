# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts whose workers come and go: psd_run --max_workers, and psd_run scale."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import uuid

import pytest

import warm
from helpers import Job, marked_processes, program, result, wait_for

from conftest import PACKAGE_PATH

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here (tools/setup.sh frameworks)")

# What a script keeps, in a loop as most have it. It says which samples it trains on, and stands at places until a file is there.
SCRIPT = """
import hashlib, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(3)
GATES, PLACES = os.environ["GATES"], os.environ["PLACES"].split()
WORLD = [int(word) for word in os.environ.get("ALONE", "").split()]  # one process in place of so many, by epoch

class Points(Dataset):
    def __init__(self, count):
        self.points = torch.randn(count, 6, dtype=torch.float64); self.targets = self.points.sum(1, keepdim=True)
    def __len__(self):
        return len(self.points)
    def __getitem__(self, i):
        return self.points[i], self.targets[i], i

def stand(place):
    if place in PLACES:
        print("STANDS", place, flush=True)
        while not os.path.exists(f"{GATES}/{place}"):
            time.sleep(0.02)

data, tests = Points(SAMPLES), Points(32)
model = nn.Sequential(nn.Linear(6, 8), NORM nn.Tanh(), DROP nn.Linear(8, 1)).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
BEGIN
best, history, steps = float("inf"), [], 0
for epoch in range(EPOCHS):
    model.train()
    for number, (points, targets, which) in enumerate(DataLoader(data, 5 * (WORLD[epoch] if WORLD else 1), shuffle=True, num_workers=READERS)):
        stand(f"{epoch}-{number}")
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        print("SEEN", epoch, which.tolist(), flush=True)
        STEP
    scheduler.step()
    model.eval()
    with torch.no_grad():
        tested = sum(nn.functional.mse_loss(model(points), targets).item() for points, targets, _ in DataLoader(tests, 16))
    history.append(tested)
    best = min(best, tested)
print("KEPT", best, history, steps, scheduler.get_last_lr(), flush=True)
print("WEIGHTS", [round(each, 9) for each in torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()], flush=True)
print("SHA", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in [*model.parameters(), *model.buffers()])).hexdigest(), flush=True)
"""
NOISY = {"NORM": "nn.BatchNorm1d(8),", "DROP": "nn.Dropout(0.2),"}


def text(epochs=5, readers=0, samples=100, **words):
    made = SCRIPT.replace("EPOCHS", str(epochs)).replace("READERS", str(readers)).replace("SAMPLES", str(samples))
    for word, default in (("NORM", ""), ("DROP", ""), ("BEGIN", "pass"), ("STEP", "pass")):
        made = made.replace(word, words.get(word, default))
    return made


class Training:
    """A job that stands at some places."""

    def __init__(self, directory, script, *places, options=(), policy="continue", workers=2, room=4):
        directory.mkdir(parents=True)
        self.gates = directory / "gates"
        self.gates.mkdir()
        path = directory / "train.py"
        path.write_text(script)
        self.title = f"growth-{uuid.uuid4().hex[:8]}"
        self.job = Job(directory / "job", "--workers", workers, "--page", "off", "--max_workers", room, f"--on_worker_death={policy}",
                       "--name", self.title, *options, "--", warm.python("torch"), path,
                       environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE_PATH), "PYTHONHASHSEED": "7", "GATES": str(self.gates),
                                    "PLACES": " ".join(places)})

    def said(self):
        return self.job.stdout() + self.job.stderr() + self.job.run_log()

    def wait_for(self, text, count=1, seconds=120):
        wait_for(lambda: self.said().count(text) >= count or self.job.process.poll() is not None, seconds,
                 lambda: f"{text!r} {count} times\n{self.said()}")
        assert self.said().count(text) >= count, f"{text!r} {count} times\n{self.said()}"

    def scale(self, *words):
        done = subprocess.run([program("psd_run"), "scale", self.title, "--workers", *map(str, words)], capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr + self.said()

    def open(self, place):
        (self.gates / place).touch()

    def pid(self, worker):
        return int(re.findall(rf"PROCESS worker{worker} pid (\d+)", self.job.run_log())[-1])

    def ended(self, code=0):
        assert self.job.wait(120) == code, self.said()
        return self

    def told(self, word):
        """What the workers say behind a word, and how many do."""
        found = re.findall(rf"^\[worker\d+ *\] {word} (.*)$", self.job.stdout(), re.M)
        assert len(set(found)) == 1, self.said()
        return found[0], len(found)

    def samples(self):
        """By epoch: which were trained on, of all workers together, and by how many of them."""
        epochs = {}
        for worker, epoch, which in re.findall(r"^\[worker(\d+) *\] SEEN (\d+) (\[.*\])$", self.job.stdout(), re.M):
            who, seen = epochs.setdefault(int(epoch), (set(), []))
            who.add(int(worker))
            seen += json.loads(which)
        return {epoch: (sorted(who), sorted(seen)) for epoch, (who, seen) in epochs.items()}


ALL = list(range(100))


def grown(directory, script, at_step=None):
    """Worker 2 is added in epoch 1, and trains from epoch 2 on."""
    training = Training(directory, script, "1-2")
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1", *(("--at_step", at_step) if at_step else ()))
    if at_step:
        training.wait_for("worker2 is started")
        wait_for(lambda: joined(training), 120, lambda: "worker 2 is known\n" + training.said())
    else:
        training.wait_for("worker2 counts from step")
    training.open("1-2")
    return training.ended()


def joined(training):
    shown = subprocess.run([program("psd_run"), "show", training.title, "--json"], capture_output=True, text=True, timeout=60, check=True)
    return any(each["name"] == "worker2" and each.get("address") for each in json.loads(shown.stdout)["processes"])


def test_a_worker_joins_at_the_next_epoch(tmp_path):
    """If this fails, a worker that is added to a plain script trains on samples of others, or some are left out, or its gradients
    count otherwise than those of one process with so many times the batch."""
    training = grown(tmp_path / "job", text())
    seen = training.samples()
    assert {epoch: who for epoch, (who, _) in seen.items()} == {0: [0, 1], 1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2], 4: [0, 1, 2]}
    assert all(which == ALL for _, which in seen.values()), seen
    weights, count = training.told("WEIGHTS")
    assert count == 3 and training.told("SHA")[1] == 3 and training.told("KEPT")[1] == 3
    assert "is dealt to 3 workers (worker 2 came)" in training.job.stderr(), training.said()
    assert "from step 21 on 3 workers" in training.job.stderr() and "weights equal to the bit on 3 workers after 41 steps" in training.job.stderr()
    alone = subprocess.run([sys.executable, tmp_path / "job" / "train.py"],
                           env={**os.environ, "ALONE": "2 2 3 3 3", "GATES": "", "PLACES": ""},
                           capture_output=True, text=True, check=True, timeout=120)
    expected = json.loads(re.search(r"^WEIGHTS (.*)$", alone.stdout, re.M)[1])
    assert json.loads(weights) == pytest.approx(expected, abs=1e-8)


def test_a_fixed_schedule_of_joins_gives_the_same_bits(tmp_path):
    """If this fails, what a plain script learns depends on when exactly a worker came, and not on the step that was asked for; or
    noise, statistics or schedules of one that came are not what they would be."""
    script = text(**NOISY, readers=1)
    runs = [grown(tmp_path / f"run{number}", script, at_step=30) for number in range(2)]
    assert len({run.told("SHA") for run in runs}) == 1 and runs[0].told("SHA")[1] == 3
    assert len({run.told("KEPT") for run in runs}) == 1
    assert all(run.samples()[1] == ([0, 1], ALL) and run.samples()[2] == ([0, 1, 2], ALL) for run in runs)


def test_the_training_ends_before_one_is_taken_in(tmp_path):
    """If this fails, a worker that comes in the last epoch waits for another, or fails the job."""
    training = Training(tmp_path / "job", text(epochs=2, readers=1), "1-2", policy="fail")
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1")
    training.wait_for("worker2 counts from step")
    training.open("1-2")
    training.ended()
    assert training.told("SHA")[1] == 2 and "worker 2 leaves: " in training.said()


def test_one_that_dies_on_its_way_stops_nobody(tmp_path):
    """If this fails, a worker that dies before it is one of the others costs them more than itself."""
    training = Training(tmp_path / "job", text(), "1-2")
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1")
    training.wait_for("worker2 counts from step")
    os.kill(training.pid(2), signal.SIGKILL)
    training.open("1-2")
    training.ended()
    assert training.told("SHA")[1] == 2
    assert all(seen == ([0, 1], ALL) for seen in training.samples().values())


def test_one_that_dies_later_is_dealt_around(tmp_path):
    """If this fails, what a dead worker would have trained on is left out of all epochs that follow, or nobody says that it was
    left out of one; or the job ends with it."""
    training = Training(tmp_path / "job", text(), "1-2", "2-3")
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1")
    training.wait_for("worker2 counts from step")
    training.open("1-2")
    training.wait_for("STANDS 2-3", 3)
    os.kill(training.pid(2), signal.SIGKILL)
    training.open("2-3")
    training.ended()
    seen = training.samples()
    assert seen[2][0] == [0, 1, 2] and len(seen[2][1]) == len(set(seen[2][1])) < 100
    assert seen[3] == seen[4] == ([0, 1], ALL)
    assert training.told("SHA")[1] == 2
    said = training.job.stderr()
    assert "worker 2 died, and the job goes on without" in said and "nobody trains on what it had left of this epoch" in said
    assert "verified in part: " in said and "what it had not trained on of that epoch was left out" in said, said


def test_its_death_ends_a_job_that_is_to_end_with_one(tmp_path):
    """If this fails, on_worker_death=fail is not heeded for a worker that came."""
    training = Training(tmp_path / "job", text(), "1-2", "2-3", policy="fail")
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1")
    training.wait_for("worker2 counts from step")
    training.open("1-2")
    training.wait_for("STANDS 2-3", 3)
    os.kill(training.pid(2), signal.SIGKILL)
    training.open("2-3")
    training.ended(137)


def test_one_is_asked_to_leave(tmp_path):
    """If this fails, psd_run scale takes a worker of a plain script away in the middle of a step, or as if it had died."""
    training = Training(tmp_path / "job", text(), "1-2", "2-3", workers=3)
    training.wait_for("STANDS 1-2", 3)
    training.scale("-1")
    training.open("1-2")
    training.wait_for("worker 2 leaves: as it was asked to")
    training.wait_for("STANDS 2-3", 2)
    training.scale("+1")
    training.wait_for("worker3 counts from step")
    training.open("2-3")
    training.ended()
    seen = training.samples()
    assert [seen[epoch] for epoch in (0, 2, 3, 4)] == [([0, 1, 2], ALL), ([0, 1], ALL), ([0, 1, 3], ALL), ([0, 1, 3], ALL)]
    assert len(seen[1][1]) == len(set(seen[1][1])) < 100
    assert training.told("SHA")[1] == 3
    ended = {process["name"]: process for process in result(training.job)["processes"]}
    assert ended["worker2"]["state"] == "left" and ended["worker2"]["code"] == 0, ended


def test_one_comes_in_place_of_a_dead_one(tmp_path):
    """If this fails, on_worker_death=wait is of no use to a plain script."""
    training = Training(tmp_path / "job", text(**NOISY), "1-2", policy="wait", options=["--restart=on-failure", "--max_restarts", 1])
    training.wait_for("STANDS 1-2", 2)
    os.kill(training.pid(1), signal.SIGKILL)
    training.wait_for("PROCESS worker1 pid", 2)
    training.open("1-2")
    training.ended()
    seen = training.samples()
    assert all(seen[epoch] == ([0, 1], ALL) for epoch in (0, 2, 3, 4)), seen
    assert len(seen[1][1]) == len(set(seen[1][1])) < 100
    assert training.told("SHA")[1] == 2


@pytest.mark.parametrize("begin, step, said", [
    ("log = open(os.path.join(GATES, 'log'), 'w')", "log.write('x')", "while others train, and its variable log (of __main__) is a _io.TextIOWrapper"),
    ("pass", "if epoch == 1 and number == 0: log = open(os.devnull)\n        if epoch > 0: log.readable()", "its variable log (of __main__) is a _io.TextIOWrapper"),
    ("pass", "if number == 0: open(os.path.join(GATES, f'more{os.getpid()}'), 'a').write('x')", "while it trains, and would write it again"),
    ("pass", "best = min(best, model[0].weight.grad.norm().item())", "without computing it fails (AttributeError"),
])
def test_what_cannot_be_joined_is_refused_by_name(tmp_path, begin, step, said):
    """If this fails, a worker trains from a place where the others are not, or one that cannot join stops the others, or nobody is
    told why it could not."""
    training = Training(tmp_path / "job", text(BEGIN=begin, STEP=step), "1-2")
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1")
    training.wait_for("while others train, and" if "log.write" in step else "worker2 counts from step")
    training.open("1-2")
    training.ended()
    assert said in training.said() and "use poseidon.elastic in the script" in training.said(), training.said()
    assert training.told("SHA")[1] == 2
    assert all(seen == ([0, 1], ALL) for seen in training.samples().values())


def test_a_job_that_grew_goes_on_from_a_checkpoint(tmp_path):
    """If this fails, a checkpoint of a job whose workers have changed is of no use, or training goes on from it as if they had
    not."""
    script, saved = text(**NOISY, STEP="time.sleep(0.02)"), tmp_path / "saved"
    whole = grown(tmp_path / "whole", script)
    training = Training(tmp_path / "first", script, "1-2", "3-4", options=["--checkpoint", saved, "--checkpoint_every", "2steps"])
    training.wait_for("STANDS 1-2", 2)
    training.scale("+1")
    training.wait_for("worker2 counts from step")
    training.open("1-2")
    training.wait_for("STANDS 3-4", 3)
    wait_for(lambda: any(json.loads(path.read_text())["step"] > 20 for path in saved.glob("manifest-*.json")), 60,
             lambda: f"a checkpoint of three workers {list(saved.iterdir())}")
    for process in marked_processes(training.job.mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    training.job.process.wait()
    training.open("3-4")  # where it was is among what is put back
    again = Training(tmp_path / "again", script, workers=3, options=["--resume", saved]).ended()
    assert "batches are passed over" in again.job.stderr()
    assert again.told("SHA") == whole.told("SHA") and again.told("KEPT") == whole.told("KEPT")


def test_a_job_of_one_cannot_grow(tmp_path):
    """If this fails, a worker that comes to a plain script of one worker, which is in no job, trains the same by itself, and nobody
    is told."""
    training = Training(tmp_path / "job", text(), "1-2", workers=1)
    training.wait_for("STANDS 1-2")
    done = subprocess.run([program("psd_run"), "scale", training.title, "--workers", "+1"], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 3 and "it has not begun: not all of its workers have joined" in done.stderr, done.stderr
    training.open("1-2")
    training.ended()
    assert training.told("SHA")[1] == 1


@pytest.mark.all
def test_more_than_have_room_in_a_round(tmp_path):
    """If this fails, what many workers compare is lost on its way, where it is more than fits a round."""
    samples = list(range(340))  # which leave no worker without any in a step
    training = Training(tmp_path / "job", text(samples=340), "1-1", "3-0", workers=17, room=20)
    training.wait_for("STANDS 1-1", 17, 400)
    training.scale("+1")
    training.wait_for("worker17 counts from step", seconds=400)
    training.open("1-1")
    training.wait_for("STANDS 3-0", 18, 400)
    os.kill(training.pid(17), signal.SIGKILL)
    training.open("3-0")
    training.ended()
    seen = training.samples()
    assert [seen[epoch] for epoch in (1, 2, 4)] == [(list(range(17)), samples), (list(range(18)), samples), (list(range(17)), samples)]
    assert training.told("SHA")[1] == 17


@pytest.mark.parametrize("model, said", [
    ("nn.Sequential(nn.Identity(), *model)", "it trains other parameters (their names, shapes or types) than the others"),
    ("nn.Sequential(*model, nn.Linear(1, 1).double())", "trains another number of parameters than the job does"),
])
def test_another_model_is_refused_by_name(tmp_path, model, said):
    """If this fails, a worker whose script makes another model than it did joins those who train the first, or stops them."""
    begin = f"if os.path.exists(GATES + '/other'): model = {model}; optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)"
    training = Training(tmp_path / "job", text(BEGIN=begin), "1-2", policy="fail")
    training.wait_for("STANDS 1-2", 2)
    training.open("other")
    training.scale("+1")
    training.wait_for("worker2 counts from step")
    training.open("1-2")
    training.ended()
    assert said in training.said() and training.told("SHA")[1] == 2, training.said()
