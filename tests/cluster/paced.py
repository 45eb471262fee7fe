# SPDX-License-Identifier: Apache-2.0
"""A worker that computes for a known time in each step, and reports a loss: for tests of those who watch.

    paced.py --ms 50 --steps 40 --slow 1          rank 1 computes twice as long as the others"""

import argparse
import array
import os
import sys
import time

import psdlib


def compute(ms):
    """As long as a model would, without its load: a busy machine changes little about it."""
    time.sleep(ms / 1000)


def hold(path):
    """Until somebody makes this file."""
    end = time.monotonic() + 120
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(f"nobody made {path} in 120 s")
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ms", type=float, default=50)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--slow", type=int, default=-1, help="rank that computes twice as long")
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--names", nargs="*", default=["loss"])
    parser.add_argument("--abandon", type=int, default=-1, help="rank that then leaves without a farewell")
    parser.add_argument("--mark", help="name under which the time that it computes is marked")
    parser.add_argument("--hold", help="after its steps it waits for this file")
    args = parser.parse_args()
    context = psdlib.Context()
    gradient = bytearray((array.array("f", [0.5]) * args.elements).tobytes())
    values = bytearray(len(gradient))
    table = context.table("weights", [args.elements], rule_args={"learning_rate": 0.1})
    for step in range(table.step(), args.steps):
        begun = time.monotonic_ns()
        compute(2 * args.ms if context.rank == args.slow else args.ms)
        if args.mark:
            context.mark(step, args.mark, begun, time.monotonic_ns())
        table.push_pull(step, gradient, values).wait()
        for name in args.names:
            context.report(step, name, 1 / (step + 1))
        print("step", step, flush=True)
    if context.rank == args.abandon:
        context.abandon()
        sys.exit(1)
    if args.hold:
        hold(args.hold)
    context.close()


if __name__ == "__main__":
    main()
