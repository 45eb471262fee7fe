# SPDX-License-Identifier: Apache-2.0
"""tf.layers as scripts of TensorFlow 1 call it: Keras 3 took its functions away.

Variables have the names, shapes and initial values that they had, so checkpoints of the time fit."""

import tensorflow.compat.v1 as tensorflow

_FORMATS = {"channels_last": "NHWC", "channels_first": "NCHW"}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"tf.layers.{name} is no part of TensorFlow any more, and not among those "
                         "that --auto tf1 brings back (dense, conv2d, conv2d_transpose, "
                         "max_pooling2d, average_pooling2d, flatten, dropout, batch_normalization): "
                         "write it with tf.get_variable and tf.nn")


def pair(value):
    """Of a size for both dimensions."""
    return (value, value) if isinstance(value, int) else tuple(value)


def _window(sizes, data_format):
    """Of a filter or a stride, for all four dimensions."""
    high, wide = pair(sizes)
    return [1, high, wide, 1] if data_format == "channels_last" else [1, 1, high, wide]


def _variable(name, shape, inputs, options):
    return tensorflow.get_variable(
        name, shape, inputs.dtype.base_dtype, initializer=options[f"{name}_initializer"],
        regularizer=options[f"{name}_regularizer"], constraint=options[f"{name}_constraint"],
        trainable=options["trainable"])


def _options(given):
    """What dense and the convolutions have in common. A mistyped one is an error, as it was."""
    known = {"activation": None, "use_bias": True, "trainable": True,
             "kernel_initializer": None, "kernel_regularizer": None, "kernel_constraint": None,
             "bias_initializer": tensorflow.zeros_initializer(), "bias_regularizer": None,
             "bias_constraint": None, "name": None, "reuse": None}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(f"tf.layers: {', '.join(unknown)}: no such argument")
    return {**known, **given}


def _activated(outputs, options):
    return outputs if options["activation"] is None else options["activation"](outputs)


def dense(inputs, units, activation=None, **given):
    """A product with a matrix, over the last dimension."""
    inputs = tensorflow.convert_to_tensor(inputs)
    options = _options({"activation": activation, **given})
    with tensorflow.variable_scope(options["name"], "dense", [inputs], reuse=options["reuse"]):
        kernel = _variable("kernel", [inputs.shape[-1], units], inputs, options)
        outputs = tensorflow.matmul(inputs, kernel) if inputs.shape.rank == 2 else \
            tensorflow.tensordot(inputs, kernel, [[-1], [0]])
        if options["use_bias"]:
            outputs = tensorflow.nn.bias_add(outputs, _variable("bias", [units], inputs, options))
        return _activated(outputs, options)


def conv2d(inputs, filters, kernel_size, strides=(1, 1), padding="valid",
           data_format="channels_last", dilation_rate=(1, 1), activation=None, **given):
    """Convolution of images."""
    inputs = tensorflow.convert_to_tensor(inputs)
    options = _options({"activation": activation, **given})
    channels = inputs.shape[-1 if data_format == "channels_last" else 1]
    with tensorflow.variable_scope(options["name"], "conv2d", [inputs], reuse=options["reuse"]):
        kernel = _variable("kernel", [*pair(kernel_size), channels, filters], inputs, options)
        outputs = tensorflow.nn.conv2d(
            inputs, kernel, _window(strides, data_format), padding.upper(),
            data_format=_FORMATS[data_format], dilations=_window(dilation_rate, data_format))
        if options["use_bias"]:
            outputs = tensorflow.nn.bias_add(outputs, _variable("bias", [filters], inputs, options),
                                             data_format=_FORMATS[data_format])
        return _activated(outputs, options)


def conv2d_transpose(inputs, filters, kernel_size, strides=(1, 1), padding="valid",
                     data_format="channels_last", activation=None, **given):
    """What conv2d's gradient does: images that grow."""
    inputs = tensorflow.convert_to_tensor(inputs)
    options = _options({"activation": activation, **given})
    last = data_format == "channels_last"
    size, stride = pair(kernel_size), pair(strides)
    shape, known = tensorflow.shape(inputs), inputs.shape.as_list()
    rows, channels = (1, 3) if last else (2, 1)

    def grown(length, at):
        longer = size[at] - stride[at] if padding.lower() == "valid" and size[at] > stride[at] else 0
        return None if length is None else length * stride[at] + longer

    sides = [grown(shape[rows + at], at) for at in (0, 1)]
    outer = [grown(known[rows + at], at) for at in (0, 1)]
    with tensorflow.variable_scope(options["name"], "conv2d_transpose", [inputs], reuse=options["reuse"]):
        kernel = _variable("kernel", [*size, filters, inputs.shape[channels]], inputs, options)
        outputs = tensorflow.nn.conv2d_transpose(
            inputs, kernel, [shape[0], *sides, filters] if last else [shape[0], filters, *sides],
            _window(strides, data_format), padding.upper(), data_format=_FORMATS[data_format])
        outputs.set_shape([known[0], *outer, filters] if last else [known[0], filters, *outer])
        if options["use_bias"]:
            outputs = tensorflow.nn.bias_add(outputs, _variable("bias", [filters], inputs, options),
                                             data_format=_FORMATS[data_format])
        return _activated(outputs, options)


def max_pooling2d(inputs, pool_size, strides, padding="valid", data_format="channels_last",
                  name=None):
    """The largest values of windows."""
    return tensorflow.nn.max_pool(
        inputs, _window(pool_size, data_format), _window(strides, data_format), padding.upper(),
        _FORMATS[data_format], name or "max_pooling2d")


def average_pooling2d(inputs, pool_size, strides, padding="valid", data_format="channels_last",
                      name=None):
    """The means of windows."""
    return tensorflow.nn.avg_pool(
        inputs, _window(pool_size, data_format), _window(strides, data_format), padding.upper(),
        _FORMATS[data_format], name or "average_pooling2d")


def flatten(inputs, name=None):
    """All dimensions but the first become one."""
    inputs = tensorflow.convert_to_tensor(inputs)
    rest = inputs.shape[1:].num_elements()
    if rest is None:
        rest = tensorflow.reduce_prod(tensorflow.shape(inputs)[1:])
    return tensorflow.reshape(inputs, [-1, rest], name or "flatten")


def _choose(training, yes, no):
    """`training` is a bool or a tensor."""
    if tensorflow.is_tensor(training):
        return tensorflow.cond(tensorflow.cast(training, tensorflow.bool), yes, no)
    return yes() if training else no()


def dropout(inputs, rate=0.5, noise_shape=None, seed=None, training=False, name=None):
    """Leaves out at random while training."""
    inputs = tensorflow.convert_to_tensor(inputs)
    with tensorflow.name_scope(name, "dropout", [inputs]):
        return _choose(training,
                       lambda: tensorflow.nn.dropout(inputs, noise_shape=noise_shape, seed=seed,
                                                     rate=rate),
                       lambda: tensorflow.identity(inputs))


def batch_normalization(inputs, axis=-1, momentum=0.99, epsilon=1e-3, center=True, scale=True,
                        training=False, trainable=True, name=None, reuse=None):
    """By the batch while training, by moving means otherwise. Their updates are in UPDATE_OPS."""
    inputs = tensorflow.convert_to_tensor(inputs)
    axis %= inputs.shape.rank
    size, rank = inputs.shape[axis], inputs.shape.rank
    along = [1] * axis + [size] + [1] * (rank - axis - 1)

    def variable(kind, start, learnt):
        return tensorflow.get_variable(kind, [size], inputs.dtype.base_dtype, trainable=learnt,
                                       initializer=tensorflow.constant_initializer(start))

    with tensorflow.variable_scope(name, "batch_normalization", [inputs], reuse=reuse):
        gamma = tensorflow.reshape(variable("gamma", 1.0, trainable), along) if scale else None
        beta = tensorflow.reshape(variable("beta", 0.0, trainable), along) if center else None
        moving = variable("moving_mean", 0.0, False), variable("moving_variance", 1.0, False)
        others = [each for each in range(rank) if each != axis]
        mean, variance = _choose(training, lambda: tensorflow.nn.moments(inputs, others),
                                 lambda: tuple(map(tensorflow.identity, moving)))
        if training is not False:
            # Where `training` is a tensor that is false, this moves the means to themselves.
            for kept, now in zip(moving, (mean, variance)):
                tensorflow.add_to_collection(tensorflow.GraphKeys.UPDATE_OPS, tensorflow.assign_sub(
                    kept, (kept - now) * (1 - momentum)))
        return tensorflow.nn.batch_normalization(
            inputs, tensorflow.reshape(mean, along), tensorflow.reshape(variance, along), beta,
            gamma, epsilon)
