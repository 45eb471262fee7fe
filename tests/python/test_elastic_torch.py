# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic examples with the import replaced: horovod/torch_elastic.py, whose workers are killed and started while it
trains. It counts in the averaged gradients which samples were in them."""

import importlib.util
import pathlib
import random
import re
import signal

import pytest

import warm
from conftest import environment
from elastic_jobs import ended
from helpers import Hand, Job, wait_for

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "horovod" / "torch_elastic.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here (tools/setup.sh frameworks)")


@pytest.fixture(name="job")
def fixture_job(elastic_job):
    return lambda workers, *rules: elastic_job(workers, *rules, python=warm.python("torch"))


@pytest.mark.parametrize("options", [(), ("--batches-per-commit", 9, "--workers", 1)], ids=["each step", "seldom"])
def test_two_of_four_are_killed_and_one_comes(job, options):
    """If this fails, a script written for elastic Horovod loses samples, or trains on some twice, when workers die and come; or
    those that are left end with different models, or are started anew."""
    made = job(4)
    gate = made.directory / "gate"
    common = ("--samples", 70_000, "--batch-size", 128, "--epochs", 2, *options)
    workers = made.begin_all(SCRIPT, *common, "--hold", f"30:{gate}")
    for worker in workers:
        worker.wait_for_output("holding", 120)
    chance = random.Random(str(options))
    first, second = chance.sample(workers, 2)
    made.kill(first)
    newcomer = made.begin(SCRIPT, *common)
    newcomer.wait_for_output("pid", 60)
    gate.touch()
    newcomer.wait_for_output("begin", 60)
    made.kill(second)  # wherever it is
    left = [worker for worker in workers if worker not in (first, second)]
    done = ended([*left, newcomer], 150)
    assert len(set(done)) == 1 and "score 3.0" in done[0], done
    assert all(worker.output().count("pid ") == 1 for worker in left)  # the same processes
    for worker in left:
        assert re.search(r"^resets \[.*3\]$", worker.output(), re.MULTILINE), worker.output()
        assert "epoch 1 every sample counted 2 times" in worker.output()


def test_one_leaves_when_it_is_asked_to(job):
    """If this fails, SIGTERM costs more than a worker: its step is lost, or the others wait for it."""
    made = job(2)
    gate = made.directory / "gate"
    workers = made.begin_all(SCRIPT, "--samples", 3000, "--epochs", 1, "--hold", f"5:{gate}")
    for worker in workers:
        worker.wait_for_output("holding", 120)
    workers[0].signal(signal.SIGTERM)
    gate.touch()
    assert workers[0].wait(60) == 0 and "worker 0 leaves" in workers[0].output()
    assert "score 1.0" in ended(workers[1:])[0]
    assert "MEMBER-LOST" not in made.daemons[0].output()


def test_what_cannot_be_done(job):
    """If this fails, what elastic jobs cannot do does something else, and no message says why."""
    made = job(1)
    script = made.directory / "refused.py"
    script.write_text('''
import torch
import poseidon.torch as hvd

def attempt(function):
    try:
        print("no error", function())
    except Exception as error:
        print(type(error).__name__, error, flush=True)

hvd.init()
model = torch.nn.Linear(2, 2)
make = lambda: torch.optim.SGD(model.parameters(), lr=0.1)
attempt(lambda: hvd.DataParallel(model))
attempt(lambda: hvd.DistributedOptimizer(make(), server_side=True))
attempt(lambda: hvd.DistributedOptimizer(make(), model=model, overlap="forward"))
attempt(lambda: hvd.DistributedOptimizer(make(), op=hvd.Adasum))
optimizer = hvd.DistributedOptimizer(make(), named_parameters=model.named_parameters())
attempt(lambda: hvd.DistributedOptimizer(optimizer))
attempt(optimizer.join)
attempt(lambda: hvd.DistributedOptimizer(torch.optim.SGD(torch.nn.Linear(9, 1).parameters(), lr=1)))
attempt(lambda: hvd.elastic.run(print)(3))
attempt(lambda: torch.utils.data.DataLoader([1, 2], batch_size=None, sampler=hvd.elastic.ElasticSampler(2)))
attempt(lambda: hvd.elastic.TorchState(epoch=0, odd=object()).pack())
attempt(lambda: hvd.no_such_name)
''')
    said = made.begin(script, rank=0)
    assert said.wait(120) == 0
    for text in ("DataParallel is not for programs whose workers come and go", "server_side=True is not for programs",
                 "overlap='forward' is not for programs", "op=Adasum is not offered", "is a DistributedOptimizer already",
                 "workers of an elastic job have equally many batches", "has one optimizer", "is a State, not int",
                 "takes no ElasticSampler", "the value['values']['odd'] is a object: only", "has no attribute 'no_such_name'"):
        assert text in said.output(), text + "\n" + said.output()
    assert "no error" not in said.output()


def test_the_example(tmp_path, secret_file):
    """If this fails, what docs/elastic.md shows does not run under psd_run, does not learn, or cannot be joined by hand."""
    example = HERE.parents[1] / "examples" / "pytorch" / "elastic_mnist.py"
    assert len(example.read_text().splitlines()) < 60
    arguments = (example, "--samples", 640, "--epochs", 100)
    python = warm.python("torch")
    job = Job(tmp_path / "job", "--secret_file", secret_file, "--workers", 2, "--max_workers", 16, "--on_worker_death=continue",
              "--", python, *arguments, environment=environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))
    job.wait_for_output("epoch 0: worker 0 of 2, 640 samples are left", seconds=120)
    newcomer = Hand(tmp_path).start("third", python, *arguments, environment=environment(
        PSD_MASTER_ADDRESS=job.master_address(), PSD_SECRET_FILE=str(secret_file), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))
    newcomer.wait_for_output("worker 2 of 3", 60)
    assert job.wait(150) == 0, job.stdout() + job.stderr()
    assert newcomer.wait(30) == 0
    right = {float(text) for text in re.findall(r"worker \d: ([\d.]+)% of 1000", job.stdout() + newcomer.output())}
    assert len(right) == 1 and min(right) > 25, job.stdout() + newcomer.output()


def test_the_example_goes_on_from_a_checkpoint(tmp_path):
    """If this fails, the model or the optimizer of an elastic PyTorch job is not in its checkpoints, or not all of it: when all
    processes were killed it ends with another model than one that was left alone."""
    example = HERE.parents[1] / "examples" / "pytorch" / "elastic_mnist.py"
    seeded = tmp_path / "seeded.py"
    seeded.write_text(f"""
import runpy, sys, torch
torch.manual_seed(7)
sys.path.insert(0, {str(example.parent)!r})
runpy.run_path({str(example)!r}, run_name="__main__")
""")

    def train(name, *options):
        return Job(tmp_path / name, "--workers", 2, "--max_workers", 4, "--on_worker_death=continue", *options, "--",
                   warm.python("torch"), seeded, "--samples", 640, "--epochs", 20,
                   environment=environment(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""))

    def losses(job):
        assert job.wait(150) == 0, job.stdout() + job.stderr()
        return re.findall(r"epoch (\d+) done: (loss [\d.]+)", job.stdout()), re.findall(r"worker \d: (.*) of 1000", job.stdout())

    calm, right = losses(train("calm"))
    assert len(calm) == 20 and len(right) == 2 and len(set(right)) == 1
    saved = tmp_path / "saved"
    keep = ("--checkpoint", saved, "--checkpoint_every", "7steps")
    job = train("killed", *keep)
    wait_for(lambda: list(saved.glob("manifest-*")), 120, "a checkpoint is there")
    job.process.kill()  # and with psd_run all that it has started
    job.process.wait()
    job.expect_nothing_left()
    resumed = train("again", *keep, "--resume", saved)
    again, same = losses(resumed)
    assert "the job goes on from step" in resumed.stderr()
    assert again and again == calm[-len(again):] and same == right
