"""A plain Keras script that calls fit in many ways."""

import json

import keras
import numpy as np
import tensorflow as tf

x = np.random.default_rng(5).normal(size=(120, 4)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
order = np.random.permutation(120)  # without a seed: the same one on all workers
x, y = x[order], y[order]

inputs = {"left": keras.Input([2], name="left"), "right": keras.Input([2], name="right")}
outputs = keras.layers.Dense(2)(keras.layers.Concatenate()(list(inputs.values())))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0),
              keras.losses.SparseCategoricalCrossentropy(True), steps_per_execution=2)
whole = {"left": x[:, :2], "right": x[:, 2:]}
steps = []


class Count(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.begin = int(self.model.optimizer.iterations.numpy())

    def on_epoch_end(self, epoch, logs=None):
        steps.append(int(self.model.optimizer.iterations.numpy()) - self.begin)


def fit(*args, **kwargs):
    model.fit(*args, verbose=0, callbacks=[Count()], **kwargs)


fit(whole, y, batch_size=9, validation_split=0.1, class_weight={0: 1.0, 1: 2.0})  # 108 samples
data = tf.data.Dataset.from_tensor_slices((whole, y)).shuffle(200)
fit(data.batch(16))
fit(data.repeat().batch(10), steps_per_epoch=10)
fit(data.batch(20, drop_remainder=True), validation_data=data.batch(20))
fit((each for each in [({"left": x[:8, :2], "right": x[:8, 2:]}, y[:8])]))
print("FOUND " + json.dumps({"steps": steps, "weights": [each.tolist() for each in
                                                         model.get_weights()]}), flush=True)
