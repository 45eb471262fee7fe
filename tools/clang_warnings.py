#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every C file as clang reads it: tools/clang_warnings.py BUILD_DIRECTORY, which was set up with CC=clang. Warnings are errors.

Nothing is compiled to code or linked, which takes most of the time of a build: the builds with sanitizers do that by clang."""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def without_output(words):
    """The words of a command but those that name the files that it would write."""
    kept, left = [], iter(words)
    for word in left:
        if word in ("-o", "-MF", "-MQ"):
            next(left)
        elif word not in ("-c", "-MD"):
            kept.append(word)
    return kept


def main(build):
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    generated = [entry["file"] for entry in entries if not entry["file"].startswith((os.pardir, os.sep))]
    if generated:
        subprocess.run(["ninja", "-C", build, "--quiet", *generated], stdout=subprocess.DEVNULL, check=True)
    # A file may be compiled for several programs, in the same way.
    ways = {}
    for entry in entries:
        words = without_output(shlex.split(entry["command"]))
        if any(word.startswith(("-fsanitize", "-fprofile")) for word in words):
            continue  # of fuzz targets, which somebody builds who wants them
        alike = tuple(word for word in words if not word.endswith(".p"))  # but for the folder of a program's own objects
        ways.setdefault((entry["file"], alike), (words, entry["directory"]))

    def passes(way):
        words, directory = way
        return subprocess.run([*words, "-fsyntax-only"], cwd=directory, check=False).returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = list(pool.map(passes, ways.values())).count(False)
    print(f"clang has read {len(ways)} files" + (f", and complains of {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
