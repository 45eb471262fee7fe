#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What workers print, many times over: no line may be lost, torn, doubled or out of order.

    tests/cluster/stress_output.py [--processes 10000] [--runs 1000] [--state FILE]

Three kinds of jobs, checked in every log and on the console of every job:
  short   processes that print on both streams and end at once, 50 to a job
  tee     `exec > >(tee log)`, one worker or two, ending well or failing
  beside  a thread that writes stderr beside Python's print

With --state, what is done is noted in a file, and a run that was interrupted goes on from there.
The directories of jobs that failed are kept and named. Exit code 0: nothing failed."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from helpers import program, worker_environment

AT_ONCE = 50
BESIDE_LINES = 300

SHORT = """echo "out 1 of $RANK"
echo "err 1 of $RANK" >&2
echo "out 2 of $RANK"
printf "err 2 of $RANK" >&2
"""

TEE = """exec > >(tee own.$RANK) 2>&1
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo "line $i of $RANK"; done
echo "the reason of $RANK" >&2
exit $1
"""

BESIDE = """import sys, threading
lines = int(sys.argv[1])
def complain():
    for i in range(lines):
        sys.stderr.write(f"err {i}\\n")
thread = threading.Thread(target=complain)
thread.start()
for i in range(lines):
    print("out", i)
thread.join()
"""


class Wrong(Exception):
    """A job printed something else than it should have."""


def run(directory, expected_code, *arguments):
    """Runs a job to its end. Returns what its console showed and each log, by worker."""
    with open(directory / "stdout", "wb") as out, open(directory / "stderr", "wb") as err:
        done = subprocess.run([program("psd_run"), "--personality", "torch", *map(str, arguments)],
                              cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                              env={**os.environ, **worker_environment()}, timeout=300, check=False)
    if done.returncode != expected_code:
        raise Wrong(f"code {done.returncode}, not {expected_code}")
    shown = {}
    for line in (directory / "stdout").read_text().splitlines():
        name, _, text = line.partition(" ")
        shown.setdefault(name.strip("[]"), []).append(text)
    logs = {path.stem: path.read_text() for path in directory.glob("logs/*/worker*.log")}
    return shown, logs


def expect(what, found, wanted):
    if found != wanted:
        raise Wrong(f"{what}: {found!r}, not {wanted!r}"[:2000])


def expect_streams(name, lines, streams):
    """Each line is of one stream, and the lines of a stream are in order."""
    for first, wanted in streams.items():
        expect(f"{name}, {first}", [line for line in lines if line.startswith(first)], wanted)
    expect(f"{name}, number of lines", len(lines), sum(map(len, streams.values())))


def short(directory, _number):
    (directory / "script").write_text(SHORT)
    shown, logs = run(directory, 0, "--workers", AT_ONCE, "--", "sh", "script")
    expect("logs", len(logs), AT_ONCE)
    for rank in range(AT_ONCE):
        streams = {word: [f"{word} {i} of {rank}" for i in (1, 2)] for word in ("out", "err")}
        expect_streams(f"log of {rank}", logs[f"worker{rank}"].splitlines(), streams)
        expect_streams(f"console of {rank}", shown[f"worker{rank}"], streams)
    return AT_ONCE


def tee(directory, number):
    workers, code = 1 + number % 2, 3 * (number // 2 % 2)
    (directory / "script").write_text(TEE)
    shown, logs = run(directory, code, "--workers", workers, "--", "bash", "script", code)
    for rank in range(workers):
        wanted = [f"line {i} of {rank}" for i in range(1, 21)] + [f"the reason of {rank}"]
        found = logs.get(f"worker{rank}", "").splitlines()
        if code != 0 and workers > 1:  # one of two was stopped when the other had failed
            own = directory / f"own.{rank}"
            wanted = own.read_text().splitlines() if own.exists() else []
        expect(f"log of {rank}", found, wanted)
        expect(f"console of {rank}", shown.get(f"worker{rank}", []), wanted)
    if code != 0 and not any(text.endswith(f"the reason of {rank}\n") for rank, text in
                             ((name[6:], text) for name, text in logs.items())):
        raise Wrong("nobody's reason")
    return 1


def beside(directory, _number):
    (directory / "script").write_text(BESIDE)
    shown, logs = run(directory, 0, "--", sys.executable, "script", BESIDE_LINES)
    streams = {word: [f"{word} {i}" for i in range(BESIDE_LINES)] for word in ("out", "err")}
    expect_streams("log", logs["worker0"].splitlines(), streams)
    expect_streams("console", shown["worker0"], streams)
    return 1


KINDS = {"short": short, "tee": tee, "beside": beside}


class State:
    """How much of each kind is done, and what failed; in a file, if there is one."""

    def __init__(self, path):
        self.path = path
        self.done = dict.fromkeys(KINDS, 0)
        self.failed = []
        if path and path.exists():
            kept = json.loads(path.read_text())
            self.done.update(kept["done"])
            self.failed = kept["failed"]

    def keep(self):
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"done": self.done, "failed": self.failed}))
            new.replace(self.path)


def step(kind, state):
    """One job of a kind. Its directory is kept if it failed."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"stress-{kind}-"))
    try:
        state.done[kind] += KINDS[kind](directory, state.done[kind])
    except (Wrong, subprocess.TimeoutExpired) as wrong:
        state.done[kind] += AT_ONCE if kind == "short" else 1
        state.failed.append(f"{kind} in {directory}: {wrong}")
        print(state.failed[-1], file=sys.stderr, flush=True)
    else:
        shutil.rmtree(directory)
    state.keep()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=10000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--state", type=pathlib.Path)
    options = parser.parse_args()
    wanted = {"short": options.processes, "tee": options.runs, "beside": options.runs}
    state = State(options.state)
    told = time.monotonic()
    while missing := [kind for kind in KINDS if state.done[kind] < wanted[kind]]:
        # In turn, so that a run that is cut short has tried a part of all.
        step(min(missing, key=lambda kind: state.done[kind] / wanted[kind]), state)
        if time.monotonic() > told + 10:
            told = time.monotonic()
            print(", ".join(f"{kind} {state.done[kind]}/{wanted[kind]}" for kind in KINDS),
                  f"{len(state.failed)} failed", sep="; ", flush=True)
    print(f"{state.done['short']} short processes, {state.done['tee']} runs through tee, "
          f"{state.done['beside']} runs beside a thread: {len(state.failed)} jobs with lines lost, "
          "torn, doubled or out of order", *state.failed, sep="\n")
    if options.state:
        options.state.unlink(missing_ok=True)  # the next run is a new one
    return 1 if state.failed else 0


if __name__ == "__main__":
    sys.exit(main())
