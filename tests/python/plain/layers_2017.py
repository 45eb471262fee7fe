"""A session script of 2017 with tf.layers, losses, a decaying rate and a moving average. It is run with
psd_run --auto tf1, unchanged."""

import copy
import json

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_boolean('distributed', False, 'Use Poseidon')
tf.app.flags.DEFINE_string('master_address', 'tcp://0.0.0.0:5555', 'Address of the master')
tf.app.flags.DEFINE_integer('client_id', -1, 'Number of this worker')


def network(images, training):
    net = tf.layers.conv2d(images, 8, [3, 3], padding='same', activation=tf.nn.relu, name='conv')
    net = tf.layers.batch_normalization(net, momentum=0.9, training=training)
    net = tf.layers.max_pooling2d(net, 2, 2)
    net = tf.layers.average_pooling2d(net, 2, 2)
    net = tf.layers.dense(tf.layers.flatten(net), 16, tf.nn.relu)
    net = tf.layers.dropout(net, 0.2, training=training)
    return tf.layers.dense(net, 2, kernel_initializer=tf.truncated_normal_initializer(stddev=0.1))


def stripes(rng, count):
    """Horizontal or vertical ones, in noise."""
    labels = rng.randint(2, size=count)
    wave = np.where(np.arange(8) % 4 < 2, 1.0, -1.0)
    images = np.where(labels[:, None, None], wave[None, :, None], wave[None, None, :])
    return images[..., None] + rng.normal(size=(count, 8, 8, 1)), labels


def said_of(attempt):
    try:
        return str(attempt())
    except (AttributeError, ImportError, TypeError) as error:
        return str(error)


def grown(images):
    """Transposed convolutions, with what they make of an image of ones."""
    ones = tf.ones([1, 4, 4, 2])
    options = {'kernel_initializer': tf.ones_initializer(), 'use_bias': False}
    same = tf.layers.conv2d_transpose(ones, 3, 3, strides=2, padding='same', name='up', **options)
    valid = tf.layers.conv2d_transpose(ones, 3, (3, 3), (2, 2), name='up_valid', **options)
    free = tf.layers.conv2d_transpose(images, 1, 2, strides=2, name='up_free')
    return [same.shape.as_list(), valid.shape.as_list(), free.shape.as_list(),
            tf.reduce_sum(same), tf.reduce_sum(valid)]


def of_contrib(images):
    """A network of tf.contrib.layers, and the names of its variables."""
    layers = tf.contrib.layers
    with tf.variable_scope('contrib'):
        net = layers.conv2d(images, 4, [3, 3], weights_regularizer=layers.l2_regularizer(0.1),
                            normalizer_fn=layers.batch_norm, normalizer_params={'is_training': False})
        net = layers.dropout(layers.flatten(layers.max_pool2d(net, [2, 2])), 0.5, is_training=False)
        net = layers.fully_connected(net, 5, weights_initializer=layers.xavier_initializer())
        layers.fully_connected(net, 2, activation_fn=None, scope='out')
    decayed = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES, 'contrib')
    return [each.op.name for each in tf.global_variables('contrib')], len(decayed)


def main(_):
    images = tf.placeholder(tf.float32, [None, 8, 8, 1])
    labels = tf.placeholder(tf.int64, [None])
    training = tf.placeholder_with_default(False, [])
    logits = network(images, training)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.02, global_step, 20, 0.9, staircase=True)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdamOptimizer(rate).minimize(loss, global_step)
    normal = tf.layers.batch_normalization(images, training=True, name='normal')
    moved = tf.get_collection(tf.GraphKeys.UPDATE_OPS, 'normal')

    transposed, contrib_names = grown(images), of_contrib(images)
    from tensorflow.examples.tutorials.mnist import mnist
    digits = mnist.inference(tf.zeros([2, mnist.IMAGE_PIXELS]), 4, 3)
    hits = mnist.evaluation(digits, tf.zeros([2], tf.int32))
    names = [each.op.name for each in tf.global_variables() if 'Adam' not in each.op.name]

    first = tf.ConfigProto(distributed=FLAGS.distributed, master_address=FLAGS.master_address,
                           client_id=FLAGS.client_id)
    config = copy.deepcopy(first)
    config.gpu_options.allow_growth = True
    rng = np.random.RandomState(5 + FLAGS.client_id)
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(60):
            some, right = stripes(rng, 16)
            sess.run(train_op, {images: some, labels: right, training: True})
        some, right = stripes(np.random.RandomState(1), 500)
        answers = sess.run(tf.argmax(logits, 1), {images: some})
        found, _ = sess.run([normal, moved], {images: 3 * some + 2})
        mean, variance = sess.run(['normal/moving_mean:0', 'normal/moving_variance:0'])
        weights = sess.run(tf.trainable_variables())
        sums = [float(each) for each in sess.run(transposed[3:])]
        counted = sess.run(hits)
    print('FOUND ' + json.dumps({
        'accuracy': float((answers == right).mean()), 'client_id': config.client_id,
        'names': names, 'transposed': transposed[:3] + sums, 'contrib_names': contrib_names,
        'digits': [digits.shape.as_list(), int(counted)],
        'weights': [float(each.sum()) for each in weights],
        'normal': [float(found.mean()), float(found.std())],
        'moved': [float(mean[0] - 0.01 * (3 * some + 2).mean()),
                  float(variance[0] - 0.99 - 0.01 * (3 * some + 2).var())],
        'contrib': said_of(lambda: __import__('tensorflow.contrib.slim')),
        'cells': said_of(lambda: tf.nn.rnn_cell.BasicLSTMCell(4)),
        'rnn': said_of(lambda: tf.contrib.rnn.LSTMCell(4)),
        'estimator': said_of(lambda: tf.estimator),
        'other': said_of(lambda: tf.layers.conv3d),
        'mistyped': said_of(lambda: tf.layers.dense(images, 2, use_biass=True))}))


if __name__ == '__main__':
    tf.app.run()
