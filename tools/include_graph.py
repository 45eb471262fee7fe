#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who includes whom in src/: prints it, draws it, and fails where the architecture says otherwise.

A folder that holds sources is a room; `launch/text` is one, `launch` another. Wrong is
  - an include from one room to another that ALLOWED does not list;
  - a cycle between rooms, also in ALLOWED itself;
  - a cycle between the files of a room (x.c and x.h are one).

    tools/include_graph.py                                    prints the rooms, checks
    tools/include_graph.py --metrics                          files and lines of each room, as well
    tools/include_graph.py --dot [FOLDER]                     text for Graphviz: rooms, or the files of FOLDER
    tools/include_graph.py --svg docs/images/folders.svg          a picture of the folders
    tools/include_graph.py --svg docs/images/launch.svg launch    ... of the rooms inside one folder
"""
import argparse
import pathlib
import re
import sys

# Every room may include base and include/psd.
ALLOWED = {
    "base": set(),
    "metric": set(),
    "config": {"clock"},
    "cluster": {"config"},
    "shard": set(),
    "table": {"shard"},
    "clock": set(),
    "view": set(),
    "codec": {"table"},
    "wire": {"metric", "view", "codec", "table", "shard", "clock"},
    "transport": set(),
    "transport/shm": {"transport"},
    "transport/loop": {"transport", "transport/shm"},
    "transport/stream": {"transport", "transport/shm", "transport/loop"},
    "transport/tcp": {"transport/stream"},
    "transport/inproc": {"transport/stream"},
    "transport/world": {"transport", "transport/loop", "transport/stream"},
    "secure": {"wire", "transport"},
    "rpc": {"view", "wire", "transport"},
    "checkpoint": {"table", "shard"},
    "client/core": {"metric", "store", "view", "rpc", "wire", "codec", "transport", "table", "shard", "clock"},
    "client/read": {"view", "client/core", "rpc", "wire", "transport", "table", "shard"},
    "client/host": {"view", "client/core", "store", "rpc", "codec"},
    "client/api": {"metric", "view", "client/core", "client/read", "table", "secure", "checkpoint", "rpc", "wire", "transport", "transport/loop", "config"},
    "store": {"table", "shard"},
    "store/dense": {"store", "table", "shard"},
    "store/sparse": {"store", "table", "shard"},
    "daemon": {"secure", "transport", "transport/loop", "config"},
    "server": {"metric", "view", "daemon", "checkpoint", "secure", "store", "store/dense", "store/sparse", "rpc", "wire", "codec", "transport", "transport/loop", "table", "shard", "clock", "config", "cluster"},
    "master": {"metric", "view", "daemon", "checkpoint", "secure", "rpc", "wire", "transport", "transport/loop", "table", "shard", "clock", "config", "cluster"},
    # psd_run: its rooms, the lowest first.
    "launch/text": set(),
    "launch/system": {"launch/text"},
    "launch/link": {"launch/text", "launch/system", "secure", "config"},
    "launch/agent": {"launch/text", "launch/system", "launch/link", "config"},
    "launch/rules": set(),
    "launch/plan": {"launch/text", "launch/system", "launch/rules", "cluster", "config"},
    "launch/meet": {
        *("launch/text", "launch/system", "launch/link", "launch/agent", "launch/plan"),
        *("secure", "rpc", "transport", "transport/loop", "cluster", "config"),
    },
    "launch/tell": {"launch/text", "launch/system", "launch/link", "launch/rules"},
    "launch/page": {"launch/text", "launch/system", "metric", "wire", "shard", "table", "transport/loop"},
    "launch/prepare": {
        *("launch/text", "launch/system", "launch/link", "launch/rules", "launch/plan", "launch/meet"),
        *("cluster", "config", "checkpoint"),
    },
    "launch/run": {
        *("launch/text", "launch/system", "launch/link", "launch/agent", "launch/rules", "launch/plan"),
        *("launch/meet", "launch/tell", "launch/page", "client/api", "wire"),
    },
    "launch/multi": {
        *("launch/text", "launch/system", "launch/link", "launch/agent", "launch/plan", "launch/meet"),
        *("launch/prepare", "launch/run", "transport", "config"),
    },
    "launch/cli": {
        *("launch/text", "launch/system", "launch/link", "launch/agent", "launch/rules", "launch/plan"),
        *("launch/meet", "launch/tell", "launch/page", "launch/prepare", "launch/run", "client/api", "launch/multi"),
        *("secure", "cluster", "config", "checkpoint"),
    },
}

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"


class Source:
    """One .c or .h that goes into a library or a program."""

    def __init__(self, path):
        self.path = path
        self.room = path.parent.relative_to(ROOT).as_posix()
        self.module = path.relative_to(ROOT).with_suffix("").as_posix()
        self.text = path.read_text()
        self.includes = re.findall(r'^#include "([a-z0-9_/]+)\.h"', self.text, re.M)


def sources():
    """All of src/ but the tests, which may look at anything."""
    paths = sorted(ROOT.rglob("*.[ch]"))
    return [Source(path) for path in paths if not path.stem.endswith(("_test", "_bed"))]


def room_edges(files):
    """{(room, room): a file that includes across}."""
    edges = {}
    for file in files:
        for name in file.includes:
            room = name.rpartition("/")[0]
            if room not in (file.room, "base", "psd", ""):
                edges.setdefault((file.room, room), file.path)
    return edges


def module_edges(files):
    """{(module, module)} among the files of src/."""
    modules = {file.module for file in files}
    return {(file.module, name) for file in files for name in file.includes if name in modules and name != file.module}


def cycles(edges):
    """The strongly connected parts of more than one node, each sorted (Tarjan)."""
    after = {}
    for source, to in edges:
        after.setdefault(source, []).append(to)
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in sorted(after.get(node, [])):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            at = stack.index(node)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted({node for edge in edges for node in edge}):
        if node not in index:
            visit(node)
    return sorted(found)


def problems(files):
    """What is wrong, a line each."""
    edges = room_edges(files)
    for (source, to), path in sorted(edges.items()):
        if to not in ALLOWED.get(source, set()):
            yield f"not in the architecture: {source} -> {to} ({path.relative_to(ROOT)})"
    for part in cycles({(source, to) for source in ALLOWED for to in ALLOWED[source]} | set(edges)):
        yield f"a cycle of rooms: {' '.join(part)}"
    for part in cycles(module_edges(files)):
        yield f"a cycle of files: {' '.join(part)}"


def print_rooms(files):
    edges = room_edges(files)
    width = max(len(room) for room in ALLOWED)
    for room in ALLOWED:
        print(f"{room:{width}} -> {' '.join(sorted(to for source, to in edges if source == room)) or '-'}")


def long_functions(text, limit=70):
    """How many functions have more lines than that: from the '{' to the '}' in the first column."""
    starts = [match.start() for match in re.finditer(r"^\{$", text, re.M)]
    ends = [match.start() for match in re.finditer(r"^\}$", text, re.M)]
    return sum(1 for start, end in zip(starts, ends) if text.count("\n", start, end) > limit)


def print_metrics(files):
    rooms = {}
    for file in files:
        of_room = rooms.setdefault(file.room, [0, 0, 0, 0])
        lines = file.text.count("\n")
        for at, more in enumerate((1, lines, lines > 600, long_functions(file.text))):
            of_room[at] += more
    rooms["all"] = [sum(column) for column in zip(*rooms.values())]
    print(f"\n{'room':16}{'files':>7}{'lines':>8}{'files over 600 lines':>22}{'functions over 70':>19}")
    for room, (count, lines, big, long) in rooms.items():
        print(f"{room:16}{count:7}{lines:8}{big:22}{long:19}")
    parts = cycles(module_edges(files))
    print(f"\ncycles of files: {len(parts)}")
    for part in parts:
        lines = sum(file.text.count("\n") for file in files if file.module in part)
        print(f"  {len(part)} modules, {lines} lines: {' '.join(part)}")


def picture_edges(files, folder):
    """The nodes and edges to draw: folders of src/; or the rooms of one folder, or its files."""
    if folder is None:
        name = lambda path: path.split("/")[0]
    elif any(file.room.startswith(folder + "/") for file in files):
        name = lambda path: path.rpartition("/")[0] if path.startswith(folder + "/") else None
    else:
        name = lambda path: path if path.rpartition("/")[0] == folder else None
    nodes, edges = set(), set()
    for file in files:
        source = name(file.module)
        if source is None:
            continue
        nodes.add(source)
        for to in filter(None, map(name, file.includes)):
            if to not in (source, "psd") and not (folder is None and to == "base"):
                edges.add((source, to))
    return nodes, edges


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--dot", action="store_true")
    parser.add_argument("--svg", metavar="FILE")
    parser.add_argument("folder", nargs="?")
    args = parser.parse_args()
    files = sources()
    if args.dot or args.svg:
        import include_picture

        nodes, edges = picture_edges(files, args.folder)
        if args.dot:
            print(include_picture.dot(nodes, edges))
        if args.svg:
            pathlib.Path(args.svg).write_text(include_picture.svg(nodes, edges))
        return 0
    print_rooms(files)
    if args.metrics:
        print_metrics(files)
    wrong = list(problems(files))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
