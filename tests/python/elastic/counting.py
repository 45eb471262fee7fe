# SPDX-License-Identifier: Apache-2.0
"""Counts in the sums which samples were in them. The gradient of sample i is one at place i, so the mean of a step of n samples
has 1/n at n places: whatever a sampler says, the sums tell what was in them, and how often.

    counting.py --samples N --batch B --epochs E [--hold STEP:FILE]

Before a step of --hold it says so, and waits until the file is there."""

import argparse
import os
import time

import numpy as np

import poseidon
from poseidon import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--commit-every", type=int, default=1)
parser.add_argument("--hold", action="append", default=[])
args = parser.parse_args()
holds = {int(step): path for step, path in (hold.split(":") for hold in args.hold)}


def say(*words):
    print(*words, flush=True)


@elastic.run
def train(state):
    say("begin", "epoch", state.epoch, "step", state.step, "worker", elastic.rank(), "of", elastic.size(),
        "members", elastic.members())
    while state.epoch < args.epochs:
        state.sampler.set_epoch(state.epoch)
        for batch in state.sampler.batches():
            if state.step in holds:
                say("holding", state.step)
                while not os.path.exists(holds[state.step]):
                    time.sleep(0.01)
            gradient = np.zeros(args.samples, np.float32)
            gradient[batch] = 1 / len(batch)
            time.sleep(args.pause)
            assert elastic.average([gradient])
            there = gradient != 0
            assert np.allclose(gradient[there], 1 / there.sum(), rtol=1e-6), gradient[there]
            assert there.sum() == elastic.samples(), (there.sum(), elastic.samples())
            state.seen[there] += 1
            state.weights -= gradient * np.float32(state.step + 1)
            state.step += 1
            if state.step % args.commit_every == 0:
                state.commit()
        say("epoch", state.epoch, "counted", state.seen.min(), state.seen.max())
        assert (state.seen == state.epoch + 1).all(), np.flatnonzero(state.seen != state.epoch + 1)
        state.epoch += 1


poseidon.init()
say("here", poseidon.rank())
elastic.use([np.zeros(args.samples, np.float32)])
state = elastic.State(sampler=elastic.ElasticSampler(args.samples, batch_size=args.batch, seed=3), epoch=0, step=0,
                      seen=np.zeros(args.samples, np.int64), weights=np.zeros(args.samples, np.float32))
train(state)
say("DONE", state.step, "weights", hash(state.weights.tobytes()), "seen", state.seen.sum())
poseidon.close()
