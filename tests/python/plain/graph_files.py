"""A plain script that writes a graph with what trains it, or reads it and goes on in one of several
ways: its first argument. The second one is where."""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
HOW, WHERE = sys.argv[1:]
FEATURES = np.random.RandomState(1).normal(size=(32, 4)).astype(np.float32)
LABELS = (FEATURES @ [[1.0], [-2.0], [3.0], [0.5]]).astype(np.float32)
BATCH = {'x:0': FEATURES, 'y:0': LABELS}


def write(session):
    x = tf.placeholder(tf.float32, [None, 4], 'x')
    y = tf.placeholder(tf.float32, [None, 1], 'y')
    w = tf.get_variable('w', [4, 1], initializer=tf.random_normal_initializer(seed=3))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w, name='guess') - y), name='loss')
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    tf.add_to_collection('train', train)
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        session.run(train, BATCH)
    tf.train.Saver().save(session, WHERE)


def go_on(session):
    """Reads the graph and the values."""
    saver = tf.train.import_meta_graph(WHERE + '.meta')
    saver.restore(session, WHERE)
    graph = tf.get_default_graph()
    if HOW == 'train':  # by what was read
        session.run(tf.get_collection('train'), BATCH)
    elif HOW == 'optimizer':  # by an optimizer of its own
        train = tf.train.AdamOptimizer(0.01).minimize(graph.get_tensor_by_name('loss:0'))
        session.run(tf.variables_initializer(
            [each for each in tf.global_variables() if each.name != 'w:0']))
        for _ in range(3):
            session.run(train, BATCH)


with tf.Session() as opened:
    if HOW == 'write':
        write(opened)
    else:
        go_on(opened)
        print('FOUND ' + json.dumps({
            'w': opened.run(tf.trainable_variables()[0]).tolist(),
            'guess': opened.run('guess:0', {'x:0': FEATURES[:2]}).tolist()}), flush=True)
