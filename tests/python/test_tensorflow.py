# SPDX-License-Identifier: Apache-2.0
"""poseidon.tensorflow in real jobs: workers are the cases of tf_cases.py, and plain scripts."""

import importlib.util
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import uuid

import pytest

import warm
from conftest import environment
from helpers import Job, free_port
from tensorflow_jobs import (BIN, DEADLINE_S, HERE, TREE, fixture_alone, fixture_cache, fixture_call,  # noqa: F401
                             fixture_job, fixture_plain)

CASES, JAX_CASES = HERE / "tf_cases.py", HERE / "jax_cases.py"
EXAMPLES = TREE / "examples"
MNIST = pathlib.Path(os.environ.get("MNIST_DATA", TREE / "data" / "mnist"))
CIFAR = pathlib.Path(os.environ.get("CIFAR10_DATA", TREE / "data" / "cifar-10-batches-bin"))
needs_mnist = pytest.mark.skipif(not (MNIST / "train-images-idx3-ubyte.gz").exists(),
                                 reason=f"no MNIST in {MNIST}")
needs_cifar = pytest.mark.skipif(not (CIFAR / "data_batch_1.bin").exists(),
                                 reason=f"no CIFAR-10 in {CIFAR}")
needs_jax = pytest.mark.skipif(importlib.util.find_spec("optax") is None, reason="no JAX here (tools/setup.sh frameworks)")

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


@pytest.mark.parametrize("kind", ["function", pytest.param("session", marks=pytest.mark.all)])
def test_operations_in_opposite_orders_with_one_thread(job, kind):
    """If this fails, kernels wait in TensorFlow's threads, and two workers can wait for ever."""
    done = job(CASES, "opposite_orders", kind)
    for rank in range(2):
        assert done.found(rank)["sums"] == [number * 7.0 for number in range(50)]


def test_operations_move_what_they_are_given(job):
    """If this fails, graphs compute with something else than servers hold."""
    done = job(CASES, "operations")
    for rank in range(2):
        assert done.found(rank) == {
            "before": [1.0] * 4, "after": [0.75] * 4, "last": [0.25] * 4, "zero": 1.0, "nan": True,
            "big": 2**62 + 1, "truth": [True, False, True], "half": 2.0}


def test_operations_that_cannot_be_done_say_why(job):
    """If this fails, a mistake ends in a crash, a hang, or a message that does not help."""
    done = job(CASES, "refusals")
    for rank in range(2):
        found = done.found(rank)
        assert "not known when the graph is made" in found["unknown"]
        assert "use another name" in found["shapes"]
        assert "FailedPreconditionError" in found["closed"] and "not open" in found["closed"]
    assert "waits for worker 1" in done.found(0)["lonely"]


@pytest.fixture(name="build")
def fixture_build(call, tmp_path):
    """Runs lines that have poseidon.tensorflow.build, by themselves."""

    def go(lines, **variables):
        script = tmp_path / "build.py"
        script.write_text(f"import poseidon.tensorflow.build as build\n{lines}\n")
        return call(warm.python("tensorflow"), script, path=str(TREE / "python"), **variables)

    return go


def test_operations_compile_without_a_warning(build, call):
    """If this fails, the operations do not have the rules of the project's other C."""
    include = build("print(build._tensorflow_headers())").out.split()[-1]
    sources = sorted((TREE / "python" / "poseidon" / "tensorflow").glob("*.c"))
    done = call("cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wshadow",
                "-Wformat=2", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Werror",
                "-isystem", include, f"-I{TREE / 'include'}", *sources)
    assert done.code == 0, done.err


def test_without_a_compiler_it_says_what_to_do(build, tmp_path):
    """If this fails, somebody without a compiler does not learn what is missing."""
    done = build("build.library_file()", PATH=str(tmp_path / "none"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.code != 0
    assert "there is no C compiler" in done.err and "PSD_TF_OPS" in done.err


@pytest.mark.parametrize("what", ["directory", pytest.param("file", marks=pytest.mark.all),
                                  pytest.param("link", marks=pytest.mark.all)])
def test_operations_of_others_are_not_loaded(build, tmp_path, what):
    """If this fails, whoever fills a cache in /tmp first has their own code run by the job."""
    lines = "build._identity = lambda: 'ops.so'\nprint('FOUND', build.library_file())"
    mine = tmp_path / "theirs" / "poseidon"
    mine.mkdir(parents=True, mode=0o700)
    (mine / "ops.so").write_bytes(b"")
    done = build(lines, XDG_CACHE_HOME=str(mine.parent))
    assert f"FOUND {mine / 'ops.so'}" in done.out, done.err
    if what == "link":
        (mine / "ops.so").rename(mine / "other.so")
        (mine / "ops.so").symlink_to(mine / "other.so")
    else:
        (mine if what == "directory" else mine / "ops.so").chmod(0o777)
    done = build(lines, XDG_CACHE_HOME=str(mine.parent))
    assert done.code != 0
    assert "is not loaded" in done.err and "XDG_CACHE_HOME" in done.err


def test_keras_fit_with_callbacks(job):
    """If this fails, model.fit with Poseidon's optimizer and callbacks does not train one model."""
    done = job(CASES, "keras_fit")
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"]
    assert zero["losses"] == one["losses"] and zero["losses"][-1] < 0.5 * zero["losses"][0]
    assert zero["rates"] == pytest.approx([0.01, 0.01 + 0.01 * 7 / 16, 0.02, 0.02])
    assert zero["files"] == ["model0.keras"] and zero["same"] and zero["optimizer"] == "adam"


def test_own_loop_with_a_tape(job):
    """If this fails, loops with a tape train two models, open tables for every step, or have a table for each small gradient."""
    done = job(CASES, "own_loop")
    assert done.found(0)["weights"] == done.found(1)["weights"]
    assert done.found(0)["kernel"] == done.found(1)["kernel"]
    assert done.found(0)["tables"] == ["tensorflow.gradients0.0"]


# ---- scripts that know nothing of Poseidon


@pytest.mark.parametrize("kind,samples", [
    ("arrays", 641), pytest.param("dataset", 650, marks=pytest.mark.all)])
def test_plain_keras_trains_like_one_process_with_twice_the_batch(alone, plain, kind, samples):
    """If this fails, Keras scripts that nobody changed do not train as they should."""
    script = HERE / "plain" / "keras_digits.py"
    done = plain(script, 16, kind, samples)
    assert done.code == 0, done.out + done.err
    one, zero, other = alone(script, 32, kind, samples).found(), done.found(0), done.found(1)
    assert len(zero["steps"]) == len(one["steps"]) == 42
    for mine, theirs in zip(zero["steps"][:20], one["steps"]):
        assert mine == pytest.approx(theirs, abs=1e-4)
    assert zero["weights"] == other["weights"]
    assert zero["same"] and other["same"]
    assert zero["accuracy"] == pytest.approx(one["accuracy"], abs=0.01)
    assert zero["loss"] == other["loss"]  # by worker, where the last batch has one sample
    assert zero["loss"] == pytest.approx(one["loss"], abs=5e-3)
    assert "gradients of Adam averaged (4 tensors, 387 values)" in done.err


def test_plain_keras_of_many_kinds(plain):
    """If this fails, a way to call fit is distributed wrong, or hangs."""
    done = plain(HERE / "plain" / "keras_kinds.py")
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"]
    assert zero["steps"] == one["steps"] == [6, 4, 5, 3, 1]


def test_a_keras_loop_of_its_own_is_stopped(plain, tmp_path):
    """If this fails, workers train on the same samples and nobody says so."""
    script = tmp_path / "loop.py"
    script.write_text(
        "import keras, tensorflow as tf\n"
        "w = keras.Variable([1.0, 2.0])\n"
        "with tf.GradientTape() as tape:\n    loss = tf.reduce_sum(w.value ** 2)\n"
        "keras.optimizers.SGD(0.1).apply([tape.gradient(loss, w.value)], [w])\n"
        "print('went on')\n")
    done = plain(script)
    assert done.code == 2
    assert "trains in a loop of its own, outside of Model.fit" in done.err
    assert "went on" not in done.out


BY_HAND = """
import tensorflow as tf
w = tf.Variable([1.0, 2.0])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(w ** 2)
w.assign_sub(0.1 * tape.gradient(loss, w))
print('went on')
"""
BY_HAND_IN_A_GRAPH = """
import tensorflow as tf
w = tf.Variable([1.0, 2.0])
train = tf.assign_sub(w, 0.1 * tf.gradients(tf.reduce_sum(w ** 2), [w])[0])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(train)
print('went on')
"""
OF_AN_INPUT = """
import tensorflow as tf
x = tf.constant([1.0, 2.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    loss = tf.reduce_sum(x ** 2)
print('went on', tape.gradient(loss, x))
"""


@pytest.mark.parametrize("text,auto,code,said,goes_on", [
    (BY_HAND, "on", 2, "computes gradients of a variable and changes it by hand", False),
    pytest.param(BY_HAND_IN_A_GRAPH, "tf1", 2, "gave them to no optimizer", True, marks=pytest.mark.all),
    pytest.param(OF_AN_INPUT, "on", 0, "", True, marks=pytest.mark.all)],
    ids=["tape", "graph", "input"])
def test_training_by_hand_is_told_and_nothing_else(plain, tmp_path, text, auto, code, said, goes_on):
    """If this fails, workers train alone and nobody says so before the first step is over (of a session: at the
    end), or scripts are stopped without need."""
    script = tmp_path / "by_hand.py"
    script.write_text(text)
    done = plain(script, options=("--auto", auto))
    assert done.code == code, done.out + done.err
    assert said in done.err and ("automatic distribution" in done.err) == bool(said)
    assert ("went on" in done.out) == goes_on


def test_gradients_that_a_script_changes_itself(alone, plain):
    """If this fails, clipping sees the gradients of one worker's samples, or gradients that serve
    something else are not left alone."""
    script = HERE / "plain" / "own_gradients.py"
    kinds = ("rows", "clip", "clip_sum", "two_optimizers", "tape", "penalty", "factor")
    done = plain(script, *kinds)
    assert done.code == 0, done.out + done.err
    one, zero, other = alone(script, *kinds).found(), done.found(0), done.found(1)
    assert zero == other
    for kind in kinds:  # rows of one process count one by one in a norm
        assert flat(zero[kind]) == pytest.approx(flat(one[kind]), abs=0.02 if kind == "rows" else 1e-5)
    done = plain(script, "divided_and_clipped")
    assert done.code == 2, done.out + done.err
    assert "samples or random numbers have a say in it" in done.err


def test_graphs_in_files_are_those_of_one_process(alone, plain, tmp_path):
    """If this fails, checkpoints of a job cannot be read without Poseidon, or a graph that was read
    trains on each worker by itself and nobody says so."""
    script, place = HERE / "plain" / "graph_files.py", tmp_path / "model"
    done = plain(script, "write", place)
    assert done.code == 0, done.out + done.err
    look, train = (alone(script, how, place) for how in ("look", "train"))
    assert flat(look.found()["w"]) != pytest.approx(flat(train.found()["w"]), abs=1e-3)
    one, done = alone(script, "optimizer", place), plain(script, "optimizer", place)
    assert done.code == 0, done.out + done.err
    assert done.found(0) == done.found(1)
    assert flat(done.found(0)["w"]) == pytest.approx(flat(one.found()["w"]), abs=1e-5)
    done = plain(script, "train", place)
    assert done.code == 2, done.out + done.err
    assert "by operations of a graph that was read from a file" in done.err


BY_HAND_IN_VERSION_2 = """
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
w = tf.Variable([1.0, 2.0])
train = w.assign_sub(0.1 * tf.gradients(tf.reduce_sum(w ** 2), [w])[0])
with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(train)
print('went on')
"""
VERSION_1_EAGERLY = """
import tensorflow as tf
w = tf.Variable([1.0, 2.0])
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
step()
"""


@pytest.mark.parametrize("text,reason", [
    (BY_HAND_IN_VERSION_2, "gave them to no optimizer"),
    pytest.param(VERSION_1_EAGERLY, "trains eagerly or in a function", marks=pytest.mark.all),
    (VERSION_1_EAGERLY.replace("def step", "@tf.function\ndef step"),
     "trains eagerly or in a function")], ids=["gradients", "eager", "function"])
def test_training_that_no_session_averages_is_refused(plain, tmp_path, text, reason):
    """If this fails, workers train alone and nobody says so, or in words of TensorFlow."""
    script = tmp_path / "alone.py"
    script.write_text(text)
    done = plain(script)
    assert done.code == 2, done.out + done.err
    assert reason in done.err and "Traceback" not in done.err


def errors_in(done):
    """Lines of any log that tell of an error."""
    (logs,) = (done.directory / "logs").iterdir()
    return [line for path in logs.glob("*.log") for line in path.read_text().splitlines()
            if " error " in line or "Error" in line or "Traceback" in line]


@pytest.mark.all
def test_a_session_script_of_2017_runs_unchanged(plain):
    """If this fails, scripts of the original Poseidon do not train together."""
    done = plain(HERE / "plain" / "session_2017.py", options=("--auto", "tf1"))
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"] and zero["step"] == one["step"] == 40
    assert zero["losses"] != one["losses"] and zero["error"] < 0.01
    assert (zero["client_id"], one["client_id"]) == (0, 1) and zero["distributed"]
    assert zero["saved"] == one["saved"] == "./model-40"
    assert "gradients of MomentumOptimizer averaged" in done.err
    assert errors_in(done) == []


OLD_LINE = "was written for TensorFlow 1"


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.all), 2])
def test_a_script_of_2017_needs_no_option(plain, workers):
    """If this fails, the command of the original's documents ends with: no attribute 'app'."""
    done = plain(HERE / "plain" / "session_2017.py", workers=workers, cold=True)
    assert done.code == 0, done.out + done.err
    assert done.err.count(f"session_2017.py {OLD_LINE} (tf.app.flags, line 8 of session_2017.py)") == 1
    found = [done.found(rank) for rank in range(workers)]
    assert all(each["weights"] == found[0]["weights"] for each in found)
    assert [each["client_id"] for each in found] == list(range(workers))


def test_a_tutorial_with_its_model_beside_it_needs_no_option(plain):
    """If this fails, the tutorials of 2017 do not run as they are: two files, flags of argparse, the
    global step of tf.contrib."""
    done = plain(HERE / "plain" / "cifar_2017.py", "--max_steps", 30)
    assert done.code == 0, done.out + done.err
    assert done.err.count(OLD_LINE) == 1
    zero, one = done.found(0), done.found(1)
    assert zero["step"] == one["step"] == 30 and zero["losses"] != one["losses"]
    assert sum(zero["losses"][-5:]) < sum(zero["losses"][:5])
    assert (done.directory / "trained" / "checkpoint").exists()
    assert errors_in(done) == []


def small_images(directory):
    """Images of 10x10 whose brightest colour is their class, in the files of the tutorial's format."""
    directory.mkdir()
    numbers = random.Random(4)
    for name, count in (("data_batch_1.bin", 48), ("data_batch_2.bin", 48), ("test_batch.bin", 96)):
        records = bytearray()
        for number in range(count):
            label = number % 3
            records.append(label)
            for channel in range(3):
                bright = 160 if channel == label else 60
                records += bytes(bright + numbers.randrange(60) for _ in range(100))
        (directory / name).write_bytes(records)
    return directory


@pytest.mark.parametrize("options", [(), pytest.param(("--auto", "tf1"), marks=pytest.mark.all)])
def test_every_call_of_the_tutorial_of_2017(plain, tmp_path, options):
    """If this fails, the CIFAR-10 tutorial of June 2017 does not run as it is, or not right: its workers
    train different models, or one that does not learn, or its evaluation sees something else."""
    data = small_images(tmp_path / "images")
    done = plain(HERE / "plain" / "cifar_2017_images.py", "--data_dir", data, "--max_steps", 40, options=options)
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"] and zero["losses"] != one["losses"]  # each has its own queue
    assert zero["step"] == one["step"] == zero["restored"] == one["restored"] == 40
    assert zero["precision"] == one["precision"] > 0.9
    assert sum(zero["losses"][-5:]) < 0.5 * sum(zero["losses"][:5])
    assert len(list((done.directory / "trained").glob("model.ckpt-40.index"))) == 1
    assert len(list((done.directory / "evaluated").glob("events.out.tfevents.*"))) == 1
    assert errors_in(done) == []


@pytest.mark.all
@pytest.mark.parametrize("options", [(), ("--auto", "tf1")])
def test_the_tutorial_itself(plain, tmp_path, options):
    """If this fails, the CIFAR-10 tutorial of June 2017 does not run literally."""
    folder = os.environ.get("CIFAR10_TUTORIAL")
    if folder is None or not (CIFAR / "data_batch_1.bin").exists():
        pytest.skip("no CIFAR10_TUTORIAL (a directory with cifar10_train.py of tensorflow/models, June 2017), or "
                    f"no CIFAR-10 in {CIFAR}")
    data = tmp_path / "data"
    data.mkdir()
    (data / "cifar-10-batches-bin").symlink_to(CIFAR)
    (data / "cifar-10-binary.tar.gz").write_bytes(b"")  # it downloads what is not there
    train = tmp_path / "trained"
    done = plain(pathlib.Path(folder) / "cifar10_train.py", "--data_dir", data, "--train_dir", train,
                 "--max_steps", 4, "--batch_size", 16, options=options)
    assert done.code == 0, done.out + done.err
    assert (train / "checkpoint").exists() and errors_in(done) == []


@pytest.mark.all
def test_a_cluster_script_of_2017_gets_the_old_names(plain):
    """If this fails, a script with four flags and names of TensorFlow 1 cannot run on TensorFlow 2."""
    done = plain(HERE / "plain" / "cluster_2017.py", options=("--personality", "tf1", "--auto", "tf1"), cold=True)
    assert done.code == 0, done.out + done.err
    assert "PS" in done.log("ps0")
    for rank in range(2):
        assert done.found(rank)["w"] == pytest.approx([1.0, 2.0], abs=0.01)


@pytest.mark.parametrize("text,name", [
    pytest.param("import tensorflow as tf\ngetattr(tf, 'app').run()\n", "tf.app", marks=pytest.mark.all),
    ("import tensorflow as tf\nprint(vars()['tf'].train.AdamOptimizer)\n", "tf.train.AdamOptimizer"),
    pytest.param("import tensorflow, importlib\nimportlib.import_module('tensorflow.contrib.slim')\n",
                 "tf.contrib", marks=pytest.mark.all)])
def test_a_script_that_was_not_recognised_gets_a_hint(plain, tmp_path, text, name):
    """If this fails, its user reads of a missing attribute, and not what to do."""
    script = tmp_path / "hidden.py"
    script.write_text(text)
    done = plain(script)
    assert done.code == 1, done.out + done.err
    assert f"hidden.py uses {name}, which is TensorFlow 1's: psd_run --auto tf1" in done.err
    assert OLD_LINE not in done.err


@pytest.mark.all
def test_another_error_gets_no_hint(plain, tmp_path):
    """If this fails, --auto tf1 is recommended where it does not help."""
    script = tmp_path / "mistyped.py"
    script.write_text("import tensorflow as tf\ntf.konstant(1)\n")
    done = plain(script)
    assert done.code == 1 and "tf1" not in done.err


def test_layers_of_2017_are_there(plain):
    """If this fails, scripts of the time that use tf.layers do not run, or not as they did."""
    done = plain(HERE / "plain" / "layers_2017.py", options=("--auto", "tf1"))
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"] and zero["accuracy"] > 0.95
    assert (zero["client_id"], one["client_id"]) == (0, 1)
    normalized = [f"batch_normalization/{name}" for name in ("gamma", "beta", "moving_mean",
                                                             "moving_variance")]
    assert zero["names"][:10] == ["conv/kernel", "conv/bias", *normalized, "dense/kernel",
                                  "dense/bias", "dense_1/kernel", "dense_1/bias"]
    assert zero["normal"] == pytest.approx([0, 1], abs=1e-3)
    assert zero["moved"] == pytest.approx([0, 0], abs=1e-3)
    for gone in ("contrib", "estimator", "other", "cells", "rnn"):
        assert "is no part of TensorFlow any more" in zero[gone]
    assert "tf.keras.layers.LSTM" in zero["cells"] and "tf.keras.layers.LSTM" in zero["rnn"]
    # Every input reaches 9 outputs, of each of 3 channels from 2; "same" cuts the last row and column off.
    assert zero["transposed"] == [[1, 8, 8, 3], [1, 9, 9, 3], [None, 16, 16, 1], 726.0, 864.0]
    names, decayed = zero["contrib_names"]
    assert decayed == 1 and names == [
        f"contrib/{name}" for name in
        ("Conv/weights", *(f"Conv/BatchNorm/{name}" for name in ("beta", "moving_mean", "moving_variance")),
         "fully_connected/weights", "fully_connected/biases", "out/weights", "out/biases")]
    assert zero["digits"][0] == [2, 10] and 0 <= zero["digits"][1] <= 2
    assert "use_biass" in zero["mistyped"]
    assert errors_in(done) == []


@pytest.mark.all
def test_parameter_servers_with_done_queues_end_by_themselves(tmp_path):
    """If this fails, scripts for tf_for_slurm do not run with the imports changed, or their parameter
    servers stay behind."""
    servers, workers = 2, 2
    shared = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n1", "SLURM_NODEID": "0",
              "SLURM_STEP_TASKS_PER_NODE": str(servers + workers), "TFSERVER": "127.0.0.1",
              "SLURM_STEP_RESV_PORTS": ",".join(str(free_port()) for _ in range(servers + workers)),
              "PYTHONPATH": str(TREE / "python"), "TF_CPP_MIN_LOG_LEVEL": "2",
              "CUDA_VISIBLE_DEVICES": ""}
    tasks = [subprocess.Popen(
        [sys.executable, str(HERE / "plain" / "slurm_2018.py"), "-ps", str(servers), "-workers",
         str(workers)], cwd=tmp_path, env={**os.environ, **shared, "SLURM_LOCALID": str(local)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for local in range(servers + workers)]
    try:
        printed = [each.communicate(timeout=DEADLINE_S)[0] for each in tasks]
    finally:
        for each in tasks:
            each.kill()
    assert [each.returncode for each in tasks] == [0] * 4, printed
    for ps in range(servers):
        assert f"ps {ps} received done 0\nps {ps} received done 1\n" in printed[ps]
    for worker in range(workers):
        assert f"worker {worker} ended at 1" in printed[servers + worker]  # 10, or 11 for the second


@pytest.mark.all
def test_the_error_is_no_larger_with_two_workers(plain):
    """If this fails, a second worker makes training worse after the same number of steps, or no
    better, where the noise of half as large batches is all that is wrong."""
    errors = {}
    for workers in (1, 2):
        done = plain(HERE / "plain" / "session_noise.py", workers=workers,
                     options=("--auto", "tf1"))
        assert done.code == 0, done.out + done.err
        told = [done.found(rank) for rank in range(workers)]
        assert all(each == told[0] for each in told)
        errors[workers] = sum(told[0]["errors"])
        assert errors[workers] < 0.05 * sum(told[0]["before"])  # it has learnt
    assert errors[2] < 0.7 * errors[1]  # about half is to be expected


def test_a_monitored_session_stops_at_exactly_the_step(plain):
    """If this fails, workers end at different steps, or servers stay behind."""
    done = plain(HERE / "plain" / "monitored.py")
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["runs"] == one["runs"] == 25 and zero["weights"] == one["weights"]
    assert (done.directory / "checkpoints" / "checkpoint").exists()
    assert errors_in(done) == []


def flat(values):
    """Numbers of nested lists."""
    return [number for each in values for number in flat(each)] if isinstance(values, list) \
        else [values]


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.all)])
def test_a_session_trains_like_one_process(alone, plain, workers):
    """If this fails, what sessions are fed, or what graphs read, is dealt out wrong: samples are
    lost or counted twice, an evaluation sees a part, or workers end at different steps."""
    script = HERE / "plain" / "session_data.py"
    done = plain(script, 10, workers=workers)
    assert done.code == 0, done.out + done.err
    one, all_found = alone(script, 10 * workers).found(), [done.found(rank) for rank in range(workers)]
    for case, tolerance in (("feed", 1e-5), ("fixed", 1e-5), ("sums", 1e-5), ("towers", 1e-5),
                            ("one_shot", 1e-4), ("shared", 1e-4), ("convolved", 1e-4)):
        for found in all_found:
            assert flat(found[case]["variables"]) == pytest.approx(
                flat(one[case]["variables"]), abs=tolerance)
            assert found[case]["variables"] == all_found[0][case]["variables"]
    for found in all_found:
        for case in ("one_shot", "shared", "convolved"):
            assert found[case]["steps"] == one[case]["steps"]
            assert found[case]["sizes"] == one[case]["sizes"]
        assert found["feed"]["evaluated"] == 75
        assert found["feed"]["loss"] == pytest.approx(one["feed"]["loss"], abs=1e-5)
    rows = zip(*(found["feed"]["rows"] for found in all_found))
    for number, (mine, whole) in enumerate(zip(rows, one["feed"]["rows"])):
        assert mine == (whole,) * workers if number == 0 or whole == 1 else sum(mine) == whole
    assert "fed data dealt out (at first 16 samples a step)" in done.err
    assert "train on the same batches, which is right but no faster" in done.err


def test_data_of_sessions_of_many_kinds(plain):
    """If this fails, data is dealt out that the script deals out itself, or not in one order."""
    kinds = ("fed", "fed_by_rank", "shuffled", "sparse", "by_rank", "queue", "plain_queue",
             "sharded")
    done = plain(HERE / "plain" / "session_kinds.py", *kinds, workers=3, options=("--auto", "tf1"))
    assert done.code == 0, done.out + done.err
    workers = [done.found(rank) for rank in range(3)]
    for kind in kinds:
        assert workers[0][kind]["w"] == workers[1][kind]["w"] == workers[2][kind]["w"]
    seen = {kind: [found[kind]["seen"] for found in workers] for kind in kinds}
    assert seen["fed"][0][0] == seen["fed"][1][0]  # the first batch is whole
    later = flat([each[1:] for each in seen["fed"]])
    assert sorted(seen["fed"][0][0] + later) == list(range(48))
    assert [len(each) for each in seen["shuffled"]] == [4] * 3  # 11 batches: 3, 3, 3 and 2
    assert seen["shuffled"][2][3] == seen["shuffled"][0][3]
    assert len(set(flat(seen["shuffled"]))) == len(flat(seen["shuffled"])) - 4 == 44
    assert sorted(flat(seen["sparse"])) == list(range(1, 49))
    for rank in range(3):
        own = range(16 * rank, 16 * rank + 16)
        assert flat(seen["fed_by_rank"][rank]) == list(own)
        assert flat(seen["by_rank"][rank][1:]) == list(own)[12:]  # the first run reads three
        assert flat(seen["sharded"][rank]) == list(range(rank, 48, 3))
        for kind in ("queue", "plain_queue"):
            assert sorted(flat(seen[kind][rank])) == list(range(48))
            assert seen[kind][rank][0] != seen[kind][rank - 1][0]
    assert "deals its data out itself: it calls Dataset.shard()" in done.err


@pytest.mark.parametrize("kind,reason", [
    ("fed_apart_later", "the workers do not have the same batch any more"),
    ("fed_back", "it feeds what a run that trains has returned"),
    pytest.param("fed_less", "worker 1 has ended its training while others go on", marks=pytest.mark.all),
    pytest.param("pieces", "it trains by partial_run", marks=pytest.mark.all),
    pytest.param("optional", "it reads its training data by get_next_as_optional()", marks=pytest.mark.all)])
def test_data_of_sessions_that_cannot_be_dealt_out(plain, kind, reason):
    """If this fails, workers train on something wrong, and nobody says so."""
    done = plain(HERE / "plain" / "session_kinds.py", kind, options=("--auto", "tf1"))
    assert done.code == 2, done.out + done.err
    assert reason in done.err


def test_batches_are_cut_only_where_parts_make_the_whole(alone, plain):
    """If this fails, workers train on parts of batches whose loss is none of parts, a look whether it
    is changes something, or a batch that could be cut stays whole."""
    script = HERE / "plain" / "session_cuts.py"
    done = plain(script)
    assert done.code == 0, done.out + done.err
    one, workers = alone(script).found(), [done.found(rank) for rank in range(2)]
    for case in ("masked", "compared", "mean_and_sum", "fixed_inside", "of_several_sizes"):
        for found in workers:
            assert flat(found[case]["w"]) == pytest.approx(flat(one[case]["w"]), abs=1e-5)
    for found in workers:
        for case in ("masked", "compared", "mean_and_sum", "fixed_inside", "beside_an_iterator"):
            assert found[case]["rows"] == [16] * 6
        assert found["dropped"]["rows"] == found["normalized"]["rows"] == [16] + [8] * 5
        assert found["dropped"]["others"] == one["dropped"]["others"] == [6]
    assert "the gradients of the parts of a batch do not make that of the whole" in done.err
    assert "its graph cannot compute with a part of a batch" in done.err
    assert done.err.count("is a sum over the samples that it reads") == 1
    assert done.err.count("batch normalization of session_cuts.py sees each worker's part") == 1
    assert "neither a mean" not in done.err and "nobody can tell whether the" not in done.err


def test_data_that_is_random_without_a_seed(plain):
    """If this fails, workers read the same samples, or have one order in all epochs."""
    done = plain(HERE / "plain" / "session_random.py", "shuffled", "augmented", "generator")
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    for kind in ("shuffled", "augmented"):
        for mine, others in zip(zero[kind], one[kind]):
            assert sorted(mine + others) == list(range(48))
        assert len({tuple(epoch) for epoch in zero[kind]}) == 3
    assert zero["generator"][0] == one["generator"][0]  # the first batch is whole
    assert sorted(zero["generator"][0] + flat([each["generator"][1:] for each in (zero, one)])) == \
        list(range(48))


def test_first_batches_that_differ_are_refused(plain):
    """If this fails, workers whose script does not know them train on data of their own, which may be
    the same, and nobody says so."""
    done = plain(HERE / "plain" / "session_random.py", "unseeded")
    assert done.code == 2, done.out + done.err
    assert "do not have the same first batch" in done.err and "RandomState()" in done.err


def test_hooks_and_sessions_of_the_package(job):
    """If this fails, session code that imports poseidon does not train one model."""
    done = job(CASES, "hooks")
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"]
    assert zero["runs"] == one["runs"] == 6
    assert zero["step"] == 7  # with the one of the first session
    assert zero["chief"] and not one["chief"] and zero["closed"] and one["closed"]


def test_an_optimizer_from_before_the_join_is_an_error(job):
    """If this fails, workers train alone because of the order of two lines, and nobody says so."""
    done = job(CASES, "late_join")
    for rank in range(2):
        found = done.found(rank)
        assert len(found["told"]) == 2 and found["joined"]
        assert all("before DistributedOptimizer" in told for told in found["told"])


# ---- JAX


@pytest.fixture(name="jax_cases", scope="module")
def fixture_jax_cases(tmp_path_factory):
    """What each worker of one job has found in all of them."""
    job = Job(tmp_path_factory.mktemp("jax") / "job", "--workers", 2, "--servers", 1, "--", sys.executable, JAX_CASES,
              environment=environment())
    assert job.wait(DEADLINE_S) == 0, job.stdout() + job.stderr()
    return [json.loads([line[6:] for line in job.log(f"worker{rank}").decode().splitlines()
                        if line.startswith("FOUND ")][-1]) for rank in range(2)]


@needs_jax
def test_jax_trees(jax_cases):
    """If this fails, pytrees are averaged wrong, or lose their structure or their bits."""
    for each in jax_cases:
        found = each["trees"]
        assert found["mean"] == {"layers": [{"w": [[0.5, 0.5]] * 2}, [0.5, 1.0]],
                                 "half": [2.0] * 3, "empty": [], "none": None}
        assert found["total"] == {"layers": [{"w": [[1.0, 1.0]] * 2}, [1.0, 2.0]],
                                  "half": [4.0] * 3, "empty": [], "none": None}
        assert found["again"] == [3.5, 3.5] and found["half"] == "bfloat16"
        assert found["int"] == [0, 1, 2] and found["truth"] and found["bits"] == [True, True, 1.0]


@needs_jax
def test_jax_small_leaves_travel_together(jax_cases):
    """If this fails, a tree of many small leaves costs a round trip for each of them, or its bits depend on how they are
    packed, or a tree of another kind is taken for the one that was packed."""
    for each in jax_cases:
        found = each["packed"]
        assert found["different"] == []
        # 408 leaves: two large ones, 325 small ones of f32, more than a megabyte, and 81 of bf16
        assert found["tables"] == ["jax.together.0 and 258 more", "jax.together.2", "jax.together.4 and 80 more",
                                   "jax.together.6", "jax.together.326 and 65 more"], found["tables"]
        assert "the tree has 407 leaves now, and had 408" in found["fewer"] and "another name" in found["fewer"]


@needs_jax
def test_jax_optimizer_averages_first(jax_cases):
    """If this fails, a chain of optax clips the gradients of one worker instead of the means."""
    for each in jax_cases:
        assert each["optimizer"] == pytest.approx([-1.6, -1.2])


@needs_jax
def test_jax_refusals_say_why(jax_cases):
    """If this fails, a mistake with JAX ends in a hang or a message that does not help."""
    for each in jax_cases:
        found = each["refusals"]
        assert "elements of type int32" in found["integers"] and "convert it" in found["integers"]
        assert "another name" in found["shapes"] and "ClosedError" in found["closed"]


# ---- examples


@pytest.mark.parametrize("path", sorted([*EXAMPLES.glob("tensorflow/*.py"),
                                         *EXAMPLES.glob("jax/*.py")]), ids=lambda path: path.name)
def test_example_is_short(path):
    """If this fails, an example is no example any more."""
    assert len(path.read_text().splitlines()) < 150


def accuracies(text):
    return [float(found) for found in re.findall(r"accuracy: (\d\.\d+)", text)]


@needs_mnist
@pytest.mark.parametrize("samples,batch,learned", [(2000, 16, 0.5), pytest.param(12000, 64, 0.85, marks=pytest.mark.all)])
def test_example_keras_mnist(plain, samples, batch, learned):
    """If this fails, the first Keras script that people try does not learn."""
    done = plain(EXAMPLES / "tensorflow" / "keras_mnist.py", "--data", MNIST, "--samples", samples,
                 "--batch", batch)
    assert done.code == 0, done.out + done.err
    zero, one = (accuracies(done.log(f"worker{rank}"))[-1] for rank in range(2))
    assert zero == one > learned
    assert (done.directory / "mnist.keras").exists()


@pytest.mark.all
@needs_cifar
def test_example_cifar10(plain):
    """If this fails, two workers learn less from the same number of images than one: with as many
    steps of batches like theirs together, or with twice the steps of batches like theirs. What a
    worker draws depends on the time, so the closer of the two is compared by the means of two
    runs."""

    def accuracy(workers, steps, batch, seed):
        done = plain(EXAMPLES / "tensorflow" / "cifar10_train.py", "--data_dir", CIFAR,
                     "--max_steps", steps, "--batch_size", batch, "--seed", seed, workers=workers,
                     options=("--auto", "tf1"))
        assert done.code == 0, done.out + done.err
        found = [accuracies(done.log(f"worker{rank}"))[-1] for rank in range(workers)]
        assert len(set(found)) == 1
        return found[0]

    two = [accuracy(2, 400, 32, seed) for seed in (1, 2)]
    small_steps = [accuracy(1, 800, 32, seed) for seed in (1, 2)]
    assert sum(two) / 2 >= sum(small_steps) / 2 - 0.02 > 0.48
    assert two[0] >= accuracy(1, 400, 64, 1) - 0.02


class Task:
    """One process of a cluster of TensorFlow's own."""

    def __init__(self, directory, words):
        self.path = directory / f"{uuid.uuid4().hex[:8]}.out"
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(
                [warm.python("tensorflow"), *map(str, words)], cwd=directory, stdout=out,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})

    def said(self):
        return self.path.read_text(errors="replace")

    def wait_until_it_says(self, text):
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.said():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def ended(self):
        """What it said, when it has ended well."""
        try:
            assert self.process.wait(DEADLINE_S) == 0, self.said()
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end: {self.process.args}\n{self.said()}")
        return self.said()

    def failed(self):
        """What it said, when it has ended with an error."""
        assert self.process.wait(DEADLINE_S) == 1, self.said()
        return self.said()


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path):
    """Starts tasks of a cluster with two workers, and kills what a failed test leaves of them."""
    hosts = [f"127.0.0.1:{free_port()}" for _ in range(4)]
    tasks = []

    def begin(script, name, index, *words, servers=1):
        tasks.append(Task(tmp_path, [
            EXAMPLES / "tensorflow" / script, "--job_name", name, "--task_index", index,
            "--ps_hosts", ",".join(hosts[2:2 + servers]), "--worker_hosts", ",".join(hosts[:2]),
            *words]))
        return tasks[-1]

    yield begin
    for task in tasks:
        task.process.kill()
        task.process.wait()


def heard(ps, said):
    """From which workers a parameter server heard that they are done."""
    return sorted(re.findall(rf"ps {ps} received done (\d)\n", said))


def iterations(said):
    return int(re.search(r"did (\d+) iterations", said)[1])


@pytest.mark.all
@needs_mnist
def test_example_cluster_with_four_flags(cluster):
    """If this fails, the example for clusters of TensorFlow does not learn, or its ps stays."""
    tasks = [cluster("cluster_mnist.py", name, index, "--data_dir", MNIST)
             for name, index in (("ps", 0), ("worker", 0), ("worker", 1))]
    said = [task.ended() for task in tasks]
    assert heard(0, said[0]) == ["0", "1"]
    assert max(accuracies("".join(said))) > 0.88


def test_example_cluster_with_hooks(cluster):
    """If this fails, the example with hooks does not end, or does too much."""
    ps, *workers = [cluster("cluster_hooks.py", name, index, "--sleep", 0.01)
                    for name, index in (("ps", 0), ("worker", 0), ("worker", 1))]
    done = [iterations(worker.ended()) for worker in workers]
    assert 10 <= sum(done) <= 12  # each may be in the middle of one
    assert heard(0, ps.ended()) == ["0", "1"]


@pytest.mark.all
def test_example_cluster_with_hooks_and_a_worker_after_the_others(cluster):
    """If this fails, parameter servers do not wait for a worker that comes when the others have
    ended, or it waits for those."""
    servers = [cluster("cluster_hooks.py", "ps", ps, servers=2) for ps in range(2)]
    assert iterations(cluster("cluster_hooks.py", "worker", 0, servers=2).ended()) == 10
    assert iterations(cluster("cluster_hooks.py", "worker", 1, servers=2).ended()) == 1
    for ps, server in enumerate(servers):
        assert heard(ps, server.ended()) == ["0", "1"]


@pytest.mark.all
def test_example_cluster_with_hooks_and_worker_0_last(cluster):
    """If this fails, workers do not wait for the one that initializes the variables, or the script
    depends on who calls first."""
    one = cluster("cluster_hooks.py", "worker", 1)
    ps = cluster("cluster_hooks.py", "ps", 0)
    one.wait_until_it_says("worker 1 waits for worker 0")
    zero = cluster("cluster_hooks.py", "worker", 0)
    done = [iterations(worker.ended()) for worker in (zero, one)]
    assert 10 <= sum(done) <= 12
    assert heard(0, ps.ended()) == ["0", "1"]


@pytest.mark.all
def test_example_cluster_with_hooks_waits_no_longer_than_told(cluster):
    """If this fails, tasks wait without end for one that never comes, or that died."""
    alone = [cluster("cluster_hooks.py", "worker", index, "--max_wait", 3) for index in range(2)]
    for index, worker in enumerate(alone):
        assert f"worker {index}: heard nothing from the parameter servers" in worker.failed()
    ps = cluster("cluster_hooks.py", "ps", 0, "--max_wait", 15)
    doomed = cluster("cluster_hooks.py", "worker", 0, "--iterations", 1000000)
    one = cluster("cluster_hooks.py", "worker", 1, "--iterations", 3)
    assert iterations(one.ended()) >= 1  # so worker 0 had begun
    doomed.process.kill()
    assert "ps 0: heard nothing from workers for 15 s" in ps.failed()
    assert heard(0, ps.said()) == ["1"]


@pytest.mark.all
@needs_mnist
@needs_jax
def test_example_jax_mnist(call, job):
    """If this fails, workers with JAX train different models, or a worse one than one process."""
    script = EXAMPLES / "jax" / "mnist.py"
    words = (script, "--data", MNIST, "--steps", 200)
    alone = call(sys.executable, *words, path=str(TREE / "python"))
    assert alone.code == 0, alone.err
    done = job(*words, framework=None)
    told = [re.findall("parameters ([0-9a-f]+)", done.log(f"worker{rank}")) for rank in range(2)]
    assert told[0] == told[1] and len(told[0]) == 1
    zero = accuracies(done.log("worker0"))[-1]
    assert zero == pytest.approx(accuracies(alone.out)[-1], abs=0.005) and zero > 0.9


# ---- what plain scripts do between runs that train


def test_variables_written_between_steps_are_the_same_on_all_workers(plain):
    """If this fails, workers train different models after a script has initialized, assigned or
    restored variables once more."""
    done = plain(HERE / "plain" / "session_variables.py")
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["initialized_again"] == one["initialized_again"]
    assert zero["second_stage"] == one["second_stage"]
    assert zero["assigned"] == one["assigned"]
    assert zero["keras"] == one["keras"]  # and its job goes on
    assert zero["restored"] == one["restored"]
    assert zero["restored"][0] == zero["restored"][1]
    assert zero["restored"][0][0] == "./checkpoints/best-2"
    assert zero["resumed"] == one["resumed"]
    assert zero["resumed"][:4] == [[0, 0], "monitored/model.ckpt-5", [5, 5],
                                   "monitored/model.ckpt-10"]
    assert zero["summarized"] == one["summarized"]
    assert zero["summarized"][:2] == [True, 32]
