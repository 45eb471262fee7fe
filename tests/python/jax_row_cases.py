# SPDX-License-Identifier: Apache-2.0
"""Workers of test_jax_embedding.py: python jax_row_cases.py CASE. What they find, they print as JSON."""

import hashlib
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import poseidon
import poseidon.jax as psd

IDS, WIDTH, STEPS, BATCH = 60, 4, 10, 8
BIG = 2**40


def tell(**found):
    print("FOUND " + json.dumps(found), flush=True)


def attempt(function, *arguments, **options):
    try:
        return f"no error: {jax.block_until_ready(function(*arguments, **options))!r}"
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {error}"


def batch(step, ranks):
    draws = [np.random.default_rng([step, rank]) for rank in ranks]
    words = np.concatenate([draw.integers(0, IDS, (2, BATCH, 3)) for draw in draws], 1)
    return words, jnp.asarray(np.concatenate([draw.random(BATCH, np.float32) for draw in draws]))


def loss_of(look, params, words, wanted):
    """Rows twice, and a dense part behind them."""
    first, last = look(params, words[0]).sum(1), jnp.tanh(look(params, words[1]).sum(1))
    return ((jnp.concatenate([first, last], 1) @ params["top"] - wanted) ** 2).mean()


def reference(begun, top, size):
    """One process with the batches of all, and a dense table."""
    params = {"rows": jnp.asarray(begun), "top": top}
    gradient = jax.jit(jax.grad(lambda *given: loss_of(lambda params, ids: params["rows"][ids], *given)))
    for step in range(STEPS):
        words, wanted = batch(step, range(size))
        params = jax.tree.map(lambda value, change: value - 0.3 * change, params, gradient(params, words, wanted))
    return params


def train(way, layer, params, optimizer):
    """A step as one program, or only its gradient, or none of it."""

    def gradients_of(params, words, wanted):
        return jax.value_and_grad(lambda params: loss_of(lambda params, ids: layer(params["rows"], ids), params, words, wanted))(params)

    def step(params, state, words, wanted):
        _, gradients = gradients_of(params, words, wanted)
        updates, state = optimizer.update(gradients, state, params)
        layer.step()
        return optax.apply_updates(params, updates), state

    if way in ("program", "ahead"):
        step = jax.jit(step)
    elif way == "gradient":
        gradients_of = jax.jit(gradients_of)
    state = optimizer.init(params)
    batches = [batch(number, [poseidon.rank()]) for number in range(STEPS)]
    if way == "ahead":
        batches = psd.prefetched(batches, lambda pair: (layer.prefetch(pair[0][0] * BIG), {layer: pair[0][1] * BIG})[1])
    for number, (words, wanted) in enumerate(batches):
        params, state = step(params, state, words * BIG, wanted)
        if number % 3 == 0 and way != "ahead":
            layer(params["rows"], words * BIG)  # reads
    return jax.block_until_ready(params)


def equal():
    jax.config.update("jax_enable_x64", True)
    found = {}
    for way in ("program", "gradient", "eager", "ahead"):
        layer = psd.Embedding(way, WIDTH, rule="sgd", learning_rate=0.3, init="normal", init_value=0.5, seed=4)
        begun = np.asarray(layer(layer.init(), np.arange(IDS) * BIG))
        top = jax.random.normal(jax.random.key(1), (2 * WIDTH,), np.float32)
        asked, own = [], layer.table.lookup
        layer.table.lookup = lambda ids, *more, **how: (asked.append(ids), own(ids, *more, **how))[1]
        params = train(way, layer, {"rows": layer.init(), "top": top}, psd.distributed(optax.sgd(0.3)))
        ours, wanted = np.asarray(layer(layer.init(), np.arange(IDS) * BIG)), reference(begun, top, poseidon.size())
        path = f"{way}{poseidon.rank()}.npz"
        lookups = len(asked) - 1  # of what is told here
        assert layer.export(path, np.arange(IDS) * BIG) == IDS and np.array_equal(np.load(path)["values"], ours)
        found[way] = [max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in
                          ((ours, wanted["rows"]), (params["top"], wanted["top"]))),
                      float(np.linalg.norm(ours - begun) / np.linalg.norm(begun)), layer.table.step, float(params["rows"]), lookups,
                      hashlib.sha256(ours.tobytes() + np.asarray(params["top"]).tobytes()).hexdigest()]
    tell(**found)


def refusals():
    """What cannot work says so. Two workers make the same steps."""
    layer = psd.Embedding("e", 2, rule="add", reduce="sum")
    ids, parameter = jnp.array([[1, 1, 0]]), layer.init()
    loss = lambda parameter: (layer(parameter, ids) ** 2 + layer(parameter, ids)).sum()  # noqa: E731
    found = {}
    _, backward = jax.vjp(lambda parameter: layer(parameter, ids).sum(), parameter)
    layer.step()  # pushes no row
    found["stale"] = attempt(backward, jnp.float32(1))
    found["second"] = attempt(jax.grad(jax.grad(loss)), parameter)
    found["vmap"] = attempt(jax.vmap(lambda each: layer(parameter, each)), ids)
    found["remat"] = attempt(jax.grad(jax.checkpoint(loss)), parameter)
    layer.forget()
    found["floats"] = attempt(layer, parameter, np.ones(2))
    found["cut"] = attempt(layer, parameter, np.array([2**40]))
    found["again"] = attempt(psd.Embedding, "e", 2)
    found["backup"] = attempt(psd.Embedding, "b", 2, backup_workers=1)
    for _ in range(501):
        error = attempt(jax.grad(loss), parameter)
    found["unpushed"] = error
    layer.forget()
    jax.grad(loss)(parameter)
    layer.step()
    half = psd.Embedding("half", 2, dtype="bfloat16", rule="add", reduce="sum")
    jax.grad(lambda parameter: (1.5 * half(parameter, ids)).sum())(half.init())
    half.step()
    tell(rows=np.asarray(layer(parameter, [0, 1, 2])).tolist(), steps=layer.table.step, refused=found,
         half=np.asarray(half(half.init(), ids), np.float32).tolist(), empty=layer(parameter, np.zeros((0, 3), int)).shape)


def nothing_learnt():
    """A loop that forgets the step."""
    layer = psd.Embedding("e", 2)
    jax.block_until_ready(jax.grad(lambda parameter: layer(parameter, [1]).sum())(layer.init()))


if __name__ == "__main__":
    poseidon.init()
    globals()[sys.argv[1]](*sys.argv[2:])
