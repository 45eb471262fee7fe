"""A plain script whose data is random in ways that are its arguments, without a seed. It does not know
which worker it is."""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
VALUES = np.arange(48, dtype=np.float32).reshape(48, 1)


def train_on(values):
    w = tf.get_variable('w', [1, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(values, w) - 2 * values)) / 1000
    return tf.train.GradientDescentOptimizer(0.01).minimize(loss)


def augmented(value):
    return value, value + tf.random.normal([1], stddev=0.01)


def read(data):
    """Three epochs of one iterator."""
    iterator = tf.data.make_initializable_iterator(data.batch(4))
    values, noisy = iterator.get_next()
    train = train_on(noisy)
    seen = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(iterator.initializer)
            seen.append([])
            try:
                while True:
                    seen[-1] += session.run([train, values])[1].ravel().tolist()
            except tf.errors.OutOfRangeError:
                pass
    return seen


def feed(order):
    x = tf.placeholder(tf.float32, [None, 1])
    train, seen = train_on(x), []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for begin in range(0, 48, 8):
            batch = {x: VALUES[order[begin:begin + 8]]}
            seen.append(session.run([train, x], batch)[1].ravel().tolist())
    return seen


def data_of(kind):
    data = tf.data.Dataset.from_tensor_slices(VALUES)
    if kind == 'shuffled':
        return read(data.shuffle(48).map(lambda value: (value, value)))
    if kind == 'augmented':
        return read(data.shuffle(48).map(augmented, num_parallel_calls=4).prefetch(1))
    if kind == 'generator':
        first, second = np.random.default_rng(), np.random.default_rng()
        order = first.permutation(48)
        return feed(order) if order.tolist() != second.permutation(48).tolist() else []
    return feed(np.random.RandomState().permutation(48))


found = {}
for name in sys.argv[1:]:
    with tf.Graph().as_default():
        found[name] = data_of(name)
print('FOUND ' + json.dumps(found), flush=True)
