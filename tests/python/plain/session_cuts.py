"""A plain script that feeds batches to losses of which some can be computed by parts and others not.
Nothing of Poseidon."""

import json

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
X = np.random.RandomState(1).normal(size=(64, 4)).astype(np.float32)
Y = (X @ [[1.0], [-2.0], [3.0], [0.5]]).astype(np.float32)
MASK = (np.arange(16) < 10).astype(np.float32)
NORMAL = tf.random_normal_initializer(seed=3)
found = {}


def fit(loss, fed, w, steps=6):
    """Steps with 16 samples each."""
    train = tf.train.GradientDescentOptimizer(0.02).minimize(loss)
    rows = tf.shape(next(iter(fed)))[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        seen = []
        for number in range(steps):
            batch = {key: value if len(value) == 16 else value[number:number + 16]
                     for key, value in fed.items()}
            seen.append(int(session.run([train, rows], batch)[1]))
        return {'w': session.run(w).tolist(), 'rows': seen,
                'others': session.run([each for each in tf.global_variables() if each is not w])}


def placeholders():
    return tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 1])


def masked():
    """A mean over the samples that count."""
    (x, y), m = placeholders(), tf.placeholder(tf.float32, [None])
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    each = tf.square(tf.matmul(x, w) - y)[:, 0]
    return fit(tf.reduce_sum(each * m) / tf.reduce_sum(m), {x: X, y: Y, m: MASK}, w)


def compared():
    """Each sample with all others."""
    x, _ = placeholders()
    w = tf.get_variable('w', [4, 4], initializer=NORMAL)
    alike = tf.matmul(tf.matmul(x, w), x, transpose_b=True)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(tf.shape(x)[0]),
                                                          logits=alike)
    return fit(tf.reduce_mean(loss), {x: X}, w)


def mean_and_sum():
    x, y = placeholders()
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    z = tf.matmul(x, w)
    return fit(tf.reduce_mean(tf.square(z - y)) + 0.002 * tf.reduce_sum(tf.square(z)),
               {x: X, y: Y}, w)


def fixed_inside():
    x, y = placeholders()
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    return fit(tf.reduce_mean(tf.square(tf.matmul(tf.reshape(x, [16, 4]), w) - y)), {x: X, y: Y}, w)


def dropped():
    """A mean with dropout, and a moving average that moves with each gradient."""
    x, y = placeholders()
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    moved = tf.get_variable('moved', [], initializer=tf.zeros_initializer(), trainable=False)
    with tf.control_dependencies([moved.assign_add(1.0)]):
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.dropout(x, rate=0.5), w) - y))
    return fit(loss, {x: X, y: Y}, w)


def normalized():
    """By the samples of a batch."""
    x, y = placeholders()
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    z = tf.matmul(x, w)
    mean, variance = tf.nn.moments(z, [0])
    z = tf.nn.batch_normalization(z, mean, variance, None, None, 0.001)
    return fit(tf.reduce_mean(tf.square(z - y)), {x: X, y: Y}, w)


def beside_an_iterator():
    """Numbers are fed, samples are read."""
    data = tf.data.Dataset.from_tensor_slices(X).repeat().batch(16)
    element = tf.data.make_one_shot_iterator(data).get_next()
    x, _ = placeholders()
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    return fit(tf.reduce_mean(tf.square(tf.matmul(element + x, w) - 1)), {x: X}, w)


def read_and_summed():
    """A sum over what is read."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(16)
    x, y = tf.data.make_one_shot_iterator(data).get_next()
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    train = tf.train.GradientDescentOptimizer(0.001).minimize(
        tf.reduce_sum(tf.square(tf.matmul(x, w) - y)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        return {'w': session.run(w).tolist()}


def of_several_sizes():
    """32 samples, then 16 beside 64: nothing that a run has returned."""
    a, b = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 4])
    w = tf.get_variable('w', [4, 1], initializer=NORMAL)
    one = tf.reduce_mean(tf.square(tf.matmul(a, w) - 1))
    both = one + tf.reduce_mean(tf.square(tf.matmul(b, w) - 2))
    optimizer = tf.train.GradientDescentOptimizer(0.02)
    train_one, train_both = optimizer.minimize(one), optimizer.minimize(both)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train_one, {a: X[:32]})
        for _ in range(3):
            session.run(train_both, {a: X[:32], b: X[32:]})
        for _ in range(3):
            session.run(train_one, {a: X[:32]})
            session.run(train_both, {a: X[:16], b: X})
        return {'w': session.run(w).tolist()}


for case in (masked, compared, mean_and_sum, fixed_inside, dropped, normalized,
             beside_an_iterator, read_and_summed, of_several_sizes):
    with tf.Graph().as_default():
        found[case.__name__] = case()
print('FOUND ' + json.dumps(found, default=float), flush=True)
