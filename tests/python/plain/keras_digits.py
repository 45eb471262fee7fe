"""A plain Keras script: python keras_digits.py BATCH [arrays|dataset] [SAMPLES]. Nothing of Poseidon."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

batch, kind = int(sys.argv[1]), sys.argv[2]
samples = int(sys.argv[3]) if len(sys.argv) > 3 else 640
keras.utils.set_random_seed(3)
numbers = np.random.default_rng(5)
x = numbers.normal(size=(samples, 12)).astype("float32")
y = (x @ numbers.normal(size=(12, 3))).argmax(1)

model = keras.Sequential([keras.layers.Dense(24, activation="relu"), keras.layers.Dense(3)])
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(True),
              metrics=["accuracy"])
steps = []


class Note(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        steps.append([float(np.sum(np.abs(each))) for each in self.model.get_weights()])


if kind == "arrays":
    history = model.fit(x, y, batch_size=batch, epochs=2, verbose=0, callbacks=[Note()],
                        validation_data=(x[:100], y[:100]))
else:
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(batch).prefetch(2)
    history = model.fit(data, epochs=2, verbose=0, callbacks=[Note()])
model.save("model.keras")
again = keras.models.load_model("model.keras")
print("FOUND " + json.dumps({
    "steps": steps, "weights": [each.tolist() for each in model.get_weights()],
    "accuracy": float(model.evaluate(x, y, verbose=0)[1]), "loss": history.history["loss"][-1],
    "same": all(np.array_equal(a, b) for a, b in zip(again.get_weights(), model.get_weights()))}))
