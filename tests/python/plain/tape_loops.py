"""A plain script with loops of its own over tf.data, tapes and optimizers of Keras, as the tutorials of TensorFlow have
them: python tape_loops.py BATCH [NAMES]. Nothing of Poseidon."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

batch = int(sys.argv[1])
wanted = sys.argv[2].split(",") if len(sys.argv) > 2 else None
found = {}
keras.backend.set_floatx("float64")


def scenario(function):
    if wanted is None or function.__name__ in wanted:
        keras.utils.set_random_seed(7)
        found[function.__name__] = function()


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


x, y = numbers(52, 4), numbers(52, 1)
held_back = tf.data.Dataset.from_tensor_slices((numbers(21, 4), numbers(21, 1))).batch(5)


def samples():
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(52, seed=3)


def network(width=5):
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(width, activation="tanh"), keras.layers.Dense(1)])


def weights(*models):
    return [each.tolist() for model in models for each in model.get_weights()]


@scenario
def tutorial():
    """A class for the model, functions for the steps, metrics, a validation after every epoch."""
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)

        def call(self, points):
            return self.outer(self.inner(points))

    model, loss_object, optimizer = Net(), keras.losses.MeanSquaredError(), keras.optimizers.Adam(0.01)
    train_loss, test_loss = keras.metrics.Mean(), keras.metrics.Mean()
    train_data = samples().batch(batch)

    @tf.function
    def train_step(points, truth):
        with tf.GradientTape() as tape:
            loss = loss_object(truth, model(points, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        train_loss(loss)

    @tf.function
    def test_step(points, truth):
        test_loss(loss_object(truth, model(points, training=False)))

    losses = []
    for epoch in range(3):
        train_loss.reset_state()
        test_loss.reset_state()
        for points, truth in train_data:
            train_step(points, truth)
        for points, truth in held_back:
            test_step(points, truth)
        losses.append(float(test_loss.result()))
    return {"weights": weights(model), "validation": losses, "steps": int(optimizer.iterations.numpy())}


@scenario
def eager():
    """Step by step, evaluated before it was trained, and in the middle of an epoch; a dataset of its own each time."""
    model, optimizer = network(), keras.optimizers.SGD(0.05, momentum=0.9)
    found = []

    def evaluate():
        found.append(float(sum(tf.reduce_sum((model(points) - truth) ** 2) for points, truth in held_back)))

    evaluate()
    points, truth = next(iter(samples().batch(batch)))
    model(points)
    data = samples()
    for epoch in range(2):
        for step, (points, truth) in enumerate(data.batch(batch)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(points) - truth) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
            if step == 1:
                evaluate()
    return {"weights": weights(model), "validation": found, "steps": int(optimizer.iterations.numpy())}


@scenario
def gan():
    """Two tapes, two optimizers; noise comes with the data, so that one process has the same."""
    maker, judge = network(8), network(6)
    projection = keras.layers.Dense(4)
    maker.add(projection)
    maker_optimizer, judge_optimizer = keras.optimizers.Adam(1e-2), keras.optimizers.Adam(1e-2)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(images, noise):
        with tf.GradientTape() as maker_tape, tf.GradientTape() as judge_tape:
            made = maker(noise, training=True)
            real, fake = judge(images, training=True), judge(made, training=True)
            maker_loss = entropy(tf.ones_like(fake), fake)
            judge_loss = entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake)
        of_maker = maker_tape.gradient(maker_loss, maker.trainable_variables)
        of_judge = judge_tape.gradient(judge_loss, judge.trainable_variables)
        maker_optimizer.apply_gradients(zip(of_maker, maker.trainable_variables))
        judge_optimizer.apply_gradients(zip(of_judge, judge.trainable_variables))

    data = tf.data.Dataset.from_tensor_slices((x, numbers(52, 4))).shuffle(52, seed=5).batch(batch)
    for epoch in range(2):
        for images, noise in data:
            train_step(images, noise)
    return {"weights": weights(maker, judge), "steps": int(judge_optimizer.iterations.numpy())}


@scenario
def dcgan():
    """As its tutorial: batches of a fixed size, noise by a constant, batch normalization, dropout."""
    maker = keras.Sequential([keras.Input([3]), keras.layers.Dense(6), keras.layers.BatchNormalization(),
                              keras.layers.LeakyReLU(), keras.layers.Dense(4)])
    judge = keras.Sequential([keras.Input([4]), keras.layers.Dense(6), keras.layers.Dropout(0.3),
                              keras.layers.Dense(1)])
    optimizers = keras.optimizers.Adam(1e-2), keras.optimizers.Adam(1e-2)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    drawn = []

    @tf.function
    def train_step(images):
        noise = tf.random.normal([batch, 3], dtype="float64")
        with tf.GradientTape() as maker_tape, tf.GradientTape() as judge_tape:
            fake, real = judge(maker(noise, training=True), training=True), judge(images, training=True)
            maker_loss = entropy(tf.ones_like(fake), fake)
            judge_loss = entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake)
        for optimizer, tape, loss, model in zip(optimizers, (maker_tape, judge_tape), (maker_loss, judge_loss),
                                                (maker, judge)):
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables),
                                          model.trainable_variables))
        return noise

    for epoch in range(2):
        for images in tf.data.Dataset.from_tensor_slices(x).shuffle(52).batch(batch, drop_remainder=True):
            drawn.append(float(tf.reduce_sum(train_step(images))))
    return {"own": drawn, "same": weights(maker, judge)}


@scenario
def summed():
    """A loss that is a sum over the batch, and batches as arrays."""
    model, optimizer = network(), keras.optimizers.SGD(0.002)

    @tf.function
    def train_step(points, truth):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(points) - truth) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))

    for epoch in range(2):
        for points, truth in samples().batch(batch).as_numpy_iterator():
            train_step(points, truth)
    return {"weights": weights(model), "steps": int(optimizer.iterations.numpy())}


@scenario
def endless():
    """A number of steps, by an iterator."""
    model, optimizer = network(), keras.optimizers.SGD(0.05)

    @tf.function
    def train_step(points, truth):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(points) - truth) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))

    batches = iter(samples().repeat().batch(batch, drop_remainder=True))
    for step in range(5):
        train_step(*next(batches))
    return {"weights": weights(model), "steps": int(optimizer.iterations.numpy())}


print("FOUND " + json.dumps(found))
