# SPDX-License-Identifier: Apache-2.0
"""Plain loops with a tape and an optimizer of Keras in real jobs: trained like one process with twice the batch, or
stopped at their first step; and what is seen when what deals out is taken out."""

import pytest

from tensorflow_jobs import BIN, HERE, fixture_alone, fixture_cache, fixture_call, fixture_plain  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")
LOOPS = HERE / "plain" / "tape_loops.py"


def flat(values):
    """Numbers of nested lists."""
    return [number for each in values for number in flat(each)] if isinstance(values, list) else [values]


def check(zero, one, alone):
    """What two workers have found against one process with twice the batch, in float64."""
    for name, found in zero.items():
        for key in set(found) - {"own", "validation"}:
            assert found[key] == one[name][key], (name, key)
        if "validation" in found:  # added up in another order, perhaps
            assert flat(found["validation"]) == pytest.approx(flat(one[name]["validation"]), rel=1e-12), name
        for key in set(found) & {"weights", "validation", "steps"}:
            assert flat(found[key]) == pytest.approx(flat(alone[name][key]), abs=1e-6), (name, key)
        if "own" in found:
            assert not set(found["own"]) & set(one[name]["own"]), name


def run(alone, plain, *names, workers=2):
    one = alone(LOOPS, 8 * workers, *names)
    done = plain(LOOPS, 8, *names, workers=workers)
    assert done.code == 0, done.out + done.err
    check(done.found(0), done.found(workers - 1), one.found())
    return done


def test_a_loop_of_the_tutorials(alone, plain):
    """If this fails, loops with a tape train something else than one process with twice the batch."""
    done = run(alone, plain, "tutorial")
    assert "gradients of Adam averaged (4 tensors), batches of its own loop dealt out (16 samples a step)" in done.err
    assert "verified: 52 samples" in done.err and "on 2 workers after 12 steps" in done.err
    assert "evaluation with the same data everywhere" in done.err and "could not be tried" not in done.err


@pytest.mark.all
def test_loops_of_many_kinds(alone, plain):
    """If this fails, a kind of loop is trained differently from one process, and nobody says so."""
    done = run(alone, plain)
    assert "a sum over samples" in done.err and "verified: " in done.err
    assert "(it makes steps outside of a tf.function): it is taken for granted that the loss is a mean" in done.err


@pytest.mark.all
def test_three_workers(alone, plain):
    """If this fails, batches that are left at the end of an epoch are not shared right."""
    run(alone, plain, "tutorial,gan", workers=3)


MODEL = """
import numpy as np, tensorflow as tf, keras
x = np.random.default_rng(1).normal(size=(64, 2)).astype("float32")
w = keras.Variable([[1.0], [2.0]])
optimizer = keras.optimizers.SGD(0.1)
def step(points):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(points, w.value) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, w.value), w)])
    tf.print("STEPPED")
train_step = tf.function(step)
data = tf.data.Dataset.from_tensor_slices(x).batch(8)
"""
ARRAYS = MODEL + """
for begin in range(0, 64, 8):
    train_step(x[begin:begin + 8])
"""
ARRAYS_AFTER_A_LOOK = MODEL + """
first = iter(data)
next(first)
for begin in range(0, 64, 8):
    train_step(x[begin:begin + 8])
"""
IN_A_FUNCTION = MODEL + """
next(iter(data))
@tf.function
def epoch(data):
    for points in data:
        step(points)
epoch(data)
"""
ITERATOR_IN_A_FUNCTION = MODEL + """
@tf.function
def steps(batches):
    for number in range(4):
        step(next(batches))
steps(iter(data))
"""
ACCUMULATED = MODEL + """
data = tf.data.Dataset.from_tensor_slices(x[:60]).batch(8)
sums = tf.zeros_like(w)
for number, points in enumerate(data):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(points, w.value) ** 2)
    sums += tape.gradient(loss, w.value)
    if number % 4 == 3:
        optimizer.apply_gradients([(sums / 4, w)])
        sums = tf.zeros_like(w)
"""
BATCHES = MODEL + """
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
for points in data:
    model.train_on_batch(points, points[:, :1])
"""
STOPPED = {
    "arrays": (ARRAYS, "samples that come from no tf.data.Dataset"),
    "arrays after a look": (ARRAYS_AFTER_A_LOOK, "they train on the same samples"),
    "in a function": (IN_A_FUNCTION, "inside of a tf.function, where they cannot be dealt out"),
    "iterator in a function": (ITERATOR_IN_A_FUNCTION, "inside of a tf.function, where they cannot be dealt out"),
    "accumulated": (ACCUMULATED, "one step from several batches, of which one is smaller"),
    "train_on_batch": (BATCHES, "it trains by train_on_batch"),
}


@pytest.mark.parametrize("kind", [kind if kind == "arrays" else pytest.param(kind, marks=pytest.mark.all)
                                  for kind in STOPPED])
def test_what_cannot_be_dealt_out_is_stopped(plain, tmp_path, kind):
    """If this fails, every worker trains on the same samples, and the job ends well."""
    text, said = STOPPED[kind]
    script = tmp_path / "train.py"
    script.write_text(text + "\nprint('WENT ON')\n")
    done = plain(script)
    assert done.code == 2, done.out + done.err
    assert said in done.err
    if kind != "arrays after a look":  # that is seen by the gradients, which are the same, when the script is over
        assert "STEPPED" not in done.out and "WENT ON" not in done.out


# What deals out, weighs or averages is taken out: the workers see it.
MUTATION = """
import runpy, sys
import keras, tensorflow as tf
from _poseidon_auto.keras import readings, tape_loops, tape_steps

def whole(self):
    element, digest = next(self._own, (None, 0))
    return None if element is None else (element, readings.Part(1.0, 8, 1.0, int(digest), int(digest), 8))

def as_if_dealt(self):
    element, digest = next(self._own, (None, 0))
    mine = int(digest) + 1000 * self._rank
    return None if element is None else (element, readings.Part(1.0, 8, 1.0, mine, int(digest) * 2 + 1000, 16))

def unweighed(own):
    def cut(self, window):
        element, part = own(self, window)
        return element, part._replace(weight=1.0 + self._rank)
    return cut

{mutation}
sys.argv = ["tape_loops.py", "8", "{names}"]
runpy.run_path({script!r}, run_name="__main__")
"""
MUTATIONS = {
    "not dealt": ("readings.Reading._next_part = whole", "tutorial", "does not make up the whole"),
    "not dealt, and claimed": ("readings.Reading._next_part = as_if_dealt", "tutorial",
                               "they train on the same samples"),
    "not averaged": ("tape_steps.TapeStep._weighed_means = lambda self, place, gradients, variables: gradients",
                     "gan", "an optimizer got something else in step 1"),
    "sums": ("tape_steps.TapeStep.adds_up = property(lambda self: False, lambda self, value: None)", "summed",
             "an optimizer got something else in step 1"),
    "weights": ("readings.Reading._cut = unweighed(readings.Reading._cut)", "tutorial",
                "an optimizer got something else in step 4"),
}


@pytest.mark.parametrize("kind", [kind if kind == "not dealt" else pytest.param(kind, marks=pytest.mark.all)
                                  for kind in MUTATIONS])
def test_what_is_trained_wrong_is_seen(plain, tmp_path, kind):
    """If this fails, a mistake in how batches are dealt out, or gradients averaged, would not be noticed."""
    mutation, names, said = MUTATIONS[kind]
    script = tmp_path / "mutated.py"
    script.write_text(MUTATION.format(mutation=mutation, names=names, script=str(LOOPS)))
    done = plain(script)
    assert done.code == 2, done.out + done.err
    assert said in done.err, done.out + done.err
    assert "verified" not in done.err
