#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which share of the processor time of a step of a plain PyTorch script is Poseidon's: a profile.

    .venv-frameworks/bin/python bench/torch_share.py [--models language,resnet] [--seconds 10]

The models are those of torch_models.py, the jobs its "auto". perf samples worker 0 with the whole stack of each sample
(cpu-clock, so that a virtual machine will do). What counts as ours: everything below a call of libpsd, and everything
below a hook on a gradient and at the end of a backward, copies of PyTorch included; and the time of all processes of the job
that are no workers. What Python does for us elsewhere (the witness, loaders) cannot be told from the program's own Python in
a stack; witness_jobs.py measures it. Needs perf, and rights to use it.

"floor": the passes over memory that no exchange can do without, as a share of the same time. Each worker copies its
gradient to where another process reads it, somebody adds those of all workers, and each worker copies the mean to where its
program may write to it. Measured here, by one thread that does nothing else, on tensors of that size."""

import argparse
import collections
import os
import pathlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
START_S = 120
WORKERS = 2
FLOOR_ROUNDS = 25
IMPORT_S = 7.0  # of processor time: by then a worker trains
PARTS = ("copies of gradients and means", "hooks: Python, launching", "library: messages, waking, waiting", "servers, master, psd_run")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="language,resnet", help="of torch_models.py [language,resnet]")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the profile [10]")
    parser.add_argument("--blocks", type=int, default=40, help="of the job: it has to take longer than the profile [40]")
    parser.add_argument("--frequency", type=int, default=400, help="samples in a second of processor time [400]")
    return parser.parse_args()


def text_of(pid, name):
    """Of a file of /proc; empty: the process has gone."""
    try:
        return (pathlib.Path("/proc") / str(pid) / name).read_text(errors="replace")
    except OSError:
        return ""


def parent_of(pid):
    fields = text_of(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def ticks(pid):
    fields = text_of(pid, "stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0


def descends(pid, ancestor):
    while pid > 1 and pid != ancestor:
        pid = parent_of(pid)
    return pid == ancestor


def processes_of(bench):
    """Of the job that it has started: workers by rank, and all others."""
    workers, others = {}, []
    for pid in (int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")):
        if pid == bench or not descends(pid, bench):
            continue
        rank = re.search(r"(?:^|\0)PSD_RANK=(\d+)\0", text_of(pid, "environ"))
        if "--worker=" in text_of(pid, "cmdline") and rank is not None and "python" in text_of(pid, "comm"):
            workers[int(rank[1])] = pid
        else:
            others.append(pid)
    return workers, others


def stacks(profile):
    """Of each sample: its frames, innermost first, as "symbol (file)"."""
    script = subprocess.run(["perf", "script", "-i", str(profile), "-F", "ip,sym,dso", "--no-inline"], capture_output=True,
                            text=True, check=True)
    for sample in script.stdout.split("\n\n"):
        frames = [line.strip().split(" ", 1)[-1] for line in sample.splitlines() if line.strip()]
        if frames:
            yield frames


def part_of(frames):
    """Which of our parts a sample belongs to; None: the program."""
    everything = "\n".join(frames)
    if "libpsd.so" in everything:
        return PARTS[0] if "psi_timed_copy" in everything or "copy_piece" in everything else PARTS[2]
    if "PostAccGrad" in everything or "exec_post_processing" in everything:
        return PARTS[0] if "copy_" in everything or "memmove" in frames[0] else PARTS[1]
    return None


def floor_s(parameters, workers):
    """Processor time of the passes that any exchange of so many f32 needs."""
    import numpy

    gradients = [numpy.ones(parameters, numpy.float32) for _ in range(workers)]
    shared = [numpy.zeros_like(each) for each in gradients]
    total, times = numpy.zeros_like(shared[0]), []
    for _ in range(FLOOR_ROUNDS):
        begin = time.process_time()
        for gradient, place in zip(gradients, shared):
            numpy.copyto(place, gradient)
        numpy.add(shared[0], shared[-1], out=total)
        for place in shared[1:-1]:
            numpy.add(total, place, out=total)
        for gradient in gradients:
            numpy.copyto(gradient, total)
        times.append(time.process_time() - begin)
    return statistics.median(times)


def measure(args, model, directory):
    """Samples of worker 0 by part; processor time of the others of its job, as a share of the workers'; and what its job
    says of itself."""
    lines = pathlib.Path(directory) / "lines"
    words = [sys.executable, str(TREE / "bench" / "torch_models.py"), "--models", model, "--kinds", "auto", "--rounds", "1",
             "--blocks", str(args.blocks), "--workers", str(WORKERS), "--json", str(lines)]
    profile = pathlib.Path(directory) / f"{model}.perf"
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as bench:
        deadline = time.monotonic() + START_S
        while not (workers := processes_of(bench.pid)[0]).get(0) or ticks(workers[0]) < IMPORT_S * os.sysconf("SC_CLK_TCK"):
            if bench.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{model}: no worker that trains within {START_S} s: run bench/torch_models.py --models {model} to see why")
            time.sleep(0.1)
        workers, others = processes_of(bench.pid)
        before = sum(map(ticks, workers.values())), sum(map(ticks, others))
        perf = subprocess.run(["timeout", "--signal=INT", str(args.seconds), "perf", "record", "--event=cpu-clock",
                               f"--freq={args.frequency}", "--call-graph=dwarf,24000", "-o", str(profile), "-p",
                               str(workers[0])], capture_output=True, text=True, check=False)
        after = sum(map(ticks, workers.values())), sum(map(ticks, others))
        if bench.poll() is not None or 0 in map(ticks, workers.values()):
            sys.exit(f"{model}: the job ended before the profile: more --blocks")
        bench.wait()
    if not profile.exists() or profile.stat().st_size == 0:
        sys.exit(f"{model}: perf record made no profile: {perf.stderr.strip()}; kernel.perf_event_paranoid may forbid it")
    found = collections.Counter(part_of(frames) for frames in stacks(profile))
    return found, (after[1] - before[1]) / max(1, after[0] - before[0]), json.loads(lines.read_text())["auto"][0]


def main():
    args = parse()
    if shutil.which("perf") is None:
        print("no perf here: nothing is measured")
        return 0
    print(f"{'model':10} {'samples':>8} " + " ".join(f"{part:>36}" for part in (*PARTS, "ours together", "of which is floor")))
    for model in args.models.split(","):
        with tempfile.TemporaryDirectory(prefix="psd_share") as directory:
            found, others, told = measure(args, model, directory)
        samples = sum(found.values())
        shares = [found[part] / samples / (1 + others) for part in PARTS[:-1]] + [others / (1 + others)]
        print(f"{model:10} {samples:8} " + " ".join(f"{100 * share:34.1f} %" for share in (
            *shares, sum(shares), floor_s(told["parameters"], WORKERS) / told["job_cpu_s"])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
