#!/usr/bin/env python3
"""Prints which folder of src/ includes which, and fails on an edge that the architecture does not have.

The allowed edges are those of docs/architecture.md; every folder may include base and include/psd.
"""
import pathlib
import re
import sys

ALLOWED = {
    "base": set(),
    "config": {"clock", "base"},
    "table": set(),
    "shard": set(),
    "clock": set(),
    "wire": {"table", "shard", "clock"},
    "transport": set(),
    "secure": {"wire", "transport"},
    "rpc": {"wire", "transport"},
    "checkpoint": {"table"},
    "client": {"secure", "checkpoint", "store", "rpc", "wire", "transport", "table", "shard", "clock", "config"},
    "store": {"table", "shard"},
    "daemon": {"secure", "transport", "config"},
    "server": {"daemon", "secure", "store", "rpc", "wire", "transport", "table", "shard", "clock", "config"},
    "master": {"daemon", "secure", "rpc", "wire", "transport", "table", "shard", "clock", "config"},
    "launch": {"secure", "rpc", "transport", "config"},
}

root = pathlib.Path(__file__).resolve().parent.parent / "src"
edges = {}
for path in sorted(root.rglob("*.[ch]")):
    if path.stem.endswith(("_test", "_bed")):
        continue  # a test may look at anything
    folder = path.relative_to(root).parts[0]
    for name in re.findall(r'#include "([a-z_]+)/', path.read_text()):
        if name not in (folder, "base"):
            edges.setdefault((folder, name), path)

wrong = [edge for edge in edges if edge[1] not in ALLOWED.get(edge[0], set())]
for folder in ALLOWED:
    print(f"{folder:10} -> {' '.join(sorted(to for source, to in edges if source == folder)) or '-'}")
for source, to in wrong:
    print(f"not in the architecture: {source} -> {to} ({edges[source, to].name})", file=sys.stderr)
sys.exit(1 if wrong else 0)
