"""The model of cifar_2017.py, in a file of its own as the tutorials of that time had it."""

import tensorflow as tf


def inference(images):
    with tf.variable_scope('local') as scope:
        weights = tf.get_variable('weights', [4, 3],
                                  initializer=tf.truncated_normal_initializer(stddev=0.1))
        biases = tf.get_variable('biases', [3], initializer=tf.constant_initializer(0.0))
        return tf.add(tf.matmul(images, weights), biases, name=scope.name)


def loss(logits, labels):
    mean = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int64), logits=logits))
    tf.add_to_collection('losses', mean)
    return tf.add_n(tf.get_collection('losses'), name='total_loss')


def train(total_loss, global_step):
    rate = tf.train.exponential_decay(0.5, global_step, 100, 0.1, staircase=True)
    averages = tf.train.ExponentialMovingAverage(0.9, name='avg')
    with tf.control_dependencies([averages.apply([total_loss])]):
        opt = tf.train.GradientDescentOptimizer(rate)
        grads = opt.compute_gradients(total_loss)
    with tf.control_dependencies([opt.apply_gradients(grads, global_step=global_step)]):
        return tf.no_op(name='train')
