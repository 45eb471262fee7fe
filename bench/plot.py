#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what psd_bench measured: bench/plot.py [RESULTS.jsonl] [FOLDER]

Writes throughput_shm.svg, throughput_tcp.svg, ratio.svg and latency.svg; nothing but Python's own
library is needed. Charts without data are not written.
"""
import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 840, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 310, 56, 48
COLOURS = ["#0b5fa5", "#d1495b", "#2e8b57", "#8e6bbf", "#e08e2b", "#3aa6a6", "#7a7a7a", "#b5651d",
           "#c2185b", "#5c6bc0"]

# (chart's file, title, unit of y, transport, workers, servers, series); a series is
# (label, name, timing, dashed). Ceilings are dashed.
SERIES_SHM = [
    ("Poseidon, in place", "push_pull_in_place", "touch", False),
    ("Poseidon, chunk by chunk", "push_pull_streamed", "touch", False),
    ("Poseidon, ordinary memory", "push_pull", "touch", False),
    ("OpenMPI", "mpi_allreduce", "touch", False),
    ("Gloo", "gloo_allreduce", "touch", False),
    ("torch.distributed.rpc", "torch_rpc", "touch", False),
    ("ceiling: full", "ceiling_full", "touch", True),
    ("ceiling: blocked-full", "ceiling_blocked", "touch", True),
]
SERIES_TCP = [
    ("Poseidon", "push_pull_in_place", "touch", False),
    ("OpenMPI", "mpi_allreduce_tcp", "touch", False),
    ("OpenMPI, tuned", "mpi_allreduce_tcp_tuned", "touch", False),
    ("Gloo", "gloo_allreduce", "touch", False),
    ("Gloo, tuned", "gloo_allreduce_tuned", "touch", False),
    ("torch.distributed.rpc", "torch_rpc_tcp", "touch", False),
    ("torch.distributed.rpc, tuned", "torch_rpc_tcp_tuned", "touch", False),
    ("ceiling: raw sockets (call alone)", "ceiling_sockets", "call", True),
]
RATIOS = [
    ("shm 2w 1s: in place / full", "push_pull_in_place", "touch", "shm", 2, 1),
    ("shm 2w 1s: chunk by chunk / blocked-full", "push_pull_streamed", "touch", "shm", 2, 1),
    ("shm 2w 1s: ordinary / best copyin", "push_pull", "call", "shm", 2, 1),
    ("shm 4w 1s: in place / full", "push_pull_in_place", "touch", "shm", 4, 1),
    ("tcp 1w 1s: ordinary / raw sockets", "push_pull", "call", "tcp", 1, 1),
    ("tcp 2w 1s: ordinary / raw sockets", "push_pull", "call", "tcp", 2, 1),
]
LATENCIES = [
    ("shm 1w 1s: push_pull", "push_pull_in_place", "call", "shm", 1, 1, False),
    ("shm 1w 1s: nobody spins", "push_pull_no_spin", "call", "shm", 1, 1, False),
    ("tcp 1w 1s: push_pull", "push_pull_in_place", "call", "tcp", 1, 1, False),
    ("tcp 1w 1s: nobody spins", "push_pull_no_spin", "call", "tcp", 1, 1, False),
    ("raw sockets, spinning", "ceiling_sockets_spin", "call", "tcp", 1, 1, True),
    ("raw sockets", "ceiling_sockets", "call", "tcp", 1, 1, True),
    ("ping: shared memory, spinning", "ping_shm_spin", "call", "shm", 1, 1, True),
    ("ping: shared memory", "ping_shm", "call", "shm", 1, 1, True),
]


class Results:
    """Figures by what they are of."""

    def __init__(self, path):
        self.lines = {}
        for line in map(json.loads, open(path, encoding="utf-8")):
            key = (line["name"], line["timing"], line["transport"], line["workers"],
                   line["servers"])
            self.lines.setdefault(key, {})[line["bytes"]] = line

    def points(self, name, timing, transport, workers, servers, field="value"):
        """[(bytes, figure)] in rising order."""
        group = self.lines.get((name, timing, transport, workers, servers), {})
        return sorted((size, line[field]) for size, line in group.items()
                      if line[field] is not None and line[field] > 0)


class Scale:
    """Where a number lies on the paper."""

    def __init__(self, low, high, begin, end, logarithmic):
        self.turn = math.log10 if logarithmic else float
        self.low, self.high = self.turn(low), self.turn(high)
        self.begin, self.end = begin, end

    def at(self, value):
        share = (self.turn(value) - self.low) / ((self.high - self.low) or 1)
        return self.begin + share * (self.end - self.begin)


def size_text(size):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def decades(low, high):
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


class Places:
    """Sizes side by side, each as far from the next."""

    def __init__(self, sizes, begin, end):
        step = (end - begin) / max(len(sizes) - 1, 1)
        self.places = {size: begin + step * index for index, size in enumerate(sizes)}

    def at(self, size):
        return self.places[size]


class Chart:
    """Lines over sizes; y logarithmic unless ticks are given."""

    def __init__(self, title, unit, ticks=None):
        self.title, self.unit, self.ticks = title, unit, ticks
        self.series = []

    def add(self, label, points, dashed=False, whiskers=()):
        if points:
            self.series.append((label, points, dashed, dict(whiskers)))

    def y_range(self):
        values = [y for _, points, _, more in self.series
                  for y in [y for _, y in points] + [*more.values()]]
        if self.ticks:
            return self.ticks[0], max(self.ticks[-1], max(values) * 1.05)
        marks = decades(min(values), max(values))
        return marks[0], marks[-1]

    def frame(self, x, y, y_range, sizes):
        yield (f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
               f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(self.title)}</text>'
               f'<text x="{LEFT - 52}" y="{TOP - 14}">{escape(self.unit)}</text>')
        for mark in self.ticks or decades(*y_range):
            at = y.at(mark)
            yield (f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{mark:g}</text>')
        for size in sizes:
            at = x.at(size)
            yield (f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}" '
                   f'stroke="#555"/><text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" '
                   f'text-anchor="middle" font-size="10">{size_text(size)}</text>')
        yield (f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" '
               f'stroke="#555"/><text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" '
               f'text-anchor="middle">tensor</text>')

    def line(self, index, x, y):
        label, points, dashed, whiskers = self.series[index]
        colour = COLOURS[index % len(COLOURS)]
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        path = " ".join(f"{x.at(size):.1f},{y.at(value):.1f}" for size, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        for size, value in points:
            yield f'<circle cx="{x.at(size):.1f}" cy="{y.at(value):.1f}" r="3" fill="{colour}"/>'
            if size in whiskers:
                yield (f'<line x1="{x.at(size):.1f}" x2="{x.at(size):.1f}" y1="{y.at(value):.1f}" '
                       f'y2="{y.at(whiskers[size]):.1f}" stroke="{colour}"/>')
        at = TOP + 8 + 20 * index
        left = WIDTH - RIGHT + 14
        yield (f'<line x1="{left}" x2="{left + 22}" y1="{at}" y2="{at}" stroke="{colour}" '
               f'stroke-width="2"{dash}/><text x="{left + 28}" y="{at + 4}">{escape(label)}</text>')

    def svg(self):
        sizes = sorted({size for _, points, _, _ in self.series for size, _ in points})
        y_range = self.y_range()
        x = Places(sizes, LEFT + 16, WIDTH - RIGHT - 16)
        y = Scale(*y_range, HEIGHT - BOTTOM, TOP, not self.ticks)
        yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
               f'font-family="sans-serif" font-size="11">')
        yield from self.frame(x, y, y_range, sizes)
        for index in range(len(self.series)):
            yield from self.line(index, x, y)
        yield "</svg>"


def charts(results):
    shm = Chart("Same host, 2 workers, 1 server: gradient written, result read", "GB/s per worker")
    for label, name, timing, dashed in SERIES_SHM:
        shm.add(label, results.points(name, timing, "shm", 2, 1), dashed)
    tcp = Chart("tcp on loopback, 2 workers, 1 server", "GB/s per worker")
    for label, name, timing, dashed in SERIES_TCP:
        tcp.add(label, results.points(name, timing, "tcp", 2, 1), dashed)
    ratio = Chart("How near to the ceiling", "ratio", ticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2])
    for label, *key in RATIOS:
        ratio.add(label, results.points(*key, field="ratio"))
    latency = Chart("One push_pull: median, and up to the 99th percentile", "us")
    for label, name, timing, transport, workers, servers, dashed in LATENCIES:
        where = (timing, transport, workers, servers)
        latency.add(label, results.points(name + "_p50", *where), dashed,
                    results.points(name + "_p99", *where))
    return {"throughput_shm": shm, "throughput_tcp": tcp, "ratio": ratio, "latency": latency}


def main():
    parser = argparse.ArgumentParser(description="Draws the results of psd_bench as SVG.")
    parser.add_argument("source", nargs="?", type=pathlib.Path,
                        default=pathlib.Path("bench/results/latest.jsonl"), help="[%(default)s]")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="for the plots [the source's]")
    arguments = parser.parse_args()
    folder = arguments.folder or arguments.source.parent
    try:
        results = Results(arguments.source)
    except (OSError, ValueError) as error:
        sys.exit(f"plot: cannot read results: {error}; psd_bench writes them")
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in charts(results).items():
        if chart.series:
            path = folder / f"{name}.svg"
            path.write_text("\n".join(chart.svg()) + "\n", encoding="utf-8")
            print(f"plot: {path}")


if __name__ == "__main__":
    main()
