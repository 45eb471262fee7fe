# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic example for Keras with the import replaced: horovod/keras_elastic.py, whose workers die and come."""

import importlib.util
import pathlib
import re

import pytest

import warm
from conftest import environment
from elastic_jobs import ended
from helpers import Job

SCRIPT = pathlib.Path(__file__).resolve().parent / "horovod" / "keras_elastic.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="no keras here (tools/setup.sh frameworks)")


def test_one_dies_and_one_comes(elastic_job):
    """If this fails, a script written for Horovod's KerasState loses samples, or trains on some twice, when workers die and come, or
    their models part."""
    made = elastic_job(2, python=warm.python("tensorflow"))
    gate = made.directory / "gate"
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    workers = [made.begin(SCRIPT, "--hold", f"9:{gate}", rank=rank, **quiet) for rank in range(2)]
    for worker in workers:
        worker.wait_for_output("holding", 180)
    newcomer = made.begin(SCRIPT, **quiet)
    newcomer.wait_for_output("pid", 120)
    made.kill(workers[0])
    gate.touch()
    done = ended([workers[1], newcomer], 180)
    assert len(set(done)) == 1 and "score 2.0 {'epoch': 2}" in done[0], done
    assert re.search(r"^resets \[.*2\]$", workers[1].output(), re.MULTILINE)
    assert "every sample counted 2 times" in newcomer.output() and workers[1].output().count("pid ") == 1


TAPE = """
import os
import time
import numpy as np
import tensorflow as tf
import poseidon.tensorflow as hvd

hvd.init()
print("pid", os.getpid(), flush=True)
weights = tf.Variable(tf.zeros(300), name="weights")
momentum = tf.Variable(tf.zeros(300), trainable=False)
sampler = hvd.elastic.ElasticSampler(300, batch_size=4)


@tf.function
def step(indices):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.gather(weights, indices))
    tape = hvd.DistributedGradientTape(tape)
    gradient, = tape.gradient(loss, [weights])
    gradient = tf.convert_to_tensor(gradient)
    momentum.assign(0.5 * momentum + gradient)
    weights.assign_sub(momentum)
    return gradient, hvd.allreduce(tf.constant(1.0), op=hvd.Sum)


@hvd.elastic.run
def train(state):
    while state.epoch < 2:
        sampler.set_epoch(state.epoch)
        for indices in sampler.batches():
            if state.step == 5 and GATE:
                print("holding", flush=True)
                while not os.path.exists(GATE):
                    time.sleep(0.01)
            gradient, workers = step(tf.constant(indices))
            there = gradient.numpy() != 0
            assert np.allclose(gradient.numpy()[there], 1 / there.sum()) and workers.numpy() >= 1
            state.seen = state.seen + there
            state.step += 1
            state.commit()
        state.epoch += 1
        assert (state.seen == state.epoch).all()


train(hvd.elastic.TensorFlowState([weights, momentum], sampler=sampler, epoch=0, step=0, seen=np.zeros(300, np.int64)))
first = hvd.broadcast(weights, 0).numpy()
assert (first == weights.numpy()).all() and hvd.allgather(tf.constant([hvd.rank()])).numpy().tolist() == list(range(hvd.size()))
print("DONE", hvd.size(), hash(weights.numpy().tobytes()), hash(momentum.numpy().tobytes()))
hvd.shutdown()
"""


def test_a_loop_with_a_tape(elastic_job):
    """If this fails, a loop with DistributedGradientTape and a TensorFlowState trains on something else when workers die and come."""
    made = elastic_job(2, python=warm.python("tensorflow"))
    gate = made.directory / "gate"
    script = made.directory / "tape.py"
    script.write_text(TAPE.replace("GATE", repr(str(gate))))
    newcomers = made.directory / "newcomer.py"
    newcomers.write_text(TAPE.replace("GATE", "''"))
    workers = [made.begin(script, rank=rank, TF_CPP_MIN_LOG_LEVEL="2") for rank in range(2)]
    for worker in workers:
        worker.wait_for_output("holding", 180)
    made.kill(workers[1])
    newcomer = made.begin(newcomers, TF_CPP_MIN_LOG_LEVEL="2")
    made.daemons[0].wait_for_output("worker 2 counts from", 60)
    gate.touch()
    done = ended([workers[0], newcomer], 180)
    assert len(set(done)) == 1 and done[0].startswith("DONE 2 "), done


SAVED = """
import hashlib
import sys
import time
import keras
import numpy as np
import poseidon.tensorflow.keras as hvd

hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
model.compile(optimizer, "mse")
samples = np.arange(256, dtype=np.float32).reshape(64, 4) / 100

@hvd.elastic.run
def train(state):
    print("begin", state.step, flush=True)
    while state.step < int(sys.argv[1]):
        model.train_on_batch(samples, samples[:, :3])
        state.step += 1
        state.commit()
        time.sleep(0.1)  # a step that is over before its checkpoint is asked for is left out

train(hvd.elastic.KerasState(model, optimizer, step=0))
values = b"".join(each.numpy().tobytes() for each in [*model.weights, *optimizer.variables])
print("DONE", hashlib.sha256(values).hexdigest()[:16], flush=True)
"""


def test_the_state_is_in_checkpoints(tmp_path):
    """If this fails, a checkpoint of an elastic Keras job lacks some of the model or of its optimizer."""
    script = tmp_path / "script.py"
    script.write_text(SAVED)

    def train(name, steps, *options):
        job = Job(tmp_path / name, "--workers", 1, "--max_workers", 2, "--on_worker_death=continue", *options, "--",
                  warm.python("tensorflow"), script, steps, environment=environment(CUDA_VISIBLE_DEVICES=""))
        assert job.wait(150) == 0, job.stdout() + job.stderr()
        return re.search(r"begin (\d+)", job.stdout())[1], re.search(r"DONE (\w+)", job.stdout())[1]

    begun, calm = train("calm", 30)
    saved = tmp_path / "saved"
    train("half", 15, "--checkpoint", saved, "--checkpoint_every", "10steps")
    assert begun == "0" and train("again", 30, "--resume", saved) == ("10", calm)
