#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a copy costs the servers of one host: jobs with copies and jobs without, in turns.

    bench/copies.py [--programs build] [--before TREE/build] [--mib 4] [--workers 2] [--steps 4000] [--pairs 10] [--rule sgd]

Two servers of one lane each, gradients and values in shared memory. Printed for each kind of job are medians over all
jobs of it: the time of a step, the processor time of both servers and of the workers in it, and how often threads of the
servers sleep and are pushed off their core. Processor time depends less on what else the machine does than the clock.
Beside them, in the same turns, runs what has to be done at least (ceiling_copies.c; sgd alone). With --before, both kinds
of jobs are run with the programs of another build, too.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOB_S = 300  # one that takes longer has failed
WARM_STEPS = 300

WORKER = """
import array, json, os, pathlib, resource, sys, time
sys.path.insert(0, {tests!r})
import psdlib

NAN_ALLOW = 2


def threads_of_servers():
    '''Of all threads of this job's servers together: nanoseconds on a core, times it slept, times it was pushed off its core.'''
    sums = [0, 0, 0]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text() != "ps_server\\n" or (process / "cwd").resolve() != pathlib.Path.cwd():
                continue
            for task in (process / "task").iterdir():
                status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
                sums[0] += int((task / "schedstat").read_text().split()[0])
                sums[1] += int(status["voluntary_ctxt_switches"])
                sums[2] += int(status["nonvoluntary_ctxt_switches"])
        except OSError:
            pass
    return sums


context = psdlib.Context()
count = {count}
table = context.table("w", [count], rule={rule}, rule_args={{"learning_rate": 0.5}}, nan_policy=NAN_ALLOW)
gradient = context.alloc(4 * count)
gradient[:] = bytes(array.array("f", [0.25]) * count)
table.view()


def steps(first, last):
    for step in range(first, last):
        table.push_pull(step, gradient, None, flags=psdlib.VIEW).wait()


steps(0, {warm})
context.barrier()
before = threads_of_servers()
context.barrier()
began, cpu = time.monotonic(), time.process_time()
steps({warm}, {warm} + {steps})
seconds, cpu = time.monotonic() - began, time.process_time() - cpu
context.barrier()
after = threads_of_servers()
context.barrier()
told = [seconds, cpu] + [(b - a) for a, b in zip(before, after)]
json.dump(told, open("told.%d" % context.rank, "w"))
context.close()
"""

COLUMNS = ("step us", "servers' CPU us", "workers' CPU us", "servers' threads sleep", "... are pushed off")


def run(args, programs, copies):
    """One job: what COLUMNS say, for a step of it."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="copies-"))
    program = WORKER.format(tests=str(ROOT / "tests" / "cluster"), count=args.mib << 18, warm=WARM_STEPS, steps=args.steps,
                            rule=f"psdlib.{args.rule.upper()}")
    command = [str(programs / "psd_run"), "--workers", str(args.workers), "--servers", "2", "--lanes", "1", "--page", "off",
               "--replicas", str(int(copies)), "--", sys.executable, "-c", program]
    environment = dict(os.environ, PSD_LIB=str(programs / "libpsd.so"))
    job = subprocess.run(command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=JOB_S, check=False)
    if job.returncode != 0:
        sys.exit(f"the job failed ({job.returncode}): {job.stdout[-1500:]}")
    told = [json.loads(path.read_text()) for path in sorted(work.glob("told.*"))]
    shutil.rmtree(work)
    seconds = max(worker[0] for worker in told)
    workers = sum(worker[1] for worker in told)
    nanoseconds, sleeps, pushed = told[0][2:]
    return (1e6 * seconds / args.steps, nanoseconds / 1e3 / args.steps, 1e6 * workers / args.steps, sleeps / args.steps,
            pushed / args.steps)


def run_ceiling(args, copies):
    told = subprocess.run([str(args.programs / "bench" / "ceiling_copies"), str(args.mib), str(args.workers), str(args.steps),
                           str(int(copies))], stdout=subprocess.PIPE, timeout=JOB_S, check=True)
    return tuple(json.loads(told.stdout))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rule", choices=("sgd", "momentum", "adam"), default="sgd")
    args = parser.parse_args()
    builds = {"": args.programs} | ({"before: ": args.before} if args.before else {})
    names = [*builds, *(["ceiling: "] if args.rule == "sgd" else [])]
    kinds = [(name, copies) for name in names for copies in (False, True)]
    told = {kind: [] for kind in kinds}
    for pair in range(args.pairs):
        for name, copies in kinds if pair % 2 == 0 else reversed(kinds):
            told[name, copies].append(run(args, builds[name], copies) if name in builds else run_ceiling(args, copies))
    print(f"{'medians':24}" + "".join(f"{column:>24}" for column in COLUMNS))
    for name, copies in kinds:
        medians = [statistics.median(column) for column in zip(*told[name, copies])]
        print(f"{name + ('with a copy' if copies else 'without'):24}" + "".join(f"{value:24.1f}" for value in medians))
    for name in names:
        pairs = list(zip(told[name, False], told[name, True]))
        for column, of in (("step", lambda job: job[0]), ("processor time of all", lambda job: job[1] + job[2])):
            ratios = sorted(of(without) / of(with_) for without, with_ in pairs)
            print(f"{name}{column}, without / with: {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
    for index, column in enumerate(COLUMNS if args.before else ()):
        ratios = sorted(now[index] / before[index] for now, before in zip(told["", True], told["before: ", True]) if before[index])
        print(f"with a copy, {column}, now / before: {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
