# SPDX-License-Identifier: Apache-2.0
"""tf.contrib.layers, as far as scripts of 2017 use it, with variables of the old names."""

import tensorflow.compat.v1 as tensorflow

from . import layers

_UNSET = object()


def xavier_initializer(uniform=True, seed=None, dtype=tensorflow.float32):
    """By the numbers of inputs and outputs."""
    make = tensorflow.glorot_uniform_initializer if uniform else tensorflow.glorot_normal_initializer
    return make(seed=seed, dtype=dtype)


xavier_initializer_conv2d = xavier_initializer
flatten = layers.flatten


def variance_scaling_initializer(factor=2.0, mode="FAN_IN", uniform=False, seed=None,
                                 dtype=tensorflow.float32):
    """By the numbers of inputs, outputs, or both."""
    return tensorflow.variance_scaling_initializer(
        factor, mode.lower(), "uniform" if uniform else "truncated_normal", seed, dtype)


def l2_regularizer(scale, scope=None):
    """Half the sum of squares."""
    del scope
    return lambda weights: tensorflow.multiply(float(scale), tensorflow.nn.l2_loss(weights))


def l1_regularizer(scale, scope=None):
    """The sum of absolute values."""
    del scope
    return lambda weights: tensorflow.multiply(float(scale),
                                               tensorflow.reduce_sum(tensorflow.abs(weights)))


def _finish(outputs, units, options):
    """Normalized, or with a bias; activated."""
    if options["normalizer_fn"] is not None:
        outputs = options["normalizer_fn"](outputs, **(options["normalizer_params"] or {}))
    elif options["biases_initializer"] is not None:
        outputs = tensorflow.nn.bias_add(outputs, tensorflow.get_variable(
            "biases", [units], outputs.dtype.base_dtype, options["biases_initializer"],
            options["biases_regularizer"], trainable=options["trainable"]))
    activation = options["activation_fn"]
    return outputs if activation is None else activation(outputs)


def _options(given):
    known = {"activation_fn": tensorflow.nn.relu, "normalizer_fn": None, "normalizer_params": None,
             "weights_initializer": xavier_initializer(), "weights_regularizer": None,
             "biases_initializer": tensorflow.zeros_initializer(), "biases_regularizer": None,
             "trainable": True, "reuse": None, "scope": None}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(f"tf.contrib.layers: {', '.join(unknown)}: no such argument, or not one that "
                        "--auto tf1 brings back")
    return {**known, **given}


def _weights(shape, inputs, options):
    return tensorflow.get_variable("weights", shape, inputs.dtype.base_dtype,
                                   options["weights_initializer"], options["weights_regularizer"],
                                   trainable=options["trainable"])


def fully_connected(inputs, num_outputs, activation_fn=_UNSET, **given):
    """A product with a matrix, over the last dimension."""
    inputs = tensorflow.convert_to_tensor(inputs)
    options = _options(given if activation_fn is _UNSET else {"activation_fn": activation_fn, **given})
    with tensorflow.variable_scope(options["scope"], "fully_connected", [inputs], reuse=options["reuse"]):
        weights = _weights([inputs.shape[-1], num_outputs], inputs, options)
        outputs = tensorflow.matmul(inputs, weights) if inputs.shape.rank == 2 else \
            tensorflow.tensordot(inputs, weights, [[-1], [0]])
        return _finish(outputs, num_outputs, options)


def conv2d(inputs, num_outputs, kernel_size, stride=1, padding="SAME", **given):
    """Convolution of images, channels last."""
    inputs = tensorflow.convert_to_tensor(inputs)
    options = _options(given)
    with tensorflow.variable_scope(options["scope"], "Conv", [inputs], reuse=options["reuse"]):
        weights = _weights([*layers.pair(kernel_size), inputs.shape[-1], num_outputs], inputs, options)
        outputs = tensorflow.nn.conv2d(inputs, weights, [1, *layers.pair(stride), 1], padding)
        return _finish(outputs, num_outputs, options)


convolution2d = conv2d


def max_pool2d(inputs, kernel_size, stride=2, padding="VALID", scope=None):
    """The largest values of windows."""
    return layers.max_pooling2d(inputs, kernel_size, stride, padding, name=scope)


def avg_pool2d(inputs, kernel_size, stride=2, padding="VALID", scope=None):
    """The means of windows."""
    return layers.average_pooling2d(inputs, kernel_size, stride, padding, name=scope)


def dropout(inputs, keep_prob=0.5, noise_shape=None, is_training=True, seed=None, scope=None):
    """Leaves out at random while training."""
    return layers.dropout(inputs, 1 - keep_prob, noise_shape, seed, is_training, scope)


def batch_norm(inputs, decay=0.999, center=True, scale=False, epsilon=0.001, activation_fn=None,
               is_training=True, trainable=True, scope=None, reuse=None):
    """By the batch while training, by moving means otherwise. Their updates are in UPDATE_OPS."""
    outputs = layers.batch_normalization(inputs, momentum=decay, epsilon=epsilon, center=center,
                                         scale=scale, training=is_training, trainable=trainable,
                                         name=scope or "BatchNorm", reuse=reuse)
    return outputs if activation_fn is None else activation_fn(outputs)
