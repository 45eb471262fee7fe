# SPDX-License-Identifier: Apache-2.0
"""Workers of test_tensorflow.py: python tf_cases.py CASE. What they find, they print as JSON."""

import json
import sys

import numpy as np
import tensorflow as tf

import poseidon
import poseidon.tensorflow as psd


def tell(**found):
    print("FOUND " + json.dumps(found), flush=True)


def opposite_orders(kind):
    """50 operations, started from the first to the last on one worker and the other way round on
    the other, with one thread for all of them."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    psd.init()
    numbers = list(range(50)) if psd.rank() == 0 else list(reversed(range(50)))

    def all_of_them(base):
        found = {number: psd.push_pull(base * float(number), f"many{number}", reduce="sum")
                 for number in numbers}
        return [found[number] for number in range(50)]

    for sums in (_in_a_function if kind == "function" else _in_a_session)(all_of_them):
        last = sums
    tell(sums=[float(each[-1]) for each in last])


def _in_a_function(made):
    function = tf.function(made)
    for step in range(3):
        yield function(tf.fill([1000], float(psd.rank() + 1 + step)))


def _in_a_session(made):
    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        base = tf1.placeholder(tf.float32, [1000])
        sums = made(base)
        with tf1.Session(config=tf1.ConfigProto(inter_op_parallelism_threads=1,
                                                intra_op_parallelism_threads=1)) as session:
            for step in range(3):
                yield session.run(sums, {base: np.full(1000, psd.rank() + 1.0 + step)})


def operations():
    """Each operation, in graphs and outside."""
    psd.init()
    rank = psd.rank()
    weights = poseidon.Table("weights", values=np.ones(4, np.float32), learning_rate=0.5)

    @tf.function
    def step(gradient):
        before = psd.pull(weights)
        with tf.control_dependencies([before]):
            after = psd.push_pull_table(gradient, weights)
        return before, after

    before, after = step(tf.fill([4], float(rank)))
    psd.push(tf.fill([4], 2.0 * rank), weights)
    last = psd.pull(weights)
    words = [psd.broadcast(tf.constant(value) if rank == 0 else tf.zeros_like(value), name=f"b{number}")
             for number, value in enumerate([[-0.0, np.nan], [2**62 + 1], [True, False, True]])]
    half = psd.push_pull(tf.constant([1.5 + rank], tf.float16))
    tell(before=before.numpy().tolist(), after=after.numpy().tolist(), last=last.numpy().tolist(),
         zero=float(np.signbit(words[0][0])), nan=bool(np.isnan(words[0][1])),
         big=int(words[1][0]), truth=words[2].numpy().tolist(), half=float(half[0]))


def refusals():
    """What operations say when they cannot be done."""
    psd.init()

    def attempt(function, *arguments, **options):
        try:
            return f"no error: {function(*arguments, **options)!r}"
        except Exception as error:  # pylint: disable=broad-exception-caught
            return f"{type(error).__name__}: {error}"

    unknown = tf.function(lambda x: psd.push_pull(x, "unknown"),
                          input_signature=[tf.TensorSpec([None], tf.float32)])
    lonely = attempt(psd.push_pull, tf.ones([2]), "lonely", timeout_ms=300) \
        if psd.rank() == 0 else ""
    psd.barrier()
    again = tf.function(lambda: psd.push_pull(tf.ones([2]), "again"))
    again()
    found = {"unknown": attempt(unknown, tf.ones([3])), "lonely": lonely,
             "shapes": attempt(psd.push_pull, tf.ones([3]), "again")}
    psd.close()
    tell(closed=attempt(again), **found)


def _model():
    import keras

    keras.utils.set_random_seed(100 + poseidon.rank())  # different ones, until they are broadcast
    return keras.Sequential([keras.layers.Input([8]), keras.layers.Dense(16, activation="tanh"),
                             keras.layers.Dense(1)])


def _data():
    numbers = np.random.default_rng(7)
    x = numbers.normal(size=(256, 8)).astype("float32")
    return x, x[:, :1] * 2 - x[:, 1:2]


def keras_fit():
    """model.fit with everything that the package has for it."""
    import keras

    psd.init()
    x, y = _data()
    model = _model()
    model.compile(psd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).shard(2, psd.rank())
    rates = []
    history = model.fit(data, epochs=4, verbose=0, callbacks=[
        psd.BroadcastCallback(), psd.MetricAverageCallback(),
        psd.LearningRateWarmupCallback(0.02, 2),
        psd.ModelCheckpoint(f"model{psd.rank()}.keras"),
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: rates.append(
            float(model.optimizer.learning_rate)))])
    again = keras.models.load_model("model0.keras") if psd.rank() == 0 else model
    tell(weights=[each.numpy().tolist() for each in model.weights], rates=rates,
         same=all(np.array_equal(one, two) for one, two in zip(again.get_weights(),
                                                               model.get_weights())),
         losses=history.history["loss"], optimizer=model.optimizer.get_config()["name"],
         files=sorted(name for name in __import__("os").listdir(".") if name.endswith(".keras")))


def own_loop():
    """A loop with a tape, compiled and not."""
    import keras

    psd.init()
    x, y = _data()
    model = _model()
    psd.broadcast_variables(model.weights)
    optimizer = keras.optimizers.SGD(0.05)
    tape_of = psd.DistributedGradientTape

    def step(batch, target):
        with tape_of(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(batch) - target) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        return loss

    half = slice(psd.rank() * 128, psd.rank() * 128 + 128)
    compiled = tf.function(step)
    for number in range(6):
        (compiled if number % 2 else step)(x[half], y[half])
    tell(weights=[each.numpy().tolist() for each in model.weights], kernel=_of_open_shape(),
         tables=sorted(name for name in poseidon.context()._tables if "gradients0" in name))


def _of_open_shape():
    """The graph does not know the shape of the kernel's gradient, where samples and times are open."""
    import keras

    layer = keras.layers.Dense(2)
    layer.build([None, None, 3])
    psd.broadcast_variables(layer.weights)
    optimizer = psd.DistributedOptimizer(keras.optimizers.SGD(0.1))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3])])
    def step(batch):
        with psd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(layer(batch) ** 2)
        optimizer.apply(tape.gradient(loss, layer.trainable_weights), layer.trainable_weights)

    step(tf.ones([psd.rank() + 1, 4, 3]))
    return layer.kernel.numpy().tolist()


def hooks():
    """A graph with Poseidon's optimizer, sessions and hooks."""
    import poseidon.tensorflow.v1 as v1

    tf1 = tf.compat.v1
    tf1.disable_v2_behavior()
    config = v1.ConfigProto(distributed=True, inter_op_parallelism_threads=2)
    v1.join(config)
    chief = v1.is_chief()
    w = tf1.get_variable("w", [3], initializer=tf1.random_normal_initializer())
    loss = tf1.reduce_sum((w - [1.0, 2.0, 3.0 + poseidon.rank()]) ** 2)
    step = tf1.train.get_or_create_global_step()
    train = v1.DistributedOptimizer(tf1.train.GradientDescentOptimizer(0.1)).minimize(loss, step)
    with v1.Session(config=config) as session:
        session.run(tf1.global_variables_initializer())
        session.run([train])
        once = session.run(w)
    runs = 0
    told = []
    read = tf1.train.SessionRunHook()
    read.end = lambda session: told.append(poseidon.global_step())
    with v1.MonitoredTrainingSession(config=config, hooks=[
            v1.BroadcastHook(), v1.StopAtStepHook(num_steps=6), read, v1.DoneHook()]) as session:
        while not session.should_stop():
            _, found = session.run([train, w])
            runs += 1
    tell(weights=[once.tolist(), found.tolist()], runs=runs, step=told[0], chief=chief,
         closed=not poseidon.is_initialized())


def late_join():
    """The optimizer comes before the worker has joined: first for a session, then for a monitored
    one, which join by their config."""
    import poseidon.tensorflow.v1 as v1

    tf1 = tf.compat.v1
    tf1.disable_v2_behavior()
    config = v1.ConfigProto(distributed=True)
    told = []
    w = tf1.get_variable("w", [3])
    v1.DistributedOptimizer(tf1.train.GradientDescentOptimizer(0.1)).minimize(tf1.reduce_sum(w))
    for kind in (v1.Session, v1.MonitoredTrainingSession):
        try:
            kind(config=config)
        except poseidon.StateError as error:
            told.append(str(error))
    tell(told=told, joined=poseidon.is_initialized())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
