# SPDX-License-Identifier: Apache-2.0
"""The page's server in a job: what happens around it, such as restarts, must not cost the page, nor the page the job."""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid

import pytest

import browser
from helpers import BRISK, HERE, program, python_worker, wait_for
from test_page import make_certificate, needs_browser, open_page, page_of, replay, served  # noqa: F401 (fixtures)

ANEW = ("--restart", "on-failure", "--restart_scope", "group", "--restart_delay_ms", 50)


# ----------------------------------------------------------------------------------------------- restarts


@needs_browser
def test_an_open_page_sees_the_next_attempt(start, tmp_path):
    """If this fails, a page says that a job has failed while it runs again, or the report knows of its last attempt alone."""
    gate = tmp_path / "gate"
    gate.mkdir()
    script = (f"if mkdir {gate}/first; then echo the first life; until [ -e {gate}/1 ]; do sleep 0.05; done; exit 5; fi; "
              f"echo the second life; until [ -e {gate}/2 ]; do sleep 0.05; done")
    job = start(*ANEW, "--", "sh", "-c", script)
    with browser.Browser() as looks:
        open_page(looks, page_of(job))
        looks.run("window.sameDocument = true")
        (gate / "1").touch()
        looks.until("return document.querySelector('#log-lines').textContent.includes('the second life')", what="the next attempt")
        looks.until("return document.querySelector('#phase').innerText === 'running'", what="the job to run again")
        assert looks.text("#line") == "live" and looks.run("return document.getElementById('cause').hidden")
        assert "the first life" in looks.run("return document.querySelector('#log-lines').textContent")
        (gate / "2").touch()
        looks.until("return document.querySelector('#line').innerText === 'ended'", what="the end")
        assert looks.text("#phase") == "ended" and looks.run("return window.sameDocument")
    assert job.wait() == 0
    (report,) = job.directory.glob("logs/*/report.html")
    told = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', report.read_text(), re.S)[1])
    assert {"the first life", "the second life"} <= {log["line"] for log in told["logs"]}
    assert told["cause"] is None and any(event["kind"] == "cause" and "5" in event["text"] for event in told["events"])
    assert told["configuration"]["attempt"] == 1
    assert not list(job.directory.glob("logs/*/page_address"))


# ------------------------------------------------------------------------------------------------- the end


@needs_browser
def test_a_job_that_was_stopped_has_not_failed(start):
    """If this fails, whoever stops a job on purpose is told that it has failed, by the page, the report and the last line."""
    name = f"stop-{uuid.uuid4().hex[:8]}"
    job = start("--name", name, "--", "sleep", 1000)
    with browser.Browser() as looks:
        open_page(looks, page_of(job))
        subprocess.run([program("psd_run"), "stop", name], check=True, timeout=120, capture_output=True)
        looks.until("return document.querySelector('#line').innerText === 'ended'", what="the end")
        said = [looks.text(each) for each in ("#phase", "#sentence", "#ended", "#cause-head", "#cause-text")]
        (report,) = job.directory.glob("logs/*/report.html")
        looks.open(report.as_uri())
        looks.until("return document.getElementById('line').innerText === 'report'", what="the report")
        assert [looks.text(each) for each in ("#phase", "#sentence")] == said[:2]
    assert said[0] == "stopped" and said[1] == "The job was stopped." and said[2].startswith("The job was stopped."), said
    assert said[3].lower() == "stopped on purpose" and re.fullmatch(r"stopped by psd_run stop of \S+ \(pid \d+\)", said[4]), said
    assert job.wait() == 143 and f"job was {said[4]} after " in job.stderr()


@needs_browser
def test_the_report_begins_with_who_was_waited_for(start):
    """If this fails, a job that ended well has its straggler in the small print of its report, where nobody looks."""
    job = start(*BRISK, "--workers", 3, "--servers", 1, "--", sys.executable, str(HERE / "paced.py"), "--ms", 200, "--steps", 25, "--slow", 1)
    assert job.wait(120) == 0, job.stderr()
    (report,) = job.directory.glob("logs/*/report.html")
    with browser.Browser() as looks:
        looks.open(report.as_uri())
        looks.until("return document.getElementById('line').innerText === 'report'", what="the report")
        assert re.match(r"The job has ended well\. Over all \d+ steps, \d+ % of the time everybody waited for worker 1 on ",
                        looks.text("#sentence")), looks.text("#sentence")
        assert looks.text("#phase") == "ended" and looks.run("return document.getElementById('cause').hidden")


@needs_browser
def test_the_report_begins_with_what_the_job_survived(start, tmp_path):
    """If this fails, nobody sees in a report that servers died and a worker was lost on the way."""
    gate = tmp_path / "gate"
    job = start(*BRISK, "--workers", 3, "--servers", 1, "--on_worker_death=continue", "--", *python_worker(
        "--sum", "--steps", 30, "--die", "2:done:3", "--hold", f"15:{gate}"))
    job.wait_for_output("holding")
    for time in (1, 2):
        os.kill(job.pid_of("server0"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == time, 30, f"it is back\n{job.stderr()}")
    gate.touch()
    assert job.wait(60) == 0, job.stderr()
    (report,) = job.directory.glob("logs/*/report.html")
    with browser.Browser() as looks:
        looks.open(report.as_uri())
        looks.until("return document.getElementById('line').innerText === 'report'", what="the report")
        assert looks.text("#sentence").startswith("The job has ended well, after 2 fail-overs and 1 lost worker."), looks.text("#sentence")


# ------------------------------------------------------------------------------------------- no page, a job


def test_a_job_runs_without_its_page(start):
    """If this fails, somebody who takes the port of a page ends the job, or nobody is told that there is no page."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = start("--page", port, "--", "true")
        assert job.wait() == 0
    assert f"no page for this job: the job's page cannot listen at port {port} of 127.0.0.1" in job.stderr()
    assert list(job.directory.glob("logs/*/report.html"))


# ------------------------------------------------------------------------------------------- other servers


class Neighbour(http.server.BaseHTTPRequestHandler):
    """Another server of this machine: has a link to the page, and remembers which cookies it is sent."""

    def do_GET(self):
        self.server.cookies.append(self.headers["Cookie"])
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f'<a id="link" href="{self.server.link}">the job</a>'.encode())

    def log_message(self, *unused):
        """Nothing is printed."""


@needs_browser
def test_a_link_of_another_server(served):  # noqa: F811
    """If this fails, a click on a link to the page shows a refusal, or other servers on this machine get its cookie."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Neighbour) as other:
        other.link, other.cookies = served.address, []
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with browser.Browser() as looks:
            # Another site by its name, the same host by its address.
            looks.open(f"http://localhost:{other.server_port}/")
            looks.run("document.getElementById('link').click()")
            looks.until("return document.querySelectorAll('#process-table tbody tr').length > 0", what="the page behind a link")
            assert served.token not in looks.run("return location.href")
            looks.open(f"http://127.0.0.1:{other.server_port}/")
            looks.until("return document.getElementById('link') !== null", what="the other server")
        other.shutdown()
    assert len(other.cookies) >= 2 and not any(other.cookies)


# ----------------------------------------------------------------------------------------------- strangers


def turns(pid):
    """How often a process has read something, as the page's server does in each of its turns."""
    return int(re.search(r"syscr: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])


def test_out_of_descriptors(served):  # noqa: F811
    """If this fails, somebody who waits at the page while psd_run has no descriptors left takes all of its time, or waits for ever."""
    pid, limits = served.process.pid, resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
    first_free = next(fd for fd in range(1 << 16) if fd not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as line:
        line.sendall(f"GET /snapshot HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n".encode())
        before, until = turns(pid), time.monotonic() + 2
        wait_for(lambda: time.monotonic() > until, 30, "two seconds to pass")
        assert turns(pid) - before < 100  # one that only looks has thousands, however little time it is let
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert b" 200 " in line.recv(100)
    assert served.end() == 0


FLOOD = """
import socket, sys, collections
held, port, says = collections.deque(), int(sys.argv[1]), sys.argv[2].encode()
while True:
    line = socket.socket()
    line.setblocking(False)
    if line.connect_ex(("127.0.0.1", port)) == 0 and says:
        line.send(says)
    held.append(line)
    if len(held) == 1000:
        print("flooding", flush=True)
    if len(held) > 1000:
        held.popleft().close()
"""


@pytest.mark.parametrize("says", ["", "G"], ids=["says nothing", "says something"])
def test_a_neighbour_who_floods_the_page(served, says):  # noqa: F811
    """If this fails, somebody with an account on this machine, whose address is the owner's, pushes the owner out before his
    request has come, by opening connections as fast as he can."""
    with contextlib.ExitStack() as stack:
        flooder = stack.enter_context(subprocess.Popen([sys.executable, "-c", FLOOD, str(served.port), says], stdout=subprocess.PIPE,
                                                       text=True))
        stack.callback(flooder.kill)
        assert flooder.stdout.readline() == "flooding\n"
        known = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        stack.enter_context(known)
        request = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n".encode()
        known.sendall(request.replace(b"/metrics", b"/events"))
        assert b" 200 " in known.recv(4096)
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", served.port), timeout=60) as line:
                line.sendall(request[:20])  # the rest comes a little later, as over a slow line
                due = time.monotonic() + 0.05
                wait_for(lambda due=due: time.monotonic() > due, 30, "a moment to pass")
                line.sendall(request[20:])
                assert b" 200 " in line.recv(4096), "the owner had to go"
        assert not is_gone(known), "who had shown the secret had to go"
    assert served.end() == 0


def wholes(served):  # noqa: F811
    """How often the whole state was put together."""
    said = served.ask("/metrics", Authorization=f"Bearer {served.token}")[2]
    return int(re.search(r"psd_replay_wholes (\d+)", said)[1])


def test_a_page_too_many_costs_nothing(served):  # noqa: F811
    """If this fails, psd_run puts the whole state of its job together for pages that it then refuses."""
    lines = []
    try:
        for _ in range(16):
            lines.append(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            lines[-1].sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n".encode())
            assert b" 200 " in lines[-1].recv(2000)
        before = wholes(served)
        assert 1 <= before <= 16
        for _ in range(5):
            status, _, text = served.ask("/events", Authorization=f"Bearer {served.token}")
            assert status == 503 and "close one" in text
        assert wholes(served) == before
    finally:
        for line in lines:
            line.close()
    assert served.end() == 0


# ------------------------------------------------------------------------------------- strangers over TLS

ELSEWHERE = "127.0.0.2"  # where strangers come from: another address than the owner's


class Guarded:
    """A job whose page is served over TLS."""

    def __init__(self, start, path):
        self.key, self.certificate = make_certificate(path)
        self.gate = path / "gate"
        self.job = start("--page_address", "0.0.0.0", "--page_cert", self.certificate, "--page_key", self.key, "--", "sh", "-c",
                         f"until [ -e {self.gate} ]; do sleep 0.05; done")
        parts = urllib.parse.urlsplit(page_of(self.job))
        self.port, self.token = parts.port, urllib.parse.parse_qs(parts.query)["token"][0]
        self.fds = pathlib.Path(f"/proc/{self.job.process.pid}/fd")
        self.proper = ssl.create_default_context(cafile=self.certificate)
        self.careless = ssl.create_default_context()
        self.careless.check_hostname, self.careless.verify_mode = False, ssl.CERT_NONE
        self.alone = self.count()

    def count(self):
        """The page's sockets, the one that listens among them. What else psd_run has open changes while a job starts."""
        rows = [row.split() for row in (self.fds.parent / "net" / "tcp").read_text().splitlines()[1:]]
        ours = {row[9] for row in rows if int(row[1].rpartition(":")[2], 16) == self.port}
        open_now = set()
        for fd in self.fds.iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
                open_now.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
        return len(ours & open_now)

    def connect(self, source="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(source, 0))

    def ask(self, line):
        """The status of a request over a connection that says nothing yet."""
        with self.proper.wrap_socket(line, server_hostname="localhost") as sealed:
            sealed.sendall(f"GET /snapshot HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n".encode())
            return int(sealed.recv(100).split()[1])

    def end(self):
        self.gate.touch()
        assert self.job.wait() == 0


@pytest.fixture
def guarded(start, tmp_path):
    return Guarded(start, tmp_path)


def is_gone(line):
    """Whether the other end has hung up."""
    line.setblocking(False)
    try:
        while line.recv(4096):
            pass
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def handshake(guarded, line):
    """A stranger's; None: it was hung up on before."""
    try:
        return guarded.careless.wrap_socket(line)
    except OSError:
        line.close()
        return None


def test_a_thousand_connections_over_tls(guarded):
    """If this fails, whoever opens a thousand connections to a page on a routable address, and says nothing on them or nothing
    after the handshake, takes psd_run's descriptors or its time, or stays; or keeps out the owner, who comes from elsewhere."""
    mine = guarded.connect()
    with contextlib.ExitStack() as stack:
        lines = []
        for number in range(1000):
            line = stack.enter_context(guarded.connect(ELSEWHERE))
            line = line if number % 2 == 0 else handshake(guarded, line)
            if line is not None:
                lines.append(stack.enter_context(line))
            if number == 199:
                assert guarded.ask(mine) == 200, "the owner, who was here first, had to go for them"
            if number % 100 == 99:
                assert guarded.ask(guarded.connect()) == 200
        assert guarded.count() <= guarded.alone + 256
        wait_for(lambda: sum(map(is_gone, lines)) == len(lines), 30, "strangers who say nothing to be hung up on")
        wait_for(lambda: guarded.count() <= guarded.alone, 30, "their descriptors to be closed")
    guarded.end()


def test_a_stranger_who_takes_his_time(guarded):
    """If this fails, a stranger stays for as long as he says a little now and then."""
    with guarded.connect(ELSEWHERE) as line:
        slow = guarded.careless.wrap_socket(line)
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ")
        began = time.monotonic()
        due = began

        def drips():
            nonlocal due
            if time.monotonic() >= due:
                due += 0.5
                with contextlib.suppress(OSError):
                    slow.send(b"x")
            return is_gone(slow)

        wait_for(drips, 30, "the stranger to be hung up on")
        assert time.monotonic() - began > 9, "he had no time to show the secret"
    guarded.end()
