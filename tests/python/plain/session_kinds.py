"""A plain script in the style of 2017 (psd_run --auto tf1) with data of several kinds, which are its
arguments: dealt out, left alone, or refused. It has a graph and a session for each."""

import json
import os
import sys

import numpy as np
import tensorflow as tf

VALUES = np.arange(48, dtype=np.float32).reshape(48, 1)
RANK = int(os.environ['PSD_RANK'])  # stands for whatever tells a script which worker it is
WORLD = int(os.environ['PSD_WORLD_SIZE'])
PART = 48 // WORLD


def train_on(batch):
    w = tf.Variable(tf.random_normal([1, 1]))
    loss = tf.reduce_mean(tf.square(tf.matmul(batch, w) - 2 * batch)) / 1000
    return w, tf.train.GradientDescentOptimizer(0.01).minimize(loss)


def fed_batches(kind, x):
    """What is fed, step by step."""
    if kind == 'fed_less':  # one worker ends before the others
        return [{x: VALUES[:8]}] * (6 - 3 * RANK)
    if kind == 'fed':  # in an order of no seed
        order = np.random.permutation(48)
        return [{x: VALUES[order[at:at + 8]]} for at in range(0, 48, 8)]
    if kind == 'fed_by_rank':
        return [{x: VALUES[RANK * PART + at:][:4]} for at in range(0, PART, 4)]
    other = np.random.default_rng(RANK)
    return [{x: VALUES[:8]}] * 2 + [{x: other.permutation(VALUES)[:8]} for _ in range(4)]


def dataset(kind):
    data = tf.data.Dataset.from_tensor_slices(VALUES)
    if kind == 'shuffled':  # by no seed, and less than a step at the end
        return data.shuffle(48).batch(4).take(11)
    if kind == 'by_rank':
        return data.skip(RANK * PART).take(PART).batch(4)
    return data.shard(WORLD, RANK).batch(4)


def batches(kind):
    """A tensor, and what is fed for it."""
    if kind.startswith('fed'):
        x = tf.placeholder(tf.float32, [None, 1])
        return x, fed_batches(kind, x)
    if kind == 'optional':
        iterator = tf.data.make_one_shot_iterator(dataset('shuffled'))
        return iterator.get_next_as_optional().get_value(), None
    if kind == 'queue':  # with a seed
        tf.set_random_seed(7)
        value, = tf.train.slice_input_producer([VALUES], num_epochs=1)
        return tf.train.shuffle_batch([value], 8, 40, 16, seed=5), None
    if kind == 'plain_queue':  # not shuffled
        value, = tf.train.slice_input_producer([VALUES], num_epochs=1, shuffle=False)
        return tf.train.batch([value], 8), None
    if kind == 'sparse':
        data = tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(VALUES + 1)).batch(4)
        return tf.sparse.to_dense(tf.data.make_one_shot_iterator(data).get_next()), None
    return tf.data.make_one_shot_iterator(dataset(kind)).get_next(), None


def feed_back():
    """Feeds a state that the step before has returned, a row for each sample."""
    x, before = (tf.placeholder(tf.float32, [None, 1]) for _ in range(2))
    state = x + before
    _, step = train_on(state)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        value = np.zeros((8, 1))
        for _ in range(4):
            _, value = session.run([step, state], {x: VALUES[:8], before: value})


def by_pieces():
    """A step in two parts."""
    x = tf.placeholder(tf.float32, [None, 1])
    w, step = train_on(x)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        handle = session.partial_run_setup([w, step], [x])
        session.partial_run(handle, step, {x: VALUES[:8]})


def train(kind):
    if kind in ('fed_back', 'pieces'):
        return feed_back() if kind == 'fed_back' else by_pieces()
    batch, fed = batches(kind)
    w, step = train_on(batch)
    seen = []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            for number in range(20 if fed is None else len(fed)):
                _, values = session.run([step, batch], fed and fed[number])
                seen.append(values.ravel().tolist())
        except tf.errors.OutOfRangeError:
            pass
        coordinator.request_stop()
        coordinator.join(threads)
        return {'seen': seen, 'w': session.run(w).tolist()}


found = {}
for name in sys.argv[1:]:
    with tf.Graph().as_default():
        found[name] = train(name)
print('FOUND ' + json.dumps(found), flush=True)
