# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts go on from checkpoints of psd_run: killed as a whole, and weights compared to the bit with a run that
was left alone."""

import functools
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import uuid

import pytest

import warm
from helpers import Job, marked_processes, program, wait_for

from conftest import PACKAGE_PATH, TREE

PLAIN = TREE / "examples" / "pytorch" / "mnist.py"
DIGEST = """
import hashlib
print("SHA", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest(), flush=True)
"""
# What a script keeps from step to step: a schedule, a running loss, an object of its own, a generator of its own, noise of
# torch, random and numpy in the model and in the data, a list, an average of the weights, an evaluation that decides.
MANY = """
import copy, random, sys, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(3); random.seed(4); np.random.seed(5)
REST = float(sys.argv[1])

class Points(Dataset):
    def __init__(self, count):
        self.points = torch.randn(count, 6); self.targets = self.points.sum(1, keepdim=True)
    def __len__(self):
        return len(self.points)
    def __getitem__(self, i):
        noise = torch.randn(6) * 0.1 + random.random() * 0.01 + float(np.random.rand()) * 0.01
        return self.points[i] + noise, self.targets[i]

class Meter:
    def __init__(self):
        self.total = 0.0; self.count = 0
    def add(self, value, n):
        self.total += value * n; self.count += n

def train(model, average, epochs, workers):
    data, tests = Points(96), Points(32)
    rng = np.random.default_rng(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=epochs * 6)
    best, history, steps, meter = float("inf"), [], 0, Meter()
    loader = DataLoader(data, 8, shuffle=True, num_workers=workers)
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for number, (points, targets) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(points) + float(rng.standard_normal()) * 0.01, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            steps += 1
            running += loss.item()
            meter.add(loss.item(), len(points))
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), model.parameters()):
                    mine.mul_(0.9).add_(theirs, alpha=0.1)
            time.sleep(REST)
        history.append(running / (number + 1))
        model.eval()
        with torch.no_grad():
            tested = sum(nn.functional.mse_loss(model(points), targets).item() for points, targets in DataLoader(tests, 16))
        best = min(best, tested)
    return best, history, steps, meter

model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
average = copy.deepcopy(model)
best, history, steps, meter = train(model, average, 4, int(sys.argv[2]))
model = nn.ModuleList([model, average])
print("KEPT", best, history, steps, meter.total, meter.count, flush=True)
""" + DIGEST


def script_in(directory, text):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "train.py"
    path.write_text(textwrap.dedent(text))
    return path


def start(directory, path, *arguments, options=(), workers=2, python=None):
    return Job(directory, "--workers", workers, "--page", "off", *options, "--", python or warm.python("torch"), path, *arguments,
               environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE_PATH)})


def ended(job, code=0, seconds=120):
    assert job.wait(seconds) == code, job.stdout() + job.stderr()
    return job


def told(job, word="SHA"):
    """What each worker says behind a word."""
    return sorted(re.findall(rf"^(\[worker\d\] {word} .*)$", job.stdout(), re.M))


def kill_at(job, saved, generation):
    """All of it, when so many checkpoints are there, and a moment."""
    wait_for(lambda: any(int(path.stem.split("-")[1]) >= generation for path in saved.glob("manifest-*.json")) or
             job.process.poll() is not None, 120, lambda: job.stdout() + job.stderr())
    for process in marked_processes(job.mark):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.process.wait()


def test_mnist_ends_like_the_run_that_was_left_alone(tmp_path):
    """If this fails, a plain script that is killed as a whole starts anew, or ends with other weights than if it had not been
    killed."""
    text = PLAIN.read_text().replace("    model.eval()\n", "".join(f"    {line}\n" for line in DIGEST.strip().splitlines()) +
                                     "    model.eval()\n")
    path, saved = script_in(tmp_path / "script", text), tmp_path / "saved"
    words = ["--epochs", "2", "--batch", "64"]
    fresh = functools.partial(start, python=sys.executable)  # as users have it: with the imports, and killed in one moment
    whole = ended(fresh(tmp_path / "whole", path, *words))
    job = fresh(tmp_path / "first", path, *words, options=["--checkpoint", saved, "--checkpoint_every", "7steps"])
    kill_at(job, saved, random.randint(1, 6))
    again = ended(fresh(tmp_path / "again", path, *words, options=["--resume", saved]))
    assert "batches are passed over" in again.stderr()
    assert told(again) == told(whole) and len(told(whole)) == 2
    assert told(again, "accuracy:") == told(whole, "accuracy:")
    assert "weights equal to the bit on 2 workers after 64 steps" in again.stderr(), again.stderr()


@pytest.fixture(name="many", scope="module")
def fixture_many(tmp_path_factory):
    """How the script ends that was left alone."""
    root = tmp_path_factory.mktemp("many")
    ends = {}

    def end(processes):
        if processes not in ends:
            job = ended(start(root / f"whole{processes}", script_in(root / "script", MANY), 0, processes))
            assert len(told(job)) == len(told(job, "KEPT")) == 2
            ends[processes] = told(job), told(job, "KEPT")
        return ends[processes]

    return end


@pytest.mark.parametrize("every, processes", [
    ("epoch", 0), ("5steps", 2), pytest.param("5steps", 0, marks=pytest.mark.all),
    pytest.param("200ms", 0, marks=pytest.mark.all)])
def test_what_a_script_keeps_is_put_back(tmp_path, many, every, processes):
    """If this fails, a script goes on with the right weights and the wrong schedule, noise, or sums of its own."""
    path, saved = script_in(tmp_path / "script", MANY), tmp_path / "saved"
    job = start(tmp_path / "first", path, 0.05, processes, options=["--checkpoint", saved, "--checkpoint_every", every])
    kill_at(job, saved, 1 if every == "epoch" else random.randint(1, 3))
    again = ended(start(tmp_path / "again", path, 0.05, processes, options=["--resume", saved]))
    assert "batches are passed over" in again.stderr()
    assert every != "epoch" or "12 batches are" in again.stderr() or "6 batches are" in again.stderr(), again.stderr()
    assert (told(again), told(again, "KEPT")) == many(processes)


def test_a_job_that_loses_a_worker_begins_anew_from_its_checkpoint(tmp_path, many):
    """If this fails, --restart_scope=group trains from the beginning, or something else."""
    path, saved = script_in(tmp_path / "script", MANY), tmp_path / "saved"
    job = start(tmp_path / "first", path, 0.05, 0, options=[
        "--checkpoint", saved, "--checkpoint_every", "5steps", "--restart=on-failure", "--restart_scope=group"])
    wait_for(lambda: list(saved.glob("manifest-2.json")), 120, lambda: job.stdout() + job.stderr())
    victim = int(re.findall(r"PROCESS worker1 pid (\d+)", job.run_log())[-1])
    os.kill(victim, signal.SIGKILL)
    ended(job)
    assert "batches are passed over" in job.stderr(), job.stderr()
    assert (told(job)[-2:], told(job, "KEPT")[-2:]) == many(0)


SMALL = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(2, 1)
data = TensorDataset(torch.randn(64, 2), torch.randn(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
BEGIN
for epoch in range(3):
    for points, targets in DataLoader(data, 8, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), targets)
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        STEP
""" + DIGEST


def small(begin="pass", step="pass"):
    return SMALL.replace("BEGIN", begin).replace("STEP", step)


@pytest.mark.parametrize("begin, step, said", [
    ("log = open('log.txt', 'w')", "log.write(f'{loss.item()}')", "its variable log (of __main__) is a _io.TextIOWrapper"),
    pytest.param("optimizer.zero_grad = lambda: None", "model.weight.grad = model.bias.grad = None", "it never calls zero_grad()",
                 marks=pytest.mark.all),
    pytest.param("big = list(range(9900))", "big.append(loss.item())", "bytes on worker 0, more than 65536",
                 marks=pytest.mark.all),
])
def test_what_cannot_be_kept_is_named(tmp_path, begin, step, said):
    """If this fails, a checkpoint is written that a script cannot go on from, or nobody is told why there is none."""
    saved = tmp_path / "saved"
    job = ended(start(tmp_path / "job", script_in(tmp_path / "script", small(begin, step)),
                      options=["--checkpoint", saved, "--checkpoint_every", "3steps"]))
    assert job.stderr().count("no checkpoint of train.py is written: ") == 1
    assert said in job.stderr(), job.stderr()
    assert not list(saved.glob("manifest-*"))


@pytest.fixture(name="checkpoint", scope="module")
def fixture_checkpoint(tmp_path_factory):
    """Of a script that reads what it does from a file beside it: so it may do something else when it goes on."""
    root = tmp_path_factory.mktemp("checkpoint")
    path = script_in(root / "script", small("import beside", "beside.step(loss)"))
    (root / "script" / "beside.py").write_text("def step(loss):\n    pass\n")
    job = start(root / "job", path, options=["--checkpoint", root / "saved", "--checkpoint_every", "3steps"])
    kill_at(job, root / "saved", 2)
    return root


@pytest.mark.parametrize("beside, options, said", [
    ("def step(loss):\n    open('more.txt', 'a').write('x')\n", (), "more.txt while it trains"),
    ("def step(loss):\n    float(loss.grad_fn.name)\n", (), "without computing it fails"),
    ("kept = []\ndef step(loss):\n    kept.append(1)\n", (), "is there in one of the two runs only"),
    ("import sys\ndef step(loss):\n    sys.exit(0)\n", (), "it ended after 0 of"),
    ("def step(loss):\n    pass\n", ["--workers", 3], "with another worker (2 then, 3 now)"),
    ("def step(loss):\n    pass\n", ["more"], "with another argument"),
])
def test_what_does_not_fit_is_refused_by_name(tmp_path, checkpoint, beside, options, said):
    """If this fails, a script goes on from a place where it never was."""
    (checkpoint / "script" / "beside.py").write_text(beside)
    workers = options[1] if options[:1] == ["--workers"] else 2
    words = options if workers == 2 else []
    job = start(tmp_path / "job", checkpoint / "script" / "train.py", *words, workers=workers,
                options=["--resume", checkpoint / "saved"])
    assert job.wait(120) == 2, job.stdout() + job.stderr()
    assert said in job.stderr(), job.stderr()


@pytest.mark.parametrize("framework, text, said", [
    ("torch", small("import torch as t; x = t.randn(8, 2); [(optimizer.zero_grad(), model(x + t.randn(8, 2)).square().mean().backward(), "
           "optimizer.step()) for _ in range(3)]"), "no loader of torch hands out"),
    ("tensorflow", "import keras, numpy as np\nmodel = keras.Sequential([keras.layers.Dense(1)])\nmodel.compile('sgd', 'mse')\n"
     "model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=2, verbose=0)\n", "has nothing of a plain script of Keras"),
])
def test_scripts_that_cannot_go_on_are_stopped(tmp_path, checkpoint, framework, text, said):
    """If this fails, a script of another kind begins anew in silence where its user wants it to go on."""
    job = start(tmp_path / "job", script_in(tmp_path / "script", text), options=["--resume", checkpoint / "saved"],
                python=warm.python(framework))
    assert job.wait(120) == 2, job.stdout() + job.stderr()
    assert said in job.stderr() or "another script" in job.stderr(), job.stderr()


def test_a_worker_that_comes_later_is_refused_by_name(tmp_path):
    """If this fails, a worker that is added to a plain script that none can join trains on samples of others, or stops the job; or
    nobody is told what to do instead."""
    gate, title = tmp_path / "gate", f"plain-{uuid.uuid4().hex[:8]}"
    path = script_in(tmp_path / "script", small("import os; log = open(os.devnull)", "log.readable()\n        "
                                                "while epoch == 1 and not os.path.exists(sys.argv[1]): time.sleep(0.05)"))
    job = start(tmp_path / "job", path, gate, options=["--max_workers", 3, "--name", title])
    wait_for(lambda: "automatic distribution of train.py" in job.stderr(), 120, lambda: job.stdout() + job.stderr())
    subprocess.run([program("psd_run"), "scale", title, "--workers", "+1"], check=True, capture_output=True, timeout=120)
    wait_for(lambda: "this worker comes while others train" in job.run_log() or job.process.poll() is not None, 120,
             lambda: job.stdout() + job.stderr() + job.run_log())
    gate.touch()
    ended(job)
    assert "use poseidon.elastic in the script" in job.stderr() and "--restart_scope=group" in job.stderr(), job.stderr()
    assert len(told(job)) == 2 and "weights equal to the bit on 2 workers after 12 steps" in job.stderr(), job.stderr()
