# SPDX-License-Identifier: Apache-2.0
"""The timeline of a job: steps, pushes, rounds and what programs mark, of all processes on one clock; Perfetto itself reads it."""

import json
import subprocess
import sys
import uuid

import pytest

import perfetto
from bed import PYTHON, seen_inside
from helpers import BRISK, HERE, program, wait_for

SERVER = 10001  # the first server's number


def check_trace(document):
    """By the rules of the Trace Event Format, in which Perfetto takes JSON: spans have names, whole times and places, those
    of one line do not overlap, what begins ends, and every process has a name. Gives the spans."""
    assert set(document) <= {"traceEvents", "displayTimeUnit", "otherData"} and document["displayTimeUnit"] in ("ms", "ns")
    lines, names, spans, begun = {}, set(), [], {}
    for event in document["traceEvents"]:
        assert event["ph"] in "XMbe" and isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and event["pid"] > 0 and isinstance(event["tid"], int) and event["tid"] > 0
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            names.add(event["pid"])
            continue
        assert isinstance(event["ts"], int) and event["ts"] >= 0
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] > 0
            lines.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
            spans.append(dict(event, cat="step"))
        elif event["ph"] == "b":
            begun[event["cat"], event["id"]] = event
        else:
            begin = begun.pop((event["cat"], event["id"]))
            assert begin["name"] == event["name"] and begin["pid"] == event["pid"]
            spans.append(dict(begin, dur=event["ts"] - begin["ts"]))
            assert spans[-1]["dur"] >= 0
    assert not begun
    for line, of_line in lines.items():
        of_line.sort()
        assert all(end <= begin for (_, end), (begin, _) in zip(of_line, of_line[1:])), line
    assert {span["pid"] for span in spans} <= names
    return spans


def check_order(spans, workers, servers, doubt_us=0):
    """In every step that is whole, each round lies within its pushes: it opens after the first of them began and has closed before
    any ended. How many steps these are."""
    whole = 0
    for step in {span["args"]["step"] for span in spans}:
        pushes = [span for span in spans if span["cat"] == "push" and span["args"]["step"] == step]
        rounds = [span for span in spans if span["cat"] == "round" and span["args"]["step"] == step]
        if {span["pid"] for span in pushes} != set(workers) or {span["pid"] for span in rounds} != set(servers):
            continue
        whole += 1
        for span in rounds:
            assert span["ts"] >= min(push["ts"] for push in pushes) - doubt_us, (step, span, pushes)
            assert span["ts"] + span["dur"] <= min(push["ts"] + push["dur"] for push in pushes) + doubt_us + 1, (step, span, pushes)
    return whole


def trace_of(name, steps=10):
    """None: the job has not begun."""
    done = subprocess.run([program("psd_run"), "trace", "--steps", str(steps), name], capture_output=True, text=True, timeout=120, check=False)
    return done if done.returncode == 0 else None


@pytest.fixture
def paced(start):
    """Two workers, of which the second computes twice as long, and two servers."""
    name = f"traced-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--name", name, "--workers", 2, "--servers", 2, "--", sys.executable, HERE / "paced.py", "--ms", 50, "--steps", 100000,
                "--slow", 1, "--elements", 200000, "--mark", "forward")
    yield name
    job.process.terminate()
    job.wait()


def whole_trace(name):
    """One in which all kinds of spans of all processes are, in order in three steps at least."""
    def look():
        done = trace_of(name)
        spans = check_trace(json.loads(done.stdout)) if done else []
        kinds = {(span["cat"], span["pid"]) for span in spans}
        wanted = {("step", 1), ("step", 2), ("push", 1), ("push", 2), ("program", 1), ("program", 2), ("round", SERVER), ("round", SERVER + 1)}
        return (done, spans) if wanted <= kinds and check_order(spans, (1, 2), (SERVER, SERVER + 1)) >= 3 else None

    return wait_for(look, 60, "a trace of everything")


def test_pushes_rounds_and_marks_stand_on_one_clock(paced):
    """If this fails, a timeline shows rounds that close before anybody pushed, or does not say for whom they waited."""
    done, spans = whole_trace(paced)
    assert json.loads(done.stdout)["otherData"]["clock_offsets_us"] == {"worker 0": 0, "worker 1": 0, "server 0": 0, "server 1": 0}
    assert "4 processes on one clock" in done.stderr
    last = [span["args"].get("last") for span in spans if span["cat"] == "round"]
    assert last.count("worker 1") > len(last) / 2, last  # it is the slow one
    marks = [span for span in spans if span["cat"] == "program"]
    assert {span["name"] for span in marks} == {"forward"}
    assert {span["name"] for span in spans if span["cat"] == "push"} == {"push weights"}


@perfetto.needs_perfetto
def test_perfetto_reads_it(paced):
    """If this fails, what psd_run trace writes is not what Perfetto reads."""
    done, spans = whole_trace(paced)
    with perfetto.opened(done.stdout) as trace:
        told = {(name, ts // 1000, dur // 1000) for name, ts, dur in trace.ask("select name, ts, dur from slice")}
        assert told == {(span["name"], span["ts"], span["dur"]) for span in spans}
        names = {name for (name,) in trace.ask("select name from process where name is not null")}
        assert {name.split(" on ")[0] for name in names} >= {"worker 0", "worker 1", "server 0", "server 1"}
        ((unread,),) = trace.ask("select coalesce(sum(value), 0) from stats where severity in ('error', 'data_loss')")
        assert unread == 0
        rows = trace.ask("select count(*) from slice s join args a using (arg_set_id) where s.name = 'round weights' and a.key = 'args.last'")
        assert rows[0][0] > 0


def test_servers_on_machines_of_their_own_are_on_the_clock(launch, four_hosts):
    """If this fails, the rounds of a server with another clock stand anywhere beside the pushes. The hosts here have one clock, which
    psd_run does not know: so what it finds is known to be 0."""
    name = f"traced-{uuid.uuid4().hex[:8]}"
    job = launch({"worker_nodes": ["host1", "host3"], "server_nodes": ["host4", "host2"], "master_node": "host3"}, *BRISK, "--name", name, "--",
                 PYTHON, str(seen_inside(HERE / "paced.py")), "--ms", "50", "--steps", "100000", "--elements", "200000")

    def look():
        done = launch(None, "trace", "--steps", "10", name)
        if done.wait(60) != 0:
            return None  # it has not begun
        document = json.loads(done.stdout())
        offsets, doubts = (document["otherData"][name] for name in ("clock_offsets_us", "clock_doubts_us"))
        if set(doubts) != {"server 0", "server 1"} or None in offsets.values():
            return None
        # Workers' clocks are known from the ends of their steps: to what the way of one takes longer than that of the other.
        apart = abs(offsets["worker 1"])
        whole = check_order(check_trace(document), (1, 2), (SERVER, SERVER + 1), max(doubts.values()) + apart)
        return (done, offsets, doubts, apart) if whole >= 3 else None

    done, offsets, doubts, apart = wait_for(look, 90, "a trace in which all clocks are known")
    job.process.terminate()
    job.wait(60)
    assert "4 processes on one clock" in done.stderr()
    for server, doubt in doubts.items():
        assert abs(offsets[server]) <= doubt + apart, (offsets, doubts)
