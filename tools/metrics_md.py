#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The catalogue of metrics: writes docs/metrics.md from the one map in src/metric/metric.h.

    tools/metrics_md.py            fails when the page is not what the map says
    tools/metrics_md.py --write    writes the page
"""
import argparse
import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
MAP = TREE / "src" / "metric" / "metric.h"
PAGE = TREE / "docs" / "metrics.md"
ROW = re.compile(r'X\((\d+), (\w+), (\w+), (COUNTER|GAUGE), "([^"]*)", ([A-Z |]+), "([^"]*)"\)')

HEAD = """# Metrics

What the processes of a job count. `tools/metrics_md.py` makes this page from `src/metric/metric.h`: change that map.
docs/waiting.md says how to look at them: on the page, with `psd_run show --json` (`feed.processes[].metrics`), with
Prometheus. A *counter* grows from 0 at the start of its process; a *gauge* is as it is now. Times are of tensors of 4,096
elements and more, but for the processor time, for sleeping and for the time that rounds waited; those of a worker's steps
are counted while somebody watches.

The last column is the name in the text of Prometheus, in seconds where the unit is nanoseconds. All have the labels
`job_name`, `role`, `index` and `host`; a server is the sum of its lanes. Besides them there are psd_step, psd_processes (by
`state`), psd_elapsed_seconds, and psd_scalar, what programs report, by `name`; of each server psd_round_wait_for_seconds_total, how
long its rounds lacked the gradient of one worker alone, by `worker`; of each `table`, over all workers,
psd_table_gradients_total, psd_table_gradient_bytes_total, psd_table_values_total and psd_table_value_bytes_total.

| name | kind | unit | counted by | what it is | Prometheus |
|---|---|---|---|---|---|
"""


def joined(text):
    """The map, with the lines of a macro joined, and strings that stand behind each other."""
    text = re.sub(r"\s*\\\n\s*", " ", text)
    return re.sub(r'"\s+"', "", text)


def prometheus(name, kind, unit):
    """As src/launch/page/feed_export.c makes it."""
    if unit == "nanoseconds":
        name += "_seconds"
    elif unit == "bytes" and "bytes" not in name:
        name += "_bytes"
    return "psd_" + name + ("_total" if kind == "COUNTER" else "")


def rows():
    """(number, name, kind, unit, who, text) of each metric, in the order of their numbers."""
    found = ROW.findall(joined(MAP.read_text()))
    numbers = [int(row[0]) for row in found]
    if not found or numbers != list(range(len(found))):
        sys.exit(f"{MAP}: numbers of metrics are {numbers}, expected one after the other from 0")
    return found


def page():
    """The whole page."""
    lines = []
    for _, _, name, kind, unit, who, text in rows():
        by = ", ".join({"LANE": "server"}.get(word, word.lower()) for word in who.split(" | "))
        lines.append(f"| {name} | {kind.lower()} | {unit} | {by} | {text} | {prometheus(name, kind, unit)} |\n")
    return HEAD + "".join(lines)


def main():
    """Compares, or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(page())
    elif not PAGE.exists() or PAGE.read_text() != page():
        sys.exit("docs/metrics.md is not what src/metric/metric.h says: run tools/metrics_md.py --write")


if __name__ == "__main__":
    main()
