#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of docs/watching.md: the page over a recorded feed, in a real browser.

    .venv/bin/python tests/cluster/page_pictures.py docs/images"""

import pathlib
import subprocess
import sys
import tempfile

import browser
import recorded_feed
from helpers import bin_directory

REPLAY = (bin_directory() / "psd_run").resolve().parent / "tests" / "page" / "page_replay"
SHAPES = {"page": {"width": 1280, "height": 1130}, 
          "page-phone": {"width": 390, "height": 800, "phone": True}, "page-phone-dark": {"width": 390, "height": 800, "phone": True, "dark": True}}


def take(directory, name, shape, served, feed):
    with browser.Browser(**shape) as looks:
        looks.open(served.address)
        for _ in range(8):  # rates need more than one look
            served.tell(feed)
            seen = looks.run("return Number(document.documentElement.dataset.updates || 0)")
            looks.until("return Number(document.documentElement.dataset.updates || 0) > arguments[0]", seen, what="news")
        looks.picture(directory / f"{name}.webp")
        if name == "page":
            looks.run("document.getElementById('processes').scrollIntoView()")
            looks.until("return document.querySelectorAll('#cluster-svg .edge').length > 0", what="the cluster")
            looks.picture(directory / "page-cluster.webp")


class Served:
    """page_replay over a feed."""

    def __init__(self, feed, report):
        self.process = subprocess.Popen([REPLAY, report], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tell(feed)
        self.address = self.process.stdout.readline().strip()

    def tell(self, feed):
        news = feed.forward(0.5)
        recorded_feed.write(self.process.stdin, "W", feed.whole())
        recorded_feed.write(self.process.stdin, "D", news)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def main():
    directory = pathlib.Path(sys.argv[1])
    feed = recorded_feed.Feed(workers=8, servers=2)
    for _ in range(90):  # a job that has run for a while
        feed.forward(1.0)
        feed.began -= 1000
    with tempfile.TemporaryDirectory() as scratch:
        served = Served(feed, pathlib.Path(scratch) / "report.html")
        for name, shape in SHAPES.items():
            take(directory, name, shape, served, feed)
        served.end()


if __name__ == "__main__":
    main()
