# SPDX-License-Identifier: Apache-2.0
"""Jobs that a person starts process by process: any order, missing and surplus processes, and
what each daemon says when it is asked to stop."""

import itertools
import json
import re
import signal
import subprocess
import time

import pytest

from helpers import BRISK, HERE, NO_SECRET, bin_directory, program, python_worker

SOON = 25.0  # seconds: everybody leaves so soon after the last worker; the rest is for a busy machine


def write_cluster(hand, workers=1, servers=1, **more):
    path = hand.directory / "cluster.json"
    path.write_text(json.dumps({
        "worker_nodes": ["127.0.0.1"] * workers, "server_nodes": ["127.0.0.1"] * servers,
        "master_port": hand.port, **more}))
    return path


@pytest.mark.parametrize("order", list(itertools.permutations(("master", "server", "worker"))),
                         ids="-".join)
def test_any_order_forms_a_job(hand, order):
    """If this fails, people must start processes in an order that nobody told them."""
    config = write_cluster(hand)
    commands = {
        "master": [program("ps_master"), "-c", config],
        "server": [program("ps_server"), "-c", config, "--index", 0],
        "worker": python_worker("--steps", 5),
    }
    running = {}
    for name in order:
        running[name] = hand.start(name, *commands[name], environment={
            "PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "0"} if name == "worker" else {})
        # One after the other: each is trying already when the next one comes.
        running[name].wait_for_output({"master": "LISTENING", "server": "SETTINGS",
                                       "worker": "started"}[name])
    assert running["worker"].wait() == 0, running["worker"].output()
    end = time.monotonic()
    assert [running[name].wait() for name in ("master", "server")] == [0, 0]
    assert time.monotonic() - end < SOON
    for name in ("master", "server"):
        assert running[name].output().splitlines()[-1].endswith(
            "JOB-END all workers are done (exit code 0)")


def test_master_tells_who_has_joined(hand):
    """If this fails, psd_run sees members only in a log that its user may have turned down."""
    master = hand.master(2, 1, "--ready_fd", 1, "--tell_joins", "--log_level=error")
    server = hand.start("server", program("ps_server"), "--index", 0, "--master_address",
                        hand.address, "--lanes=2")
    master.wait_for_output("joined server 0")
    workers = [hand.worker(rank) for rank in (0, 1)]
    assert [p.wait() for p in (*workers, master, server)] == [0, 0, 0, 0], master.output()
    lines = master.output().splitlines()
    assert lines[0] == hand.address and re.fullmatch(r"joined server 0 life [0-9a-f]+", lines[1])
    assert sorted(lines[2:4]) == ["joined worker 0", "joined worker 1"]
    assert lines[4] == "place server 0 by 0,0 needless in -,-"
    told = [line for line in lines[5:] if not line.startswith("place server 0 by 0,0 ")]
    # Who is done has left, too, if there is time for a view before the other is done.
    assert all(re.fullmatch(r"(done|left) worker [01] at step \d+", line) for line in told), told
    assert sorted(line[:13] for line in told if line.startswith("done")) == ["done worker 0", "done worker 1"]


def test_master_node_with_a_port(hand):
    """If this fails, the address in the file is not the one that daemons use."""
    config = hand.directory / "cluster.json"
    config.write_text(json.dumps({"worker_nodes": ["localhost"], "server_nodes": ["localhost"],
                                  "master_node": f"127.0.0.1:{hand.port}"}))
    master = hand.start("master", program("ps_master"), "-c", config)
    server = hand.start("server", program("ps_server"), "-c", config, "--index", 0)
    worker = hand.worker(0)
    assert [p.wait() for p in (worker, master, server)] == [0, 0, 0], master.output()


def test_workers_with_flags(hand):
    """If this fails, old scripts with --master_address and --client_id find no job."""
    master, server = hand.master(2), hand.server()
    workers = [
        hand.start(f"worker{k}", program("mnist"), "--distributed", "--master_address",
                   hand.address, "--client_id", k, "--steps", 5) for k in range(2)]
    assert [p.wait() for p in (*workers, master, server)] == [0, 0, 0, 0]
    assert "MNIST accuracy" in workers[0].output()


def test_ranks_that_the_master_chooses(hand):
    """If this fails, workers without a rank get none, or the same."""
    master, server = hand.master(3), hand.server()
    workers = [hand.start(f"worker{k}", *python_worker(), environment={
        "PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "auto"}) for k in range(3)]
    assert [p.wait() for p in (*workers, master, server)] == [0] * 5
    ranks = sorted(re.search(r"joined (\d) 1", p.output()).group(1) for p in workers)
    assert ranks == ["0", "1", "2"]


def test_commands_of_the_readme(tmp_path):
    """If this fails, the first thing that a newcomer types does not work."""
    tree = HERE.parents[1]
    lines = re.findall(r"^    ((?:make|bin/).*)$", (tree / "README.md").read_text(), re.MULTILINE)
    assert len(lines) >= 5, lines
    (tmp_path / "bin").symlink_to(bin_directory().absolute())
    (tmp_path / "train.py").touch()
    (tmp_path / "cluster.json").write_text(
        '{"master_node": "127.0.0.1", "server_nodes": ["127.0.0.1"], "worker_nodes": ["127.0.0.1"]}')
    for line in lines:  # what they do has tests of its own; here it is that they are understood
        line = line.replace("make ", f"make -n -C {tree} ").replace("psd_run -", "psd_run --dry_run -")
        done = subprocess.run(["sh", "-ec", line], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (line, done.stdout + done.stderr)
    assert not (tmp_path / "logs").exists()


def test_as_the_manual_says(hand, tmp_path):
    """If this fails, a job cannot be started by hand as docs/launching.md says."""
    text = (HERE.parents[1] / "docs" / "launching.md").read_text()
    section = text[text.index("\n## By hand\n"):].split("\n## ")[1]
    lines = re.findall(r"^    (.*)$", section, re.MULTILINE)
    assert len(lines) >= 6, section
    script = "\n".join(lines).replace("5555", str(hand.port))
    (tmp_path / "bin").symlink_to(bin_directory().absolute())
    shell = hand.start("shell", "sh", "-ec", script, environment=NO_SECRET)
    assert shell.wait(60) == 0, shell.output()
    assert len(re.findall(r"^hello from worker [01]: 20$", shell.output(), re.MULTILINE)) == 2
    assert re.search(r"^server +0 ", shell.output(), re.MULTILINE), shell.output()
    assert shell.output().count("JOB-END") == 2
    assert not (tmp_path / "job.secret").exists()


def test_a_second_job_on_the_same_port(hand):
    """If this fails, the port of a job that ended cannot be used again at once."""
    for turn in range(2):
        processes = [hand.master(name=f"master{turn}"), hand.server(name=f"server{turn}"),
                     hand.worker(0, name=f"worker{turn}")]
        assert [p.wait() for p in processes] == [0, 0, 0], processes[0].output()


# ------------------------------------------------------------------ missing, surplus, mistaken ---


def test_missing_processes_are_named(hand):
    """If this fails, a job that does not gather waits for ever, or does not say for whom."""
    master = hand.master(3, 2, "--start_timeout_ms=5000")  # for two to come, however busy the cores are
    server = hand.server(0)
    worker = hand.worker(1)
    assert master.wait() == 124
    last = master.output().splitlines()[-1]
    assert "JOB-END" in last and "not here after 5000 ms" in last
    assert all(name in last for name in ("worker 0", "worker 2", "server 1"))
    assert "worker 1" not in last and "server 0" not in last
    assert server.wait() == 124
    assert "server 1" in server.output().splitlines()[-1]
    assert worker.wait() == 1
    assert re.search("error PSD_ERR_.*server 1", worker.output())


def test_worker_names_who_is_missing(hand):
    """If this fails, a worker's time-out says nothing but that it was one."""
    master = hand.master(2, 2)
    server = hand.server(1)
    worker = hand.worker(0, "--open_timeout_ms", 500)
    assert worker.wait() == 1
    text = worker.output()
    assert "error PSD_ERR_TIMEOUT" in text and "500 ms" in text
    assert "server 0" in text and "worker 1" in text and "server 1" not in text
    for process, code in ((server, 143), (master, 143)):
        process.signal(signal.SIGTERM)
        assert process.wait() == code


def test_worker_without_a_master(hand):
    """If this fails, a wrong address makes a worker wait without a word."""
    worker = hand.worker(0, "--open_timeout_ms", 300)
    assert worker.wait() == 1
    assert (f"error PSD_ERR_TIMEOUT: join the job at {hand.address}: no answer from the master "
            "in 300 ms: ") in worker.output()
    assert "Connection refused" in worker.output()


def test_server_without_a_master(hand):
    """If this fails, a wrong address makes a server wait for ever."""
    server = hand.server(0, "--start_timeout_ms=300")
    assert server.wait() == 124
    last = server.output().splitlines()[-1]
    assert hand.address in last and "did not answer in 300 ms" in last
    assert "Connection refused" in last


def test_server_says_that_it_waits(hand):
    """If this fails, a server started before its master looks like one that hangs."""
    server = hand.server(0, "--lanes=2")
    server.wait_for_output(f"MASTER-WAITING waiting for the master at {hand.address} "
                           f"(last attempt: connect {hand.address}: Connection refused)")
    processes = [hand.master(), hand.worker(0), server]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert server.output().count("MASTER-WAITING") == 1


def test_duplicate_rank(hand, tmp_path):
    """If this fails, two workers share a rank and count twice."""
    gate = tmp_path / "gate"
    master, server = hand.master(2), hand.server()
    first = hand.worker(0, "--steps", 20, "--hold", f"10:{gate}")
    second = hand.worker(1, "--steps", 20)
    first.wait_for_output("holding")
    surplus = hand.worker(1, name="surplus")
    assert surplus.wait() == 1
    assert re.search(r"error PSD_ERR_REFUSED: .*worker rank 1 is taken by tcp://127",
                     surplus.output())
    master.wait_for_output("MEMBER-REFUSED")
    gate.touch()
    assert [p.wait() for p in (first, second, master, server)] == [0, 0, 0, 0]


def test_duplicate_server(hand):
    """If this fails, two servers hold the same part of the tables."""
    master, first = hand.master(1, 2), hand.server(0)
    first.wait_for_output("JOINED")
    surplus = hand.server(0, name="surplus")
    assert surplus.wait() == 73
    assert "server 0 lane 0 is taken by tcp://127" in surplus.output().splitlines()[-1]
    others = [hand.server(1), hand.worker(0)]
    assert [p.wait() for p in (*others, master, first)] == [0, 0, 0, 0]


@pytest.mark.parametrize("rank", ["2", "1023"])
def test_rank_outside_the_job(hand, rank):
    """If this fails, a worker too many is told nothing."""
    master, server = hand.master(2), hand.server()
    surplus = hand.worker(rank)
    assert surplus.wait() == 1
    assert f"worker rank {rank}: the job has 2 workers, ranks 0..1" in surplus.output()
    workers = [hand.worker(0), hand.worker(1)]
    assert [p.wait() for p in (*workers, master, server)] == [0, 0, 0, 0]


def test_server_index_outside_the_job(hand):
    """If this fails, a wrong index leaves a server that nobody uses, and a job that waits."""
    master, server = hand.master(1, 1), hand.server(1)
    assert server.wait() == 73
    assert "server 1" in server.output().splitlines()[-1]
    assert "the job has 1 server, 0..0" in server.output().splitlines()[-1]
    processes = [hand.server(0), hand.worker(0), master]
    assert [p.wait() for p in processes] == [0, 0, 0]


def test_server_index_outside_the_file(hand):
    """If this fails, cluster.json and --index contradict each other unnoticed."""
    config = write_cluster(hand)
    server = hand.start("server", program("ps_server"), "-c", config, "--index", 1)
    assert server.wait() == 2
    assert "--index 1" in server.output() and "lists 1 server" in server.output()


def test_worker_after_the_end(hand):
    """If this fails, a late worker waits a minute for a job that is over."""
    master, server = hand.master(1, 1), hand.server()
    worker = hand.worker(0)
    assert [p.wait() for p in (worker, master, server)] == [0, 0, 0]
    late = hand.worker(0, "--open_timeout_ms", 300, name="late")
    assert late.wait() == 1
    assert "error PSD_ERR_TIMEOUT" in late.output()


# ------------------------------------------------------------------------------------- signals ---

SIGNALS = [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "SIGINT")]


@pytest.mark.parametrize("number,code,word", SIGNALS)
@pytest.mark.parametrize("phase", ["gathering", "running"])
def test_signal_to_the_master(hand, number, code, word, phase):
    """If this fails, a stopped master leaves a job without an end, or says nothing."""
    master = hand.master(2 if phase == "gathering" else 1, 1, *BRISK)
    server = hand.server()
    worker = hand.worker(0, "--steps", 1_000_000)
    if phase == "running":
        worker.wait_for_output("step 5")
    else:
        master.wait_for_output("worker 0 joined")
        master.wait_for_output("server 0 lane 0 joined")
    master.signal(number)
    assert master.wait(60) == code
    assert re.search(f"JOB-END .*{word}.*exit code {code}", master.output().splitlines()[-1])
    assert server.wait(60) == code
    assert word in server.output().splitlines()[-1]
    assert worker.wait(60) == 1
    assert re.search(f"error PSD_ERR_.*{word}", worker.output())


@pytest.mark.parametrize("number,code,word", SIGNALS)
@pytest.mark.parametrize("phase", ["gathering", "running"])
def test_signal_to_a_server(hand, number, code, word, phase):
    """If this fails, a stopped server is found by time-outs instead of by its farewell."""
    master = hand.master(1, 2, *BRISK)
    servers = [hand.server(0)] + ([hand.server(1)] if phase == "running" else [])
    worker = hand.worker(0, "--steps", 1_000_000)
    if phase == "running":
        worker.wait_for_output("step 5")
    else:
        master.wait_for_output("server 0 lane 0 joined")
    servers[0].signal(number)
    assert servers[0].wait(60) == code
    assert re.search(f"JOB-END .*{word}.*exit code {code}", servers[0].output().splitlines()[-1])
    if phase == "gathering":
        master.wait_for_output("MEMBER-LOST server 0")
        servers = [hand.server(0, name="again"), hand.server(1)]
        worker.wait_for_output("step 5")
        servers[0].signal(number)
        assert servers[0].wait(60) == code
    assert master.wait(60) == code
    assert re.search(f"JOB-END server 0: .*{word}", master.output().splitlines()[-1])
    assert servers[1].wait(60) == code
    assert worker.wait(60) == 1
    assert re.search(f"error PSD_ERR_.*server 0.*{word}", worker.output())


@pytest.mark.parametrize("number,code,word", SIGNALS)
def test_signal_to_psd_run_in_a_training(start, number, code, word):
    """If this fails, Ctrl-C of a training leaves processes, or a code that says success."""
    job = start("--workers", 2, "--servers", 2, "--", *python_worker("--steps", 1_000_000))
    job.wait_for_output("step 20", 2)
    job.process.send_signal(number)
    assert job.wait(60) == code
    told = "stopped by Ctrl-C (SIGINT)" if number == signal.SIGINT else f"stopped by {number.name}"
    assert told in job.stderr().splitlines()[-1]
