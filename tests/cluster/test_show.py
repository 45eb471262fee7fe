# SPDX-License-Identifier: Apache-2.0
"""What a job tells about itself while it runs, and what programs tell about themselves."""

import json
import pathlib
import re
import socket
import subprocess
import uuid

import pytest

from helpers import BRISK, program, python_worker, wait_for

KEYS = {"role", "rank", "state", "incarnation", "step", "steps_per_s", "value_name", "value",
        "address"}


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=120, check=False)


def show(address, *more):
    result = run(program("psd_run"), "show", "--master", address, *more)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def held(start, tmp_path):
    """A job of 3 workers and 2 servers that has done 15 steps and waits for the gate."""
    gate = tmp_path / "gate"
    job = start(*BRISK, "--workers", 3, "--servers", 2, "--", *python_worker(
        "--steps", 30, "--hold", f"15:{gate}"))
    job.wait_for_output("holding")
    yield job
    gate.touch()
    assert job.wait() == 0, job.stderr()


@pytest.mark.smoke
def test_json_of_a_running_job(held):
    """If this fails, scripts that watch a job read nonsense."""
    held.wait_for_step(0, 14)
    nodes = json.loads(show(held.master_address(), "--json"))
    assert [(node["role"], node["rank"]) for node in nodes] == [
        ("master", 0), ("server", 0), ("server", 1), ("worker", 0), ("worker", 1), ("worker", 2)]
    assert all(set(node) == KEYS for node in nodes)
    assert all(node["state"] == "running" for node in nodes)
    assert all(re.fullmatch(r"tcp://127\.0\.0\.1:\d+", node["address"]) for node in nodes)
    worker = nodes[3]
    assert (worker["step"], worker["value_name"], worker["incarnation"]) == (14, "loss", 1)
    assert worker["value"] == 1 / 15


def test_table_of_a_running_job(held):
    """If this fails, people cannot see how far their job is."""
    held.wait_for_step(2, 14)
    lines = show(held.master_address()).splitlines()
    assert lines[0].split() == ["ROLE", "RANK", "STATE", "STEP", "STEPS/S", "VALUE", "ADDRESS"]
    assert len(lines) == 7
    assert lines[6].split()[:4] == ["worker", "2", "running", "14"]
    assert "loss=0.0666667" in lines[6]
    assert len({line.index(word) for line, word in zip(lines[1:3], ("running", "running"))}) == 1


def test_show_while_the_job_gathers(hand):
    """If this fails, nobody can see for whom a job is waiting."""
    master = hand.master(2, 1)
    master.wait_for_output("LISTENING")
    states = {(node["role"], node["rank"]): node["state"]
              for node in json.loads(show(hand.address, "--json"))}
    assert states[("worker", 0)] == states[("worker", 1)] == states[("server", 0)] == "missing"
    worker = hand.worker(1)
    wait_for(lambda: json.loads(show(hand.address, "--json"))[-1]["state"] == "joined", 10,
             "worker 1 joined")
    rest = [hand.server(), hand.worker(0)]
    assert [p.wait() for p in (worker, *rest, master)] == [0] * 4


def test_show_tells_the_lost_and_the_done(start, tmp_path):
    """If this fails, a dead worker looks alive."""
    gate = tmp_path / "gate"
    name = f"lost-{uuid.uuid4().hex[:8]}"
    job = start(*BRISK, "--name", name, "--workers", 3, "--on_worker_death=continue", "--", *python_worker(
        "--steps", 30, "--die", "1:done:3", "--hold", f"15:{gate}"))
    job.wait_for_output("holding")
    wait_for(lambda: job.nodes()[-2]["state"] == "lost", 30, "worker 1 is lost")
    assert [node["state"] for node in job.nodes()][-3:] == ["running", "lost", "running"]
    feed = json.loads(run(program("psd_run"), "show", "--json", name).stdout)["feed"]
    (lost,) = [event["text"] for event in feed["events"] if event["kind"] == "lost"]
    assert lost.startswith("worker 1 ") and lost.endswith("the job goes on without it"), feed["events"]
    gate.touch()
    assert job.wait() == 0, job.stderr()


def connections():
    """Both ends of every connection that is open, or that was closed within a minute."""
    lines = pathlib.Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    return {tuple(line.split()[1:3]) for line in lines}


def callers_of(address, earlier=frozenset()):
    """Who has called this address, but for connections of earlier jobs, one of which may have used the same port."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    called = f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{int(port):04X}"
    return {near for near, far in connections() - earlier if far == called}


def test_psd_run_watches_over_one_connection(start, tmp_path):
    """If this fails, psd_run shakes hands with the master again and again to see how its job does."""
    gate = tmp_path / "gate"
    name = f"watched_{uuid.uuid4().hex}"
    earlier = connections()
    job = start(*BRISK, "--name", name, "--workers", 2, "--servers", 1, "--lanes", 1, "--",
                *python_worker("--steps", 30, "--hold", f"5:{gate}"))
    job.wait_for_output("holding")
    address = job.master_address()

    def steps():
        shown = json.loads(run(program("psd_run"), "show", name, "--json").stdout)
        return [process["step"] for process in shown["processes"] if process["role"] == "worker"]

    wait_for(lambda: steps() == [4, 4], 30, "psd_run knows where its workers are")
    callers = "two workers, a lane, one that found nothing to stand by for, and psd_run"
    assert len(callers_of(address, earlier)) == 5, callers
    gate.touch()
    assert job.wait() == 0, job.stderr()
    assert len(callers_of(address, earlier)) <= 5


@pytest.fixture
def watched(start, tmp_path):
    """A job that is held, somebody who watches its master, and the file with what that one is shown."""
    gate, shown = tmp_path / "gate", tmp_path / "shown"
    job = start(*BRISK, "--workers", 1, "--", *python_worker("--steps", 30, "--hold", f"5:{gate}"))
    job.wait_for_output("holding")
    job.gate, job.callers = gate, callers_of(job.master_address())
    with open(shown, "wb") as out:
        watch = subprocess.Popen([program("psd_run"), "show", "--master", job.master_address(), "--watch"],
                                 stdout=out)
    yield job, watch, shown
    watch.kill()
    watch.wait()
    gate.touch()
    assert job.wait() == 0, job.stderr()


def test_watch_of_any_master(watched):
    """If this fails, --watch of a job that was started by hand shows it once, or asks it with a handshake each time."""
    job, _, shown = watched
    wait_for(lambda: shown.read_text().count("ROLE") >= 3, 30, "three tables")
    assert len(callers_of(job.master_address()) - job.callers) == 1


def test_watch_ends_with_its_job(watched):
    """If this fails, a script that watches a job waits for one that is over."""
    job, watch, shown = watched
    wait_for(lambda: "ROLE" in shown.read_text(), 30, "a table")
    job.gate.touch()
    assert watch.wait(60) == 0


# ---------------------------------------------------------------------------------------- help ---

SETTINGS = ("heartbeat_ms", "log_level", "start_timeout_ms")


@pytest.mark.parametrize("words,options", [
    (["psd_run"], ("cluster_config", "out", "workers", "servers", "pass", "max_restarts",
                   "grace_ms", "on_worker_death", "op_timeout_ms", "open_timeout_ms", "lanes",
                   "kernel", "memory_max_mib", "keep_env", "gpus_per_worker", "log_mode",
                   *SETTINGS)),
    (["psd_run", "show"], ("master", "json", "help")),
    (["ps_master"], ("workers", "servers", "cluster_config", "bind", "port", "ready_fd",
                     "tell_joins", "late_workers",
                     "on_worker_death", "replacement_timeout_ms", "dead_heartbeats",
                     "lost_grace_ms", "harden", *SETTINGS)),
    (["ps_server"], ("index", "master_address", "cluster_config", "servers", "bind", "lanes",
                     "slot_pool_mib", "memory_max_mib", "kernel", "payload_checksum",
                     "window_kib", "harden", *SETTINGS)),
    (["mnist"], ("data", "model", "epochs", "steps", "batch", "rate", "momentum", "seed", "mode",
                 "staleness", "save", "load", "master_address", "client_id")),
], ids="-".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(words, options, flag):
    """If this fails, a program cannot be used without its source."""
    result = run(program(words[0]), *words[1:], flag)
    assert (result.returncode, result.stderr) == (0, "")
    missing = [name for name in options if f"--{name}" not in result.stdout]
    assert not missing
    assert all(len(line) <= 130 for line in result.stdout.splitlines())


@pytest.mark.parametrize("name", ["psd_run", "ps_master", "ps_server"])
def test_every_listed_option_is_accepted(name):
    """If this fails, -h lists an option that the program does not know."""
    usage = run(program(name), "-h").stdout
    for option in re.findall(r"^ +(?:-\w, )?--(\w+)=", usage, re.MULTILINE):
        result = run(program(name), f"--{option}=?", "-h")
        assert "unknown option" not in result.stderr, option
