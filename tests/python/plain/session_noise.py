"""A session script that fits lines to noisy measurements: with batches this small, what is left of the
error is the noise of the gradients. It has many such problems at once, so that chance decides nothing.
It is run with psd_run --auto tf1, unchanged."""

import json

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_boolean('distributed', False, 'Use Poseidon')
tf.app.flags.DEFINE_string('master_address', 'tcp://0.0.0.0:5555', 'Address of the master')
tf.app.flags.DEFINE_integer('client_id', -1, 'Number of this worker')
tf.app.flags.DEFINE_integer('max_steps', 60, 'Steps')

PROBLEMS, FEATURES, BATCH = 64, 6, 4


def main(_):
    slope = np.random.RandomState(11).normal(size=(PROBLEMS, FEATURES, 1))
    rng = np.random.RandomState(100 + max(FLAGS.client_id, 0))

    x = tf.placeholder(tf.float32, [PROBLEMS, BATCH, FEATURES])
    y = tf.placeholder(tf.float32, [PROBLEMS, BATCH, 1])
    w = tf.Variable(tf.zeros([PROBLEMS, FEATURES, 1]))
    loss = tf.reduce_sum(tf.reduce_mean(tf.square(tf.matmul(x, w) - y), [1, 2]))
    train_op = tf.train.GradientDescentOptimizer(0.05).minimize(loss)

    config = tf.ConfigProto(distributed=FLAGS.distributed, master_address=FLAGS.master_address,
                            client_id=FLAGS.client_id)
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(FLAGS.max_steps):
            seen = rng.normal(size=(PROBLEMS, BATCH, FEATURES))
            measured = np.matmul(seen, slope) + rng.normal(size=(PROBLEMS, BATCH, 1))
            sess.run(train_op, {x: seen, y: measured})
        errors = np.square(sess.run(w) - slope).sum((1, 2))
    print('FOUND ' + json.dumps({'errors': errors.tolist(),
                                 'before': np.square(slope).sum((1, 2)).tolist()}))


if __name__ == '__main__':
    tf.app.run()
