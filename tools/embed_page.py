#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts psd_run's page together: one HTML document that loads nothing, as C for the program.

    tools/embed_page.py --assets src/launch/page/assets [--charts .uplot] --out document_bytes.c

The document is page.html with all styles and scripts inside. Its Content-Security-Policy names their
digests: nothing else runs, whatever a log line says. --charts is the folder of uPlot's files
(tools/setup.sh fetches them); without it the page has no curves and says so."""

import argparse
import base64
import hashlib
import pathlib
import sys

SCRIPTS = ("text.js", "series.js", "state.js", "charts.js", "curves.js", "waits.js", "overview.js",
           "processes.js", "cluster.js", "tables.js", "logs.js", "main.js")
CHART_FILES = ("uPlot.min.css", "uPlot.iife.min.js")
DATA = "<!-- data -->"
BYTES_MAX = 300_000


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def document(assets, charts):
    """(head, tail, policy): the data of a report stands between the halves."""
    library = [(charts / name).read_text() if charts else "" for name in CHART_FILES]
    style = library[0] + (assets / "page.css").read_text()
    if charts:
        library[1] = f"/*\n{(charts / 'LICENSE').read_text()}*/\n" + library[1]
    script = library[1] + "\n(function () {\n\"use strict\";\n"
    script += "".join((assets / name).read_text() for name in SCRIPTS) + "}());\n"
    for text in (style, script):
        if "</s" in text.lower().replace("</svg", ""):
            sys.exit("embed_page: a style or script would end its own element")
    rules = f"style-src {digest(style)}; script-src {digest(script)}; connect-src 'self'; img-src data:"
    policy = f"default-src 'none'; {rules}; base-uri 'none'; form-action 'none'"
    page = (assets / "page.html").read_text()
    page = page.replace("<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    page = page.replace("<!-- style -->", f"<style>{style}</style>")
    page = page.replace("<!-- script -->", f"<script>{script}</script>")
    head, tail = page.split(DATA)
    return head, tail, policy + "; frame-ancestors 'none'"


def as_c(name, text):
    """A string of C: an array of numbers, as no compiler limits its length."""
    numbers = ",".join(str(byte if byte < 128 else byte - 256) for byte in text.encode() + b"\0")
    return f"const char {name}[] = {{{numbers}}};\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--assets", type=pathlib.Path, required=True)
    parser.add_argument("--charts", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    head, tail, policy = document(arguments.assets, arguments.charts)
    if len(head) + len(tail) > BYTES_MAX:
        sys.exit(f"embed_page: the page has {len(head) + len(tail)} bytes, and {BYTES_MAX} is the limit")
    arguments.out.write_text('/* Made by tools/embed_page.py. */\n#include "launch/page/document_bytes.h"\n\n'
                             + as_c("document_head", head) + as_c("document_tail", tail)
                             + as_c("document_policy_text", policy))


if __name__ == "__main__":
    main()
