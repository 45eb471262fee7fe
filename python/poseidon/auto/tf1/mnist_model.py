# SPDX-License-Identifier: Apache-2.0
"""tensorflow.examples.tutorials.mnist.mnist as tutorials of TensorFlow 1 had it: two hidden layers."""

import math

import tensorflow.compat.v1 as tensorflow

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def _layer(inputs, units, name, activation=None):
    width = int(inputs.shape[-1])
    with tensorflow.name_scope(name):
        weights = tensorflow.Variable(
            tensorflow.truncated_normal([width, units], stddev=1.0 / math.sqrt(width)), name="weights")
        biases = tensorflow.Variable(tensorflow.zeros([units]), name="biases")
        outputs = tensorflow.matmul(inputs, weights) + biases
    return outputs if activation is None else activation(outputs)


def inference(images, hidden1_units, hidden2_units):
    """Logits."""
    hidden = _layer(images, hidden1_units, "hidden1", tensorflow.nn.relu)
    hidden = _layer(hidden, hidden2_units, "hidden2", tensorflow.nn.relu)
    return _layer(hidden, NUM_CLASSES, "softmax_linear")


def loss(logits, labels):
    """The mean cross entropy."""
    return tensorflow.losses.sparse_softmax_cross_entropy(labels=tensorflow.to_int64(labels), logits=logits)


def training(loss, learning_rate):
    """What makes a step."""
    tensorflow.summary.scalar("loss", loss)
    step = tensorflow.Variable(0, name="global_step", trainable=False)
    return tensorflow.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=step)


def evaluation(logits, labels):
    """How many are right."""
    right = tensorflow.nn.in_top_k(logits, labels, 1)
    return tensorflow.reduce_sum(tensorflow.cast(right, tensorflow.int32))
