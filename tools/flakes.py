#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for tests that fail now and then: every tier several times while something else keeps all cores busy.

    tools/flakes.py                         ten times unit, embedded, cluster and python: hours
    tools/flakes.py --tier unit --runs 3    less of it
    tools/flakes.py --minutes 60            as far as an hour goes; the next call goes on from there
    tools/flakes.py --at-once 4             four pieces at a time: most tests wait for real processes
    tools/flakes.py --others                while something else, that you have started, keeps the cores busy
    tools/flakes.py --report                only what is known by now

What ran is kept, a line each, in build/flakes.jsonl together with the state of what it tested, so a call that is cut
short loses at most the piece it was at, and a tier starts anew when something that it tests has changed. Exit code 0 when all runs that were asked for
are there and none failed, 1 after a failure, 3 when runs are missing.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIERS = ("unit", "embedded", "cluster", "python")
PIECE_SECONDS_MAX = 3600  # no piece takes as long as this, however busy the cores are


RUNNING = set()  # process groups of pieces


def run_piece_of(command, log, **options):
    """Its exit code. A call that is stopped takes it along (stop)."""
    with subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                          **options) as process:
        RUNNING.add(process.pid)
        try:
            return process.wait(PIECE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            RUNNING.discard(process.pid)


def stop(_number, _frame):
    """What runs ends, and cleans up; what ran is kept."""
    for group in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGINT)
    raise KeyboardInterrupt


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


# What a tier tests. A commit that changes nothing of it leaves the runs of the tier as good as they were.
_PROGRAMS = ["src", "include", "meson.build", "meson_options.txt"]
CONTENT = {
    "unit": _PROGRAMS,
    "embedded": [*_PROGRAMS, "tests/embedded"],
    "cluster": [*_PROGRAMS, "tests/cluster", "tests/testbed", "examples", "python"],
    "python": [*_PROGRAMS, "tests/python", "examples", "python"],
}


def state_of(tier):
    """A name for what is tested: what is committed of it, and what differs from that."""
    committed = output_of("git", "rev-parse", *(f"HEAD:{path}" for path in CONTENT[tier]))
    differences = output_of("git", "diff", "HEAD", "--", *CONTENT[tier])
    return hashlib.sha256(committed.encode() + differences.encode()).hexdigest()[:12]


class MesonTier:
    """Tests in C. All of a tier are one piece: they take a minute or two."""

    alone = threading.Lock()  # meson keeps one log in a build directory

    def __init__(self, name, build):
        self.name = name
        self.build = build

    def pieces(self):
        return [self.name]

    def tests(self):
        listed = [line.split(" / ")[-1].strip() for line in
                  output_of("meson", "test", "-C", self.build, "--no-rebuild", "--list", "--suite", "unit").splitlines()
                  if " / " in line]
        return [test for test in listed if test.startswith("embedded") == (self.name == "embedded")]

    def run(self, _piece, log):
        with self.alone:
            return self.run_alone(log)

    def run_alone(self, log):
        run_piece_of(["meson", "test", "-C", self.build, "--no-rebuild", "--quiet", *self.tests()], log)
        results = [json.loads(line) for line in
                   (ROOT / self.build / "meson-logs" / "testlog.json").read_text().splitlines()]
        failed = [result["name"].split(" / ")[-1] for result in results
                  if result["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]
        return len(results), failed


class PytestTier:
    """Tests with real processes. A file is a piece."""

    def __init__(self, name, python, folder):
        self.name = name
        self.python = python
        self.folder = folder

    def pieces(self):
        return sorted(path.name for path in (ROOT / self.folder).glob("test_*.py"))

    def run(self, piece, log):
        with tempfile.TemporaryDirectory() as scratch:
            report = pathlib.Path(scratch) / "report.xml"
            code = run_piece_of(
                [self.python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-m", "not all",
                 f"--junit-xml={report}", f"{self.folder}/{piece}"], log,
                env={**os.environ, "PSD_BIN": str(ROOT / "bin")})
            if code not in (0, 1, 5):  # 5: every test of the file is marked all
                return 0, [f"{piece}: pytest ended with {code}"]
            if not report.exists():
                return 0, []
            cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
        failed = [f"{piece}::{case.get('name')}" for case in cases
                  if case.find("failure") is not None or case.find("error") is not None]
        return len(cases), failed


@contextlib.contextmanager
def busy_cores():
    """One process that does nothing but count for each core; they end with us, whatever happens."""
    count = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))\n"
    load = [subprocess.Popen([sys.executable, "-c", count]) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for process in load:
            process.kill()
            process.wait()


def read_results(path, states):
    if not path.exists():
        return []
    results = [json.loads(line) for line in path.read_text().splitlines()]
    return [result for result in results if result["tree"] == states.get(result["tier"])]


def report(results, tiers, runs):
    """Prints what is known; returns the exit code."""
    missing = 0
    print(f"\n{'tier':<10}{'pieces done':>14}{'tests run':>12}{'failures':>10}{'minutes':>9}")
    for tier in tiers:
        mine = [result for result in results if result["tier"] == tier.name and result["run"] <= runs]
        wanted = len(tier.pieces()) * runs
        missing += wanted - len(mine)
        print(f"{tier.name:<10}{f'{len(mine)} of {wanted}':>14}{sum(result['tests'] for result in mine):>12}"
              f"{sum(len(result['failed']) for result in mine):>10}"
              f"{sum(result['seconds'] for result in mine) / 60:>9.0f}")
    names = {tier.name for tier in tiers}
    failures = collections.Counter(name for result in results if result["tier"] in names for name in result["failed"])
    for name, times in failures.most_common():
        print(f"failed {times} times: {name}")
    if failures:
        return 1
    print("no test failed" + (f"; {missing} pieces have not run yet: call it again" if missing else ""))
    return 3 if missing else 0


def make_tiers(names, build):
    frameworks = ROOT / ".venv-frameworks" / "bin" / "python"
    python = frameworks if frameworks.exists() else ROOT / ".venv" / "bin" / "python"
    every = {"unit": MesonTier("unit", build), "embedded": MesonTier("embedded", build),
             "cluster": PytestTier("cluster", str(ROOT / ".venv" / "bin" / "python"), "tests/cluster"),
             "python": PytestTier("python", str(python), "tests/python")}
    return [every[name] for name in names]


def run_piece(run, tier, piece, state, logs):
    """Runs it; returns what is to be kept, and the log's path: of a run without a failure there is none."""
    begin = time.monotonic()
    log_path = logs / f"{tier.name}-{piece}-{run}.log"
    with open(log_path, "w") as log:
        try:
            tests, failed = tier.run(piece, log)
        except subprocess.TimeoutExpired:
            tests, failed = 0, [f"{piece}: not done after {PIECE_SECONDS_MAX} s"]
    if not failed:
        log_path.unlink()
    return {"tree": state, "tier": tier.name, "piece": piece, "run": run, "tests": tests, "failed": failed,
            "seconds": round(time.monotonic() - begin, 1)}, log_path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", action="append", choices=TIERS, help="one of them; may be repeated (default: all)")
    parser.add_argument("--runs", type=int, default=10, help="how often each (default: 10)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing new after so many")
    parser.add_argument("--build", default="build", help="the build directory (default: build)")
    parser.add_argument("--at-once", type=int, default=1, help="so many pieces at a time (default: 1)")
    parser.add_argument("--others", action="store_true", help="start no load: something else keeps the cores busy")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args()

    tiers = make_tiers(options.tier or TIERS, options.build)
    states = {tier.name: state_of(tier.name) for tier in tiers}
    store = ROOT / options.build / "flakes.jsonl"
    logs = ROOT / options.build / "flakes"
    logs.mkdir(parents=True, exist_ok=True)
    results = read_results(store, states)
    if options.report:
        return report(results, tiers, options.runs)

    known = {(result["tier"], result["piece"], result["run"]) for result in results}
    todo = [(run, tier, piece) for run in range(1, options.runs + 1) for tier in tiers for piece in tier.pieces()
            if (tier.name, piece, run) not in known]
    until = time.monotonic() + options.minutes * 60
    writing, stopped = threading.Lock(), threading.Event()

    def one(number, run, tier, piece):
        if time.monotonic() > until:
            return
        result, log_path = run_piece(run, tier, piece, states[tier.name], logs)
        if stopped.is_set():
            return
        with writing:
            results.append(result)
            with open(store, "a") as out:
                out.write(json.dumps(result) + "\n")
            told = f", FAILED (see {log_path.relative_to(ROOT)}): {', '.join(result['failed'])}" if result["failed"] else ""
            print(f"{number} of {len(todo)}: run {run}, {tier.name} {piece}: {result['tests']} tests, "
                  f"{result['seconds']:.0f} s{told}", flush=True)

    with contextlib.nullcontext() if options.others else busy_cores(), \
            concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        waiting = [pool.submit(one, number, *what) for number, what in enumerate(todo, 1)]
        try:
            for done in waiting:
                done.result()
        except BaseException:  # of a call that is cut short, too
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return report(results, tiers, options.runs)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # which a shell ignores for what it starts in the background
        signal.signal(number, stop)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("flakes: stopped; what ran is kept, the next call goes on from there")
