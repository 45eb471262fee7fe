# SPDX-License-Identifier: Apache-2.0
"""Compares psd_bench's ceilings with their models: see check_ceilings.sh, which starts this.

    check_ceilings.py FOLDER_OF_BUILT_MODELS RUNS MINUTES
"""
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

LEAST = 0.97
FOREIGN_CORES_MAX = 0.10  # more, and a run does not count
BENCH = pathlib.Path("bin/psd_bench").resolve()
MEMORY = {"full": "ceiling_full", "blocked-full": "ceiling_blocked",
          "fused-server-only": "ceiling_fused", "copyin(nt)": "ceiling_copyin_nt",
          "copyin(libc)": "ceiling_copyin_libc"}
PINGS = {"shmspin": "ping_shm_spin", "shmfutex": "ping_shm", "tcpspin": "ping_tcp_spin",
         "tcp": "ping_tcp", "unixspin": "ping_unix_spin", "unix": "ping_unix"}


def busy_seconds():
    """CPU time of all programs; not of interrupts, which nobody's account shows."""
    user, nice, system = map(int, open("/proc/stat").readline().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(words, **environment):
    """What a program prints, and how many cores others used meanwhile."""
    before = time.monotonic(), busy_seconds(), own_seconds()
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True,
                          timeout=300, env={**os.environ, **environment})
    elapsed = time.monotonic() - before[0]
    foreign = (busy_seconds() - before[1]) - (own_seconds() - before[2])
    return done.stdout, foreign / elapsed


class Case:
    """One kind of run of both sides; figures are speeds, more is better."""

    def __init__(self, models, transport, workers, size):
        self.models, self.transport, self.workers, self.size = models, transport, workers, size
        self.figures = {"ours": {}, "theirs": {}}

    def complete(self, runs):
        return all(len(values) >= runs and values for side in self.figures.values()
                   for values in [min(side.values(), key=len, default=[])])

    def note(self, side, figures):
        for name, value in figures.items():
            self.figures[side].setdefault(name, []).append(value)

    def run_ours(self):
        lines = self.models / "ours.jsonl"
        _, foreign = run([BENCH, "--transport", self.transport, "--workers", self.workers, "--sizes",
                          self.size, "--repeat", 3, "--seconds", 0.05, "--json", lines, "ceilings"])
        if foreign < FOREIGN_CORES_MAX:
            self.note("ours", self.read_ours(map(json.loads, open(lines))))

    def read_ours(self, lines):
        return {line["name"]: line["max"] for line in lines
                if line["unit"] == "GB/s" and line["name"].startswith("ceiling_")}

    def run_theirs(self):
        figures, most = {}, 0
        for name, words, environment, pattern in self.commands():
            text, foreign = run(words, **environment)
            most = max(most, foreign)
            for match in re.finditer(pattern, text):
                figures.update(self.read_theirs(name, match))
        if most < FOREIGN_CORES_MAX:
            self.note("theirs", figures)


class Memory(Case):
    def __init__(self, models, megabytes):
        super().__init__(models, "shm", 2, f"{megabytes}M")
        self.megabytes = megabytes

    def commands(self):
        yield None, [self.models / "psceil", self.megabytes, 3, 2], {}, r"psceil (\S+) .*best ([0-9.]+)"

    def read_theirs(self, _, match):
        return {MEMORY[match[1]]: float(match[2])} if match[1] in MEMORY else {}


class Sockets(Case):
    def __init__(self, models, kilobytes, workers):
        super().__init__(models, "tcp", workers, f"{kilobytes}k")
        self.kilobytes = kilobytes

    def commands(self):
        words = [self.models / "tcpps", self.kilobytes, 256, self.workers, 0.2]
        yield "ceiling_sockets", words, {}, r"([0-9.]+) GB/s"
        if self.workers == 1:
            yield "ceiling_sockets_spin", words, {"SPIN": "1"}, r"([0-9.]+) GB/s"

    def read_theirs(self, name, match):
        return {name: float(match[1])}


class Pings(Case):
    def __init__(self, models, transport):
        super().__init__(models, transport, 1, "64")

    def read_ours(self, lines):
        return {line["name"].removesuffix("_p50"): 1 / line["value"] for line in lines
                if line["name"].startswith("ping_") and line["name"].endswith("_p50")}

    def commands(self):
        for mode, name in PINGS.items():
            if mode.startswith("shm") == (self.transport == "shm"):
                yield name, [self.models / "pp", mode, 64, 20000], {}, r"p50 ([0-9.]+)"

    def read_theirs(self, name, match):
        return {name: 1 / float(match[1])}


def take_turns(cases, runs, minutes):
    until = time.monotonic() + 60 * minutes
    while not all(case.complete(runs) for case in cases) and time.monotonic() < until:
        for case in cases:
            if not case.complete(runs):
                case.run_theirs()
                case.run_ours()


def report(cases):
    """Prints a row for each ceiling; how many are too slow or were never undisturbed."""
    bad = 0
    print("| ceiling | workers | tensor | of its model, by medians | by best runs | runs | |")
    print("|:---|---:|---:|---:|---:|---:|:---|")
    for case in cases:
        ours, theirs = case.figures["ours"], case.figures["theirs"]
        if not ours or not theirs:
            print(f"| all of {case.transport} | {case.workers} | {case.size} | | | | NEVER UNDISTURBED |")
            bad += 1
        for name in theirs if ours else ():
            middle = statistics.median(ours[name]) / statistics.median(theirs[name])
            best = max(ours[name]) / max(theirs[name])
            slow = max(middle, best) < LEAST
            bad += slow
            print(f"| {name} | {case.workers} | {case.size} | {middle:.2f} | {best:.2f} | "
                  f"{len(ours[name])}, {len(theirs[name])} | {'TOO SLOW' if slow else ''} |")
    return bad


def main():
    models, runs, minutes = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    cases = [Memory(models, 4), Memory(models, 64), Sockets(models, 4, 1), Sockets(models, 4096, 1),
             Sockets(models, 32768, 1), Sockets(models, 4096, 2), Sockets(models, 32768, 2),
             Pings(models, "shm"), Pings(models, "tcp")]
    take_turns(cases, runs, minutes)
    sys.exit(1 if report(cases) else 0)


if __name__ == "__main__":
    main()
