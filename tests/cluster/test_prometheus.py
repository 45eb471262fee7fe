# SPDX-License-Identifier: Apache-2.0
"""What psd_run serves at /metrics is read by Prometheus itself, and the dashboard for Grafana asks for what is there."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid

import pytest

from helpers import BRISK, HERE, free_port, wait_for

TREE = HERE.parents[1]
UNPACKED = TREE / ".prometheus" / "usr" / "bin"  # tools/setup.sh test
WORKERS = 2


def tool(name):
    """Of Prometheus; None: it is not here."""
    own = UNPACKED / name
    return str(own) if own.exists() else shutil.which(name)


needs_prometheus = pytest.mark.skipif(tool("prometheus") is None or tool("promtool") is None,
                                      reason="no Prometheus here: tools/setup.sh test fetches it")


def get(address, token=None):
    asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return answer.read().decode()


class Watched:
    """A job whose page has a port and a token that were chosen before."""

    def __init__(self, start, directory):
        self.name = f"scraped-{uuid.uuid4().hex[:8]}"
        self.port, self.token = free_port(), directory / "token"
        self.job = start(*BRISK, "--name", self.name, "--page", self.port, "--page_token", self.token, "--workers", WORKERS, "--servers", 1,
                         "--", sys.executable, HERE / "paced.py", "--ms", 20, "--steps", 1000000, "--names", "loss", 'a "quoted" \\ name')
        wait_for(lambda: 'name="loss"' in self.metrics(), 60, "the first numbers")

    def metrics(self):
        try:
            return get(f"http://127.0.0.1:{self.port}/metrics", self.token.read_text().strip())
        except urllib.error.HTTPError:  # it answers, and not as it should
            raise
        except OSError:  # it begins
            return ""


@pytest.fixture
def watched(start, tmp_path):
    one = Watched(start, tmp_path)
    yield one
    one.job.process.terminate()
    one.job.wait()


@pytest.fixture
def prometheus(watched, tmp_path):
    """A real one, which scrapes the job; a function that asks it."""
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: poseidon
    authorization: {{credentials_file: {watched.token}}}
    static_configs: [{{targets: ["localhost:{watched.port}"]}}]
""")
    checked = subprocess.run([tool("promtool"), "check", "config", config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    log = open(tmp_path / "prometheus.log", "w")
    with log, subprocess.Popen([tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log) as server:
        def ask(query):
            """The series that a query gives; none while the server begins."""
            try:
                answer = json.loads(get(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})))
            except urllib.error.HTTPError as error:
                assert error.code == 503, f"{query}: {error.read().decode()}"  # it begins
                return []
            except OSError:
                assert server.poll() is None, (tmp_path / "prometheus.log").read_text()
                return []
            assert answer["status"] == "success", answer
            return answer["data"]["result"]

        yield ask
        server.terminate()


@needs_prometheus
def test_promtool_finds_nothing_wrong(watched):
    """If this fails, Prometheus or whoever reads its text stumbles over what a job tells."""
    text = watched.metrics()
    assert 'name="loss"' in text
    checked = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@needs_prometheus
def test_prometheus_scrapes_a_job(watched, prometheus):
    """If this fails, the configuration in docs/watching.md gives an operator nothing."""
    def steps():
        return {series["metric"]["index"]: float(series["value"][1])
                for series in prometheus(f'psd_step{{job_name="{watched.name}",role="worker"}}')}

    found = wait_for(lambda: len(steps()) == WORKERS and steps(), 60, "a step of each worker")
    assert set(found) == {"0", "1"} and all(step > 0 for step in found.values())
    (up,) = prometheus("up")
    assert up["value"][1] == "1"
    names = {series["metric"]["name"] for series in prometheus("psd_scalar")}
    assert names == {"loss", 'a "quoted" \\ name'}


def expressions(part):
    """All queries of a dashboard."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "expr":
                yield value
            else:
                yield from expressions(value)
    elif isinstance(part, list):
        for value in part:
            yield from expressions(value)


def dashboard():
    found = list(expressions(json.loads((TREE / "docs" / "grafana.json").read_text())))
    assert len(found) > 3
    return found


def test_the_dashboard_names_metrics_that_exist(watched):
    """If this fails, a panel of the dashboard stays empty for ever."""
    known = set(re.findall(r"^# TYPE (\S+) ", watched.metrics(), re.MULTILINE))
    for query in dashboard():
        named = set(re.findall(r"\bpsd_\w+", query))
        assert named and named <= known, query


@needs_prometheus
def test_the_dashboard_shows_something(watched, prometheus):
    """If this fails, Grafana shows nothing of a job, or says that a query is none."""
    wait_for(lambda: prometheus(f'rate(psd_step{{job_name="{watched.name}"}}[30s])'), 60, "a rate")
    for query in dashboard():
        assert prometheus(query.replace("$job", watched.name)), query
