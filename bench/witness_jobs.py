#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many jobs of bench/witness_cost.py, on a machine that has nothing else to do.

    python bench/witness_jobs.py [--programs build] [--minutes 3] [--cores 4] [--at_once N] [width] [batch] [epochs] [device]

Jobs run side by side, each bound to cores of its own (two workers, a server, a master), one after the other until the time is
up. In each, epochs with the witness and without take turns. Printed are each job's figures as it ends, and of all of them the
median and the range.

Needed is a Python with torch, the programs psd_run, ps_server and ps_master and libpsd.so.0 in one directory beside python/ (a
build directory, or a copy of these four files), and what they are linked with: jansson, OpenSSL 3, libseccomp. Where a machine
has no compiler or headers they can be built elsewhere; LD_LIBRARY_PATH finds libraries that came along."""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
LINE = re.compile(r"(clock|processor|whole epochs) *: a step ([\d.]+) us, of which the witness (-?[\d.]+) us")
JOB_S = 300  # one that takes longer has failed


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, default=TREE / "build", help="directory of psd_run [build]")
    parser.add_argument("--minutes", type=float, default=3.0, help="no job begins later than this [3]")
    parser.add_argument("--cores", type=int, default=4, help="of each job [4]")
    parser.add_argument("--at_once", type=int, help="jobs side by side [so many that a quarter of the cores stays idle]")
    parser.add_argument("words", nargs="*", default=["256", "64", "400"], help="of witness_cost.py [256 64 400]")
    return parser.parse_args()


class Job:
    """One, on cores of its own."""

    def __init__(self, args, cores, directory):
        programs = args.programs.resolve()
        self.cores = cores
        place = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self._output = open(place / "output", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        environment = {**os.environ, "PSD_LIB": str(programs / "libpsd.so.0"), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(  # pylint: disable=consider-using-with
            [str(programs / "psd_run"), "--workers", "2", "--servers", "1", "--",
             sys.executable, str(TREE / "bench" / "witness_cost.py"), *args.words],
            cwd=place, env=environment, stdout=self._output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def figures(self):
        """Step and cost in microseconds, by what they are of."""
        try:
            code = self._process.wait(JOB_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._output.seek(0)
        text = self._output.read()
        self._output.close()
        found = {name: (float(step), float(cost)) for name, step, cost in LINE.findall(text)}
        if code != 0 or not found:
            sys.exit(f"a job on cores {self.cores} ended with code {code} after {JOB_S} s at most:\n{text[-4000:]}")
        return found, text


def main():
    args = parse()
    cores = sorted(os.sched_getaffinity(0))
    count = args.at_once or max(1, len(cores) * 3 // 4 // args.cores)
    if count * args.cores > len(cores):
        sys.exit(f"{count} jobs of {args.cores} cores each on {len(cores)} cores: they would disturb one another")
    print(f"{count} jobs at once, each on {args.cores} of {len(cores)} cores; load before: {os.getloadavg()[0]:.1f}", flush=True)
    results, last, deadline = [], "", time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory(prefix="psd_witness") as directory:
        took = 0.0
        while not results or time.monotonic() + took < deadline:
            begin = time.monotonic()
            jobs = [Job(args, cores[at * args.cores:(at + 1) * args.cores], directory) for at in range(count)]
            for job in jobs:
                found, last = job.figures()
                results.append(found)
                print(f"cores {job.cores[0]}-{job.cores[-1]}: " + "; ".join(
                    f"{name} {cost:.1f} of {step:.0f} us" for name, (step, cost) in found.items()), flush=True)
            took = time.monotonic() - begin
    print("\n".join(line.split("] ", 1)[-1] for line in last.splitlines() if line.startswith("[worker0]")))
    for name in results[0]:
        steps, costs = zip(*(each[name] for each in results))
        print(f"{name}, {len(results)} jobs: the witness costs {statistics.median(costs):.1f} us (from {min(costs):.1f} to "
              f"{max(costs):.1f}) of steps of {min(steps):.0f} to {max(steps):.0f} us")


if __name__ == "__main__":
    main()
