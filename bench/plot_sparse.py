#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what psd_bench sparse and torch_sparse.py measured: bench/plot_sparse.py [RESULTS.jsonl] [FOLDER]

Writes sparse_speed.svg, million ids per second, and sparse_ratio.svg, how many times as fast as others, with goals. Both are
bars on a logarithmic scale; nothing but Python's own library is needed."""

import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, LABELS, BAR, TOP, BOTTOM = 1040, 500, 18, 48, 36
OURS, THEIRS, GOAL = "#0b5fa5", "#b0b7bf", "#d1495b"


def label_of(line):
    """What was measured, in few words."""
    words = [line["name"].split(": ", 1)[-1]]
    for key, text in (("transport", "{}"), ("workers", "{}w"), ("servers", "{}s"), ("width", "width {}"), ("batch", "batch {}"),
                      ("rows", "{} rows")):
        if key in line:
            words.append(text.format(line[key]))
    return ", ".join(words)


class Bars:
    """Bars from left to right, one below the other."""

    def __init__(self, title):
        self.title, self.rows = title, []

    def add(self, label, value, colour, mark=None):
        self.rows.append((label, value, colour, mark))

    def svg(self):
        numbers = [number for _, value, _, mark in self.rows for number in (value, mark) if number]
        low = math.floor(math.log10(min(numbers)))
        high = max(math.ceil(math.log10(max(numbers))), low + 1)
        height = TOP + BAR * len(self.rows) + BOTTOM

        def at(value):
            return LABELS + (math.log10(value) - low) / (high - low) * (WIDTH - LABELS - 60)

        yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">'
        yield f'<rect width="{WIDTH}" height="{height}" fill="white"/><text x="12" y="24" font-size="14">{escape(self.title)}</text>'
        for power in range(low, high + 1):
            x = at(10.0**power)
            yield (f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - BOTTOM}" stroke="#dddddd"/>'
                   f'<text x="{x:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{10.0**power:g}</text>')
        for index, (label, value, colour, mark) in enumerate(self.rows):
            y = TOP + BAR * index
            yield f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>'
            yield f'<rect x="{LABELS}" y="{y + 2}" width="{max(at(value) - LABELS, 1):.1f}" height="{BAR - 5}" fill="{colour}"/>'
            yield f'<text x="{at(value) + 4:.1f}" y="{y + 12}">{value:.3g}</text>'
            if mark:
                yield f'<line x1="{at(mark):.1f}" x2="{at(mark):.1f}" y1="{y}" y2="{y + BAR}" stroke="{GOAL}" stroke-width="2"/>'
        yield "</svg>"


def charts(lines):
    """Of the lines that have both a figure and somebody beside it."""
    speed = Bars("Rows of sparse tables: million ids per second (grey: others, beside)")
    ratio = Bars("How many times as fast as others (red: the goal)")
    last = None
    for line in lines:
        if line["unit"] == "M ids/s":
            if label_of(line) != last:
                speed.add(label_of(line), line["value"], OURS)
            last = label_of(line)
            if line.get("reference"):
                speed.add(line["reference_name"], line["reference"], THEIRS)
        if line.get("ratio"):
            ratio.add(f"{label_of(line)} / {line['reference_name']}", line["ratio"], OURS, line.get("goal"))
    return {"sparse_speed": speed, "sparse_ratio": ratio}


def main():
    parser = argparse.ArgumentParser(description="Draws the results of psd_bench sparse as SVG.")
    parser.add_argument("source", nargs="?", type=pathlib.Path, default=pathlib.Path("bench/results/sparse.jsonl"), help="[%(default)s]")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="for the plots [the source's]")
    arguments = parser.parse_args()
    folder = arguments.folder or arguments.source.parent
    try:
        lines = [json.loads(line) for line in arguments.source.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        sys.exit(f"plot_sparse: cannot read results: {error}; psd_bench --json {arguments.source} sparse writes them")
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in charts(lines).items():
        if chart.rows:
            path = folder / f"{name}.svg"
            path.write_text("\n".join(chart.svg()) + "\n", encoding="utf-8")
            print(f"plot: {path}")


if __name__ == "__main__":
    main()
