# SPDX-License-Identifier: Apache-2.0
"""What those who watch a job see: who is waited for, metrics, curves. Real processes, real links."""

import contextlib
import csv
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import uuid

import pytest

from bed import PYTHON, hosts as testbed, seen_inside
from helpers import BRISK, HERE, SANITIZED, program, python_worker, wait_for
from test_trace import check_trace

# Workers compute for longer than a server on a machine with much else to do takes to answer: else that is what they wait for.
PACE_MS = 400


def paced(*arguments):
    return [sys.executable, str(HERE / "paced.py"), *map(str, arguments)]


def feed_of(name):
    """The snapshot of a job that runs; None: it does not."""
    shown = subprocess.run([program("psd_run"), "show", "--json", name], capture_output=True, text=True,
                           timeout=120, check=False)
    return json.loads(shown.stdout)["feed"] if shown.returncode == 0 else None


def watch(look, named, seconds=90):
    """Looks until the sentence names somebody."""
    def found():
        feed = look()
        return feed if feed is not None and re.search(named, feed["sentence"]) else None

    return wait_for(found, seconds, f"a sentence about {named}")


def early(feed):
    """The rows of the first 20 steps: they are there however late somebody looks."""
    rows = [row for row in feed["waits"] if row["step"] <= 20]
    assert len(rows) >= 3, feed["waits"][:30]
    return rows


@pytest.fixture
def straggling(start):
    """Three workers of which the second computes twice as long."""
    name = f"straggler-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--name", name, "--workers", 3, "--servers", 1, "--", *paced(
        "--ms", PACE_MS, "--steps", 100000, "--slow", 1))
    yield job, name
    job.process.terminate()
    job.wait()


def test_a_straggler_is_named_within_20_steps(straggling):
    """If this fails, nobody learns which worker makes all the others wait."""
    job, name = straggling
    feed = watch(lambda: feed_of(name), r"waited for worker 1\b.* computed [\d.]+x as long as the median")
    rows = early(feed)
    named = [row for row in rows if row["worker"] == 1 and row["worker_us"] > row["server_us"] + row["apply_us"]]
    assert len(named) > len(rows) / 2, rows
    parts = ("compute_us", "encode_us", "send_us", "server_us", "worker_us", "receive_us", "apply_us")
    for row in feed["waits"]:
        assert abs(sum(row[part] for part in parts) - row["total_us"]) <= len(parts), row
    assert job.process.poll() is None, job.stderr()


@contextlib.contextmanager
def stop_and_go(pid):
    """Stops a process for a while at a time: longer than a server on a machine with much else to do takes to answer."""
    over = threading.Event()

    def run():
        while not over.wait(PACE_MS / 2000):
            os.kill(pid, signal.SIGSTOP)
            over.wait(PACE_MS / 1000)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_worker_that_is_stopped_now_and_then_is_named(start):
    """If this fails, servers, or a link that one machine does not have, are blamed for a worker that gets no core."""
    name = f"stopped-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--name", name, "--workers", 2, "--servers", 2, "--", *paced("--ms", 1, "--steps", 10000000))

    def worker():
        feed = feed_of(name)
        return feed and next((each["pid"] for each in feed["processes"] if each["name"] == "worker 1" and each["step"] > 0), None)

    seen = {}  # by step: a machine with much else to do may well be slow itself for a moment
    with stop_and_go(wait_for(worker, 60, "the first steps")):
        watch(lambda: feed_of(name), r"the other waited for worker 1\b")
        wait_for(lambda: seen.update({feed["job"]["step"]: feed["sentence"] for feed in [feed_of(name)] if feed})
                 or len(seen) >= 10, 600, "ten sentences")
    # Where others want the cores as well, it may be too close to call, and nobody is named: then nobody is blamed, either.
    named = [found[0] for found in (re.search(r"waited for (?:worker|server) \d+", each) for each in seen.values()) if found]
    # Sanitizers look at memory: they slow everybody down, each as it comes, and who is slowest is no longer worker 1 alone.
    assert SANITIZED or 2 * named.count("waited for worker 1") >= len(named), seen
    assert not any("its link" in sentence for sentence in seen.values()), seen
    assert job.process.poll() is None, job.stderr()
    job.process.terminate()
    job.wait()


def test_nobody_is_named_on_a_busy_machine(start):
    """If this fails, a job whose workers are all alike is said to wait for one of them, because other programs want the cores; and
    for another one whenever somebody looks."""
    name = f"even-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        for _ in range(4 * (os.cpu_count() or 1)):
            stack.callback(stack.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"])).kill)
        job = start(*BRISK, "--name", name, "--workers", 3, "--servers", 1, "--", *paced("--ms", 5, "--steps", 10000000))
        seen = {}
        wait_for(lambda: seen.update({feed["job"]["step"]: feed["sentence"] for feed in [feed_of(name)] if feed and feed["sentence"]})
                 or len(seen) >= 10, 600, "ten sentences")
        named = [sentence for sentence in seen.values() if "waited for worker" in sentence]
        assert len(named) <= 2, seen
        job.process.terminate()
        job.wait()


def test_a_server_behind_a_slow_link_is_named_within_20_steps(launch, four_hosts):
    """If this fails, a bad cable slows a job down, and everybody looks at the model."""
    name = f"slow-link-{uuid.uuid4().hex[:8]}"
    slow = four_hosts.hosts[2]
    limit = ("tc", "qdisc", "add", "dev")
    rate = ("root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "200ms")
    four_hosts.on_switch(*limit, slow.port, *rate)
    try:
        testbed.run(*slow.inside(*limit, "eth0", *rate, user="root"))
        job = launch({"worker_nodes": ["host1", "host3"], "server_nodes": ["host4", "host2"], "master_node": "host3"},
                     *BRISK, "--name", name, "--",
                     PYTHON, str(seen_inside(HERE / "paced.py")), "--ms", "50", "--steps", "25",
                     "--elements", "1000000")

        def look():
            shown = launch(None, "show", "--json", name)
            return json.loads(shown.stdout())["feed"] if shown.wait() == 0 else None

        feed = watch(look, r"waited for server 1 on host2\b.*: its link brought", 60)
        rows = early(feed)
        named = [row for row in rows if row["server"] == 1 and row["server_us"] > row["worker_us"]]
        assert len(named) > len(rows) / 2, rows
        for process in feed["processes"]:  # between machines everything is encrypted
            assert process["metrics"]["seal_time"] > 0, process
        assert job.wait(60) == 0, job.stderr()
    finally:
        four_hosts.on_switch("tc", "qdisc", "del", "dev", slow.port, "root", check=False)
        testbed.run(*slow.inside("tc", "qdisc", "del", "dev", "eth0", "root", user="root"), check=False)


def test_top_and_trace(straggling):
    """If this fails, somebody with nothing but a terminal does not see how a job is doing."""
    job, name = straggling
    watch(lambda: feed_of(name), r"waited for worker 1\b")

    def psd_run(*words):
        done = subprocess.run([program("psd_run"), *words, name], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = psd_run("top").splitlines()
    assert lines[0].startswith(f"job {name}, running") and lines[1].startswith("step ")
    assert lines[3].split()[:4] == ["PROCESS", "HOST", "STATE", "STEP"]
    assert [line.split("  ")[0] for line in lines[4:]] == ["master", "server 0", "worker 0", "worker 1", "worker 2"]
    trace = json.loads(psd_run("trace", "--steps", "3"))
    spans = [span for span in check_trace(trace) if span["cat"] == "step"]
    assert {event["pid"] for event in spans} == {1, 2, 3} and len({event["args"]["step"] for event in spans}) == 3
    assert min(event["ts"] for event in spans) == 0
    offsets = trace["otherData"]["clock_offsets_us"]
    assert offsets == {"worker 0": 0, "worker 1": 0, "worker 2": 0, "server 0": 0}  # they are on one machine
    assert job.process.poll() is None, job.stderr()


@pytest.mark.parametrize("keys, first", [("", "master"), ("s", "worker"), ("p", "worker 2")])
def test_keys_sort_the_screen(straggling, keys, first):
    """If this fails, the keys that the screen names do nothing or do not fit a terminal of 80 columns, rows are broken there, or
    the terminal is left without echo, or as one that breaks no lines."""
    job, name = straggling
    watch(lambda: feed_of(name), r"waited for worker 1\b")
    terminal, other = pty.openpty()
    before = termios.tcgetattr(other)
    with subprocess.Popen([program("psd_run"), "top", name], stdin=other, stdout=other, stderr=other) as top:
        seen = b""

        def read_until(condition, what):
            nonlocal seen
            deadline = time.monotonic() + 20
            while not condition():
                assert time.monotonic() < deadline, f"{what}: {seen[-2000:]}"
                if select.select([terminal], [], [], 0.1)[0]:
                    seen += os.read(terminal, 65536)

        read_until(lambda: b"q quits" in seen, "the first screen")
        assert seen.startswith(b"\x1b[?7l") and all(len(line) <= 80 for line in seen.splitlines()[-2:]), seen
        for key in keys:
            seen = b""
            os.write(terminal, key.encode())
            read_until(lambda: b"q quits" in seen, f"a screen after {key}")
        rows = seen.decode().split("PROCESS", 1)[1].splitlines()
        assert rows[1].startswith(first), rows
        seen = b""
        os.write(terminal, b"q")
        read_until(lambda: seen.endswith(b"\x1b[?7h\r\n"), "the terminal as it was")
        assert top.wait(60) == 0
    assert termios.tcgetattr(other) == before
    assert job.process.poll() is None, job.stderr()


def test_an_answer_that_ends_early_is_an_error():
    """If this fails, a script takes half a document, which a busy psd_run could not send in time, for the whole."""
    name = f"half-{uuid.uuid4().hex[:8]}"
    half = b'{"name": "half", "feed": {"waits": ['
    jobs = pathlib.Path(os.environ["XDG_RUNTIME_DIR"]) / "poseidon"
    jobs.mkdir(mode=0o700, exist_ok=True)
    path = jobs / f"{name}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(20)
        listener.bind(str(path))
        listener.listen()
        asking = subprocess.Popen([program("psd_run"), "show", "--json", name], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        asked = b""
        while not asked:  # at first somebody may only want to know whether the job is there
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(100)
                if asked:
                    connection.sendall(half)
        out, err = asking.communicate(timeout=120)
    path.unlink(missing_ok=True)
    assert (asking.returncode, out) == (3, ""), err
    assert asked == b"feed\n" and f"the answer of job {name} ends after {len(half)} bytes, and is no JSON" in err


def test_metrics_and_curves_of_a_job(start, tmp_path):
    """If this fails, what is shown of a job is not what it did, or its curves are not whole."""
    name = f"watched-{uuid.uuid4().hex[:8]}"
    elements = 100000
    steps = 120  # of two numbers each: all of them fit into one telling
    gate = tmp_path / "gate"
    job = start(*BRISK, "--name", name, "--workers", 2, "--servers", 2, "--", *paced(
        "--ms", 20, "--steps", steps, "--elements", elements, "--names", "loss", 'a "quoted", name', "--hold", gate))

    def through():
        feed = feed_of(name)
        done = feed is not None and len(feed["waits"]) > 20 and len(feed["edges"]) == 4 and all(
            process["metrics"].get("gradient_bytes_out") == steps * 4 * elements
            for process in feed["processes"] if process["role"] == "worker")
        return feed if done else None

    feed = wait_for(through, 60, "all gradients to be told")
    assert feed["job"]["phase"] == "running"
    assert [(table["name"], table["bytes"], table["rule"], sum(table["places"])) for table in feed["tables"]] == [
        ("weights", 4 * elements, "sgd", 2)]
    by_name = {process["name"]: process for process in feed["processes"]}
    assert set(by_name) == {"master", "server 0", "server 1", "worker 0", "worker 1"}
    for process in by_name.values():
        assert process["state"] == "running" and process["pid"] > 0 and process["metrics"]["cpu_time"] > 0
        assert process["memory_bytes"] > 1 << 20, process  # of the master and of servers, too
    worker = by_name["worker 0"]
    assert worker["metrics"]["memory"] > 1 << 20
    assert worker["metrics"]["resident"] >= worker["metrics"]["memory"]
    assert feed["tables"][0]["frames_in"] == 2 * 2 * steps  # a gradient of each of two chunks and workers
    assert worker["bytes_out"] == sum(edge["bytes_out"] for edge in feed["edges"] if edge["worker"] == 0)
    assert set(worker["scalars"]) == {"loss", 'a "quoted", name'}

    def closed():
        servers = [process["metrics"] for process in feed_of(name)["processes"] if process["role"] == "server"]
        return [(server["rounds_opened"], server["rounds_closed"]) for server in servers] == 2 * [(steps, steps)]

    listed = subprocess.run([program("psd_run"), "list", "--json"], capture_output=True, text=True, timeout=120, check=True)
    (mine,) = [each for each in json.loads(listed.stdout) if each["name"] == name]
    assert "feed" not in mine  # which is long, and made by the thread that watches over the job
    wait_for(closed, 30, "servers to tell of all rounds")
    gate.touch()
    assert job.wait(60) == 0, job.stderr()
    (path,) = job.directory.glob("logs/*/scalars.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for rank in ("0", "1"):
        curve = [(int(row["step"]), float(row["value"])) for row in rows
                 if (row["worker"], row["name"]) == (rank, 'a "quoted", name')]
        assert curve == [(step, 1 / (step + 1)) for step in range(steps)]


@pytest.mark.parametrize("memory, elements, copies, kept", [
    ("ordinary", 300_000, True, False), ("view", 300_000, False, False),
    ("ordinary", 1000, False, True)])  # small results come as copies, and those are not timed
def test_what_is_copied_and_where_memory_goes(start, tmp_path, memory, elements, copies, kept):
    """If this fails, nobody sees that tensors are copied on their way, although they could be shared; or what takes the memory of
    a process."""
    name, tables, gate = f"memory-{uuid.uuid4().hex[:8]}", 2, tmp_path / "gate"
    job = start(*BRISK, "--name", name, "--workers", 2, "--servers", 1, "--lanes", 2, "--", *python_worker(
        "--steps", 30, "--elements", elements, "--tables", tables, "--memory", memory, *(["--sum"] if kept else []),
        "--hold", f"20:{gate}"))
    job.wait_for_output("holding")

    def told():
        feed = feed_of(name)
        found = {process["name"]: process["metrics"] for process in feed["processes"]} if feed is not None else {}
        return found if len(found) == 4 and all(
            found[each].get("gradient_bytes_out", 0) >= 20 * tables * 4 * elements for each in ("worker 0", "worker 1")) else None

    found = wait_for(told, 60, "20 steps to be told")
    workers = [found["worker 0"], found["worker 1"]]
    for metrics in found.values():
        assert metrics["frames_out"] > 0 and metrics["resident"] > 1 << 20
        assert metrics.get("send_queue", 0) < 1 << 20  # all is sent
    assert found["server 0"]["resident"] < 1 << 30, "lanes of one process count its memory more than once"
    assert found["server 0"]["table_memory"] >= tables * 4 * elements
    assert [metrics.get("copying_time", 0) > 0 for metrics in workers] == [copies, copies]
    assert [metrics.get("results_kept", 0) for metrics in workers] == 2 * [tables * 4 * elements if kept else 0]
    gate.touch()
    assert job.wait(60) == 0, job.stderr()


def test_the_last_numbers_of_a_worker_that_fails_are_kept(start, tmp_path):
    """If this fails, the half second before a failure, which says most about it, is in no curve."""
    steps = 60
    job = start(*BRISK, "--workers", 2, "--servers", 1, "--", *paced(
        "--ms", 20, "--steps", steps, "--abandon", 1, "--hold", tmp_path / "gate"))
    assert job.wait(60) == 1, job.stderr()
    (path,) = job.directory.glob("logs/*/scalars.csv")
    with open(path, newline="") as file:
        told = [int(row["step"]) for row in csv.DictReader(file) if row["worker"] == "1"]
    assert told == list(range(steps))


def test_a_job_that_nobody_watches(start):
    """If this fails, what watching costs cannot be measured, or a job that is not watched fails those who ask about it."""
    name = f"unwatched-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--unwatched", "--name", name, "--workers", 2, "--servers", 1, "--", *paced("--ms", 10, "--steps", 100000))
    job.wait_for_step(0, 30)
    shown = subprocess.run([program("psd_run"), "show", "--json", name], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(shown.stdout)["feed"] is None
    trace = subprocess.run([program("psd_run"), "trace", name], capture_output=True, text=True, timeout=120, check=False)
    assert trace.returncode != 0 and "--unwatched" in trace.stderr
    top = subprocess.run([program("psd_run"), "top", name], capture_output=True, text=True, timeout=120, check=False)
    assert top.returncode != 0 and "--unwatched" in top.stderr
    job.process.terminate()
    job.wait()
    (logs,) = job.directory.glob("logs/*")
    assert not (logs / "report.html").exists() and not (logs / "page_address").exists()
