"""A session script of the original Poseidon's time. It is run with psd_run as it is, with --auto tf1 and without."""

import json

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_boolean('distributed', False, 'Use Poseidon')
tf.app.flags.DEFINE_string('master_address', 'tcp://0.0.0.0:5555', 'Address of the master')
tf.app.flags.DEFINE_integer('client_id', -1, 'Number of this worker')
tf.app.flags.DEFINE_integer('max_steps', 40, 'Steps')


def main(_):
    rng = np.random.RandomState(11)
    data = rng.normal(size=(512, 6)).astype(np.float32)
    target = (data * [1, -2, 3, 0, 1, 2]).sum(1, keepdims=True).astype(np.float32)
    rng = np.random.RandomState(100 + FLAGS.client_id)

    x = tf.placeholder(tf.float32, [None, 6])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.Variable(tf.random_normal([6, 1], stddev=0.1, seed=FLAGS.client_id + 2))
    b = tf.Variable(tf.zeros([1]))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    global_step = tf.Variable(0, trainable=False, name='global_step')
    grads = tf.gradients(loss, [w, b])
    train_op = tf.train.MomentumOptimizer(0.05, 0.5).apply_gradients(
        zip(tf.clip_by_global_norm(grads, 5.0)[0], [w, b]), global_step=global_step)

    config = tf.ConfigProto(allow_soft_placement=True)
    config.distributed = FLAGS.distributed
    config.master_address = FLAGS.master_address
    config.client_id = FLAGS.client_id
    losses = []
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(FLAGS.max_steps):
            some = rng.choice(512, 16)
            _, value = sess.run([train_op, loss], {x: data[some], y: target[some]})
            losses.append(float(value))
        error = sess.run(loss, {x: data, y: target})
        saved = tf.train.Saver().save(sess, './model', global_step=global_step)
        print('FOUND ' + json.dumps({
            'weights': sess.run(w).tolist(), 'step': int(sess.run(global_step)),
            'losses': losses, 'error': float(error), 'saved': saved,
            'client_id': FLAGS.client_id, 'distributed': FLAGS.distributed}))


if __name__ == '__main__':
    tf.app.run()
