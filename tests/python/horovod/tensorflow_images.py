"""Written for Horovod, in the style of its examples for TensorFlow 2 with a tape, and for sessions: the import
alone is another."""

import json

import keras
import numpy as np
import tensorflow as tf

import poseidon.tensorflow as hvd

hvd.init()
keras.config.set_floatx("float64")
STEPS = 4
numbers = np.random.default_rng(5)
X, Y = numbers.normal(size=(STEPS, 8, 5)), numbers.normal(size=(STEPS, 8, 3))


def make_model(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(4, activation="tanh"),
                             keras.layers.Dense(3)])


def distributed(**options):
    """Weights are broadcast after the first step, so that the optimizer has variables by then."""
    model, opt = make_model(100 + hvd.rank()), keras.optimizers.Adam(0.1)
    rows = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)

    @tf.function
    def training_step(data, target, first_batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(data, training=True) - target))
        tape = hvd.DistributedGradientTape(tape, **options)
        gradients = tape.gradient(loss, model.trainable_variables)
        opt.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables, root_rank=0)
        return loss

    for step in range(STEPS):
        loss = training_step(tf.constant(X[step, rows]), tf.constant(Y[step, rows]), step == 0)
    return model, loss


def alone(factor=1.0):
    """Rank 0's first step, whose weights both go on with, was made with gradients of two models: rank 1's
    began elsewhere."""
    models = [make_model(100 + rank) for rank in range(hvd.size())]
    opt = keras.optimizers.Adam(0.1)
    for step in range(STEPS):
        gradients = []
        for rank in range(hvd.size()):
            model = models[rank] if step == 0 else models[0]
            with tf.GradientTape() as tape:
                rows = slice(4 * rank, 4 * rank + 4)
                loss = tf.reduce_mean(tf.square(model(X[step, rows]) - Y[step, rows]))
            gradients.append(tape.gradient(loss, model.trainable_variables))
        means = [factor * (one + two) / 2 for one, two in zip(*gradients)]
        opt.apply_gradients(zip(means, models[0].trainable_variables))
    return models[0]


def distance(model, other):
    pairs = list(zip(model.get_weights(), other.get_weights()))
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in pairs) / sum((b ** 2).sum() for _, b in pairs)))


def attempt(function):
    try:
        return f"no error: {function()!r}"
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {error}"


def session(**options):
    """A graph with a hook."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        data, target = v1.placeholder(tf.float64, [None, 5]), v1.placeholder(tf.float64, [None, 3])
        weights = v1.get_variable("w", [5, 3], tf.float64, initializer=v1.constant_initializer(hvd.rank()),
                                  use_resource=True)
        loss = tf.reduce_mean(tf.square(data @ weights - target))
        step = v1.train.get_or_create_global_step()
        opt = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), **options)
        train_op = opt.minimize(loss, global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=STEPS)]
        rows = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
        with v1.train.MonitoredTrainingSession(hooks=hooks) as monitored:
            while not monitored.should_stop():
                number = monitored.run(step)
                _, found = monitored.run([train_op, weights],
                                         {data: X[number, rows], target: Y[number, rows]})
            # the value of the last run may be of before or after its step
        with v1.Session() as plain:
            other = hvd.broadcast_global_variables(root_rank=1)
            plain.run(v1.global_variables_initializer())
            plain.run(other)
            rooted = float(plain.run(weights)[0, 0])
    return {"weights": float(found.sum()), "rooted": rooted}


found = {}
model, loss = distributed()
found["plain"] = distance(model, alone())
model, _ = distributed(op=hvd.Sum)
found["sum"] = distance(model, alone(hvd.size()))
model, _ = distributed(compression=hvd.Compression.fp16, gradient_predivide_factor=1.0)
found["half"] = distance(model, alone())
found["weights"] = [float(each.sum()) for each in model.get_weights()]
found["session"] = session()
found["half session"] = session(compression=hvd.Compression.fp16)
rank = hvd.rank()


@tf.function
def in_a_function(value):
    return hvd.allreduce(value), hvd.allgather(value), hvd.broadcast(value, root_rank=1)


inside = in_a_function(tf.constant([1.0 + rank]))
for _ in range(3):
    mean = hvd.allreduce(tf.constant([1.0 + rank]))
found["operations"] = {
    "inside": [each.numpy().tolist() for each in inside], "mean": mean.numpy().tolist(),
    "sum": hvd.allreduce(tf.constant([3 + rank]), average=False).numpy().tolist(),
    "most": hvd.allreduce(tf.constant([1.0 * rank]), op=hvd.Max).numpy().tolist(),
    "scaled": hvd.allreduce(tf.constant([2.0]), prescale_factor=0.5, postscale_factor=3.0).numpy().tolist(),
    "half": hvd.allreduce(tf.constant([1 / 3]), compression=hvd.Compression.fp16).numpy().tolist(),
    "gathered": hvd.allgather(tf.fill([rank + 1, 1], rank)).numpy().tolist(),
    "rooted": hvd.broadcast(tf.constant([rank]), root_rank=1, name="r").numpy().tolist(),
    "group": [each.numpy().tolist() for each in hvd.grouped_allreduce([tf.ones(1), tf.zeros(1)])],
    "object": hvd.broadcast_object({"epoch": 3 + rank}, root_rank=0),
    "place": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.is_initialized()],
    "built": [hvd.nccl_built(), hvd.mpi_built(), hvd.gloo_built(), hvd.mpi_threads_supported()]}
found["refusals"] = {
    "adasum": attempt(lambda: distributed(op=hvd.Adasum)),
    "passes": attempt(lambda: hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=2)),
    "mean": attempt(lambda: hvd.allreduce(tf.constant([3]))),
    "variables": attempt(lambda: hvd.broadcast_global_variables(0))}
print("FOUND " + json.dumps(found), flush=True)
hvd.shutdown()
