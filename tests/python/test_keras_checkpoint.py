# SPDX-License-Identifier: Apache-2.0
"""Keras scripts, plain ones and those with poseidon.tensorflow.Checkpoint, killed as a whole, go on from psd_run's checkpoints."""

import random

import pytest

import test_auto_resume
import warm
from tensorflow_jobs import fixture_cache  # noqa: F401  (skips where there is no TensorFlow)
from test_auto_resume import ended, kill_at, script_in, told

PATIENCE_S = 300  # importing and tracing take long on busy cores
# What a fit keeps from step to step: weights, statistics, dropout, the rate, metrics, callbacks that decide, a list of the script's.
MODEL = """
import hashlib, sys, time
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(5)
REST = float(sys.argv[1])
points = np.random.default_rng(1).normal(size=(104, 6)).astype("float32")
targets = points.sum(1, keepdims=True)
seen = []

class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 13
    def __getitem__(self, i):
        return points[i * 8:i * 8 + 8] + np.random.normal(size=(8, 6)).astype("float32") * 0.01, targets[i * 8:i * 8 + 8]

class Slow(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.total = 0.0
    def on_train_batch_end(self, batch, logs=None):
        self.total += logs["loss"]
        time.sleep(REST)
    def on_epoch_end(self, epoch, logs=None):
        seen.append((epoch, round(logs["loss"], 6), round(logs["val_loss"], 6)))

model = keras.Sequential([keras.Input([6]), keras.layers.Dense(16), keras.layers.BatchNormalization(),
                          keras.layers.ReLU(), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
slow = Slow()
given = [keras.callbacks.ReduceLROnPlateau("loss", patience=1, factor=0.5, min_delta=10.0),
         keras.callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True), slow]
"""
TOLD = """
digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in model.get_weights())).hexdigest()
print("SHA", digest, flush=True)
print("KEPT", slow.total, seen, sorted(history.history.items()), history.epoch, float(model.optimizer.learning_rate), flush=True)
"""
PLAIN = MODEL + """
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
history = model.fit(DATA, epochs=4, verbose=0, validation_data=(points[:20], targets[:20]), callbacks=given)
""" + TOLD
ARRAYS = "points, targets, batch_size=8"
PYTHON = """Rows(), shuffle=True"""  # which draws its noise, and orders its batches, by generators that reading alone uses
DATASET = "tf.data.Dataset.from_tensor_slices((points, targets)).shuffle(104).batch(8, drop_remainder=True)"


def start(directory, path, *arguments, options=()):
    return test_auto_resume.start(directory, path, *arguments, options=options, python=warm.python("tensorflow"))


def both(tmp_path, text, every, generation):
    """A run that was left alone, and one that was killed as a whole and went on."""
    path, saved = script_in(tmp_path / "script", text), tmp_path / "saved"
    whole = ended(start(tmp_path / "whole", path, 0.02), seconds=PATIENCE_S)
    job = start(tmp_path / "first", path, 0.02, options=["--checkpoint", saved, "--checkpoint_every", every])
    kill_at(job, saved, generation)
    again = ended(start(tmp_path / "again", path, 0.02, options=["--resume", saved]), seconds=PATIENCE_S)
    return whole, again


def check(whole, again):
    assert len(told(whole)) == len(told(whole, "KEPT")) == 2, whole.stdout()
    assert told(again) == told(whole), whole.stdout() + again.stdout() + again.stderr()
    assert told(again, "KEPT") == told(whole, "KEPT")


@pytest.mark.parametrize("data, every", [
    (ARRAYS, "5steps"), pytest.param(ARRAYS, "epoch", marks=pytest.mark.all), pytest.param(DATASET, "5steps", marks=pytest.mark.all),
    pytest.param(DATASET, "epoch", marks=pytest.mark.all), pytest.param(PYTHON, "5steps", marks=pytest.mark.all)])
def test_a_plain_fit_ends_like_the_run_that_was_left_alone(tmp_path, data, every):
    """If this fails, a Keras script that is killed as a whole starts anew, or goes on with other weights, statistics, random
    numbers or callbacks than it had."""
    whole, again = both(tmp_path, PLAIN.replace("DATA", data), every, 1 if every == "epoch" else random.randint(1, 3))
    assert "steps are passed over" in again.stderr(), again.stderr()
    check(whole, again)


EXPLICIT = MODEL.replace("keras.utils", "import poseidon.tensorflow as psd\npsd.init()\nkeras.utils", 1) + """
model.compile(psd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse", metrics=["mae"])
state = psd.Checkpoint(model, seen=seenNAMES)
data = tf.data.Dataset.from_tensor_slices((points, targets)).shard(psd.size(), psd.rank()).shuffle(52).batch(8)
history = state.fit(data, epochs=4, verbose=0, validation_data=(points[:20], targets[:20]),
                    callbacks=[psd.BroadcastCallback(), psd.MetricAverageCallback(), *given])
seen = state.seen
""" + TOLD


def explicit(names=""):
    return EXPLICIT.replace("NAMES", names).replace("        seen.append", "        state.seen.append")


@pytest.mark.all
def test_a_fit_without_an_evaluation_ends_so_too(tmp_path):
    """If this fails, the history of a fit that goes on after an epoch has what was computed on the way there."""
    text = PLAIN.replace("DATA", ARRAYS).replace(", validation_data=(points[:20], targets[:20])", "").replace("val_loss", "loss")
    check(*both(tmp_path, text.replace("callbacks=given", "callbacks=given[2:]"), "epoch", 1))


@pytest.mark.all
@pytest.mark.parametrize("every", ["5steps", "epoch"])
def test_a_fit_with_a_checkpoint_ends_like_the_run_that_was_left_alone(tmp_path, every):
    """If this fails, a script with poseidon.tensorflow.Checkpoint goes on with other weights, data, callbacks or values than it
    had."""
    whole, again = both(tmp_path, explicit(), every, 1 if every == "epoch" else random.randint(1, 3))
    check(whole, again)


@pytest.mark.all
def test_a_checkpoint_of_another_script_is_refused(tmp_path):
    """If this fails, a script goes on with values that another one has saved."""
    saved = tmp_path / "saved"
    job = start(tmp_path / "first", script_in(tmp_path / "one", explicit()), 0.05,
                options=["--checkpoint", saved, "--checkpoint_every", "5steps"])
    kill_at(job, saved, 1)
    for number, (names, said) in enumerate(((", more=1", "the script gives"), (", fit=1", "that name means something else"))):
        wrong = start(tmp_path / f"wrong{number}", script_in(tmp_path / f"two{number}", explicit(names)), 0,
                      options=["--resume", saved])
        assert wrong.wait(PATIENCE_S) != 0
        assert said in wrong.stdout() + wrong.stderr(), wrong.stdout() + wrong.stderr()


REFUSED = MODEL + """
BEGIN
model.compile(keras.optimizers.Adam(0.01), "mse", **MORE)
for _ in range(FITS):
    history = model.fit(points, targets, batch_size=8, epochs=2, verbose=0, validation_data=(points[:20], targets[:20]), callbacks=given)
""" + TOLD


def refused(begin="pass", more="{}", fits=1):
    return REFUSED.replace("BEGIN", begin).replace("MORE", more).replace("FITS", str(fits))


@pytest.mark.parametrize("text, said", [
    pytest.param(refused("slow.log = open('log.txt', 'w')"), ".log is a _io.TextIOWrapper", marks=pytest.mark.all),
    pytest.param(refused(more="{'run_eagerly': True}"), "its model runs eagerly", marks=pytest.mark.all),
    pytest.param(refused("model.add(keras.layers.Lambda(lambda x: x + tf.random.normal([1])))"), "an operation with a hidden state",
                 marks=pytest.mark.all),
    pytest.param(refused(fits=2), "calls Model.fit more than once", marks=pytest.mark.all)])
def test_what_cannot_be_kept_is_named(tmp_path, text, said):
    """If this fails, a checkpoint is written that a Keras script cannot go on from, or nobody is told why there is none."""
    saved = tmp_path / "saved"
    job = ended(start(tmp_path / "job", script_in(tmp_path / "script", text), 0,
                      options=["--checkpoint", saved, "--checkpoint_every", "3steps"]), seconds=PATIENCE_S)
    assert job.stderr().count("no checkpoint is written") == 1, job.stderr()
    assert said in job.stderr(), job.stderr()
    assert "more than once" in said or not list(saved.glob("manifest-*"))


@pytest.mark.all
def test_what_does_not_fit_is_refused_by_name(tmp_path):
    """If this fails, a Keras script goes on from a place where it never was."""
    saved, folder = tmp_path / "saved", tmp_path / "script"
    path = script_in(folder, "import beside\n" + PLAIN.replace("DATA", ARRAYS).replace("targets = ", "points += beside.MORE\ntargets = ")
                     .replace("Dense(16)", "Dense(beside.WIDTH)"))
    (folder / "beside.py").write_text("MORE = 0\nWIDTH = 16\n")
    job = start(tmp_path / "first", path, 0.02, options=["--checkpoint", saved, "--checkpoint_every", "5steps"])
    kill_at(job, saved, 1)
    for text, said in (("MORE = 1\nWIDTH = 16\n", "its data are not what they were"), ("MORE = 0\nWIDTH = 8\n", "in the checkpoint")):
        (folder / "beside.py").write_text(text)
        wrong = start(tmp_path / f"wrong{said[-4:].strip()}", path, 0.02, options=["--resume", saved])
        assert wrong.wait(PATIENCE_S) == 2, wrong.stdout() + wrong.stderr()
        assert said in wrong.stderr(), wrong.stderr()


TAPE = MODEL + """
optimizer = keras.optimizers.SGD(0.1)
for x, y in tf.data.Dataset.from_tensor_slices((points, targets)).batch(8):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
"""


@pytest.mark.all
def test_loops_with_tapes_are_named(tmp_path):
    """If this fails, nobody is told that a loop with a tape is not saved."""
    saved = tmp_path / "saved"
    job = ended(start(tmp_path / "job", script_in(tmp_path / "script", TAPE), 0,
                      options=["--checkpoint", saved, "--checkpoint_every", "3steps"]), seconds=PATIENCE_S)
    assert "as it trains in a loop of its own" in job.stderr(), job.stderr()
