"""Written for Horovod, in the style of its Keras examples: the import alone is another. Each way of
training ends where one process ends that takes both workers' batches at once."""

import json
import os

import keras
import numpy as np
import tensorflow as tf

import poseidon.keras
import poseidon.tensorflow.keras as hvd

EPOCHS, BATCH, RATE = 4, 4, 0.05

hvd.init()
keras.config.set_floatx("float64")
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def images():
    numbers = np.random.default_rng(5)
    return numbers.normal(size=(32, 6, 6, 1)), numbers.integers(4, size=32)


def make_model(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([
        keras.layers.Input((6, 6, 1)), keras.layers.Conv2D(3, 3, activation="relu"),
        keras.layers.Flatten(), keras.layers.Dense(4)])


def batches(size, rank=0, workers=1):
    """Of each step, the part of a worker."""
    x, y = images()
    whole = tf.data.Dataset.from_tensor_slices((x, y)).batch(size * workers)
    return whole.map(lambda some, right: (some[rank * size:(rank + 1) * size],
                                          right[rank * size:(rank + 1) * size]))


def schedule(initial):
    """Warm-up, then a staircase, then a slope."""
    return [
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=initial, warmup_epochs=1, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(initial, multiplier=1.0, start_epoch=1, end_epoch=2),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=initial, multiplier=1e-1, start_epoch=2,
                                                   end_epoch=3),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=initial, start_epoch=3, staircase=False,
                                                   multiplier=lambda epoch: 0.1 ** (epoch - 2))]


class Rates(keras.callbacks.Callback):
    """What the rate was in each step."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append(float(self.model.optimizer.learning_rate))


def distributed(**options):
    model = make_model(100 + hvd.rank())  # only rank 0's weights count
    optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, **options)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer,
                  metrics=["accuracy"])
    rates = Rates()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
                 hvd.callbacks.MetricAverageCallback(), *schedule(RATE * hvd.size()), rates]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint("checkpoint-{epoch}.keras"))
    history = model.fit(batches(BATCH, hvd.rank(), hvd.size()), epochs=EPOCHS, callbacks=callbacks,
                        verbose=1 if hvd.rank() == 0 else 0)
    return model, rates.found, history.history


def alone(rates, factor=1.0, passes=1):
    """The same by one process, with Keras alone, and the rates that the other had."""
    model = make_model(100)
    optimizer = keras.optimizers.SGD(
        RATE, momentum=0.9, gradient_accumulation_steps=passes if passes > 1 else None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=lambda right, given: factor * loss(right, given), optimizer=optimizer)
    step = iter(rates)
    set_rate = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: setattr(
        model.optimizer, "learning_rate", next(step)))
    model.fit(batches(BATCH * hvd.size()), epochs=EPOCHS, verbose=0, callbacks=[set_rate])
    return model


def distance(model, other):
    pairs = list(zip(model.get_weights(), other.get_weights()))
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in pairs) / sum((b ** 2).sum() for _, b in pairs)))


def attempt(function):
    try:
        return f"no error: {function()!r}"
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {error}"


def resume():
    """Rank 0 loads the last checkpoint, the others get its weights."""
    begin = 0
    for epoch in range(EPOCHS, 0, -1):
        if os.path.exists(f"checkpoint-{epoch}.keras") and hvd.rank() == 0:
            begin = epoch
            break
    begin = hvd.broadcast(begin, 0, name="resume_from_epoch")
    if begin > 0 and hvd.rank() == 0:
        model = hvd.load_model(f"checkpoint-{begin}.keras", compression=hvd.Compression.none)
    else:
        model = make_model(7)
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(RATE, momentum=0.9)))
    before = model.get_weights()[0].sum()
    model.fit(batches(BATCH, hvd.rank(), hvd.size()), epochs=begin + 1, initial_epoch=begin, verbose=0,
              callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    score = hvd.allreduce([1.0 + hvd.rank(), 2.0], name="score")
    return {"begin": begin, "before": float(before), "score": list(map(float, score)),
            "weights": [float(each.sum()) for each in model.get_weights()]}


found = {}
model, found["rates"], history = distributed()
found["plain"] = distance(model, alone(found["rates"]))
found["history"] = {name: list(map(float, values)) for name, values in history.items()}
found["resumed"] = resume()
model, rates, _ = distributed(op=hvd.Sum)
found["sum"] = distance(model, alone(rates, factor=hvd.size()))
model, rates, _ = distributed(backward_passes_per_step=2, average_aggregated_gradients=True)
found["averaged passes"] = distance(model, alone(rates, passes=2))
model, rates, _ = distributed(backward_passes_per_step=2)
found["passes"] = distance(model, alone(rates, factor=2, passes=2))
model, rates, _ = distributed(compression=hvd.Compression.fp16, gradient_predivide_factor=2.0)
found["half"] = distance(model, alone(rates))
found["weights"] = [float(each.sum()) for each in model.get_weights()]
found["operations"] = {
    "mean": hvd.allreduce(1.0 + hvd.rank(), average=True), "sum": hvd.allreduce(3, op=hvd.Sum),
    "gathered": hvd.allgather(np.full((hvd.rank() + 1, 1), hvd.rank())).tolist(),
    "place": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.is_initialized()],
    "built": [hvd.nccl_built(), hvd.mpi_built(), hvd.gloo_built(), hvd.mpi_threads_supported()],
    "same": poseidon.keras.callbacks.BroadcastGlobalVariablesCallback is
            hvd.callbacks.BroadcastGlobalVariablesCallback}
found["refusals"] = {
    "adasum": attempt(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum)),
    "set": attempt(lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), process_set=[0])),
    "variables": attempt(lambda: hvd.broadcast_global_variables(0))}
print("FOUND " + json.dumps(found), flush=True)
hvd.shutdown()
