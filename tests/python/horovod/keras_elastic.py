"""Written for Horovod, in the shape of its elastic example for Keras: the import alone is another.

The model has one number for each sample, and its gradient is one at the places of the batch: what a step subtracts from the weights
says which samples were in it."""

import argparse
import hashlib
import os
import time

import keras
import numpy as np

import poseidon.tensorflow.keras as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=1203)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--hold", help="STEP:FILE: after that step it waits for the file")
args = parser.parse_args()
hold_step, hold_file = args.hold.split(":") if args.hold else (-1, "")


def say(*words):
    print(*words, flush=True)


hvd.init()
say("pid", os.getpid())
sampler = hvd.elastic.ElasticSampler(args.samples, batch_size=args.batch)
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Embedding(args.samples, 1), keras.layers.Flatten()])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
model.compile(loss=lambda right, given: given, optimizer=optimizer, metrics=["mae"])


def batches():
    for indices in sampler.batches():
        yield indices[:, None], np.zeros((len(indices), 1), np.float32)


class Count(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.before = self.model.get_weights()[0][:, 0]

    def on_train_batch_end(self, batch, logs=None):
        now = self.model.get_weights()[0][:, 0]
        taken, self.before = self.before - now, now
        there = taken > 1e-4
        assert np.allclose(taken[there], 1 / there.sum(), rtol=1e-2), taken[there]
        assert np.allclose(taken[~there], 0)
        state.seen = state.seen + there
        state.step += 1
        if state.step == int(hold_step):
            say("holding")
            while not os.path.exists(hold_file):
                time.sleep(0.01)


@hvd.elastic.run
def train(state):
    say("begin", "epoch", state.epoch, "step", state.step, "worker", hvd.rank(), "of", hvd.size())
    while state.epoch < args.epochs:
        sampler.set_epoch(state.epoch)
        model.fit(batches(), epochs=1, verbose=0, callbacks=callbacks)
        assert (state.seen == state.epoch).all(), state.seen[state.seen != state.epoch]
        say("epoch", state.epoch, "every sample counted", state.seen.max(), "times")


state = hvd.elastic.KerasState(model, sampler=sampler, epoch=0, batch=0, step=0, seen=np.zeros(args.samples, np.int64))
callbacks = [Count(), hvd.callbacks.MetricAverageCallback(), hvd.elastic.CommitStateCallback(state),
             hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state)]
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
train(state)
digest = hashlib.sha256(model.get_weights()[0].tobytes()).hexdigest()[:16]
say("DONE", "step", state.step, "weights", digest, "score", hvd.allreduce(1.0, op=hvd.Sum), hvd.broadcast_object({"epoch": state.epoch}))
say("resets", resets)
hvd.shutdown()
