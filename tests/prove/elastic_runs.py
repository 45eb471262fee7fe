#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make elastic-runs: jobs whose workers join, leave and die at random moments, one run after the other.

Each run is drawn from its number: mode (bulk-synchronous, stale, asynchronous), size, and a sequence of events: psd_run scale
--workers +K or -K, and kill -9 of a worker other than rank 0. It is well when the ledger is exact (elastic_ledger.py), nobody saw a
step made of others than psd_members told, the job ended by itself with code 0, and nothing is left. Results go into
FILE, a line each; a run that is there and was well is not made again. --seed N makes one run, and keeps it."""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

from helpers import BRISK, Job, program  # noqa: E402

MODES = ("bsp", "bsp", "stale", "async")
RANKS_MAX = 12
START_S, EVENT_S, END_S = 60, 60, 120


class Wrong(Exception):
    """A promise was broken."""


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"{what}: not within {seconds} s")
        time.sleep(0.01)


class Run:
    def __init__(self, seed, directory):
        self.random = random.Random(f"elastic {seed}")
        self.mode = self.random.choice(MODES)
        self.directory = directory
        self.title = f"elastic-{seed}-{uuid.uuid4().hex[:6]}"
        self.counts = collections.Counter()
        self.job = None
        self.books = directory / "books"

    def verb(self, *words):
        return subprocess.run([program("psd_run"), *map(str, words)], capture_output=True, text=True, timeout=60)

    def workers(self):
        """Those that run, as psd_run knows them."""
        shown = self.verb("show", self.title, "--json")
        if shown.returncode != 0:
            raise Wrong(f"psd_run show: {shown.stderr}")
        return [one for one in json.loads(shown.stdout)["processes"] if one["role"] == "worker"
                and one["state"] == "running"]

    def steps(self):
        """Answered gradients so far."""
        return sum(path.stat().st_size for path in self.books.glob("*.ledger")) // 16

    def some_steps(self):
        """A random moment: after some more gradients, or none."""
        wanted = self.steps() + self.random.choice((0, 0, 3, 20, 100))
        wait_until(lambda: self.steps() >= wanted or self.job.process.poll() is not None, EVENT_S, "the next steps")

    def grow(self):
        count = self.random.randint(1, 2)
        told = self.verb("scale", self.title, "--workers", f"+{count}")
        if told.returncode == 0:
            self.counts["joins"] += count
        elif "ranks have been used" not in told.stderr:
            raise Wrong(f"psd_run scale: {told.stderr}")

    def shrink(self):
        if len(self.workers()) > 2:
            told = self.verb("scale", self.title, "--workers=-1")
            if told.returncode != 0 and "leaves none" not in told.stderr:
                raise Wrong(f"psd_run scale: {told.stderr}")
            self.counts["leaves"] += told.returncode == 0

    def kill(self):
        victims = [one for one in self.workers() if one["rank"] != 0 and one["pid"]]
        if victims:
            try:
                os.kill(self.random.choice(victims)["pid"], signal.SIGKILL)
                self.counts["deaths"] += 1
            except ProcessLookupError:
                pass  # it has just left

    def start(self):
        self.books.mkdir(parents=True)
        begin = self.random.randint(1, 3)
        self.job = Job(self.directory / "job", *BRISK, "--workers", begin, "--servers", self.random.randint(1, 2), "--name",
                       self.title, f"--max_workers={RANKS_MAX}", "--on_worker_death=continue", "--lanes=1", "-o", "logs", "--",
                       sys.executable, str(HERE / "elastic_ledger.py"), "--mode", self.mode, "--directory",
                       str(self.books), "--chunks", self.random.choice((1, 3)))
        wait_until(lambda: len(list(self.books.glob("*.ledger"))) >= begin and self.steps() > 2 * begin
                   or self.job.process.poll() is not None, START_S, "the first steps")

    def run(self):
        self.start()
        for _ in range(self.random.randint(4, 8)):
            self.some_steps()
            if self.job.process.poll() is not None:
                break
            self.random.choice((self.grow, self.grow, self.shrink, self.kill))()
        self.some_steps()
        (self.books / "stop").touch()
        code = self.job.wait(END_S)
        said = self.job.stdout()
        if code != 0 or "WRONG" in said or "well " not in said:
            raise Wrong(f"code {code}: " + "; ".join(
                line for line in said.splitlines() if "WRONG" in line or "error" in line or "well" in line)
                + self.job.stderr()[-600:])
        self.counts["gradients"] = self.steps()

    def end(self):
        if self.job is not None and self.job.process.poll() is None:
            self.job.process.kill()
            self.job.process.wait()


def one(seed, directory):
    """The line of a run."""
    shutil.rmtree(directory, ignore_errors=True)
    run = Run(seed, directory)
    begin = time.monotonic()
    why = ""
    try:
        run.run()
    except (Wrong, AssertionError, subprocess.TimeoutExpired) as error:
        why = str(error) or type(error).__name__
    finally:
        run.end()
    if not why:
        shutil.rmtree(directory)
    return {"seed": seed, "mode": run.mode, "seconds": round(time.monotonic() - begin, 1), **run.counts, "wrong": why}


def summarize(lines):
    for mode in sorted({line["mode"] for line in lines}):
        those = [line for line in lines if line["mode"] == mode]
        sums = {key: sum(line.get(key, 0) for line in those) for key in ("joins", "leaves", "deaths", "gradients")}
        print(f"{mode}: {len(those)} runs, {sums['joins']} workers added, {sums['leaves']} asked to leave, {sums['deaths']} killed, "
              f"{sums['gradients']} gradients, {sum(bool(line['wrong']) for line in those)} wrong")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/elastic-runs"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.seed is not None:
        line = one(args.seed, args.out / f"seed-{args.seed}")
        print(json.dumps(line))
        return bool(line["wrong"])
    file = args.out / "runs.jsonl"
    lines = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    lines = [line for line in lines if not line["wrong"]]
    for seed in sorted(set(range(args.runs)) - {line["seed"] for line in lines}):
        lines.append(one(seed, args.out / f"seed-{seed}"))
        with file.open("a") as stream:
            stream.write(json.dumps(lines[-1]) + "\n")
        if lines[-1]["wrong"]:
            print(json.dumps(lines[-1]), flush=True)
    summarize(lines)
    return any(line["wrong"] for line in lines)


if __name__ == "__main__":
    sys.exit(main())
