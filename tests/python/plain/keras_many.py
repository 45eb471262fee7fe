"""A plain Keras script that trains many small models: python keras_many.py BATCH PARTS [NAMES]. Nothing of
Poseidon.

What it finds is that of one process with W times the batch. Batch normalization works by the parts of a
batch, one of each worker: with PARTS of 2 one process computes gradients in two parts, too."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

batch, parts = int(sys.argv[1]), int(sys.argv[2])
wanted = sys.argv[3].split(",") if len(sys.argv) > 3 else None
found = {}


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def weights(model):
    return [each.tolist() for each in model.get_weights()]


def scenario(function):
    if wanted is None or function.__name__ in wanted:
        keras.utils.set_random_seed(7)
        found[function.__name__] = function()


class Gan(keras.Model):
    """Two networks, two optimizers, noise that comes with the data."""

    def __init__(self):
        super().__init__()
        self.maker = keras.Sequential([keras.layers.Dense(8), keras.layers.BatchNormalization(),
                                       keras.layers.ReLU(), keras.layers.Dense(6)])
        self.judge = keras.Sequential([keras.layers.Dense(8, activation="tanh"),
                                       keras.layers.Dense(1)])
        self.made = keras.metrics.Mean(name="made")

    def compile(self, judge_optimizer, maker_optimizer, loss):
        super().compile()
        self.judge_optimizer, self.maker_optimizer = judge_optimizer, maker_optimizer
        self.loss = loss

    def judge_gradients(self, real, noise):
        made = self.maker(noise, training=True)
        truth = tf.concat([tf.ones_like(real[:, :1]), tf.zeros_like(real[:, :1])], 0)
        with tf.GradientTape() as tape:
            loss = self.loss(truth, self.judge(tf.concat([real, made], 0)))
        return loss, tape.gradient(loss, self.judge.trainable_weights)

    def maker_gradients(self, real, noise):
        with tf.GradientTape() as tape:
            loss = self.loss(tf.ones_like(real[:, :1]), self.judge(self.maker(noise, training=True)))
        return loss, tape.gradient(loss, self.maker.trainable_weights)

    def in_parts(self, function, real, noise):
        size = tf.shape(real)[0] // parts
        losses, gradients = zip(*[function(real[number * size:(number + 1) * size],
                                           noise[number * size:(number + 1) * size])
                                  for number in range(parts)])
        return sum(losses) / parts, [sum(each) / parts for each in zip(*gradients)]

    def train_step(self, data):
        loss, gradients = self.in_parts(self.judge_gradients, *data)
        self.judge_optimizer.apply_gradients(zip(gradients, self.judge.trainable_weights))
        loss, gradients = self.in_parts(self.maker_gradients, *data)
        self.maker_optimizer.apply_gradients(zip(gradients, self.maker.trainable_weights))
        self.made.update_state(loss)
        return {"made": self.made.result()}


@scenario
def gan():
    model = Gan()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05),
                  keras.losses.BinaryCrossentropy(from_logits=True))
    data = tf.data.Dataset.from_tensor_slices((numbers(64, 6), numbers(64, 4)))
    model.fit(data.shuffle(64, seed=3).batch(batch, drop_remainder=True), epochs=2, verbose=0)
    statistics = [each.numpy().tolist() for each in model.maker.non_trainable_weights]
    trained = [each.numpy().tolist() for each in model.trainable_weights]
    return {"weights": trained, "statistics": statistics}


@scenario
def transformer():
    """Uneven samples, three dimensions, embeddings."""
    words = keras.Input([5], dtype="int32")
    places = keras.ops.arange(5)
    inner = keras.layers.Embedding(11, 8)(words) + keras.layers.Embedding(5, 8)(places)
    inner = keras.layers.LayerNormalization()(
        inner + keras.layers.MultiHeadAttention(2, 4)(inner, inner, use_causal_mask=True))
    inner = keras.layers.LayerNormalization()(inner + keras.layers.Dense(8)(
        keras.layers.Dense(16, activation="gelu")(inner)))
    model = keras.Model(words, keras.layers.Dense(11)(inner))
    model.compile(keras.optimizers.SGD(0.2, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    text = np.random.default_rng(3).integers(0, 11, [53, 6])
    model.fit(text[:, :-1], text[:, 1:], batch_size=batch, epochs=2, verbose=0)
    return {"weights": weights(model)}


def regression(optimizer="sgd", loss="mse", **options):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(5, activation="tanh"),
                              keras.layers.Dense(1)])
    model.compile(optimizer, loss, **options)
    return model


@scenario
def rows():
    """Batches that a map makes larger; then a shuffle behind it, whose order is that of one process no more."""
    model = regression()
    steps = []
    x = numbers(72, 4)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(batch)
    data = data.map(lambda a, b: (tf.concat([a, a * 0.5], 0), tf.concat([b, b * 0.5], 0)))
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(1))
    model.fit(data, epochs=1, verbose=0, callbacks=[note])
    weights_before = weights(model)
    model.fit(data.shuffle(100), epochs=1, verbose=0, callbacks=[note])
    return {"steps": len(steps), "weights": weights_before}


@scenario
def summed():
    """A loss that is a sum, at uneven samples."""
    model = regression(keras.optimizers.SGD(0.002), keras.losses.MeanSquaredError(reduction="sum"))
    x = numbers(37, 4)
    history = model.fit(x, x[:, :1], batch_size=batch, epochs=2, verbose=0, shuffle=False)
    return {"loss": history.history["loss"], "weights": weights(model)}


@scenario
def metrics():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=[
        keras.metrics.TruePositives(name="hits"), keras.metrics.Precision(name="precision"),
        keras.metrics.AUC(name="auc"), "accuracy"])
    x = numbers(50, 4)
    history = model.fit(x, (x[:, 0] > 0.2).astype("float32"), batch_size=batch, verbose=0)
    return {key: value[-1] for key, value in history.history.items()}


@scenario
def statistics():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(5),
                              keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = numbers(48, 4)
    history = model.fit(x, x[:, :1], batch_size=batch, verbose=0, validation_data=(x, x[:, :1]))
    return {"after": model.evaluate(x, x[:, :1], verbose=0),
            "validation": history.history["val_loss"][-1]}


@scenario
def padded():
    """Batches of different lengths."""
    model = keras.Sequential([keras.layers.Embedding(10, 6, mask_zero=True),
                              keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def sentences():
        for number in range(45):
            yield np.arange(number % 7 + 2) % 9 + 1, [float(number % 3)]

    data = tf.data.Dataset.from_generator(sentences, output_signature=(
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([1], tf.float32)))
    model.fit(data.padded_batch(batch), epochs=1, verbose=0)
    return {"weights": weights(model)}


@scenario
def interleaved():
    """Read side by side, in whatever order."""
    x = numbers(64, 4)
    model = regression()
    data = tf.data.Dataset.range(8).interleave(
        lambda number: tf.data.Dataset.from_tensor_slices((x[::8], x[::8, :1])).map(
            lambda a, b: (a + tf.cast(number, tf.float32), b)),
        cycle_length=8, num_parallel_calls=4, deterministic=False)
    model.fit(data.batch(batch), epochs=1, verbose=0)
    return {"weights": weights(model)}


class Noisy(keras.Model):
    """Tells what it has drawn."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(1)
        self.seeds = keras.random.SeedGenerator(5)
        self.generator = tf.random.Generator.from_seed(9)

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "keras": keras.random.normal([], seed=self.seeds),
                "stateful": tf.random.normal([]), "generator": self.generator.normal([])}


@scenario
def noise():
    model = Noisy()
    model.compile("sgd", "mse")
    drawn = []
    x = numbers(16, 4)
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: drawn.append(
        [float(logs[key]) for key in ("keras", "stateful", "generator")]))
    model.fit(x, x[:, :1], batch_size=batch // 2, verbose=0, callbacks=[note])
    return {"drawn": drawn[0]}


@scenario
def stopped():
    """One sample is not a number."""
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(1))
    x = numbers(64, 4)
    y = x[:, :1].copy()
    y[40] = np.nan
    regression().fit(x, y, batch_size=batch, epochs=2, verbose=0, shuffle=False,
                     callbacks=[keras.callbacks.TerminateOnNaN(), count])
    return {"steps": len(steps)}


class Clipping(keras.Model):
    """Clips what it computed itself."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(1)

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_weights)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.01)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}


@scenario
def clipped():
    model = Clipping()
    model.compile(keras.optimizers.SGD(0.1))
    x = numbers(32, 4)
    model.fit(x, x[:, :1] * 3, batch_size=batch, verbose=0)
    again = [model.fit(x, x[:, :1], batch_size=batch, verbose=0) for _ in range(2)]
    return {"weights": weights(model), "fits": len(again)}


@scenario
def generator():
    """A PyDataset."""
    class Data(keras.utils.PyDataset):
        def __len__(self):
            return -(-60 // batch)

        def __getitem__(self, index):
            x = numbers(60, 4)[index * batch:(index + 1) * batch]
            return x, x[:, :1]

    model = regression()
    model.fit(Data(), epochs=1, verbose=0, shuffle=False)
    return {"weights": weights(model)}


print("FOUND " + json.dumps(found))
