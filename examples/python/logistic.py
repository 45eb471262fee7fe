# SPDX-License-Identifier: Apache-2.0
"""Logistic regression with NumPy: the servers hold the weights and apply the update rule.

    psd_run --workers 2 --servers 1 "python examples/python/logistic.py"

Every worker has its share of the samples, computes a gradient, gives it (push) and gets the new
weights (pull). All workers print the same digest: they end with the same bits.

Workers may come and go (docs/elastic.md): who shares the samples is asked for in every step, and SIGTERM lets this one leave
between two steps."""

import argparse
import hashlib
import signal
import threading

import numpy as np

import poseidon


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--rule", default="momentum", help="sgd, momentum, adam, ...")
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--save", help="directory for the weights")
    return parser.parse_args()


def make_samples(count, features):
    """Points on both sides of a plane, the same on every worker; a few are on the wrong side."""
    random = np.random.default_rng(7)
    plane = random.standard_normal(features)
    points = random.standard_normal((count, features)).astype(np.float32)
    sides = points @ plane + 0.5 * random.standard_normal(count) > 0
    return np.hstack([points, np.ones((count, 1), np.float32)]), sides.astype(np.float32)


def predict(points, weights):
    return 1 / (1 + np.exp(-(points @ weights)))


def loss_and_gradient(points, sides, weights, gradient):
    """The mean cross-entropy; its gradient goes into memory that the server reads in place."""
    chance = predict(points, weights)
    np.divide(points.T @ (chance - sides), len(sides), out=gradient)
    likely = np.where(sides > 0, chance, 1 - chance)
    return float(-np.mean(np.log(np.maximum(likely, 1e-7))))


def main():
    args = parse()
    points, sides = make_samples(args.samples, args.features)
    with poseidon.init() as job:
        asked_to_leave = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: asked_to_leave.set())
        table = poseidon.Table("weights", args.features + 1, rule=args.rule,
                               learning_rate=args.learning_rate)
        gradient = poseidon.alloc(table.shape)
        weights = table.pull().wait()
        loss = float("nan")  # without a step
        for step in range(table.step, args.steps):
            if asked_to_leave.is_set():
                print(f"leaves before step {step}, as it was asked to")
                return
            here = job.members(step)
            mine = slice(here.index, None, here.count)
            loss = loss_and_gradient(points[mine], sides[mine], weights, gradient)
            table.push_pull(gradient, weights).wait()
            job.report(step, "loss", loss)
        if args.save and job.rank == 0:
            job.save(args.save)
        accuracy = np.mean((predict(points, weights) > 0.5) == (sides > 0.5))
        digest = hashlib.sha256(weights).hexdigest()[:16]
        print(f"loss {loss:.4f}  accuracy {accuracy:.4f}  weights {digest}")


if __name__ == "__main__":
    main()
