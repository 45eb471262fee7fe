#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A feed as psd_run makes it (docs/watching.md), of a job that never was: any number of workers, at any pace.

    tests/cluster/recorded_feed.py --workers 64 --seconds 600 | build/tests/page_replay report.html

Lines "W JSON" have the whole state, "D JSON" what is new: see tests/page/page_replay.c."""

import argparse
import json
import math
import random
import sys
import time

POINTS_KEPT = 400
WAITS_KEPT = 200
LOGS_KEPT = 500
COMPUTE_US = 3200
TABLES = (("embedding/weights", 93_750_000, 90), ("dense1/kernel", 3_211_264, 8), ("dense1/bias", 4096, 1),
          ("head/kernel", 40_960, 2))


def told(value):
    """As feed_json.c tells it: JSON has no NaN."""
    return value if math.isfinite(value) else None


class Feed:
    """The job at `self.step`; forward() lets it go on and gives what is new."""

    def __init__(self, workers=64, servers=4, per_minute=10_000, seed=1):
        self.random = random.Random(seed)
        self.workers, self.servers, self.rate = workers, servers, per_minute / 60
        self.began, self.step = int(time.time() * 1000), 0
        self.straggler = min(workers - 1, 11)
        self.scalars = {(name, worker): [] for name in ("loss", "accuracy", "learning_rate", "samples_per_s")
                        for worker in range(workers)}
        self.waits, self.logs, self.events, self.numbered = [], [], [], 0
        self.cause, self.phase, self.lost = None, "running", None
        self.bytes = 0
        self.hosts = [f"node{worker // 8 + 1}" for worker in range(workers)]
        self.tables = [{"name": name, "bytes": size, "chunks": chunks, "rule": "adam", "staleness": 0,
                        "places": [chunks // servers + (i < chunks % servers) for i in range(servers)]}
                       for name, size, chunks in TABLES]
        self.name = "train"
        self.tell_event("start", f"job begins: {workers} workers, {servers} servers")

    def elapsed(self):
        return int(time.time() * 1000) - self.began

    def number(self):
        self.numbered += 1
        return self.numbered

    def tell_event(self, kind, text):
        self.events.append({"n": self.number(), "at_ms": self.elapsed(), "kind": kind, "text": text})

    def tell_log(self, process, line, stream="out"):
        self.logs.append({"n": self.number(), "at_ms": self.elapsed(), "process": process, "stream": stream,
                          "line": line})

    def fail(self, worker, text):
        self.lost, self.phase = worker, "ending"
        self.cause = {"text": text, "process": f"worker {worker}", "code": 137, "at_ms": self.elapsed()}
        self.tell_event("cause", text)

    def value(self, name, worker, step):
        noise = self.random.gauss(0, 1)
        learned = math.exp(-step / 9000)
        return {"loss": 0.08 + 2.2 * learned + 0.05 * noise * (0.3 + learned) + worker % 7 * 0.004,
                "accuracy": 0.985 - 0.9 * learned + 0.008 * noise, "learning_rate": 1e-3 * 0.5 ** (step // 8000),
                "samples_per_s": 21_000 + 300 * noise}[name]

    def wait(self, step):
        slow = 1.0 + self.random.random() * 0.2
        parts = {"compute": COMPUTE_US * slow, "encode": 120, "send": 260 + 60 * self.random.random(),
                 "server": 310 + 90 * self.random.random(), "worker": COMPUTE_US * (0.9 + 0.3 * self.random.random()),
                 "receive": 240, "apply": 90}
        row = {f"{part}_us": int(us) for part, us in parts.items()}
        return dict(row, step=step, total_us=sum(row.values()), worker=self.straggler, server=1, ratio=2.1)

    def forward(self, seconds):
        """What is new after so long."""
        first, self.step = self.step + 1, self.step + max(1, int(self.rate * seconds))
        now, news, waits = int(time.time() * 1000), [], [self.wait(step) for step in range(first, self.step + 1)]
        logs, events = len(self.logs), len(self.events)
        for (name, worker), points in self.scalars.items():
            fresh = [[step, now, told(self.value(name, worker, step))] for step in range(first, self.step + 1, 4)]
            points.extend(fresh)
            if len(points) > 2 * POINTS_KEPT:  # all of the curve, with fewer points
                points[:] = points[::2]
            news.append({"name": name, "worker": worker, "points": fresh})
        self.bytes += int(1.1e8 * seconds)
        for worker in range(0, self.workers, max(1, self.workers // 4)):
            self.tell_log(f"worker {worker}", f"step {self.step}: loss {self.value('loss', worker, self.step):.4f}")
        snapshot = self.snapshot()
        snapshot.update(scalars=news, waits=waits, logs=self.logs[logs:], events=self.events[events:])
        self.waits = (self.waits + waits)[-WAITS_KEPT:]
        del self.logs[:-LOGS_KEPT]
        return snapshot

    def processes(self):
        yield {"name": "master", "role": "master", "index": 0, "host": "node1", "pid": 4000, "state": "running", "cpu": 0.01,
               "memory_bytes": 9_000_000}
        for server in range(self.servers):
            yield {"name": f"server {server}", "role": "server", "index": server, "host": f"node{server + 1}",
                   "pid": 4100 + server, "state": "running", "cpu": 0.7 + 0.1 * self.random.random(),
                   "memory_bytes": 310_000_000, "bytes_in": self.bytes, "bytes_out": self.bytes}
        for worker in range(self.workers):
            state = "failed" if worker == self.lost else "running"
            yield {"name": f"worker {worker}", "role": "worker", "index": worker, "host": self.hosts[worker], "pid": 5000 + worker,
                   "state": state, "step": self.step, "lag": 1 if worker == self.straggler else 0, "rate": self.rate,
                   "cpu": 0.95 + 0.1 * self.random.random(), "memory_bytes": 1_450_000_000 + worker * 1_000_000,
                   "gpu_bytes": 0, "bytes_in": self.bytes // 8, "bytes_out": self.bytes // 8,
                   "scalars": {"loss": told(self.value("loss", worker, self.step))}}

    def snapshot(self):
        """The whole state, without what is numbered."""
        job = {"name": self.name, "id": "4f1c", "phase": self.phase, "started_unix_ms": self.began, "elapsed_ms": self.elapsed(),
               "command": "python train.py --batch 64", "workers": self.workers, "servers": self.servers, "version": "0.1.0",
               "steps_total": None, "step": self.step, "rate": self.rate, "log_directory": "logs/poseidon_log_1"}
        sentence = (f"step {self.step}: 48 % of the time everybody waited for worker {self.straggler} on "
                    f"{self.hosts[self.straggler]}, which computed 2.1x as long as the median")
        whole = (f"over {self.step} steps: 44 % of the time was computing, 41 % waiting for worker {self.straggler} on "
                 f"{self.hosts[self.straggler]}")
        edges = [{"worker": worker, "server": server, "bytes_in": self.bytes // (8 + (worker * 7 + server) % 5),
                  "bytes_out": self.bytes // 9} for worker in range(self.workers) for server in range(self.servers)]
        tables = [dict(table, bytes_in=self.bytes // 4, bytes_out=self.bytes // 4) for table in self.tables]
        verdict = f"over all {self.step} steps, 41 % of the time everybody waited for worker {self.straggler} on node{self.straggler // 8}"
        return {"job": job, "cause": self.cause, "sentence": sentence, "whole": whole, "verdict": verdict,
                "waited_for": {"role": "worker", "index": self.straggler, "share": 0.48}, "processes": list(self.processes()),
                "tables": tables, "edges": edges}

    def whole(self):
        scalars = [{"name": name, "worker": worker, "points": points} for (name, worker), points in self.scalars.items()]
        return dict(self.snapshot(), scalars=scalars, waits=self.waits, logs=self.logs, events=self.events)


def write(stream, kind, snapshot):
    stream.write(f"{kind} {json.dumps(snapshot)}\n")
    stream.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--per_minute", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--fail", type=int, help="this worker is killed at the end")
    arguments = parser.parse_args()
    feed = Feed(arguments.workers, arguments.servers, arguments.per_minute)
    for _ in range(60):  # a job that has run for a while
        feed.forward(1.0)
    write(sys.stdout, "W", feed.whole())
    until = time.monotonic() + arguments.seconds
    turns = 0
    while time.monotonic() < until:
        write(sys.stdout, "D", feed.forward(0.5))
        turns += 1
        if turns % 40 == 0:  # for pages that come later; large
            write(sys.stdout, "W", feed.whole())
        time.sleep(0.5)  # the pace of the feed, not a wait for anything
    if arguments.fail is not None:
        feed.fail(arguments.fail, f"worker {arguments.fail} was killed (signal 9) on {feed.hosts[arguments.fail]}")
        feed.phase = "ended"
        write(sys.stdout, "W", dict(feed.whole(), report="logs/poseidon_log_1/report.html"))


if __name__ == "__main__":
    main()
