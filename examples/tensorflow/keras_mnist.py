# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with Keras. Nothing in here knows of Poseidon:

    psd_run --workers 2 "python keras_mnist.py --data DIRECTORY"

trains one model with two workers, as one process with twice the batch would."""

import argparse
import gzip
import pathlib

import keras
import numpy as np


def read(path, dims):
    raw = gzip.open(path).read()
    shape = np.frombuffer(raw, ">u4", dims, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load(directory, kind):
    images = read(directory / f"{kind}-images-idx3-ubyte.gz", 3)
    labels = read(directory / f"{kind}-labels-idx1-ubyte.gz", 1)
    return images[..., None].astype("float32") / 255, labels


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=pathlib.Path, default="data/mnist")
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--epochs", type=int, default=1)
    arguments.add_argument("--samples", type=int, default=60000)
    options = arguments.parse_args()

    x, y = load(options.data, "train")
    model = keras.Sequential([
        keras.layers.Input([28, 28, 1]),
        keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.MaxPooling2D(),
        keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(1e-3), metrics=["accuracy"],
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x[:options.samples], y[:options.samples], batch_size=options.batch,
              epochs=options.epochs, verbose=2,
              callbacks=[keras.callbacks.ModelCheckpoint("mnist.keras")])
    _, accuracy = model.evaluate(*load(options.data, "t10k"), batch_size=1000, verbose=0)
    print(f"MNIST accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
