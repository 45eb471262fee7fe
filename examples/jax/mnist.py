# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with JAX and optax.

    psd_run --workers 2 "python mnist.py --data DIRECTORY"

Each worker computes the gradient of its part of every batch; with any number of workers the model is
that of one process."""

import argparse
import gzip
import hashlib
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

import poseidon
import poseidon.jax as psd


def read(path, dims):
    raw = gzip.open(path).read()
    shape = np.frombuffer(raw, ">u4", dims, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load(directory, kind):
    images = read(directory / f"{kind}-images-idx3-ubyte.gz", 3)
    labels = read(directory / f"{kind}-labels-idx1-ubyte.gz", 1)
    return images.reshape(len(images), -1).astype(np.float32) / 255, labels.astype(np.int32)


def initial(key, sizes=(784, 128, 10)):
    keys = jax.random.split(key, len(sizes))
    return [{"w": jax.random.normal(k, (m, n)) / m**0.5, "b": jnp.zeros(n)}
            for k, m, n in zip(keys, sizes, sizes[1:])]


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=pathlib.Path, default="data/mnist")
    arguments.add_argument("--batch", type=int, default=128, help="of all workers together")
    arguments.add_argument("--steps", type=int, default=400)
    options = arguments.parse_args()
    alone = "PSD_MASTER_ADDRESS" not in os.environ
    if not alone:
        poseidon.init()
    rank, size = (0, 1) if alone else (poseidon.rank(), poseidon.size())

    x, y = load(options.data, "train")
    params = initial(jax.random.key(rank))
    optimizer = optax.adam(1e-3)
    if not alone:
        params = psd.broadcast(params)
        optimizer = psd.distributed(optimizer)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    order = np.random.default_rng(0)
    mine = options.batch // size
    for number in range(options.steps):
        chosen = order.integers(0, len(x), options.batch)[rank * mine:(rank + 1) * mine]
        params, state, value = step(params, state, x[chosen], y[chosen])
        if not alone and number % 50 == 0:
            poseidon.report(number, "loss", float(value))

    test_x, test_y = load(options.data, "t10k")
    accuracy = float((predict(params, test_x).argmax(1) == test_y).mean())
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)))
    print(f"parameters {digest.hexdigest()[:16]}")
    print(f"MNIST accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
