#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what the runs of tools/test.sh have left.

    tools/test_report.py failed FILE        names of the tests that failed, one on a line
    tools/test_report.py slowest FILE...    the ten that took longest

Files are testlog.json of Meson, or JUnit's XML of pytest. One that is not there has no tests: who wrote none has crashed."""

import json
import pathlib
import sys
import xml.etree.ElementTree

SLOWEST = 10


def of_meson(path):
    for line in path.read_text().splitlines():
        result = json.loads(line)
        yield result["name"].split(" / ")[-1], result["duration"], result["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")


def of_pytest(path):
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        failed = any(child.tag in ("failure", "error") for child in case)
        *_, module = case.get("classname", "").split(".")
        yield f"{module}::{case.get('name')}", float(case.get("time", 0)), failed


def tests_in(name):
    """(name, seconds, whether it failed) of each."""
    path = pathlib.Path(name)
    if not path.exists():
        return []
    return list((of_pytest if path.suffix == ".xml" else of_meson)(path))


def main(what, *names):
    tests = [test for name in names for test in tests_in(name)]
    if what == "failed":
        print(*(name for name, _, failed in tests if failed), sep="\n")
    else:
        for name, seconds, _ in sorted(tests, key=lambda test: -test[1])[:SLOWEST]:
            print(f"{seconds:7.1f} s  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
