#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs a job to be watched, in processor time of all its processes: psd_run, workers, servers, master.

    python3 bench/watch_cost.py [--programs bin] [--pairs 20] [mnist] [push_pull]

Jobs run in pairs, one --unwatched and one with everything: a page with a client that reads all of it and renders nothing, /metrics
asked for every 5 s as a Prometheus would, and a trace of 20 steps once. Which of the two comes first changes from pair to pair. It is
processor time, which other programs on the machine change less than the clock; printed are each pair, and the median of their
ratios with the range in which the middle half of them lies. Jobs take some seconds: the page is opened and the report written once,
which is much in a job of one second.

mnist      the example: 2 workers, 2 servers
push_pull  2 workers, 1 server, 1 MB in each step"""

import argparse
import http.client
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

TREE = pathlib.Path(__file__).resolve().parents[1]
JOB_S = 900  # one that takes longer has failed
SCRAPE_S = 5.0


class Watcher(threading.Thread):
    """Reads the page of a job, and its metrics, to the end; asks for a trace once."""

    def __init__(self, psd_run, name, directory):
        super().__init__(daemon=True)
        self.psd_run, self.name_of_job, self.directory = psd_run, name, directory
        self.over = threading.Event()
        self.updates = self.scrapes = self.traces = 0

    def address(self):
        """None: the job was over before it had one."""
        while not self.over.wait(0.02):
            for path in self.directory.glob("logs/*/page_address"):
                text = path.read_text().strip()
                if text:
                    return urllib.parse.urlsplit(text)
        return None

    def run(self):
        address = self.address()
        if address is None:
            return
        token = urllib.parse.parse_qs(address.query)["token"][0]
        reader = threading.Thread(target=self.read, args=(address, token), daemon=True)
        reader.start()
        due = time.monotonic() + 1
        while not self.over.wait(max(0, due - time.monotonic())):
            due += SCRAPE_S
            try:
                line = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
                line.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
                self.scrapes += b"psd_step" in line.getresponse().read()
                line.close()
            except OSError:
                break  # the job is over
            if self.traces == 0:
                done = subprocess.run([self.psd_run, "trace", "--steps", "20", self.name_of_job], capture_output=True, timeout=60, check=False)
                self.traces += done.returncode == 0 and b"traceEvents" in done.stdout
        reader.join(30)

    def read(self, address, token):
        try:
            line = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
            line.request("GET", f"/?token={token}")
            answer = line.getresponse()
            answer.read()
            cookie, place = answer.headers["Set-Cookie"].split("; ")[:2]
            line.request("GET", place.removeprefix("Path=") + "events", headers={"Cookie": cookie})
            for row in line.getresponse():
                self.updates += row.startswith(b"data:")
        except (OSError, http.client.HTTPException):
            pass  # the job is over


def spent(command, directory, watcher):
    """Processor time of a job, in seconds."""
    with open(directory / "output", "wb") as output:
        job = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        if watcher is not None:
            watcher.start()
        _, status, used = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(status)
    if watcher is not None:
        watcher.over.set()
        watcher.join(60)
    if job.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {job.returncode}:\n{(directory / 'output').read_text(errors='replace')[-2000:]}")
    return used.ru_utime + used.ru_stime


def pushes(programs, directory):
    """A worker that makes steps and nothing else."""
    path, library = directory / "pushes", (programs / "psd_run").resolve().parent / "libpsd.so"
    subprocess.run(["cc", "-O2", "-I", TREE / "include", TREE / "tests" / "cluster" / "pushes.c", "-o", path, library,
                    f"-Wl,-rpath,{library.parent}"], check=True)
    return path


def jobs(args, directory):
    """The words of psd_run, by name."""
    programs = args.programs.resolve()
    return {
        "mnist": ["--workers", "2", "--servers", "2", "--", programs / "mnist", "--epochs", str(args.epochs)],
        "push_pull": ["--workers", "2", "--servers", "1", "--", pushes(programs, directory), str(args.steps), str(1 << 20)],
    }


def run_pair(psd_run, words, place, watched_first):
    """(unwatched, watched) in seconds, and what the watcher saw."""
    times = {}
    for watched in (watched_first, not watched_first):
        directory = place / ("watched" if watched else "unwatched")
        directory.mkdir(parents=True)
        name = re.sub(r"\W", "-", f"cost-{os.getpid()}-{place.name}")
        watcher = Watcher(psd_run, name, directory) if watched else None
        command = [psd_run, *([] if watched else ["--unwatched"]), "--name", name, "--timeout", str(JOB_S), *words]
        times[watched] = spent(command, directory, watcher)
        if watched:
            seen = watcher
    return times[False], times[True], seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=__doc__.split("\n", 2)[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=TREE / "bin", help="directory of psd_run [bin]")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100, help="of mnist [100]")
    parser.add_argument("--steps", type=int, default=30000, help="of push_pull [30000]")
    parser.add_argument("what", nargs="*", default=["mnist", "push_pull"], help="[both]")
    args = parser.parse_args()
    psd_run = args.programs.resolve() / "psd_run"
    with tempfile.TemporaryDirectory(prefix="psd_watch_cost.") as made:
        directory = pathlib.Path(made)
        known = jobs(args, directory)
        for what in args.what:
            ratios = []
            for pair in range(args.pairs):
                alone, watched, seen = run_pair(psd_run, known[what], directory / f"{what}{pair}", pair % 2 == 1)
                ratios.append(watched / alone - 1)
                print(f"{what} {pair + 1}: {alone:.3f} s unwatched, {watched:.3f} s watched: {ratios[-1]:+.2%} ({seen.updates} updates, "
                      f"{seen.scrapes} scrapes, {seen.traces} trace)", flush=True)
            low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
            print(f"{what}: watched costs {statistics.median(ratios):+.2%} of processor time, the middle half of {len(ratios)} pairs "
                  f"{low:+.2%} to {high:+.2%}", flush=True)


if __name__ == "__main__":
    main()
