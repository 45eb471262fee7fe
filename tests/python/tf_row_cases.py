# SPDX-License-Identifier: Apache-2.0
"""Workers of test_tensorflow_embedding.py: python tf_row_cases.py CASE. What they find, they print as JSON."""

import hashlib
import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

import poseidon
import poseidon.tensorflow as psd

IDS, WIDTH, STEPS, BATCH = 60, 4, 8, 8
BIG = 2**40  # ids that float32 and int32 cannot hold


def tell(**found):
    print("FOUND " + json.dumps(found), flush=True)


def attempt(function, *arguments, **options):
    try:
        return f"no error: {function(*arguments, **options)!r}"
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {error}"


def model_of(words, goods, spread):
    """Words twice, through one layer; goods once. Rows go through a dense part."""
    first, last, good = (keras.Input([3], dtype="int64") for _ in range(3))
    keras.utils.set_random_seed(3)
    parts = [keras.ops.sum(words(first * spread), 1), keras.ops.tanh(keras.ops.sum(words(last * spread), 1)),
             keras.ops.mean(goods(good * spread), 1)]
    return keras.Model([first, last, good], keras.layers.Dense(1)(keras.layers.concatenate(parts)))


def layers(name):
    how = dict(rule="sgd", learning_rate=0.5, init="normal", init_value=0.5, seed=4)
    return psd.Embedding(f"{name}/words", WIDTH, **how), psd.Embedding(f"{name}/goods", WIDTH, **how)


def data_of(ranks):
    """Each rank's part of every batch."""
    draws = [np.random.default_rng(rank) for rank in ranks]
    x = [np.concatenate([draw.integers(0, IDS, (STEPS, BATCH, 3)) for draw in draws], 1).reshape(-1, 3) for _ in range(3)]
    y = np.concatenate([draw.random((STEPS, BATCH, 1)).astype("float32") for draw in draws], 1).reshape(-1, 1)
    return x, y


def rows_of(layer):
    return layer.table.lookup(np.arange(IDS) * BIG).wait()


def apart(ours, wanted):
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(ours, wanted))


def reference(begun, size):
    """One process with the batches of all."""
    own = [keras.layers.Embedding(IDS, WIDTH) for _ in begun]
    model = model_of(*own, 1)
    for layer, values in zip(own, begun):
        layer.set_weights([values])
    model.compile(keras.optimizers.SGD(0.5), "mse")
    x, y = data_of(range(size))
    model.fit(x, y, batch_size=size * BATCH, epochs=2, shuffle=False, verbose=0)
    return [*(layer.get_weights()[0] for layer in own), *model.layers[-1].get_weights()]


def by_fit(model, x, y):
    model.compile(psd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[psd.BroadcastCallback()],
              validation_data=([part[:BATCH] for part in x], y[:BATCH]))
    model.predict([part[:BATCH] for part in x], verbose=0)


def by_fit_ahead(model, x, y):
    """The rows of each batch come with the push before it."""
    words, goods = (next(each for each in model.layers if getattr(each, "table", None) and each.table.name.endswith(kind))
                    for kind in ("words", "goods"))

    def batches():
        for begin in [*range(0, len(y), BATCH)] * 2:
            yield tuple(part[begin:begin + BATCH] for part in x), y[begin:begin + BATCH]

    def ids_of(batch):
        first, last, good = (part * BIG for part in batch[0])
        words.prefetch(first)
        return {words: last, goods: good}

    model.compile(psd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse")
    model.fit(psd.prefetched(batches(), ids_of), steps_per_epoch=STEPS, epochs=2, verbose=0)


def by_several_steps(model, x, y):
    """In one function."""
    model.compile(psd.DistributedOptimizer(keras.optimizers.SGD(0.5)), "mse", steps_per_execution=4)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)


def by_tape(model, x, y, in_graph=False):
    optimizer = keras.optimizers.SGD(0.5)

    def step(parts, wanted):
        with psd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(parts, training=True) - wanted) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)

    step = tf.function(step) if in_graph else step
    for begin in [*range(0, len(y), BATCH)] * 2:
        step([tf.constant(part[begin:begin + BATCH]) for part in x], tf.constant(y[begin:begin + BATCH]))
        model([part[:BATCH] for part in x])  # reads


def by_function(model, x, y):
    by_tape(model, x, y, in_graph=True)


def equal():
    """Every way to train against one process with the batches of all workers."""
    psd.init()
    found = {}
    for way in (by_fit, by_fit_ahead, by_several_steps, by_tape, by_function):
        words, goods = layers(way.__name__)
        begun = [rows_of(words), rows_of(goods)]
        model = model_of(words, goods, BIG)
        wanted = reference(begun, psd.size())
        asked, own = [], words.table.lookup
        words.table.lookup = lambda ids, *more, **how: (asked.append(ids), own(ids, *more, **how))[1]
        way(model, *data_of([psd.rank()]))
        lookups = len(asked)
        ours = [rows_of(words), rows_of(goods), *model.layers[-1].get_weights()]
        path = f"{way.__name__}{psd.rank()}.npz"
        assert words.export(path, np.arange(IDS) * BIG) == IDS and np.array_equal(np.load(path)["values"], ours[0])
        found[way.__name__] = [apart(ours, wanted), apart(ours[:2], begun), words.table.step, goods.table.step, lookups,
                               hashlib.sha256(b"".join(part.tobytes() for part in ours)).hexdigest()]
    tell(**found)


def operations():
    """lookup and push_rows, without Keras."""
    psd.init()
    table = poseidon.SparseTable("rows", 2, rule="sgd", learning_rate=1)
    halves = poseidon.SparseTable("halves", 2, dtype="bfloat16", rule="add", reduce="sum")

    @tf.function
    def step(ids):
        before = psd.lookup(table, ids)
        with tf.GradientTape() as tape:
            tape.watch(before)
            loss = tf.reduce_sum(before + 1.0)
        psd.push_rows(table, ids, tape.gradient(loss, before))
        return before, psd.lookup(table, ids)

    before, after = step(tf.constant([[5, 5], [BIG + psd.rank(), 7]], tf.int64))
    psd.push_rows(halves, tf.constant([2**64 - 1], tf.uint64), [[1.5, 2.0]])
    psd.push_rows(table, tf.zeros([0], tf.int32), tf.zeros([0, 2]))
    tell(before=before.numpy().tolist(), after=after.numpy().tolist(), steps=table.step,
         shape=psd.lookup(table, tf.zeros([0, 3], tf.int32)).shape.as_list(),
         half=tf.cast(psd.lookup(halves, [-1]), tf.float32).numpy().tolist(), empty=psd.lookup(table, [[9]]).numpy().tolist())


def alone(layer):
    return keras.Sequential([keras.Input([3], dtype="int64"), layer])


def refusals():
    """What cannot work says so; and what is saved. Two workers make the same steps."""
    psd.init()
    layer = psd.Embedding("e", 2, mask_zero=True, rule="add", reduce="sum", init="constant", init_value=1.0)
    ids, weights = tf.constant([[1, 1, 0]]), layer.trainable_weights

    def backward(optimizer=None):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(layer(ids))
        gradients = tape.gradient(loss, weights)
        if optimizer is not None:
            optimizer.apply(gradients, weights)
        return lambda: tape.gradient(loss, weights)

    def second():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(ids) ** 2)
            inner = tape.gradient(loss, weights)[0]
        return outer.gradient(inner, weights)

    found = {}
    again = backward()
    layer.forget()
    layer.step()  # pushes no row
    found["stale"] = attempt(again)
    found["second"] = attempt(second)
    layer.forget()
    found["accumulated"] = attempt(backward, keras.optimizers.SGD(gradient_accumulation_steps=2))
    found["scaled"] = attempt(backward, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    found["factor"] = attempt(backward, keras.optimizers.SGD(loss_scale_factor=2.0))
    layer.forget()
    found["float16"] = attempt(psd.Embedding, "h", 2, dtype="mixed_float16")
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        found["strategy"] = attempt(psd.Embedding, "m", 2)
    found["floats"] = attempt(layer, tf.constant([[1.5]]))
    found["again"] = attempt(psd.Embedding, "e", 2)
    found["copied"] = attempt(type(layer).from_config, layer.get_config())
    found["backup"] = attempt(psd.Embedding, "b", 2, backup_workers=1)
    found["compiled"] = attempt(tf.function(lambda: layer(ids), jit_compile=True))
    for _ in range(1001):
        error = attempt(backward)
    found["unpushed"] = error
    layer.forget()
    backward(keras.optimizers.Adam(0.1))
    rows = psd.lookup(layer.table, [0, 1, 2]).numpy().tolist()
    other = psd.Embedding("other", 2)
    files = [f"{name}{psd.rank()}.weights.h5" for name in ("e", "other")]
    for path, each in zip(files, (layer, other)):
        alone(each).save_weights(path)
    alone(layer).load_weights(files[0])
    found["loaded"] = attempt(alone(layer).load_weights, files[1])
    tell(rows=rows, anchor=float(weights[0]), steps=layer.table.step, mask=layer.compute_mask(ids).numpy().tolist(),
         half=psd.Embedding("b16", 2, row_dtype="bfloat16", dtype="mixed_bfloat16")(ids).dtype.name,
         files=[os.path.getsize(path) > 0 for path in files], refused=found)


def nothing_learnt():
    """A loop that forgets the optimizer."""
    psd.init()
    layer = psd.Embedding("e", 2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[1]])))
    tape.gradient(loss, layer.trainable_weights)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
