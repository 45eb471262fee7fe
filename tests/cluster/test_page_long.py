# SPDX-License-Identifier: Apache-2.0
"""Ten minutes of a large job with a page open in a real browser: what it takes of memory, and whether that ends.

PSD_LONG_S=60 for a shorter look."""

import os
import subprocess
import threading
import time

import pytest

import browser
import recorded_feed
from helpers import HERE, library_path, wait_for
from test_page import Replay, needs_browser, needs_charts, open_page, page_of

SECONDS = float(os.environ.get("PSD_LONG_S", "600"))
WORKERS = 64
HEAP_MOST, GROWTH_MOST = 200e6, 64e6
STILL_MOST = 1e6  # in the second half: what malloc's arenas may come and go by
pytestmark = [pytest.mark.all, needs_browser, needs_charts]


def resident(pid):
    """Bytes of a process's own, without files."""
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no RssAnon")


class Look:
    """Memory over time, of psd_run (or who serves its page) and of the browser."""

    def __init__(self, pid, looks):
        self.pid, self.looks, self.rows, self.begun = pid, looks, [], time.monotonic()

    def until_the_end(self, seconds, goes_on):
        """Looks every 15 s."""
        end = self.begun + seconds
        while time.monotonic() < end:
            due = min(end, time.monotonic() + 15)
            while time.monotonic() < due:
                assert goes_on()
                time.sleep(0.2)  # the time that passes, not a wait for anything
            self.looks.devtools("HeapProfiler.collectGarbage")
            heap = self.looks.run("return performance.memory.usedJSHeapSize")
            updates = self.looks.run("return Number(document.documentElement.dataset.updates)")
            self.rows.append((time.monotonic() - self.begun, resident(self.pid), heap, updates))

    def check(self, name):
        grown = self.rows[-1][1] - self.rows[0][1]
        half = [row for row in self.rows if row[0] >= self.rows[-1][0] / 2]
        # Of each end of the second half the median of a few looks: one may fall into the writing of a state.
        ends = [sorted(row[1] for row in part)[len(part) // 2] for part in (half[:5], half[-5:])]
        heap = max(row[2] for row in self.rows)
        print(f"\n{name}, {self.rows[-1][0]:.0f} s, {self.rows[-1][3]:.0f} updates: resident {self.rows[0][1] / 1e6:.1f} MB after "
              f"{self.rows[0][0]:.0f} s, {self.rows[-1][1] / 1e6:.1f} MB in the end; in the second half {(ends[1] - ends[0]) / 1e6:+.2f} MB; "
              f"browser heap {heap / 1e6:.1f} MB at most")
        for row in self.rows:
            print(f"  {row[0]:6.0f} s  {row[1] / 1e6:7.2f} MB  heap {row[2] / 1e6:6.1f} MB  {row[3]:6.0f} updates")
        assert heap <= HEAP_MOST and grown <= GROWTH_MOST
        assert ends[1] - ends[0] <= STILL_MOST


@pytest.fixture
def pushes(tmp_path):
    path, library = tmp_path / "pushes", library_path()
    subprocess.run(["cc", "-O2", "-I", str(HERE.parents[1] / "include"), str(HERE / "pushes.c"), "-o", str(path), str(library),
                    f"-Wl,-rpath,{library.parent}"], check=True)
    return path


def test_sixty_four_real_workers(start, pushes):
    """If this fails, the page of a large job takes more and more memory, or the browser's."""
    ms = 250
    job = start("--heartbeat_ms", 5000, "--workers", WORKERS, "--servers", 2, "--lanes", 1, "--", pushes,
                int(SECONDS * 2000 / ms) + 1000, 4096, ms)
    with browser.Browser() as looks:
        wait_for(lambda: list(job.directory.glob("logs/*/page_address")), 120, "the page's address")
        looks.open(page_of(job))
        looks.until("return Number(document.documentElement.dataset.updates) > 3", what="three updates")
        looks.run("const m = document.getElementById('curve-mode'); m.value = 'each'; m.dispatchEvent(new Event('input'))")
        look = Look(job.process.pid, looks)
        look.until_the_end(SECONDS, lambda: job.process.poll() is None)
        assert looks.run("return document.querySelectorAll('#process-table tbody tr').length") == WORKERS + 3
    job.process.terminate()
    job.process.wait(timeout=120)
    look.check(f"{WORKERS} workers in C")


def test_a_recorded_feed(tmp_path):
    """If this fails, the page takes more and more memory where steps are fast: 10,000 in a minute."""
    served = Replay(tmp_path / "report.html", recorded_feed.Feed(workers=WORKERS, servers=4))
    stop = threading.Event()

    def feed():
        turns, due = 0, time.monotonic()
        while not stop.is_set():
            news = served.feed.forward(0.5)
            if turns % 40 == 0:
                served.tell(news)  # with the whole state, for who comes later; large
            else:
                recorded_feed.write(served.process.stdin, "D", news)
            turns, due = turns + 1, due + 0.5
            stop.wait(max(0, due - time.monotonic()))

    teller = threading.Thread(target=feed)
    teller.start()
    try:
        with browser.Browser() as looks:
            open_page(looks, served.address)
            looks.until("return Number(document.documentElement.dataset.updates) > 3", what="three updates")
            looks.run("const m = document.getElementById('curve-mode'); m.value = 'each'; m.dispatchEvent(new Event('input'))")
            look = Look(served.process.pid, looks)
            look.until_the_end(SECONDS, lambda: served.process.poll() is None)
    finally:
        stop.set()
        teller.join()
        served.end()
    look.check(f"a feed of {WORKERS} workers")
    assert served.feed.step >= SECONDS * 10_000 / 60 * 0.9
