#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs a job that a server comes, and leaves again: its longest step, beside those of the same job left alone.

    bench/scaling.py [--mib 256] [--seconds 12] [--pairs 3] [--rate 256] [--directory DIR]

Two workers, one server, one table with momentum. Each pair is a job whose servers stay and one to which `psd_run scale`
adds a server after a third of the time, and which it leaves after two thirds. The bits must be those of the job left
alone, and no more than 1.2 / 2 of the bytes may move to the new server. Logs go to DIR (default: a new one below the
current one) and are removed."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = str(ROOT / "bin" / "psd_run")
START_S = 120

WORKER = """
import array, hashlib, json, sys, time
sys.path.insert(0, {tests!r})
import psdlib
context = psdlib.Context()
count = {count}
table = context.table("w", [count], rule=psdlib.MOMENTUM, rule_args={{"learning_rate": 0.5, "momentum": 0.9}},
                      init=psdlib.UNIFORM, init_value=1.0)
values = array.array("f", bytes(4)) * count
gradient = array.array("f", [0.001 * (context.rank + 1)]) * count
times, step = [], 0
open(f"ready{{context.rank}}", "w").close()
while step < {steps}:
    began = time.time()
    table.push_pull(step, gradient, values).wait()
    times.append((began, time.time()))
    step += 1
digest = hashlib.sha256(values).hexdigest()
json.dump({{"times": times, "digest": digest}}, open(f"steps{{context.rank}}.json", "w"))
context.close()
"""


def scale(title, servers):
    told = subprocess.run([RUN, "scale", title, "--servers", str(servers)], capture_output=True, text=True, timeout=60)
    if told.returncode != 0:
        sys.exit(f"psd_run scale --servers {servers}: {told.stderr}")


def wait(job, condition, what):
    until = time.monotonic() + START_S
    while not condition():
        if job.poll() is not None or time.monotonic() > until:
            job.kill()
            sys.exit(f"{what}: not in {START_S} s")
        time.sleep(0.05)


def run(args, directory, steps, moving):
    """The spans of the steps of worker 0, the digests of both, and what moved."""
    directory.mkdir()
    title = f"scaling-{uuid.uuid4().hex[:8]}"
    program = WORKER.format(tests=str(ROOT / "tests" / "cluster"), count=args.mib << 18, steps=steps)
    with open(directory / "output", "w", encoding="utf-8") as output:
        job = subprocess.Popen([RUN, "--name", title, "--workers", "2", "--servers", "1", "--max_servers", "2", "--lanes", "4",
                                "--move_mib_per_s", str(args.rate), "--page", "off", "--", sys.executable, "-c", program],
                               cwd=directory, stdout=output, stderr=output,
                               env=dict(os.environ, PSD_LIB=str(ROOT / "build" / "libpsd.so")))
        wait(job, (directory / "ready0").exists, "the first step")
        began = time.monotonic()
        if moving:
            for servers, after in ((2, args.seconds / 3), (1, 2 * args.seconds / 3)):
                wait(job, lambda after=after: time.monotonic() - began > after, "the time for the next change")
                scale(title, servers)
        code = job.wait(10 * args.seconds + START_S)
    if code != 0:
        sys.exit(f"the job failed ({code}): {(directory / 'output').read_text()[-1500:]}")
    told = [json.loads((directory / f"steps{rank}.json").read_text()) for rank in range(2)]
    result = json.loads(next(directory.rglob("result.json")).read_text())
    return told[0]["times"], [worker["digest"] for worker in told], result.get("moves", [])


def say(name, times):
    spans = [end - begin for begin, end in times]
    print(f"{name}: {len(spans)} steps, median {1000 * statistics.median(spans):.1f} ms, "
          f"longest {1000 * max(spans):.1f} ms, in all {times[-1][1] - times[0][0]:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=12, help="about, of each job")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rate", type=int, default=256, help="move_mib_per_s")
    parser.add_argument("--directory")
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="scaling-", dir=args.directory or ".")).resolve()
    try:
        times, _, _ = run(args, work / "trial", 10, False)
        steps = max(30, int(args.seconds / statistics.median(end - begin for begin, end in times)))
        for pair in range(args.pairs):
            digests = set()
            for moving in ((False, True) if pair % 2 == 0 else (True, False)):
                times, told, moves = run(args, work / f"{pair}{moving:d}", steps, moving)
                digests.update(told)
                say(f"pair {pair + 1}, " + ("a server comes and leaves" if moving else "servers stay"), times)
                if moving:
                    came = sum(move["bytes"] for move in moves if move["to"] == "server1")
                    gone = sum(move["bytes"] for move in moves) - came
                    took = max(move["at"] for move in moves) - min(move["at"] for move in moves) if moves else 0
                    print(f"  {came / 2**20:.1f} MiB of {args.mib} came to the new server (at most {args.mib * 0.6:.1f}), "
                          f"{gone / 2**20:.1f} went back; {len(moves)} places, first to last {took:.1f} s", flush=True)
                    if not 0 < came <= 0.6 * args.mib * 2**20 or came != gone:
                        sys.exit("more moved than may, or nothing, or not all went back")
            if len(digests) != 1:
                sys.exit(f"other bits: {digests}")
        print("the same bits in all jobs of a pair")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
