# SPDX-License-Identifier: Apache-2.0
"""kill -9 of servers that hold parameters and have copies in others (replicas=1): nothing is lost, no bit changes."""

import json
import os
import re
import signal
import subprocess
import uuid

import pytest

from helpers import BRISK, digests, program, python_worker, result, saved_digests, wait_for

WAYS = {"shared memory": (), "tcp": ("--transport=tcp",)}
# Three chunks a table: they lie on all servers.
UPDATES = ("--awkward", "--elements", 150_000, "--steps", 120)


def train(start, *options, servers=2, name="job", arguments=UPDATES, replicas=1):
    return start(*BRISK, "--workers", 2, "--servers", servers, "--replicas", replicas, *options, "-o", "logs", "--",
                 *python_worker(*arguments), name=name)


def is_whole(job, server):
    """Has the server a copy that lacks nothing, by what the master said last?"""
    said = [line for line in job.log("master").decode().splitlines()
            if re.search(rf"(COPY-WHOLE|COPY-LOST|MEMBER-LOST) (lane [0-9]+ of )?server {server}[ ,]", line)]
    return bool(said) and "COPY-WHOLE" in said[-1]


def wait_until_whole(job, servers):
    wait_for(lambda: all(is_whole(job, server) for server in range(servers)) or job.process.poll() is not None, 30,
             lambda: f"all servers have copies\n{job.stderr()}\n{job.log('master').decode()}")
    assert job.process.poll() is None, job.stdout() + job.stderr()


# A job with this does not end before the last of its servers has been killed, however late we are.
STAYS = ("--hold", "closing:gate")


def kill_in_turn(job, servers, times):
    """One after the other, each when redundancy is back, and a step later. Then the job may end (STAYS)."""
    for time in range(times):
        steps = job.stdout().count("step ")
        wait_for(lambda: job.stdout().count("step ") >= steps + 4 or "holding" in job.stdout() or
                 job.process.poll() is not None, 20, lambda: f"4 more steps\n{job.stdout()}\n{job.stderr()}")
        wait_until_whole(job, servers)
        os.kill(job.pid_of(f"server{time % servers}"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == time + 1 or job.process.poll() is not None, 20,
                 lambda: f"server {time % servers} is back\n{job.stderr()}\n{job.log('master').decode()}")
    (job.directory / "gate").touch()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("servers", [2, 3])
def test_server_killed_loses_nothing(start, way, rule, servers):
    """If this fails, the death of a server that has a copy ends the job, or changes what it computes."""
    arguments = (*UPDATES, "--rule", rule)
    calm = train(start, *WAYS[way], servers=servers, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, *WAYS[way], servers=servers, arguments=(*arguments, *STAYS))
    kill_in_turn(job, servers, servers)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    assert [one["process"] for one in result(job)["failovers"]] == [f"server{i}" for i in range(servers)]


@pytest.mark.parametrize("way", WAYS)
def test_tables_of_all_kinds(start, way):
    """If this fails, a stale, an asynchronous or a sum table beside others does not survive its server."""
    arguments = ("--zoo", "--awkward", "--elements", 70_000, "--steps", 40)
    calm = train(start, *WAYS[way], name="calm", arguments=arguments, replicas=0)
    assert calm.wait(120) == 0, calm.stderr()
    job = train(start, *WAYS[way], arguments=(*arguments, *STAYS))
    kill_in_turn(job, 2, 2)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_values_read_in_place(start):
    """If this fails, workers that read values where the server has them see others after its death."""
    arguments = (*UPDATES, "--memory", "view")
    calm = train(start, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=(*arguments, *STAYS))
    kill_in_turn(job, 2, 2)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_server_killed_again_and_again(start):
    """If this fails, a server that was started again and stands by is missed when it dies once more, and the job ends."""
    job = train(start, arguments=(*UPDATES, "--hold", "60:gate"))
    job.wait_for_output("holding")
    for time in range(3):
        wait_until_whole(job, 2)
        os.kill(job.pid_of("server0"), signal.SIGKILL)
        wait_for(lambda: job.stderr().count("is back after") == time + 1 or job.process.poll() is not None, 20,
                 lambda: f"server 0 is back\n{job.stderr()}\n{job.log('master').decode()}")
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert [one["process"] for one in result(job)["failovers"]] == ["server0"] * 3


def test_server_that_is_not_started_again(start):
    """If this fails, a job needs the dead server back, although its copy has all that it had."""
    job = train(start, "--server_restarts", 0)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert [(one["process"], one["by"]) for one in result(job)["failovers"]] == [("server1", "another server")]


def test_silent_server_is_fenced(start):
    """If this fails, a server that hangs holds up a job that has all that it had."""
    job = train(start)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server1"), signal.SIGSTOP)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert [one["process"] for one in result(job)["failovers"]] == ["server1"]


def test_server_and_master_killed_together(start):
    """If this fails, a master that returns does not know that a copy has all that a dead server had."""
    calm = train(start, name="calm", replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start)
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    os.kill(job.pid_of("master"), signal.SIGKILL)
    assert job.wait(90) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


# ------------------------------------------------------------- and workers that are replaced ---


WAITING = ("--elements", 200_000, "--steps", 40)


def begin_waiting(hand, tmp_path, kind, way, *, victim, held=()):
    """Three workers, one of which is to die, and two servers with copies, which are whole when this is over."""
    gate = tmp_path / "gate"
    hand.environment = {"PSD_TRANSPORT": "tcp"} if way == "tcp" else {}
    hold = [word for step in (5, *held) for word in ("--hold", f"{step}:{gate}{step}")]
    master = hand.master(3, 2, *BRISK, "--replicas=1", "--on_worker_death=wait")
    servers = [hand.server(index, "--replicas=1") for index in range(2)]
    workers = [hand.worker(rank, *WAITING, *kind, *(hold if rank == 0 else ()), *(("--die", victim) if rank == 1 else ()),
                           *(("--save", tmp_path / "saved") if rank == 0 else ())) for rank in range(3)]
    workers[0].wait_for_output("holding")
    master.wait_for_output("COPY-WHOLE", count=2)
    (tmp_path / "gate5").touch()
    return master, servers, workers


def kill_a_server(master, servers):
    servers[1].signal(signal.SIGKILL)
    master.wait_for_output("server 1: its copy has its places after")


def end_waiting(start, tmp_path, kind, master, servers, workers):
    """All but the server that is dead end well, and with what an undisturbed job has."""
    assert [one.wait(60) for one in (*workers, master, servers[0])] == [0] * 5, master.output()
    assert "joined 1 2" in workers[1].output()
    calm = start(*BRISK, "--workers", 3, "--servers", 2, "--", *python_worker(*WAITING, *kind, "--save", "saved"), name="calm")
    assert calm.wait(60) == 0, calm.stderr()
    assert saved_digests(tmp_path / "saved") == saved_digests(calm.directory / "saved")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [(), ("--rule", "adam"), ("--awkward",)], ids=["momentum", "adam", "awkward"])
@pytest.mark.parametrize("moment", ["half:20", "sent:20", "done:20"])
def test_worker_then_server_killed_then_replaced(start, hand, tmp_path, way, kind, moment):
    """If this fails, the version that a replacement repeats a step from is lost with a server, or what it lacks there is not
    given again."""
    master, servers, workers = begin_waiting(hand, tmp_path, kind, way, victim=f"1:{moment}")
    assert workers[1].wait() == 137
    kill_a_server(master, servers)
    workers[1] = hand.worker(1, *WAITING, *kind, name="again")
    end_waiting(start, tmp_path, kind, master, servers, workers)


@pytest.mark.parametrize("way", WAYS)
def test_server_killed_while_a_replacement_waits(start, hand, tmp_path, way):
    """If this fails, what a dead worker had given to an open round dies with the server, and its replacement does not give it
    again: the job hangs."""
    master, servers, workers = begin_waiting(hand, tmp_path, (), way, victim="1:sent:20", held=(20,))
    workers[0].wait_for_output("holding", count=2)
    workers[2].wait_for_output("step 19\n")
    assert workers[1].wait() == 137
    workers[1] = hand.worker(1, *WAITING, name="again")
    workers[1].wait_for_output("joined 1 2")
    kill_a_server(master, servers)
    (tmp_path / "gate20").touch()
    end_waiting(start, tmp_path, (), master, servers, workers)
@pytest.mark.parametrize("first", ["server1", "master"])
def test_process_with_all_parts_and_master_killed_together(start, first):
    """If this fails, a job ends although its copies have everything, because no server with a part is left to say so."""
    calm = train(start, name="calm", replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=(*UPDATES, "--hold", "60:gate"))
    job.wait_for_output("holding")
    wait_until_whole(job, 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    wait_for(lambda: job.stderr().count("is back after") == 1 or job.process.poll() is not None, 20,
             lambda: f"server 0 is back\n{job.stderr()}\n{job.log('master').decode()}")
    wait_until_whole(job, 2)
    for name in (first, "master" if first == "server1" else "server1"):
        os.kill(job.pid_of(name), signal.SIGKILL)
    (job.directory / "gate").touch()
    assert job.wait(90) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)


def test_sums_have_no_copies(start):
    """If this fails, a job that only sums pays for copies, and its load is spread worse after a server's death."""
    arguments = ("--sum", "--awkward", "--elements", 150_000, "--steps", 40)
    calm = train(start, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, arguments=arguments)
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
    assert [(one["process"], one["by"]) for one in result(job)["failovers"]] == [("server1", "restart")]
    assert b"COPY" not in job.log("master")


@pytest.mark.parametrize("servers, replicas, options, said", [
    (2, 0, (), "(replicas=1, psd_run --replicas 1, keeps a copy)"),
    (2, "auto", (), "(replicas=1, psd_run --replicas 1, keeps a copy)"),
    (1, "auto", (), "(with psd_run --servers 2 --replicas 1 another server keeps a copy)"),
    (2, "auto", ("--on_worker_death=wait",), "(replicas=1, psd_run --replicas 1, keeps a copy)"),
])
def test_without_copies_the_option_is_named(start, servers, replicas, options, said):
    """If this fails, nobody learns what would have saved the job."""
    job = train(start, *options, servers=servers, replicas=replicas)
    job.wait_for_output("step 4\n", 2)
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    assert job.wait(60) == 137, job.stderr()
    (closing,) = re.findall(r"psd_run: job ended after [\d.]+ s with code 137: (.*); logs in ", job.stderr())
    assert re.match(rf"server 0 \(pid \d+\) was killed by signal 9 \(Killed\); its part of table \w+ is lost with it {re.escape(said)}",
                    closing), closing
    assert (result(job)["exit_code"], result(job)["cause"]) == (137, closing)
    assert "from what its workers have saved: --restart=on-failure --restart_scope=group" in job.stderr()


@pytest.mark.parametrize("heard", ["one by one", "at once"])
def test_all_servers_killed_together(start, heard):
    """If this fails, the end of a job that lost everything is told in more than one way, or one that is not true."""
    job = train(start, arguments=(*UPDATES, *STAYS))
    job.wait_for_output("step 4\n", 2)
    wait_until_whole(job, 2)
    pids = [job.pid_of(f"server{rank}") for rank in range(2)]
    master = job.pid_of("master")
    if heard == "at once":
        os.kill(master, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    if heard == "at once":
        wait_for(lambda: (job.directory / "poseidon_run.log").read_text().count("code 0 signal 9") == 2, 30, "psd_run knows")
        os.kill(master, signal.SIGCONT)
    assert job.wait(60) == 137, job.stderr()
    (closing,) = re.findall(r"psd_run: job ended after [\d.]+ s with code 137: (.*); logs in ", job.stderr())
    named = re.match(r"server (\d) \(pid (\d+)\) was killed by signal 9 \(Killed\); its part of table \w+ is lost with it"
                     r"(, and its copy was in server \d, which is lost as well|, and so is its copy)$", closing)
    assert named and int(named[2]) == pids[int(named[1])], closing
    assert (result(job)["exit_code"], result(job)["cause"]) == (137, closing)
    assert [one["name"] for one in result(job)["processes"] if one["cause"]] == [f"server{named[1]}"]
    assert re.search(rf"END code 137 after .*: {re.escape(closing)}$", (job.directory / "poseidon_run.log").read_text(), re.M)


@pytest.mark.parametrize("options, text", [
    (("--servers", 1), "--replicas 1: the job has 1 server, and a copy is in another one: give --servers 2 or more"),
    (("--servers", 2, "--sum_failover=off"), "--replicas 1: not with sum_failover=off"),
])
def test_replicas_that_a_job_cannot_have(start, options, text):
    """If this fails, somebody believes in copies that are not there."""
    job = start("--workers", 1, *options, "--replicas", 1, "--", "true")
    assert job.wait(60) == 2, job.stderr()
    assert text in job.stderr()


@pytest.mark.parametrize("servers, options, said", [
    (["node1", "node2"], (), "replicas 1 (auto: the servers are on 2 machines)"),
    (["node1", "node1"], (), "replicas 0 (auto: all servers are on one machine)"),
    (["node1"], (), "replicas 0 (auto: one server)"),
    (["node1", "node2"], ("--on_worker_death=wait",), "replicas 0 (auto: on_worker_death=wait)"),
    (["node1", "node2"], ("--restart=on-failure",), "replicas 0 (auto: on_worker_death=wait)"),
    (["node1", "node2"], ("--sum_failover=off",), "replicas 0 (auto: sum_failover=off)"),
    (["node1", "node2"], ("--replicas=0",), "replicas 0 (as told)"),
    (["node1", "node1"], ("--replicas=1",), "replicas 1 (as told)"),
])
def test_copies_by_default(start, tmp_path, servers, options, said):
    """If this fails, servers on two machines have no copies, or a job that cannot have any is refused for it."""
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"master_node": "node1", "worker_nodes": ["node1", "node2"], "server_nodes": servers}))
    job = start("-c", cluster, "--dry_run", *options, "true")
    assert job.wait(60) == 0, job.stderr()
    assert f"{said}\n" in job.stdout()
    assert job.stdout().count(f"--replicas={said.split()[1]}") == 1 + len(servers)


# ------------------------------------------------------------------ and several lanes each ---


def shown(job, *options):
    told = subprocess.run([program("psd_run"), "show", job.title, *options], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def roles(job):
    """By server: who has its part, the state of its copies, and who has those."""
    return {one["server"]: (one["by"], one["copy"], one["copy_in"]) for one in json.loads(shown(job, "--json"))["redundancy"]}


def kill_and_wait(job, name, count):
    os.kill(job.pid_of(name), signal.SIGKILL)
    wait_for(lambda: job.stderr().count("is back after") == count or job.process.poll() is not None, 30,
             lambda: f"{name} is back\n{job.stderr()}\n{job.log('master').decode()}")
    wait_until_whole(job, 4)


def test_the_load_of_a_dead_server_is_shared(start):
    """If this fails, one other server carries the whole load of a dead one, or a bit changes because it is shared; or a second
    death, when redundancy is back, is the end."""
    arguments = ("--awkward", "--elements", 900_000, "--steps", 60)
    calm = train(start, servers=4, name="calm", arguments=arguments, replicas=0)
    assert calm.wait(90) == 0, calm.stderr()
    title = f"spread-{uuid.uuid4().hex[:8]}"
    job = train(start, "--lanes", 3, "--name", title, servers=4, arguments=(*arguments, "--hold", "30:gate"))
    job.title = title
    job.wait_for_output("holding")
    wait_until_whole(job, 4)
    assert roles(job) == {f"server{i}": (f"server{i}", "whole", ", ".join(f"server{(i + 1 + k) % 4}" for k in range(3)))
                          for i in range(4)}
    kill_and_wait(job, "server0", 1)
    taken = [re.search(r"TAKE-PLACE becomes lane (\d) of server 0", job.log(f"server{i}").decode()) for i in (1, 2, 3)]
    assert sorted(one.group(1) for one in taken) == ["0", "1", "2"]
    assert roles(job)["server0"][0] == "server1, server2, server3"
    processes = {one["name"]: one for one in json.loads(shown(job, "--json"))["processes"]}
    assert processes["server1"]["primary_of"] == ["server0 (1 of 3 lanes)", "server1"]
    assert processes["server0"]["primary_of"] == []
    kill_and_wait(job, "server2", 2)
    assert "server2" not in [name for by, _, _ in roles(job).values() for name in by.split(", ")]
    (job.directory / "gate").touch()
    assert job.wait(90) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == digests(calm)
