# SPDX-License-Identifier: Apache-2.0
"""The page's server in a job: what happens around it, such as restarts, must not cost the page, nor the page the job."""

import http.server
import json
import pathlib
import re
import resource
import socket
import threading
import time

import browser
from helpers import wait_for
from test_page import needs_browser, open_page, page_of, replay, served  # noqa: F401 (fixtures)

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
        wait_for(lambda: time.monotonic() > until, 20, "two seconds to pass")
        assert turns(pid) - before < 100  # one that only looks has thousands, however little time it is let
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert b" 200 " in line.recv(100)
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
