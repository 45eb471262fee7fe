# SPDX-License-Identifier: Apache-2.0
"""The page on which people watch a job: a real browser looks at it, and strangers try to."""

import contextlib
import http.client
import json
import math
import os
import pathlib
import platform
import re
import signal
import socket
import ssl
import stat
import subprocess
import urllib.parse
import uuid

import pytest

import browser
import recorded_feed
from helpers import BRISK, bin_directory, end_all, free_port, program, python_worker, wait_for

REPLAY = (bin_directory() / "psd_run").resolve().parent / "tests" / "page" / "page_replay"
needs_browser = pytest.mark.skipif(browser.DRIVER is None or browser.CHROMIUM is None, reason="no Chromium here")
needs_charts = pytest.mark.skipif(not (pathlib.Path(__file__).parents[2] / ".uplot" / "uPlot.iife.min.js").exists(),
                                  reason="no uPlot in .uplot")


class Replay:
    """The page's server over a feed of this test."""

    def __init__(self, report, feed):
        self.report = report
        self.process = subprocess.Popen([REPLAY, report], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.feed = feed
        self.tell(self.feed.forward(0.5))
        self.address = self.process.stdout.readline().strip()
        parts = urllib.parse.urlsplit(self.address)
        self.port, self.token = parts.port, urllib.parse.parse_qs(parts.query)["token"][0]

    def tell(self, news):
        recorded_feed.write(self.process.stdin, "W", dict(self.feed.whole(), report=str(self.report)))
        recorded_feed.write(self.process.stdin, "D", news)

    def go_on(self, seconds=0.5):
        self.tell(self.feed.forward(seconds))

    def tell_news(self, seconds):
        """Without the whole state, which only pages read that are opened later; of a large job it is megabytes."""
        recorded_feed.write(self.process.stdin, "D", self.feed.forward(seconds))

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=120)

    def ask(self, path="/", method="GET", **headers):
        """(status, headers, text) of a request; Host is right unless one is given. Browsers have a cookie for one path alone."""
        path = self.place + path[1:] if "Cookie" in headers else path
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        line.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = line.getresponse()
        text = answer.read(1 << 20).decode()
        line.close()
        return answer.status, answer.headers, text

    def cookie(self):
        cookie, path = self.ask(f"/?token={self.token}")[1]["Set-Cookie"].split("; ")[:2]
        self.place = path.removeprefix("Path=")
        return cookie


@pytest.fixture
def replay(tmp_path):
    """Serves feeds, and ends what a failed test leaves."""
    made = []

    def begin(feed):
        made.append(Replay(tmp_path / "report.html", feed))
        return made[-1]

    yield begin
    end_all(made)


@pytest.fixture
def served(replay):
    """A job of 3 workers and 2 servers."""
    return replay(recorded_feed.Feed(workers=3, servers=2))


# ------------------------------------------------------------------------------------------------ requests


@pytest.mark.smoke
def test_token_is_traded_for_a_cookie(served):
    """If this fails, the token stays in the browser's history, or scripts of a page can read the cookie."""
    status, headers, text = served.ask(f"/?token={served.token}")
    assert served.token not in headers["Set-Cookie"] and served.token not in text
    found = re.fullmatch(rf"psd_page_{served.port}=[0-9a-f]{{48}}; Path=(/[0-9a-f]{{16}}/); HttpOnly; SameSite=Strict", headers["Set-Cookie"])
    assert status == 200 and f'url={found[1]}"' in text
    status, headers, text = served.ask("/", Cookie=served.cookie())
    assert status == 200 and "<title>Poseidon</title>" in text
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Access-Control-Allow-Origin"] is None
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert len(text) < 300_000 and not re.search(r"(src|href)=.https?:", text)


def test_strangers_are_refused(served):
    """If this fails, somebody without the token, or a page of another site, reads the job."""
    cookie = served.cookie()
    for path in ("/", "/events", "/snapshot", "/metrics", "/../etc/passwd", "/nothing"):
        assert served.ask(path)[0] == 401
        assert served.ask(f"{path}?token=0")[0] == 403
        assert served.ask(path, Cookie=f"psd_page_{served.port}=0")[0] == 403
        assert served.ask(path, Cookie=cookie, Host="evil.example")[0] == 403
        assert served.ask(path, Cookie=cookie, Host=f"localhost:{served.port}.evil.example")[0] == 403
        assert served.ask(path, Cookie=cookie, Origin="http://evil.example")[0] == 403
        assert served.ask(path, Cookie=cookie, Origin="null")[0] == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert served.ask("/", method, Cookie=cookie)[0] == 405
    for refused in (served.ask("/"), served.ask("/", Cookie=cookie, Host="evil.example")):
        assert "train" not in refused[2] and served.token not in refused[2]
    assert served.ask("/nothing", Cookie=cookie)[0] == 404
    assert served.ask("/snapshot", Cookie=cookie, Host=f"localhost:{served.port}")[0] == 200


def test_programs_use_the_token_as_bearer(served):
    """If this fails, Prometheus cannot scrape a job, or anybody can."""
    status, headers, text = served.ask("/metrics", Authorization=f"Bearer {served.token}")
    assert status == 200 and "psd_replay 1" in text and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert served.ask("/metrics", Authorization="Bearer " + "0" * 48)[0] == 403
    snapshot = json.loads(served.ask("/snapshot", Authorization=f"Bearer {served.token}")[2])
    assert snapshot["job"]["name"] == "train"


def test_a_thousand_connections(served):
    """If this fails, whoever opens many connections takes psd_run's memory, descriptors or time, or keeps its user out."""
    process = pathlib.Path(f"/proc/{served.process.pid}")
    before = len(list((process / "fd").iterdir()))
    lines, refused = [], 0
    for _ in range(1000):
        line = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        lines.append(line)
    served.go_on()
    for line in lines:  # those beyond the limit are answered without a question, and closed
        line.setblocking(False)

    def count_refused():
        nonlocal refused
        for line in list(lines):
            try:
                said = line.recv(100)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                said = b""
            assert said == b"" or b" 503 " in said
            refused += 1
            line.close()
            lines.remove(line)
        return refused >= 1000 - 256

    wait_for(count_refused, 30, "744 of 1,000 connections to be refused")
    assert len(list((process / "fd").iterdir())) <= before + 256
    for line in lines:
        line.close()
    wait_for(lambda: served.ask("/snapshot", Authorization=f"Bearer {served.token}")[0] == 200, 30, "the page to be served again")
    assert served.end() == 0


def test_strangers_who_say_nothing_make_room(served):
    """If this fails, whoever opens 256 connections and says nothing keeps the owner out for as long as he likes; or open
    pages have to go for strangers."""
    fds = pathlib.Path(f"/proc/{served.process.pid}/fd")
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as mine, contextlib.ExitStack() as lines:
        mine.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n".encode())
        assert b" 200 " in mine.recv(2000)
        before = len(list(fds.iterdir()))
        for _ in range(400):
            lines.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
        wait_for(lambda: len(list(fds.iterdir())) == before + 255, 30, "all places to be taken")
        assert served.ask("/snapshot", Authorization=f"Bearer {served.token}")[0] == 200
        while len(mine.recv(1 << 16)) > 4096:  # what has come so far
            pass
        served.go_on()
        assert mine.recv(1 << 16) != b""
    assert served.end() == 0


def test_nonsense_on_the_wire(served):
    """If this fails, bytes that are no request end psd_run, or are taken for one."""
    for said in (b"\0" * 5000, b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 100_000 + b"\r\n\r\n", b"GET /" + b"a" * 100_000,
                 b"GET /?token=%00%ff%u HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 4000):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as line:
            try:
                line.sendall(said)
                line.shutdown(socket.SHUT_WR)
                answer = line.recv(1 << 16)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
            assert b" 200 " not in answer.split(b"\r\n")[0] and b"train.py" not in answer
    assert served.ask("/snapshot", Authorization=f"Bearer {served.token}")[0] == 200


def events_of(served):
    """A connection that asks for news, and has their beginning."""
    line = socket.create_connection(("127.0.0.1", served.port), timeout=30)
    line.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n".encode())
    assert b"text/event-stream" in line.recv(2000)
    return line


def test_a_reader_that_does_not_read(served):
    """If this fails, a page that was left on a machine that sleeps makes psd_run grow."""
    news, size = 48, 1_000_000  # the queue of who does not read has 32; no buffer of the system takes so much
    with events_of(served) as reads, events_of(served) as sleeps:
        for _ in range(news):
            recorded_feed.write(served.process.stdin, "D", {"sentence": "x" * size})
        got = 0
        while got < news * size:
            said = reads.recv(1 << 20)
            assert said, f"who reads was dropped, too, after {got} bytes"
            got += len(said)
        got = 0
        try:
            while said := sleeps.recv(1 << 20):
                got += len(said)
                assert got < news * size / 2, "who does not read is not dropped: all that it missed was kept for it"
        except ConnectionResetError:
            pass  # dropped
    assert served.ask("/snapshot", Authorization=f"Bearer {served.token}")[0] == 200
    assert served.end() == 0


# ------------------------------------------------------------------------------------------------- browser


def open_page(looks, address):
    looks.open(address)
    looks.until("return document.querySelectorAll('#process-table tbody tr').length > 0", what="the table of processes")


@needs_browser
@needs_charts
def test_the_page_shows_a_job(served):
    """If this fails, people do not see whether their job learns, who is waited for, and what it prints."""
    with browser.Browser() as looks:
        open_page(looks, served.address)
        assert looks.run("return location.search + document.cookie") == ""
        for _ in range(3):
            served.go_on()
        looks.until("return document.querySelectorAll('#curve-list canvas').length === 4", what="four curves")
        looks.until("return document.querySelector('#wait-chart canvas') !== null", what="the chart of waits")
        assert "waited for worker 2 on node1" in looks.text("#sentence")
        assert "41 % waiting for worker 2 on node1" in looks.text("#whole")
        assert looks.text("#phase") == "running" and looks.text("#job-name") == "train"
        assert looks.run("return document.querySelectorAll('#process-table tbody tr').length") == 6
        assert looks.run("return document.querySelectorAll('#table-table tbody tr').length") == 4
        assert looks.text("#process-table tr.slow").startswith("worker 2")
        assert "expected end" not in looks.text("#tiles") and looks.run("return document.getElementById('progress').hidden")
        assert looks.run("return [...document.querySelectorAll('.chart')].every((chart) => chart.getAttribute('aria-label'))")
        looks.run("document.querySelector('#cluster').scrollIntoView()")  # what is not seen is not drawn
        looks.until("return document.querySelectorAll('#cluster-svg .edge').length === 6", what="the picture of the cluster")
        assert looks.run("return document.querySelectorAll('#cluster-svg .slow').length") == 1
        looks.run("document.querySelector('#logs').scrollIntoView()")
        looks.until("return document.querySelector('#log-lines').innerText.includes('loss')", what="lines of the log")
        looks.run("document.querySelector('#waiting').scrollIntoView()")
        step = looks.run("return document.querySelector('#timeline').innerText")
        served.go_on()
        looks.until("return document.querySelector('#timeline').innerText !== arguments[0]", step, what="more steps")


SHOWN_OF = "return document.querySelector(`[data-scalar=${arguments[0]}] b`).innerText"


@needs_browser
def test_a_loss_that_is_no_number_is_shown_as_none(served):
    """If this fails, a job that diverged shows its last good loss, and runs on for hours for nothing."""
    with browser.Browser() as looks:
        open_page(looks, served.address)
        looks.until(SHOWN_OF + " > 0", "loss", what="the loss, a number")
        good = served.feed.value
        broken_from = served.feed.step + 1
        served.feed.value = lambda name, worker, step: (
            math.nan if (name, worker) in (("loss", 1), ("step", 0)) else good(name, worker, step))
        served.feed.scalars["step", 0] = []  # a scalar may be called what the page calls a tile
        served.go_on()
        said = f"NaN or \u221e since step {broken_from} (worker 1)"
        looks.until(SHOWN_OF + " === arguments[1]", "loss", said, what="that the loss is no number, over its curve")
        tiles = looks.text("#tiles").split("\n")
        assert tiles[tiles.index("loss") + 1:][:2] == ["NaN or \u221e", said.partition("\u221e ")[2]]
        assert tiles[tiles.index("step") + 1].replace("\u2009", "") == str(served.feed.step)
        assert looks.run("return getComputedStyle(document.querySelector('[data-scalar=loss] b')).color") == "rgb(201, 42, 42)"
        assert "loss NaN or \u221e" in looks.run("return document.querySelector('#process-table').innerText")
        del served.feed.scalars["step", 0]
        served.feed.value = good
        served.go_on()
        looks.until(SHOWN_OF + " > 0", "loss", what="the loss, a number again")


@needs_browser
def test_the_demo_with_a_slow_worker(start):
    """If this fails, who follows the README and slows worker 1 down does not see at once, without a click, that it is waited for."""
    # Steps of the README's 64 images take a millisecond, and on crowded cores a worker waits longer than that for a core of its
    # own: then nobody stands out, and the page says so.
    job = start("--workers", 2, "--servers", 2, "--", program("mnist"), "--epochs", 100_000, "--slow", 1, "--batch", 2000)
    with browser.Browser() as looks:
        open_page(looks, page_of(job))
        looks.until("return /waited for worker 1 on .* computed/.test(document.getElementById('sentence').innerText)", what="the sentence")
        looks.until("return /waiting for worker 1/.test(document.getElementById('whole').innerText)", what="the sentence of the whole job")
        shown = looks.run("return ['sentence', 'whole'].map((id) => document.getElementById(id).getBoundingClientRect().bottom)")
        assert all(0 < bottom < looks.run("return innerHeight") for bottom in shown)
        looks.until("return document.querySelector('#process-table tr.slow').innerText.startsWith('worker 1')", what="its row")
    job.process.terminate()
    job.wait()


# What a curve says under the mouse, at places from its left to its right.
READ_ALONG = """
const card = document.querySelector('[data-scalar=' + arguments[0] + ']'), over = card.querySelector('.u-over'), box = over.getBoundingClientRect();
const said = [];
for (let i = 1; i < 60; i++) {
  over.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: box.left + box.width * i / 60, clientY: box.top + 20}));
  said.push(card.querySelector('.read').innerText);
}
return said"""


def strided(count, stride, offset=0):
    """The points of a worker that reports its step every so many steps."""
    return [[offset + stride * number, 1_700_000_000_000 + 100 * number, offset + stride * number] for number in range(1, count + 1)]


@needs_browser
@needs_charts
def test_curves_whose_steps_count_by_tens(served):
    """If this fails, workers that do not report every step, or not at the same steps, have no mean and no spread, or it is shown at
    steps at which nobody reported."""
    curves = {"together": (strided(200, 10), strided(200, 10)), "apart": (strided(200, 10), strided(200, 10, 7)),
              "long": (strided(6000, 10), strided(6000, 10)), "seldom": (strided(2000, 1), strided(20, 100, 3)),
              "far": ([[10**9 + step, at, step] for step, at, _ in strided(50, 1000)],) * 2}
    recorded_feed.write(served.process.stdin, "W", dict(served.feed.whole(), scalars=[
        {"name": name, "worker": worker, "points": [[step, at, value * (1 + worker / 10)] for step, at, value in points]}
        for name, workers in curves.items() for worker, points in enumerate(workers)]))
    recorded_feed.write(served.process.stdin, "D", {})
    with browser.Browser() as looks:
        open_page(looks, served.address)
        for name in curves:
            looks.run("document.querySelector('[data-scalar=' + arguments[0] + ']').scrollIntoView()", name)
            looks.until("return document.querySelector('[data-scalar=' + arguments[0] + '] .u-over') !== null", name, what="a curve")
        plain = [[line.replace("\u2009", "") for line in looks.run(READ_ALONG, name)] for name in curves]
        said = {name: [re.fullmatch(r"step (\d+): mean ([\d.e+]+), lowest ([\d.e+]+), highest ([\d.e+]+)", line) for line in lines]
                for name, lines in zip(curves, plain)}
        for name, lines in said.items():
            assert sum(line is not None for line in lines) >= 57, (name, plain)  # at the ends one may be missing
            steps = [int(line[1]) for line in lines if line is not None]
            assert steps == sorted(steps) and len(set(steps)) >= 15, (name, steps)
        assert all(int(line[1]) % 10 == 0 for line in said["together"] if line)
        assert all(int(line[1]) % 1000 == 0 for line in said["far"] if line)
        for line in filter(None, said["together"]):
            assert float(line[3]) == pytest.approx(int(line[1]), rel=0.01) and float(line[4]) > float(line[3]), line[0]
        for line in filter(None, said["apart"] + said["long"]):
            assert float(line[2]) == pytest.approx(1.05 * int(line[1]), rel=0.02, abs=8) and float(line[4]) > float(line[3]), line[0]
    assert served.end() == 0


@needs_browser
def test_logs_are_searched_and_tables_sorted(served):
    """If this fails, nobody finds a line among thousands, or the slowest worker among 64."""
    served.feed.tell_log("worker 1", "a needle (in) the haystack", "err")
    served.go_on()
    with browser.Browser() as looks:
        open_page(looks, served.address)
        looks.until("return document.querySelectorAll('#log-lines div').length > 1", what="lines of the log")
        find = "const i = document.getElementById('log-find'); i.value = arguments[0]; i.dispatchEvent(new Event('input'))"
        for wanted in ("needle (in)", "/needle .in. the/"):
            looks.run(find, wanted)
            assert looks.text("#log-lines").split() == "worker 1 a needle (in) the haystack".split()
            assert looks.text("#log-lines mark").startswith("needle")
        looks.run(find, "/(/")
        assert looks.text("#log-lines") == ""
        names = "return [...document.querySelectorAll('#process-table tbody tr')].map((row) => row.cells[0].innerText)"
        click = "document.querySelectorAll('#process-table th button')[arguments[0]].click()"
        looks.run(click, 4)
        assert looks.run(names)[0] == "worker 2"  # the only one that lags
        looks.run(click, 0)
        assert looks.run(names) == ["master", "server 0", "server 1", "worker 0", "worker 1", "worker 2"]


HOSTILE = ('<img src=x onerror="document.title=\'HACKED\'">', "<script>document.title='HACKED'</script>",
           "</script><script>document.title='HACKED'</script>", "javascript:alert(1)", "\x1b[2J\x1b[31mred\x1b]0;owned\x07",
           "admin\u202enimda\u2066", "__proto__", "constructor", "a\u0000b\r\nevent: end\r\ndata: {}", "\U0001f608" * 200, "${7*7}{{7*7}}")


def hostile_feed():
    feed = recorded_feed.Feed(workers=len(HOSTILE), servers=2)
    feed.name = HOSTILE[0]
    for i, text in enumerate(HOSTILE):
        feed.hosts[i] = text
        feed.tables.append({"name": text, "bytes": 10, "chunks": 1, "rule": text, "staleness": text, "places": [1, 0]})
        feed.tell_log(text, text)
        feed.tell_event(text, text)
        feed.scalars[text, 0] = [[1, 1, 0.5], [2, 2, 0.25]]
    feed.value = lambda name, worker, step: 0.5
    feed.fail(3, HOSTILE[2])
    return feed


def expect_harmless(looks):
    assert looks.run("return document.title") != "HACKED"
    assert looks.run("return document.querySelectorAll('img, main script, iframe').length") == 0
    assert looks.run("return document.scripts.length") == 2
    shown = looks.text("body")
    assert HOSTILE[0] in shown and HOSTILE[2] in looks.text("#cause-text")
    assert not re.search("[\u202e\u2066\x1b\x07]", shown) and "red" in shown


@needs_browser
def test_hostile_words_stay_words(replay):
    """If this fails, a table name, host name or log line runs as a script in the browser of whoever watches, or hides what it is."""
    served = replay(hostile_feed())
    with browser.Browser() as looks:
        open_page(looks, served.address)
        served.go_on()
        looks.until("return Number(document.documentElement.dataset.updates) > 1", what="news")
        looks.run("document.querySelector('#logs').scrollIntoView()")
        looks.until("return document.querySelectorAll('#log-lines div').length > 5", what="lines of the log")
        expect_harmless(looks)
        assert looks.run("return Object.prototype.last") is None
    assert served.end() == 0
    with browser.Browser() as looks:
        open_page(looks, served.report.as_uri())
        expect_harmless(looks)


@needs_browser
def test_the_last_state_stays(served):
    """If this fails, a page that is open when a job fails does not say why, or loses it when psd_run is gone; or the report does."""
    with browser.Browser() as looks:
        open_page(looks, served.address)
        served.feed.fail(1, "worker 1 was killed (signal 9) on node1")
        served.feed.phase = "ended"
        served.go_on()
        assert served.end() == 0
        looks.until("return document.querySelector('#line').innerText === 'ended'", what="the end")
        assert "worker 1 was killed (signal 9)" in looks.text("#cause-text")
        assert str(served.report) in looks.text("#ended")
        assert looks.text("#phase") == "failed"
        looks.open(served.report.as_uri())
        looks.until("return document.querySelector('#line').innerText === 'report'", what="the report")
        assert "worker 1 was killed (signal 9)" in looks.text("#cause-text")
        assert looks.run("return document.querySelectorAll('#process-table tbody tr').length") == 6


@needs_browser
@needs_charts
def test_sixty_four_workers(replay):
    """If this fails, the page of a large job takes the browser's memory, or falls behind."""
    served = replay(recorded_feed.Feed(workers=64, servers=4))
    updates = "return Number(document.documentElement.dataset.updates)"
    with browser.Browser() as looks:
        open_page(looks, served.address)

        def go_on(times):
            for _ in range(times):  # 10,000 steps a minute: each update of the page has what four would
                seen = looks.run(updates)
                served.tell_news(2.0)
                looks.until(f"{updates} > arguments[0]", seen, what=f"the update after {seen}")

        go_on(4)
        looks.run("const m = document.getElementById('curve-mode'); m.value = 'each'; m.dispatchEvent(new Event('input'))")
        go_on(4)
        assert looks.run("return document.querySelectorAll('#process-table tbody tr').length") == 69
        looks.until("return document.getElementById('tiles').innerText.replace(/\\u2009/g, '').includes('\\n' + arguments[0] + '\\n')",
                    served.feed.step, what=f"step {served.feed.step}, the last that was told")
        looks.until("return document.querySelectorAll('#curve-list canvas').length === 4", what="four curves")
        assert looks.run("return document.querySelectorAll('#log-lines div').length") <= 800
        looks.devtools("HeapProfiler.collectGarbage")
        assert looks.run("return performance.memory.usedJSHeapSize") < 100e6


# ----------------------------------------------------------------------------------------------- real jobs


def page_of(job):
    """The address that psd_run left for its user, once it has."""
    def find():
        assert job.process.poll() is None, job.stderr()
        return list(job.directory.glob("logs/*/page_address"))

    (path,) = wait_for(find, 30, "the file with the page's address")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    address = path.read_text().strip()
    assert address not in job.stderr() and path.name in job.stderr()
    return address


def ask(address, path="/snapshot"):
    parts = urllib.parse.urlsplit(address)
    line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    line.request("GET", path, headers={"Authorization": "Bearer " + urllib.parse.parse_qs(parts.query)["token"][0]})
    answer = line.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def held(start, tmp_path):
    """A job of 2 workers and 1 server that has done 15 steps and waits for the gate."""
    gate, name = tmp_path / "gate", "page" + uuid.uuid4().hex[:8]
    job = start(*BRISK, "--name", name, "--workers", 2, "--servers", 1, "--", *python_worker(
        "--steps", 30, "--hold", f"15:{gate}"))
    job.gate, job.name = gate, name
    job.wait_for_output("holding", seconds=60)
    yield job
    gate.touch()
    job.process.wait(timeout=120)


@pytest.mark.smoke
def test_page_of_a_job(held):
    """If this fails, a job has no page, its token is where others can read it, or the report is missing."""
    address = page_of(held)
    held.wait_for_step(0, 14)
    snapshot = json.loads(ask(address)[1])
    assert snapshot["job"]["phase"] == "running" and snapshot["job"]["workers"] == 2
    assert [process["name"] for process in snapshot["processes"]] == ["master", "server 0", "worker 0", "worker 1"]
    assert any(log["line"] == "step 14" and log["process"] == "worker0" for log in snapshot["logs"])
    assert snapshot["configuration"]["directory"] == str(held.directory.resolve()) and "--hold" in snapshot["configuration"]["psd_run"]
    system, library, _ = snapshot["configuration"]["versions"]
    assert system == " ".join(os.uname()[i] for i in (0, 2, 4)) and library == " ".join(platform.libc_ver())
    assert ask(address, "/metrics")[0] == 200
    said = subprocess.run([program("psd_run"), "page", held.name], capture_output=True, text=True, check=True)
    named = re.fullmatch(r"watch the job at the address in (.*)\n", said.stdout)  # a pipe may be kept by anybody
    assert stat.S_IMODE(os.stat(named[1]).st_mode) == 0o600 and pathlib.Path(named[1]).read_text() == address + "\n"
    held.gate.touch()
    assert held.wait() == 0
    (report,) = held.directory.glob("logs/*/report.html")
    text = report.read_text()
    assert report.name in held.stderr() and urllib.parse.urlsplit(address).query.partition("=")[2] not in text
    assert system in text and '"version":"' in text


def test_page_of_a_job_by_its_master(held):
    """If this fails, nobody can watch a job that was started by hand, its page stays when the job is over, or its token is
    in a pipe, and in whatever keeps what comes out of that."""
    with subprocess.Popen([program("psd_run"), "page", "--master", held.master_address()], stdout=subprocess.PIPE, text=True) as page:
        path = pathlib.Path(re.fullmatch(r"watch the job at the address in (.*)\n", page.stdout.readline())[1])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        address = path.read_text().strip()
        wait_for(lambda: [process.get("step") for process in json.loads(ask(address)[1])["processes"]] == [None, None, 14, 14],
                 20, "the steps of the workers")
        states = {process["name"]: process["state"] for process in json.loads(ask(address)[1])["processes"]}
        assert states == {"master": "running", "server 0": "running", "worker 0": "running", "worker 1": "running"}
        held.gate.touch()
        assert held.wait() == 0
        assert page.wait(timeout=120) == 0
    assert not path.exists()
    assert subprocess.run([program("psd_run"), "page", "--master", "tcp://127.0.0.1:1"], check=False, capture_output=True).returncode == 3


@needs_browser
def test_a_killed_worker_is_named(held):
    """If this fails, whoever watches a job does not see who ended it, or the job names somebody who ended later."""
    with browser.Browser() as looks:
        address = page_of(held)
        open_page(looks, address)
        before_ms = json.loads(ask(address)[1])["job"]["elapsed_ms"]
        os.kill(held.pid_of("worker1"), signal.SIGKILL)
        looks.until("return !document.getElementById('cause').hidden", what="the cause on the page")
        assert "worker 1" in looks.text("#cause-text") and "killed" in looks.text("#cause-text")
        assert held.process.wait(timeout=120) == 137
        looks.until("return document.getElementById('line').innerText === 'ended'", what="the last state")
        assert "report.html" in looks.text("#ended") and looks.text("#phase") == "failed"
        (report,) = held.directory.glob("logs/*/report.html")
        looks.open(report.as_uri())
        looks.until("return document.getElementById('line').innerText === 'report'", what="the report")
        assert "worker 1" in looks.text("#cause-text") and "step 14" in looks.text("#log-lines")
        told = json.loads(looks.run("return document.getElementById('data').textContent"))
        # By the clock of the job itself: known after the signal, and before the others were ended for it.
        assert before_ms <= told["cause"]["at_ms"] <= told["job"]["elapsed_ms"]
        assert told["cause"]["process"].replace(" ", "") == "worker1" and told["cause"]["code"] == 137
        ended = [event["at_ms"] for event in told["events"] if event["kind"] == "end"]
        assert all(told["cause"]["at_ms"] <= at_ms for at_ms in ended), told["events"]


def refused(start, *options):
    job = start(*options, "--", "true")
    assert job.process.wait(timeout=120) == 2, job.stderr()
    return job.stderr()


def test_options_of_the_page(start, tmp_path):
    """If this fails, a page is served where everybody reaches it, or a mistake on the command line is not named."""
    assert "--page 70000: a port from 1 to 65535, or off" in refused(start, "--page", "70000")
    assert "with TLS only: add --page_cert FILE and --page_key FILE" in refused(start, "--page_address", "0.0.0.0")
    assert "--page_cert and --page_key belong together" in refused(start, "--page_cert", "a.pem")
    loose = tmp_path / "token"
    loose.write_text("0123456789abcdef0123\n")
    loose.chmod(0o644)
    assert f"--page_token {loose}: it is not a file that only you can read" in refused(start, "--page_token", loose)
    assert "--unwatched and --page: nothing would be told" in refused(start, "--unwatched", "--page", "8080")
    assert "--unwatched and --tensorboard: nothing would be told" in refused(start, "--unwatched", "--tensorboard", tmp_path)
    job = start("--page", "off", "--", "true", name="off")
    assert job.wait() == 0 and "watch the job" not in job.stderr()
    assert not list(job.directory.glob("logs/*/page_address")) and not list(job.directory.glob("logs/*/report.html"))


def test_token_of_a_file_and_port(start, tmp_path):
    """If this fails, Prometheus cannot be told beforehand where a job is and what it asks for."""
    port, token = free_port(), tmp_path / "token"
    gate = tmp_path / "gate"
    job = start("--page", port, "--page_token", token, "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done")
    address = page_of(job)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert address == f"http://127.0.0.1:{port}/?token={token.read_text().strip()}"
    assert ask(address, "/metrics")[0] == 200
    gate.touch()
    assert job.wait() == 0


def make_certificate(path):
    """(key, certificate) of localhost, in files."""
    key, certificate = path / "key.pem", path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    key.chmod(0o600)
    return key, certificate


def test_tls(start, tmp_path):
    """If this fails, a page on an address that others reach is readable on the way, or not at all."""
    (key, certificate), gate = make_certificate(tmp_path), tmp_path / "gate"
    job = start("--page_address", "0.0.0.0", "--page_cert", certificate, "--page_key", key, "--", "sh", "-c",
                f"until [ -e {gate} ]; do sleep 0.05; done")
    parts = urllib.parse.urlsplit(page_of(job))
    assert parts.scheme == "https"
    line = http.client.HTTPSConnection("localhost", parts.port, timeout=10, context=ssl.create_default_context(cafile=certificate))
    line.request("GET", "/?" + parts.query)
    answer = line.getresponse()
    assert answer.status == 200 and answer.headers["Set-Cookie"].endswith("; Secure")
    line.close()
    plain = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=10)
    plain.request("GET", "/?" + parts.query)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    gate.touch()
    assert job.wait() == 0


def test_pages_come_back_when_a_job_begins_anew(start, tmp_path):
    """If this fails, an open page loses its job when --restart_scope group starts it again."""
    gate = tmp_path / "gate"
    gate.mkdir()
    script = (f"if mkdir {gate}/first; then until [ -e {gate}/1 ]; do sleep 0.05; done; exit 5; fi; "
              f"until [ -e {gate}/2 ]; do sleep 0.05; done")
    job = start("--restart", "on-failure", "--restart_scope", "group", "--restart_delay_ms", 50, "--", "sh", "-c", script)
    address = page_of(job)
    assert json.loads(ask(address)[1])["job"]["phase"] in ("starting", "running")
    (gate / "1").touch()
    wait_for(lambda: "restart 1 of 3" in job.stderr(), 30, "the job to begin anew")

    def answers():
        try:
            return ask(address)[0] == 200
        except OSError:
            return False

    wait_for(answers, 30, "the page at the same address")
    (gate / "2").touch()
    assert job.wait() == 0
