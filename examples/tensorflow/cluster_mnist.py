# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with a cluster of TensorFlow 1 and its four flags; the parameter servers end.

    python cluster_mnist.py --job_name ps     --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P
    python cluster_mnist.py --job_name worker --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P
    python cluster_mnist.py --job_name worker --task_index 1 --ps_hosts H:P --worker_hosts H:P,H:P

This is TensorFlow's own cluster: variables live on the ps, workers update them by themselves. What it
takes to go on from here to Poseidon stands in docs/tensorflow.md."""

import gzip
import os

import numpy as np
import tensorflow.compat.v1 as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string('job_name', '', 'ps or worker')
flags.DEFINE_integer('task_index', 0, 'Number of this task in its job')
flags.DEFINE_string('ps_hosts', '', 'host:port of the parameter servers, with commas between them')
flags.DEFINE_string('worker_hosts', '', 'host:port of the workers')
flags.DEFINE_string('data_dir', 'data/mnist', 'Directory of the four files of MNIST')
flags.DEFINE_integer('last_step', 400, 'Steps of all workers together')


def read(name, dims):
    raw = gzip.open(os.path.join(FLAGS.data_dir, name)).read()
    shape = np.frombuffer(raw, '>u4', dims, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load(kind):
    images = read('%s-images-idx3-ubyte.gz' % kind, 3)
    return images.reshape(len(images), -1) / np.float32(255), read('%s-labels-idx1-ubyte.gz' % kind, 1)


def done_queue(ps, workers):
    """Where workers tell a parameter server that they are done."""
    with tf.device('/job:ps/task:%d' % ps):
        return tf.FIFOQueue(workers, tf.int32, shared_name='done_queue%d' % ps)


def only(*devices):
    """A session that needs no other task, which may have ended already or not have come yet."""
    return tf.ConfigProto(device_filters=devices)


class DoneHook(tf.train.SessionRunHook):
    """Tells all parameter servers when this worker is done."""

    def __init__(self, servers, workers):
        self._tell = []
        for ps in range(servers):
            with tf.device('/job:ps/task:%d' % ps):  # the 1, too: the ps has to fetch nothing
                self._tell.append(done_queue(ps, workers).enqueue(tf.constant(1)))

    def end(self, session):
        for each in self._tell:
            try:
                session.run(each)
            except tf.errors.UnavailableError:
                pass  # it has heard from all, and was gone before it could answer


def serve(server, workers):
    """A parameter server waits for all workers, and ends."""
    queue = done_queue(FLAGS.task_index, workers)
    with tf.Session(server.target, config=only('/job:ps/task:%d' % FLAGS.task_index)) as session:
        for number in range(workers):
            session.run(queue.dequeue())
            print('ps %d received done %d' % (FLAGS.task_index, number), flush=True)


def train(server, servers, workers):
    me = '/job:worker/task:%d' % FLAGS.task_index
    with tf.device(tf.train.replica_device_setter(ps_tasks=servers, worker_device=me)):
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.int64, [None])
        weights = tf.get_variable('weights', [784, 10], initializer=tf.zeros_initializer())
        bias = tf.get_variable('bias', [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(x, weights) + bias
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y,
                                                                             logits=logits))
        step = tf.train.get_or_create_global_step()
        optimize = tf.train.GradientDescentOptimizer(0.3).minimize(loss, global_step=step)
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))

    images, labels = load('train')
    test_images, test_labels = load('t10k')
    numbers = np.random.default_rng(FLAGS.task_index)
    accuracy = 0.0
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief=FLAGS.task_index == 0, config=only('/job:ps', me),
            hooks=[tf.train.StopAtStepHook(last_step=FLAGS.last_step),
                   DoneHook(servers, workers)]) as session:
        while not session.should_stop():
            chosen = numbers.integers(0, len(images), 100)
            _, at = session.run([optimize, step], {x: images[chosen], y: labels[chosen]})
            if at % 100 == 0 or at >= FLAGS.last_step - 2 * workers:
                accuracy = session.run_step_fn(lambda step_context: step_context.session.run(
                    right, {x: test_images, y: test_labels}))
    print('MNIST accuracy: %.4f' % accuracy, flush=True)


def main(_):
    tf.disable_eager_execution()
    cluster = {'ps': FLAGS.ps_hosts.split(','), 'worker': FLAGS.worker_hosts.split(',')}
    servers, workers = len(cluster['ps']), len(cluster['worker'])
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=FLAGS.job_name,
                             task_index=FLAGS.task_index)
    if FLAGS.job_name == 'ps':
        serve(server, workers)
    else:
        train(server, servers, workers)


if __name__ == '__main__':
    tf.app.run()
