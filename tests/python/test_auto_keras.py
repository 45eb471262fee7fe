# SPDX-License-Identifier: Apache-2.0
"""Plain Keras scripts in real jobs: trained like one process, or stopped; and what is seen when the mechanism
that deals out or averages is taken out."""

import textwrap

import pytest

from tensorflow_jobs import BIN, HERE, fixture_alone, fixture_cache, fixture_call, fixture_plain  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")
MANY = HERE / "plain" / "keras_many.py"
TOLERANCE = 2e-5  # of float32, after a few steps


def near(value):
    return pytest.approx(value, abs=TOLERANCE, rel=1e-4)


def flat(values):
    """Numbers of nested lists."""
    return [number for each in values for number in flat(each)] if isinstance(values, list) else [values]


def check_many(zero, one, alone):
    """What two workers have found against one process with twice the batch."""
    for name in zero:
        if "weights" in zero[name]:
            assert zero[name]["weights"] == one[name]["weights"], name
    for name in set(zero) & {"gan", "transformer", "rows", "summed", "padded", "generator"}:
        assert flat(zero[name]["weights"]) == near(flat(alone[name]["weights"])), name
    if "gan" in zero:
        assert zero["gan"]["statistics"] == one["gan"]["statistics"]
    if "rows" in zero:
        assert zero["rows"]["steps"] == alone["rows"]["steps"] == 10
    if "summed" in zero:
        assert zero["summed"]["loss"] == pytest.approx(alone["summed"]["loss"], rel=0.1)
    if "metrics" in zero:
        assert zero["metrics"] == near(alone["metrics"]) and zero["metrics"] == one["metrics"]
    if "statistics" in zero:
        assert zero["statistics"] == one["statistics"]
        assert zero["statistics"]["after"] == near(zero["statistics"]["validation"])
    if "noise" in zero:
        assert zero["noise"]["drawn"] == near(alone["noise"]["drawn"])
        assert all(mine != theirs for mine, theirs in zip(zero["noise"]["drawn"],
                                                          one["noise"]["drawn"]))
    if "stopped" in zero:
        assert zero["stopped"]["steps"] == one["stopped"]["steps"] == alone["stopped"]["steps"] == 3


def run_many(alone, plain, *names):
    one = alone(MANY, 16, 2, *names)
    done = plain(MANY, 8, 1, *names)
    assert done.code == 0, done.out + done.err
    assert "verified: " in done.err
    check_many(done.found(0), done.found(1), one.found())
    return done


def test_many_optimizers_and_uneven_rows(alone, plain):
    """If this fails, each worker trains a GAN of its own, or batches that a map has made larger are
    trained on in part."""
    done = run_many(alone, plain, "gan,rows,summed")
    assert "gradients of Adam and SGD averaged" in done.err
    assert "a sum over samples" in done.err


@pytest.mark.all
def test_many_kinds_of_scripts(alone, plain):
    """If this fails, a kind of script is trained differently from one process, and nobody says so."""
    done = run_many(alone, plain)
    assert "the gradients of a batch are not the mean of those of its parts" in done.err
    assert done.err.count("are not the mean of those") == 1  # of the second fit nothing new is known
    assert "worker 1 asked to stop training" in done.err


OWN_ORDER = """
import random
import keras, numpy as np, tensorflow as tf
x = 2.0 ** (np.arange(64, dtype="float32").reshape(64, 1) % 16)  # as floats they differ in their exponents alone
order = list(range(64))
random.Random().shuffle(order)
data = tf.data.Dataset.from_tensor_slices((x[order], x[order])).batch(8)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, verbose=0, callbacks=[keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda step, logs: print("step", step, flush=True))])
print("went on")
"""
HALVED = """
import random
import keras, numpy as np
x = np.arange(64, dtype="float32").reshape(64, 1) / 64
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
drawn = random.Random()
def halve(step, logs):
    print("step", step, flush=True)
    model.optimizer.learning_rate = 0.1 / 2 ** drawn.randrange(100)
model.fit(x, x, batch_size=8, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=halve)])
print("went on")
"""
OWN_SHUFFLE = """
import keras, numpy as np, tensorflow as tf
x = np.arange(64, dtype="float32").reshape(64, 1)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(tf.data.Dataset.from_tensor_slices((x, x)).shuffle(64).batch(8), verbose=0)
print("went on")
"""
MIRRORED = """
import keras, numpy as np, tensorflow as tf
with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones([8, 1]), np.ones([8, 1]), verbose=0)
print("went on")
"""
LOOP_WITH_A_STRATEGY = """
import keras, tensorflow as tf
strategy = tf.distribute.OneDeviceStrategy('/cpu:0')
with strategy.scope():
    w = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([w])
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w.value ** 2)
    optimizer.apply([tape.gradient(loss, w.value)], [w])
strategy.run(step)
print('went on')
"""
KERAS_2 = """
import numpy as np, tf_keras
model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones([8, 1]), np.ones([8, 1]), verbose=0)
print("went on")
"""
OTHER_BACKEND = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones([8, 1]), np.ones([8, 1]), verbose=0)
print("went on")
"""


@pytest.mark.parametrize("text,said", [
    (OWN_ORDER, "the workers' training data differ in step 1"),
    pytest.param(HALVED, "the workers' learning rates differ in step 2", marks=pytest.mark.all),
    pytest.param(MIRRORED, "tf.distribute's MirroredStrategy, which knows", marks=pytest.mark.all),
    pytest.param(LOOP_WITH_A_STRATEGY, "tf.distribute's OneDeviceStrategy, which knows",
                 marks=pytest.mark.all),
    pytest.param(KERAS_2, "it trains with Keras 2", marks=pytest.mark.all),
    pytest.param(OTHER_BACKEND, "it trains with Keras on jax", marks=pytest.mark.all),
    pytest.param(OTHER_BACKEND.replace("jax", "torch"), "it trains with Keras on torch",
                 marks=pytest.mark.all)],
    ids=["order", "rates", "strategy", "loop", "keras2", "jax", "torch"])
def test_what_cannot_be_distributed_is_stopped_at_once(plain, tmp_path, text, said):
    """If this fails, every worker trains by itself, and the job ends well."""
    script = tmp_path / "train.py"
    script.write_text(text)
    done = plain(script, cold="KERAS_BACKEND" in text)  # a warm process has Keras with the backend that it came with
    assert done.code == 2, done.out + done.err
    assert said in done.err, done.out + done.err
    assert "went on" not in done.out
    assert text == HALVED or "step 1" not in done.out.replace("in step 1", "")


# ---- with a mend taken out, the workers see it

MUTATIONS = {
    "gradients": ("steps.Step.average = own_average", "gan", "weights differ in step 2"),
    "same part": ("pieces.Pieces.__init__ = of_worker_0(pieces.Pieces.__init__)", "rows",
                  "does not make up the whole"),
    "short epoch": ("pieces.Pieces._of_dataset = half(pieces.Pieces._of_dataset)", "rows",
                    "batches, and the workers have trained on"),
    # A loss that is a sum, with the mean of the workers' gradients.
    "sums": ("steps.Step.adds_up = property(lambda self: False, lambda self, value: None)", "summed",
             "an optimizer got something else in step 1 than the gradients of all workers' samples"),
    "averages": ("steps.Step._weighed_means = lambda self, place, gradients, variables: gradients", "gan",
                 "an optimizer got something else in step 1 than the gradients of all workers' samples"),
    # Workers whose data have different orders.
    "orders": ("steps.Step.seen = without_orders(steps.Step.seen)", OWN_ORDER, "does not make up the whole"),
    "seeds": ("tf.random.set_seed(int(os.environ['PSD_RANK']))", OWN_SHUFFLE,
              "the workers' training data differ in step 1"),
    # Strategies of one process, and Keras 2.
    "strategies": ("fit.KerasSession.before_strategy = lambda self, strategy: None", LOOP_WITH_A_STRATEGY,
                   "it trains in a loop of its own, outside of Model.fit"),
    "keras 2": ("foreign.ForeignSession.watch = but_fit(foreign.ForeignSession.watch)", KERAS_2,
                "it trains with Keras 2"),
}
MUTATION = """
import os, runpy, sys
import keras, tensorflow as tf
from _poseidon_auto.keras import fit, foreign, pieces, steps

def own_average(self, optimizer, gradients, variables):
    self.optimizers, self.variables = [optimizer], list(variables)
    return None if self.recorded is not None else gradients

def of_worker_0(own):
    def init(self, session, *args):
        rank, session.rank = session.rank, 0
        own(self, session, *args)
        session.rank = rank
    return init

def half(own):
    def of_dataset(self, *args):
        made, count = own(self, *args)
        return made.take(count // 2), count // 2
    return of_dataset

def without_orders(own):
    return lambda self: own(self)._replace(orders=0.0)

def but_fit(own):
    return lambda self, owner, *names: own(self, owner, *(name for name in names if name != "fit"))

{mutation}
sys.argv = ["keras_many.py", "8", "1", "{names}"]
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize("kind", [
    kind if kind == "sums" else pytest.param(kind, marks=pytest.mark.all) for kind in MUTATIONS])
def test_what_is_trained_wrong_is_seen(plain, tmp_path, kind):
    """If this fails, a mistake in how gradients are averaged or data dealt out would not be noticed."""
    mutation, what, said = MUTATIONS[kind]
    script, trained = tmp_path / "mutated.py", MANY
    if "import" in what:
        trained = tmp_path / "train.py"
        trained.write_text(what)
    script.write_text(textwrap.dedent(MUTATION).format(mutation=mutation, names=what if trained == MANY else "",
                                                       script=str(trained)))
    done = plain(script)
    assert done.code == 2, done.out + done.err
    assert said in done.err, done.out + done.err
    assert "verified" not in done.err


OWN_RATES = """
import os
import keras, numpy as np
model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
x = np.random.normal(size=[16, 2])
def change(epoch, logs):
    model.optimizer.learning_rate = 0.1 / (1 + epoch * int(os.environ["PSD_RANK"]))
model.fit(x, x[:, :1], batch_size=4, epochs=3, verbose=0, callbacks=[
    keras.callbacks.LambdaCallback(on_epoch_end=change)])
print("GOES ON")
"""
OWN_FEEDS = """
import numpy as np, tensorflow.compat.v1 as tf
tf.disable_eager_execution()
x = tf.placeholder(tf.float32, [None, 2])
w = tf.Variable([[1.0], [2.0]])
train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_mean(tf.matmul(x, w) ** 2))
random = np.random.RandomState()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(3):
        session.run(train, {x: random.normal(size=[8, 2])})
print("GOES ON")
"""


@pytest.mark.parametrize("text,said,kinds", [
    (OWN_RATES, "the workers' learning rates differ", "learning rates, weights"),
    pytest.param(OWN_FEEDS, "the workers do not have the same first batch", "order", marks=pytest.mark.all)],
    ids=["keras", "session"])
def test_with_a_warning_the_job_goes_on(plain, tmp_path, text, said, kinds):
    """If this fails, --auto warn stops what it should go on with, or claims that all is well."""
    script = tmp_path / "train.py"
    script.write_text(text)
    done = plain(script, options=("--auto=warn",))
    assert done.code == 0, done.out + done.err
    assert done.out.count("GOES ON") == 2
    assert done.err.count(f"is trained wrong: {said}") == 1, done.err
    assert f"not right: {kinds}" in done.err and "verified" not in done.err
