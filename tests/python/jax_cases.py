# SPDX-License-Identifier: Apache-2.0
"""Workers of test_tensorflow.py that use JAX. What they find, they print as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

import poseidon
import poseidon.jax as psd


def tell(**found):
    print("FOUND " + json.dumps(found), flush=True)


def plain(tree):
    """As JSON has it."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).tolist(), tree)


def trees():
    """Nested ones, of several types, with leaves that are empty or no arrays; values and traced."""
    rank = poseidon.rank()
    tree = {"layers": [{"w": jnp.full((2, 2), float(rank))}, (jnp.float32(rank), 2.0 * rank)],
            "half": jnp.full(3, 1.5 + rank, jnp.bfloat16), "empty": jnp.zeros((0, 4)), "none": None}
    mean = psd.push_pull(tree)
    total = jax.jit(lambda given: psd.push_pull(given, reduce="sum"))(tree)
    again, _ = jax.lax.scan(lambda carry, _: (psd.push_pull(carry, "again") + 1, None),
                            jnp.full(2, float(rank)), None, length=3)
    sent = psd.broadcast({"int": jnp.arange(3) + 7 * rank, "truth": jnp.array([rank == 0]),
                          "bits": jnp.array([-0.0, jnp.nan, 1.0 + rank])})
    return dict(mean=plain(mean), total=plain(total), again=plain(again), int=plain(sent["int"]),
                half=str(mean["half"].dtype), truth=bool(sent["truth"][0]),
                bits=[bool(np.signbit(sent["bits"][0])), bool(np.isnan(sent["bits"][1])),
                      float(sent["bits"][2])])


def packed():
    """A tree of small and large leaves of two types, and each of them by itself: whose bits are the same, and the tables."""
    random = np.random.default_rng(poseidon.rank())
    sizes = [(3,), (200, 7), (20000,), (), (64, 300), (5, 5), (150000,), (0, 2), *[(1024,)] * 400]
    tree = [jnp.asarray(random.standard_normal(size, np.float32), jnp.bfloat16 if number % 5 == 4 else jnp.float32)
            for number, size in enumerate(sizes)]
    together = psd.push_pull(tree, "together")
    again = jax.jit(lambda given: psd.push_pull(given, "together"))(together)
    apart = [psd.push_pull(leaf, f"apart{number}") for number, leaf in enumerate(tree)]
    same = [one.shape == other.shape and one.dtype == other.dtype and np.asarray(one).tobytes() == np.asarray(other).tobytes()
            for one, other in zip([*together, *again], [*apart, *apart])]  # the mean of means is the mean
    tables = [name for name in poseidon.context()._tables if name.startswith("jax.together")]
    return dict(different=[number for number, good in enumerate(same) if not good], tables=tables,
                fewer=attempt(psd.push_pull, tree[1:], "together"))


def attempt(function, *arguments):
    """What it says when it fails."""
    try:
        return f"no error: {function(*arguments)!r}"
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {error}"


def optimizer():
    """optax: the mean comes before everything that the wrapped chain does."""
    chain = psd.distributed(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)))
    params = {"w": jnp.zeros(2)}
    state = chain.init(params)
    mine = jnp.array([8.0, 0.0]) if poseidon.rank() == 0 else jnp.array([0.0, 6.0])
    for update in (chain.update, jax.jit(chain.update)):
        updates, state = update({"w": mine}, state, params)
        params = optax.apply_updates(params, updates)
    return plain(params["w"])


def refusals():
    """What cannot be done says why. Closes the context."""
    psd.push_pull(jnp.ones(3), "named")
    found = {"integers": attempt(psd.push_pull, jnp.arange(3)),
             "shapes": attempt(psd.push_pull, jnp.ones(4), "named")}
    poseidon.close()
    return {**found, "closed": attempt(psd.push_pull, jnp.ones(3), "named")}


if __name__ == "__main__":
    poseidon.init()
    tell(trees=trees(), packed=packed(), optimizer=optimizer(), refusals=refusals())
