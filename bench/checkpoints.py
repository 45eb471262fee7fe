#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint costs: the steps of a job while one is written, beside the same job's steps without.

    bench/checkpoints.py [--mib 1024] [--seconds 60] [--pairs 2] [--every 60s] [--alone] [--directory DIR]

One worker, one server, one table of sgd of which every chunk changes in every step. Each pair is a job without
checkpoints and one with; the order changes from pair to pair. Steps count as "during" that overlap a checkpoint,
from the master's begin to its commit. What a checkpoint takes from training is the time by which these steps are longer
than the median of the others in the same job. The files go to DIR (default: a new one below the current one) and are removed.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

WORKER = """
import array, json, sys, time
sys.path.insert(0, {tests!r})
import psdlib
context = psdlib.Context()
count = {count}
table = context.table("w", [count], rule=psdlib.SGD, rule_args={{"learning_rate": 0.5}}, init=psdlib.UNIFORM, init_value=1.0)
values = array.array("f", bytes(4)) * count
gradient = array.array("f", [0.001]) * count
ends = []
until = time.time() + {seconds}
step = 0
while time.time() < until:
    table.push_pull(step, gradient, values).wait()
    ends.append(time.time())
    step += 1
json.dump(ends, open("steps.json", "w"))
context.close()
"""


def threads_of_server(above):
    """CPU seconds of the server's threads, in the order of their start: (in user code, in the system). The server is a descendant of
    `above`. The thread that writes checkpoints is the last."""
    parents, servers = {}, []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text()
        except OSError:
            continue
        parents[pid] = int(rest.rsplit(") ", 1)[1].split()[1])
        if "(ps_server)" in rest:
            servers.append(pid)
    times = []
    for pid in servers:
        at = pid
        while at in parents and at != above:
            at = parents[at]
        for stat in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*/stat"), key=lambda path: int(path.parent.name)) if at == above else ():
            try:
                rest = stat.read_text()
            except OSError:
                continue
            fields = rest.rsplit(") ", 1)[1].split()
            tick = os.sysconf("SC_CLK_TCK")
            times.append((int(fields[11]) / tick, int(fields[12]) / tick))
    return times


def checkpoints_of(log):
    """(begin, end) of each, in seconds since the epoch, by the master's log."""
    spans = []
    for line in log.splitlines():
        found = re.search(r"CHECKPOINT .*is saved.* in (\d+) ms", line)
        if found:
            stamp = re.search(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d\.\d+)", line)
            end = float(re.search(r"^(\d+\.\d+)", line).group(1)) if stamp is None else \
                time.mktime(time.strptime(f"{stamp.group(1)} {stamp.group(2)[:8]}", "%Y-%m-%d %H:%M:%S")) + float(stamp.group(2)[8:])
            spans.append((end - int(found.group(1)) / 1000, end))
    return spans


def costs_of(logs):
    """Milliseconds of a processor of all checkpoints, by part, as the servers tell them."""
    found = re.findall(r"CHECKPOINT-COST .* copies took (\d+), .* room for the copies took (\d+), checksums (\d+), writing (\d+)", logs)
    return [sum(map(int, column)) for column in zip(*found)] if found else [0, 0, 0, 0]


def run(args, directory, checkpointed):
    directory.mkdir()
    program = WORKER.format(tests=str(ROOT / "tests" / "cluster"), count=args.mib * (1 << 18), seconds=args.seconds)
    options = ["--checkpoint", str(directory / "saved"), "--checkpoint_every", args.every] if checkpointed else []
    before = os.getloadavg()[0]
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = dict(os.environ, PSD_LIB=str(ROOT / "build" / "libpsd.so"))
    threads = []
    with open(directory / "output", "w", encoding="utf-8") as output:
        job = subprocess.Popen([str(ROOT / "bin" / "psd_run"), "--workers", "1", "--servers", "1", "--lanes", "1", "--page", "off",
                                *options, "--", sys.executable, "-c", program], cwd=directory, stdout=output, stderr=output,
                               env=environment)
        until = time.monotonic() + args.seconds + 240
        while job.poll() is None:
            sample = threads_of_server(job.pid)
            threads = sample if len(sample) >= len(threads) else threads  # some end before others
            if time.monotonic() > until:
                job.terminate()
                sys.exit("the job did not end")
            time.sleep(0.5)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if job.returncode != 0:
        sys.exit(f"the job failed ({job.returncode}): {(directory / 'output').read_text()[-1500:]}")
    ends = json.loads((directory / "steps.json").read_text())
    logs = "".join(path.read_text() for path in directory.rglob("master.log"))
    costs = costs_of("".join(path.read_text() for path in directory.rglob("server0.log")))
    steps = [(a, b) for a, b in zip(ends, ends[1:])]
    spans = checkpoints_of(logs) if checkpointed else []
    shutil.rmtree(directory / "saved", ignore_errors=True)
    return {"steps": steps, "spans": spans, "load": (before, os.getloadavg()[0]),
            "threads": threads, "costs": costs, "cpu": used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--every", default="60s")
    parser.add_argument("--alone", action="store_true", help="no jobs without checkpoints")
    parser.add_argument("--directory")
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="checkpoints-", dir=args.directory or "."))
    without, during, cost, taken, rates = [], [], [], [], {False: [], True: []}
    try:
        for pair in range(args.pairs):
            for checkpointed in (True,) if args.alone else (False, True) if pair % 2 == 0 else (True, False):
                told = run(args, work.resolve() / f"{pair}{checkpointed:d}", checkpointed)
                times = [b - a for a, b in told["steps"]]
                hit = [any(a < end and b > begin for begin, end in told["spans"]) for a, b in told["steps"]]
                during += [t for t, is_hit in zip(times, hit) if is_hit]
                without += [t for t, is_hit in zip(times, hit) if not is_hit]
                if checkpointed and told["spans"]:
                    cost.append(dict(told, gigabytes=len(told["spans"]) * args.mib / 953.67))
                    usual = statistics.median([t for t, is_hit in zip(times, hit) if not is_hit])
                    taken.append(sum(t - usual for t, is_hit in zip(times, hit) if is_hit) / len(told["spans"]))
                rates[checkpointed].append(len(times) / sum(times))
                print(f"pair {pair + 1}, {'with' if checkpointed else 'without'}: {len(times)} steps, "
                      f"median {1000 * statistics.median(times):.0f} ms, longest {1000 * max(times):.0f} ms, "
                      f"{len(told['spans'])} checkpoints of {', '.join(f'{end - begin:.1f} s' for begin, end in told['spans']) or '-'}, "
                      f"{sum(hit)} steps during them, "
                      f"{told['cpu']:.1f} CPU seconds, load {told['load'][0]:.0f} to {told['load'][1]:.0f}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if cost:
        gigabytes = sum(told["gigabytes"] for told in cost)
        copies, room, checks, writes = (sum(told["costs"][part] for told in cost) / 1000 / gigabytes for part in range(4))
        lanes = ", ".join(f"{user:.1f} + {system:.1f}" for user, system in cost[-1]["threads"])
        print(f"CPU seconds per GB of {gigabytes:.1f} GB: copies {copies:.2f}, in the lane; beside it room for them {room:.2f}, "
              f"checksums {checks:.2f}, writes {writes:.2f}; seconds of all threads of the server in the last job (user code + system): {lanes}")
    if during:
        print(f"steps: without {1000 * statistics.median(without):.0f} ms, during a checkpoint {1000 * statistics.median(during):.0f} ms "
              f"({statistics.median(during) / statistics.median(without):.2f} times), "
              f"longest {1000 * max(without):.0f} and {1000 * max(during):.0f} ms")
    if taken:
        print(f"a checkpoint takes {statistics.mean(taken):.2f} s from training: {100 * statistics.mean(taken) / 60:.1f} % with one every 60 s")
    if args.alone:
        return
    print(f"steps per second: without {statistics.mean(rates[False]):.3f}, with {statistics.mean(rates[True]):.3f} "
          f"({100 * (1 - statistics.mean(rates[True]) / statistics.mean(rates[False])):.1f} % fewer)")


if __name__ == "__main__":
    main()
