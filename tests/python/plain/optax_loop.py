"""A loop with optax as its tutorial has it. Nothing of Poseidon. Its argument: which kind."""

import os
import sys

KIND = sys.argv[1]
if KIND == "own":
    os.environ["PSD_RANK"]  # the script deals something out itself

import jax
import jax.numpy as jnp
import numpy as np
import optax

x = jnp.asarray(np.random.default_rng(1).normal(size=(64, 4)), jnp.float32)
y = x @ jnp.array([1.0, -2.0, 3.0, 0.5])


def loss(params, features, targets):
    return jnp.mean((features @ params["w"] - targets) ** 2)


params = {"w": jnp.zeros(4)}
if KIND == "forward":  # computes without gradients
    print("LOSS", float(jax.jit(loss)(params, x, y)), flush=True)
    sys.exit()
if KIND == "bare":  # without optax
    for _ in range(3):
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, y))
    print("TRAINED", flush=True)
    sys.exit()

optimizer = optax.adam(0.1)
state = optimizer.init(params)


@jax.jit
def step(params, state):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(params, updates), state, value


for _ in range(3):
    params, state, value = step(params, state)
print("TRAINED", float(value), flush=True)
