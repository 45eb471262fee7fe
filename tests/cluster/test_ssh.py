# SPDX-License-Identifier: Apache-2.0
"""psd_run over ssh: four hosts with a real sshd each, and a launcher that is none of them."""

import base64
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from bed import PYTHON, hosts, worker
from helpers import BRISK, bin_directory, digests, result, wait_for

# Five workers and three servers on four hosts, the master on the third.
WIDE = {"worker_nodes": ["host1", "host2", "host3", "host4", "host1"],
        "server_nodes": ["host2", "host4", "host4"], "master_node": "host3"}
SMALL = {"worker_nodes": ["host1", "host2"], "server_nodes": ["host2"], "master_node": "host3"}

# Ignores TERM, has a child, and a grandchild in a session of its own that ignores TERM as well.
STUBBORN = ("sh -c 'trap \"\" TERM; (setsid sh -c \"trap : TERM; while :; do sleep 100; done\" &) ; "
            "sleep 100 & echo up; while :; do wait; sleep 100; done'")


# ------------------------------------------------------------------------------------- starting ---


def test_five_workers_three_servers_four_hosts(launch, four_hosts):
    """If this fails, the documented way to use a cluster does not work."""
    job = launch(WIDE, *BRISK, "-o", "logs", worker("--steps", 20))
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    names = ["master", *(f"server{i}" for i in range(3)), *(f"worker{i}" for i in range(5))]
    assert sorted(path.stem for path in job.logs().glob("*.log")) == sorted(names)
    for rank in range(5):
        assert job.log(f"worker{rank}").decode().splitlines()[-1] == "closed"
        assert f"[worker{rank}] step 19\n" in job.stdout()
    assert re.search(r"READY master at tcp://10\.213\.0\.3:\d+\n", job.run_log())
    places = dict(re.findall(r"PROCESS (\w+) pid \d+ on (\w+): ", job.run_log()))
    assert places == {"master": "host3", "server0": "host2", "server1": "host4",
                      "server2": "host4", "worker0": "host1", "worker1": "host2",
                      "worker2": "host3", "worker3": "host4", "worker4": "host1"}
    assert "job ended well" in job.stderr()
    job.expect_nothing_left(2)


def test_forty_workers_on_one_host(launch):
    """If this fails, a wide job dies of the logins that one sshd takes at a time."""
    job = launch({"worker_nodes": [{"host": "host1", "slots": 40}], "server_nodes": ["host1"],
                  "master_node": "host1"},
                 "sh -c 'echo rank $PSD_RANK local $PSD_LOCAL_RANK of $PSD_LOCAL_SIZE'")
    assert job.wait(60) == 0, job.stderr()
    for rank in range(40):
        assert f"[worker{rank}] rank {rank} local {rank} of 40\n" in job.stdout()


def test_a_machine_without_the_hook_is_named(launch, four_hosts):
    """If this fails, workers of one machine train by themselves, and nobody says so."""
    host = four_hosts.hosts[2]
    subprocess.run(host.inside("mount", "-t", "tmpfs", "tmpfs", "/opt/poseidon/python",
                               user="root"), check=True)
    try:
        job = launch(SMALL, "--auto", "on", "true")
        assert job.wait() == 3
        assert "host2: --auto on: the Python package poseidon does not lie beside" in job.stderr()
        assert "host1: --auto" not in job.stderr()
        job = launch(SMALL, "--grace_ms", "100", "true")
        assert job.wait() == 0, job.stderr()
        assert "host2: Python workers are not distributed automatically" in job.run_log()
    finally:
        subprocess.run(host.inside("umount", "/opt/poseidon/python", user="root"), check=True)


def test_login_is_repeated_when_sshd_has_too_many(launch, four_hosts):
    """If this fails, logins of other people make a job fail that a second later would start."""
    host = four_hosts.hosts[1]
    config = host.directory / "narrow_config"
    config.write_text(hosts.SSHD_CONFIG.format(directory=host.directory).replace(
        "/run/sshd.pid", "/run/narrow.pid") + "Port 2222\nMaxStartups 2:100:2\n")
    hosts.run(*host.inside("/usr/sbin/sshd", "-f", config, user="root"))
    crowd = ("import socket, sys\n"
             "held = [socket.create_connection(('host1', 2222)) for _ in range(2)]\n"
             "print([peer.recv(4) for peer in held], flush=True)\nsys.stdin.read()\n")
    jam = subprocess.Popen(four_hosts.hosts[2].inside(PYTHON, "-c", crowd),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert jam.stdout.readline() == "[b'SSH-', b'SSH-']\n"
    job = launch({"worker_nodes": ["host1:2222"], "server_nodes": ["host1"],
                  "master_node": "host1"}, "echo hello")
    wait_for(lambda: "SSH host1, try 2" in job.run_log(), 30, "a second try")
    jam.communicate(timeout=120)
    assert job.wait(40) == 0, job.stderr()
    assert "[worker0] hello\n" in job.stdout()
    hosts.run(*host.inside("sh", "-c", "kill $(cat /run/narrow.pid)", user="root"))


def test_environment_and_directory_of_a_worker(launch, four_hosts):
    """If this fails, a worker does not find its place, its variables or its files."""
    job = launch({**SMALL, "worker_nodes": ["host1", {"host": "host2", "env": {"SIDE": "right"}}],
                  "env": {"SIDE": "left"}},
                 "-x", "GIVEN", "-x", "MY_*", "-x", "SAID=so",
                 "sh -c 'echo $SIDE $GIVEN $MY_A $SAID $OMP_NUM_THREADS; echo "
                 "$PSD_RANK/$PSD_WORLD_SIZE node $PSD_NODE_RANK/$PSD_NUM_NODES addr $PSD_ADDR; "
                 "echo $HOME $PWD'",
                 environment={"GIVEN": "g", "MY_A": "a", "OMP_NUM_THREADS": "3"})
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0").decode() == ("left g a so 3\n0/2 node 0/3 addr 10.213.0.1\n"
                                           "/home/psd /home/psd\n")
    assert job.log("worker1").decode() == ("right g a so 3\n1/2 node 1/3 addr 10.213.0.2\n"
                                           "/home/psd /home/psd\n")


def test_addresses_of_the_workers(launch):
    """If this fails, workers on several hosts cannot talk to each other without a list by hand."""
    job = launch({**SMALL, "worker_nodes": ["host1", "host2", "host1", "localhost"]},
                 "sh -c 'echo $PSD_PEERS; echo $PSD_ADDR $PSD_PORT $PSD_LOG_DIR'")
    assert job.wait() == 0, job.stderr()
    lines = [job.log(f"worker{i}").decode().splitlines() for i in range(4)]
    peers = lines[0][0].split(",")
    assert [peer.rsplit(":", 1)[0] for peer in peers] == [
        f"tcp://10.213.0.{host}" for host in (1, 2, 1, 100)]
    assert len({peers[0], peers[2]}) == 2
    for rank, (all_of_them, own) in enumerate(lines):
        assert all_of_them.split(",") == peers
        address, port, *logs = own.split(" ")
        assert f"tcp://{address}:{port}" == peers[rank]
        assert logs == ([f"/home/psd/{job.name}/logs/{job.logs().name}"] if rank == 3 else [])


def test_master_on_the_launcher_is_reachable(launch):
    """If this fails, workers are told to connect to their own loopback."""
    job = launch({"worker_nodes": ["host1", "localhost"], "server_nodes": ["host2"]}, *BRISK,
                 worker("--steps", 5))
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert re.search(r"READY master at tcp://10\.213\.0\.100:\d+\n", job.run_log())


def test_ipv6(launch):
    """If this fails, a cluster that speaks IPv6 alone cannot be used."""
    job = launch({"worker_nodes": ["fd00:213::1", "[fd00:213::2]:22"],
                  "server_nodes": ["fd00:213::2"], "master_node": "[fd00:213::3]"}, *BRISK,
                 worker("--steps", 5))
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert re.search(r"READY master at tcp://\[fd00:213::3\]:\d+\n", job.run_log())


def secret_of(pid):
    """The secret that a psd_run holds, out of its memory."""
    (held,) = [path for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()
               if os.readlink(path).startswith("/memfd:psd-secret")]
    secret = held.read_bytes()
    assert len(secret) >= 32
    return secret


def forms_of(secret):
    """As it is and as people write such things; the end of base64 depends on what follows."""
    return [secret, secret.hex().encode(), secret.hex().upper().encode(),
            base64.b64encode(secret)[:40], base64.urlsafe_b64encode(secret)[:40]]


def test_secret_is_on_no_command_line(launch, four_hosts):
    """If this fails, whoever runs `ps` while a job starts can join it."""
    job = launch(SMALL, "sh -c 'echo up; sleep 100'")
    job.wait_for_output("up", 2)
    lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
             for host in four_hosts.hosts for pid in host.processes()]
    assert any(b"BatchMode=yes" in line for line in lines)
    assert any(line.endswith(b"psd_run\0--agent\0") for line in lines)
    said = [text.encode() for text in (job.run_log(), job.stderr(), job.stdout())]
    for form in forms_of(secret_of(job.pid())):
        assert not [text for text in (*lines, *said) if form in text]
    os.kill(job.pid(), signal.SIGINT)
    assert job.wait() == 130
    job.expect_nothing_left(3)


def test_list_of_hosts_and_a_command_for_each(launch):
    """If this fails, every host must be written by itself, or all must run the same."""
    job = launch({"worker_nodes": ["host[1-3]"], "server_nodes": ["host4"], "master_node": "host4"},
                 "echo a {rank}, echo b {rank}, echo c {rank}/{world}")
    assert job.wait() == 0, job.stderr()
    assert [job.log(f"worker{i}") for i in range(3)] == [b"a 0\n", b"b 1\n", b"c 2/3\n"]


def test_image_is_put_before_the_command(launch):
    """If this fails, workers cannot run in a container."""
    job = launch({**SMALL, "image": "env INSIDE=yes"}, "sh -c 'echo $INSIDE $PSD_RANK'")
    assert job.wait() == 0, job.stderr()
    assert (job.log("worker0"), job.log("worker1")) == (b"yes 0\n", b"yes 1\n")


@pytest.mark.parametrize("wanted,code", [("eth0", 0), ("10.213.0.0/16", 0), ("ib0", 3)])
def test_interface(launch, wanted, code):
    """If this fails, a job talks over the wrong network, or not at all."""
    job = launch(SMALL, "--interface", wanted, "true")
    assert job.wait() == code, job.stderr()
    assert code == 0 or "has no address of interface or network ib0" in job.stderr()


def test_sync(launch, four_hosts):
    """If this fails, code must be copied to every machine by hand, or is copied again and again."""
    project = four_hosts.launcher.directory / "home" / "project"
    (project / "data").mkdir(parents=True)
    (project / "train.sh").write_text("cat data/values\n")
    (project / "data" / "values").write_bytes(os.urandom(9 << 20) + b"\nthe end\n")
    hosts.run("chown", "-R", f"{hosts.USER_ID}:{hosts.USER_ID}", project)
    options = ("--sync", "/home/psd/project", "--workdir", "/home/psd/project")
    job = launch(SMALL, *options, "sh train.sh")
    assert job.wait() == 0, job.stderr()
    for rank in (0, 1):
        assert job.log(f"worker{rank}") == (project / "data" / "values").read_bytes()
    copies = [host.directory / "home" / "project" for host in four_hosts.hosts[1:4]]
    before = [(copy / "data" / "values").stat().st_mtime_ns for copy in copies]
    (copies[0] / "data" / "values").write_text("changed on the node\n")
    job = launch(SMALL, *options, "sh train.sh")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0") == b"changed on the node\n", "it was shipped once"
    (project / "train.sh").write_text("echo second\n")
    job = launch(SMALL, *options, "sh train.sh")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0") == b"second\n"
    assert before[1] == (copies[1] / "data" / "values").stat().st_mtime_ns


def test_sync_overwrites_nothing_behind_a_link(launch, four_hosts):
    """If this fails, whoever clones a repository and ships it has any of their files overwritten."""
    home = four_hosts.launcher.directory / "home"
    project = home / "cloned"
    project.mkdir()
    (home / "precious").write_text("precious")
    (project / ".psd_sync").symlink_to("/home/psd/precious")
    hosts.run("chown", "-hR", f"{hosts.USER_ID}:{hosts.USER_ID}", project, home / "precious")
    job = launch(SMALL, "--sync", "/home/psd/cloned", "true")
    assert job.wait() == 0, job.stderr()
    assert (home / "precious").read_text() == "precious"
    assert not (project / ".psd_sync").is_symlink()


def test_sync_uses_no_directory_of_others(launch, four_hosts):
    """If this fails, whoever makes the directory first on a node has their own files run."""
    project = four_hosts.launcher.directory / "home" / "shared"
    project.mkdir()
    (project / "train.sh").write_text("echo ours\n")
    hosts.run("chown", "-R", f"{hosts.USER_ID}:{hosts.USER_ID}", project)
    options = ("--sync", "/home/psd/shared", "--workdir", "/home/psd/shared")
    job = launch(SMALL, *options, "sh train.sh")
    assert job.wait() == 0, job.stderr()
    there = four_hosts.hosts[1].directory / "home" / "shared"  # the mark in it fits
    (there / "train.sh").write_text("echo theirs\n")
    os.chown(there, 12345, 12345)
    job = launch(SMALL, *options, "sh train.sh")
    assert job.wait() == 3
    assert "host1: --sync: /home/psd/shared belongs to user 12345" in job.stderr(), job.stderr()
    os.chown(there, hosts.USER_ID, hosts.USER_ID)
    there.chmod(0o777)
    job = launch(SMALL, *options, "sh train.sh")
    assert job.wait() == 3
    assert "others may write to it (mode 0777)" in job.stderr(), job.stderr()


def test_logs_on_nodes(launch, four_hosts):
    """If this fails, the copies on the nodes differ from what the launcher has."""
    job = launch(SMALL, "--log_mode=both", "sh -c 'seq 1 1000; echo rank $PSD_RANK'")
    assert job.wait() == 0, job.stderr()
    (there,) = (four_hosts.hosts[2].directory / "home" / job.name / "logs").iterdir()
    assert sorted(path.name for path in there.glob("*.log")) == ["server0.log", "worker1.log"]
    assert (there / "worker1.log").read_bytes() == job.log("worker1")


def test_logs_on_nodes_alone(launch, four_hosts):
    """If this fails, logs that nobody wanted to travel do so, or are nowhere."""
    job = launch({**SMALL, "worker_nodes": ["host1", "host2", "localhost"]}, "--log_mode=nodes",
                 "sh -c 'seq 1 1000; echo rank $PSD_RANK in $PSD_LOG_DIR'")
    assert job.wait() == 0, job.stderr()
    assert [path.name for path in job.logs().glob("*.log")] == ["worker2.log"]
    (there,) = (four_hosts.hosts[2].directory / "home" / job.name / "logs").iterdir()
    assert sorted(path.name for path in there.glob("*.log")) == ["server0.log", "worker1.log"]
    numbers = "".join(f"{i}\n" for i in range(1, 1001))
    assert (there / "worker1.log").read_text() == (
        f"{numbers}rank 1 in /home/psd/{job.name}/logs/{there.name}\n")
    assert "[worker1] rank 1 in" in job.stdout()
    job = launch(None, "logs", "worker1", name="asks")
    assert job.wait() == 3


def test_check(launch, four_hosts):
    """If this fails, a cluster is only known to be ready when a job fails on it."""
    job = launch(WIDE, "--check", worker())
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert "everything is ready" in job.stdout()
    assert len(re.findall(r"^host\d .* ready$", job.stdout(), re.MULTILINE)) == 4
    job.expect_nothing_left(3)
    venv = four_hosts.hosts[1].directory / "home" / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(PYTHON)
    four_hosts.hosts[3].power_off()
    job = launch({**WIDE, "virtualenv": "/home/psd/venv"}, "--check", worker())
    assert job.wait(60) == 3
    text = job.stdout()
    assert re.search(r"host1 .* ready\nhost2 .* NOT READY\n    virtualenv /home/psd/venv: no "
                     r"bin/python there\nhost3 .* NOT READY\n    host3 \(ssh psd@host3\): ", text), text
    job.expect_nothing_left(3)


def test_one_computer_under_two_names(launch):
    """If this fails, two workers of one machine take the same GPU, and all cores each."""
    nodes = {"worker_nodes": ["host1", "10.213.0.1", "host2", "host1"], "server_nodes": ["host2"],
             "master_node": "host3"}
    job = launch(nodes, "sh -c 'echo $PSD_RANK: $PSD_LOCAL_RANK of $PSD_LOCAL_SIZE, node "
                 "$PSD_NODE_RANK of $PSD_NUM_NODES, threads $OMP_NUM_THREADS, port $PSD_PORT'")
    assert job.wait() == 0, job.stderr()
    found = sorted(re.findall(r"(\d): (\d) of (\d), node (\d) of (\d), threads (\d*), port (\d+)",
                              job.stdout()))
    assert [row[:5] for row in found] == [("0", "0", "3", "0", "3"), ("1", "1", "3", "0", "3"),
                                          ("2", "0", "1", "1", "3"), ("3", "2", "3", "0", "3")]
    threads = str(max(1, len(os.sched_getaffinity(0)) // 3))  # of the three that share one computer
    assert [row[5] for row in found] == [threads, threads, "", threads]
    assert len({row[6] for row in found if row[0] != "2"}) == 3
    assert "host1 and 10.213.0.1 are one computer (host1)" in job.stderr()
    job = launch(nodes, "--check", "true", name="check")
    assert job.wait() == 0, job.stdout()
    assert "    the same computer as host1\n" in job.stdout()


def test_check_tells_of_another_version(launch, four_hosts):
    """If this fails, --check says that a machine is not ready, and not why."""
    host = four_hosts.hosts[1]
    other = host.directory / "home" / "psd_run"
    mine = (bin_directory() / "psd_run").read_bytes()
    version = subprocess.run([bin_directory() / "psd_run", "--version"], capture_output=True,
                             check=True).stdout.split()[1]
    other.write_bytes(mine.replace(version + b"\0", b"9.9.9"[:len(version)] + b"\0"))
    other.chmod(0o755)
    keys = host.directory / "home" / ".ssh" / "authorized_keys"
    usual = keys.read_text()
    keys.write_text(f'command="/home/psd/psd_run --agent" {usual}')
    try:
        job = launch(WIDE, "--check", worker())
        assert job.wait(60) == 3
        reason = "host1 has psd_run 9.9.9, this is " + version.decode()
        assert re.search(rf"^host1 .* NOT READY\n    {reason}: install the same version", job.stdout(),
                         re.MULTILINE), job.stdout()
        assert len(re.findall(r"^host[234] .* ready$", job.stdout(), re.MULTILINE)) == 3
        job = launch(WIDE, worker())
        assert job.wait(60) == 3
        assert reason in job.stderr()
        job.expect_nothing_left(3)
        job = launch(WIDE, "--check", "--interface", "ib0", worker(), name="interface")
        assert job.wait(60) == 3
        assert "has no address of interface or network ib0" in job.stdout() + job.stderr()
    finally:
        keys.write_text(usual)


def test_dry_run_shows_ssh(launch):
    """If this fails, nobody can see what psd_run would do to a cluster."""
    job = launch({**SMALL, "ssh_options": ["-oConnectionAttempts=2"]}, "--dry_run",
                 "sh -c 'echo $SECRET'", "-x", environment={"SECRET": "hunter2"})
    assert job.wait() == 2, "options come before the command"
    job = launch({**SMALL, "ssh_options": ["-oConnectionAttempts=2"]}, "--dry_run", "-x",
                 "API_KEY", "true", environment={"API_KEY": "hunter2"})
    assert job.wait() == 0, job.stderr()
    # The user's options come first: ssh takes the first value of each.
    assert re.search(r"ssh -oConnectionAttempts=2 -T -o BatchMode=yes -o ConnectTimeout=10 .*"
                     r"-oStrictHostKeyChecking=accept-new -lpsd -- host1 ", job.stdout())
    assert "API_KEY=***" in job.stdout() and "hunter2" not in job.stdout()
    job.expect_nothing_left(1)


def test_show_and_stop_over_ssh(launch):
    """If this fails, nobody sees what runs where."""
    job = launch(WIDE, "--name", "wide", "sh -c 'echo up; exec sleep 100'")
    job.wait_for_output("up", 5)
    show = launch(None, "show", "--json")
    assert show.wait() == 0, show.stderr()
    story = json.loads(show.stdout())
    assert {m["name"]: (m["state"], m["address"]) for m in story["machines"]} == {
        f"host{i}": ("connected", f"10.213.0.{i}") for i in range(1, 5)}
    assert [p["machine"] for p in story["processes"] if p["role"] == "worker"] == (
        WIDE["worker_nodes"])
    stop = launch(None, "stop", "wide")
    assert stop.wait() == 0, stop.stderr()
    assert job.wait() == 143
    job.expect_nothing_left(3)


def test_user_of_ssh_config(launch, four_hosts):
    """If this fails, ~/.ssh/config has to be repeated in the cluster file."""
    config = four_hosts.launcher.directory / "home" / ".ssh" / "config"
    config.write_text("Host front\n    HostName host1\n    User psd\n")
    os.chown(config, hosts.USER_ID, hosts.USER_ID)
    nodes = {"worker_nodes": ["front"], "server_nodes": ["front"], "master_node": "front"}
    job = launch({**nodes, "username": None}, "sh -c 'id -un; hostname'")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0") == b"psd\nhost1\n"
    config.unlink()
    job = launch({"worker_nodes": ["host1"], "server_nodes": ["host1"], "username": None}, "true")
    assert job.wait() == 3
    assert "(ssh ubuntu@host1; ubuntu because neither " in job.stderr()


# -------------------------------------------------------------------------------- what is missing ---


@pytest.mark.parametrize("config,command,text", [
    ({"virtualenv": "/nowhere/venv"}, "true", "host1: virtualenv /nowhere/venv: no bin/python there"),
    ({}, "nosuchprogram --x", "host1: nosuchprogram: no such program"),
    ({}, f"{PYTHON} /nowhere/train.py", "host1: /nowhere/train.py: No such file or directory; copy it "
     "there, or ship your files with --sync DIR"),
    ({}, f"{PYTHON} t.py", "host1: t.py: No such file or directory in /home/psd; --workdir DIR says "
     "where it is, --sync DIR ships your files there"),
    ({"workdir": "/nowhere"}, "true", "host1: workdir /nowhere: No such file or directory"),
], ids=["virtualenv", "program", "script", "relative script", "workdir"])
def test_what_is_missing_on_a_host_is_found_before_the_start(launch, config, command, text):
    """If this fails, half of a job starts before somebody sees that the rest cannot."""
    job = launch({**SMALL, **config}, command)
    assert job.wait() == 3
    assert text in job.stderr()
    assert "PROCESS" not in job.run_log()
    job.expect_nothing_left(3)


@pytest.mark.parametrize("config, command, hosts_told, what", [
    ({}, "sh /home/psd/absent.sh", (1, 2), r": /home/psd/absent\.sh: No such file"),
    ({"username": "root"}, "true", (1, 2, 3), r" \(ssh root@host\d\): .*Permission denied"),
], ids=["script", "login"])
def test_problems_of_several_hosts_are_told_one_by_one(launch, config, command, hosts_told, what):
    """If this fails, problems run together in one long line, or people mend one at a time."""
    job = launch({**SMALL, **config}, command)
    assert job.wait(60) == 3
    *problems, last = job.stderr().splitlines()
    assert len(problems) == len(hosts_told), job.stderr()
    for number, problem in zip(hosts_told, problems):
        assert re.match(rf"psd_run: host{number}{what}", problem)
    assert last.startswith(
        f"psd_run: the job did not start (code 3): {len(problems)} problems, listed above; logs in ")
    cause = json.loads((job.logs() / "result.json").read_text())["cause"]
    assert all(f"host{number}" in cause for number in hosts_told)


def test_script_missing_on_one_host_alone(launch, four_hosts):
    """If this fails, the one node that is different is not named."""
    script = four_hosts.hosts[1].directory / "home" / "only_here.sh"
    script.write_text("echo hello\n")
    job = launch(SMALL, "sh /home/psd/only_here.sh")
    assert job.wait() == 3
    assert "host2: /home/psd/only_here.sh: No such file or directory" in job.stderr()
    assert "host1:" not in job.stderr()


def test_key_that_is_not_accepted(launch):
    """If this fails, people are asked for a password, or not told how to install a key."""
    job = launch({**SMALL, "username": "root"}, "true")
    assert job.wait() == 3
    assert "(ssh root@host" in job.stderr()
    assert "ssh-copy-id root@host" in job.stderr()
    assert "those of ~/.ssh and the ssh agent" in job.stderr()


def test_pem_file(launch, four_hosts):
    """If this fails, the key of a cloud cannot be used, or a readable one gives a riddle."""
    pem = four_hosts.launcher.directory / "home" / "cloud.pem"
    pem.write_bytes(four_hosts.key.read_bytes())
    os.chown(pem, hosts.USER_ID, hosts.USER_ID)
    pem.chmod(0o644)
    job = launch({**SMALL, "pem_file": "../cloud.pem"}, "echo hello")
    assert job.wait() == 2
    assert re.search(r"cluster\.json:\d+:\d+: pem_file \.\./cloud\.pem: ", job.stderr())
    assert "mode 0644" in job.stderr() and "chmod 600 ../cloud.pem" in job.stderr()
    pem.chmod(0o600)
    job = launch({**SMALL, "pem_file": "../cloud.pem"}, "echo hello")
    assert job.wait() == 0, job.stderr()


@pytest.mark.parametrize("kind, told", [
    ("junk", "is no private key"), ("public", "is a public key"), ("sealed", "needs a passphrase")])
def test_pem_file_that_ssh_cannot_use(launch, four_hosts, kind, told):
    """If this fails, people install a key that was never offered."""
    home = four_hosts.launcher.directory / "home"
    pem = home / f"{kind}.pem"
    if kind == "sealed":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a secret", "-f", pem], check=True)
    else:
        pem.write_text("hello\n" if kind == "junk" else
                       four_hosts.key.with_suffix(".pub").read_text())
    os.chown(pem, hosts.USER_ID, hosts.USER_ID)
    pem.chmod(0o600)
    job = launch({**SMALL, "pem_file": f"../{kind}.pem"}, "echo hello")
    assert job.wait() == 3
    assert re.search(rf"the key was not used: \S*{kind}\.pem {told}", job.stderr()), job.stderr()
    assert "ssh-copy-id" not in job.stderr()


@pytest.mark.parametrize("command, told", [
    ("/usr/sbin/nologin", "This account is currently not available."),
    ("echo Choose a project, then log in again.", "Choose a project, then log in again.")])
def test_login_that_runs_nothing(launch, four_hosts, command, told):
    """If this fails, what an account says to whoever logs in does not reach the user."""
    host = four_hosts.hosts[1]
    config = host.directory / "closed_config"
    config.write_text(hosts.SSHD_CONFIG.format(directory=host.directory).replace(
        "/run/sshd.pid", "/run/closed.pid") + f"Port 2223\nForceCommand {command}\n")
    hosts.run(*host.inside("/usr/sbin/sshd", "-f", config, user="root"))
    try:
        job = launch({"worker_nodes": ["host1:2223"], "server_nodes": ["host1"],
                      "master_node": "host1"}, "echo hello")
        assert job.wait() == 3
    finally:
        hosts.run(*host.inside("sh", "-c", "kill $(cat /run/closed.pid)", user="root"))
    assert f'the login printed "{told}" and ended with code ' in job.stderr()
    assert "its shell must run commands" in job.stderr()


def test_changed_host_key_is_refused(launch, four_hosts):
    """If this fails, somebody in the middle can take over a cluster."""
    known = four_hosts.launcher.directory / "home" / ".ssh" / "known_hosts"
    before = known.read_text() if known.exists() else ""
    other = (four_hosts.hosts[4].directory / "host_key.pub").read_text().split()
    known.write_text(f"host1 {other[0]} {other[1]}\n")
    job = launch(SMALL, "true")
    assert job.wait() == 3
    known.write_text(before)
    assert "host1 (ssh psd@host1)" in job.stderr()
    assert "its host key is not the one that is known" in job.stderr()
    assert re.search(r"run: ssh-keygen -f \S*/\.ssh/known_hosts -R host1;", job.stderr())
    job.expect_nothing_left(3)


def test_host_that_is_off(launch, four_hosts):
    """If this fails, a job waits for a machine that nobody switched on, or does not name it."""
    four_hosts.hosts[2].power_off()
    job = launch(SMALL, "true")
    assert job.wait(60) == 3
    assert "host2 (ssh psd@host2)" in job.stderr()
    assert "run: ssh psd@host2 true" in job.stderr()
    job.expect_nothing_left(3)


def test_hosts_that_do_not_reach_each_other(launch, four_hosts):
    """If this fails, a firewall between nodes looks like a hanging training."""
    job = launch({**SMALL, "server_nodes": [{"host": "host2", "addr": "10.213.0.99"}]}, "true")
    assert job.wait(60) == 3
    assert "host2: listen on 10.213.0.99: Cannot assign requested address" in job.stderr()


# ---------------------------------------------------------------------------------- what goes wrong ---


def test_first_failure_is_named_with_its_host(launch):
    """If this fails, somebody must visit nodes to learn why a job ended."""
    job = launch(WIDE, "sh -c 'if [ $PSD_RANK = 3 ]; then seq 1 30; echo the reason; exit 3; fi; "
                       "exec sleep 100'")
    assert job.wait() == 3
    assert re.search(r"worker 3 on host4 \(10\.213\.0\.4, pid \d+\) ended with code 3",
                     job.stderr())
    assert "| the reason" in job.stderr() and "| 12\n" in job.stderr()
    assert "| 11\n" not in job.stderr()
    job.expect_nothing_left(3)


def train_for_ever(launch, config=None, *options):
    job = launch(config or WIDE, *BRISK, *options, worker("--steps", 1_000_000))
    job.wait_for_output("step 10", len((config or WIDE)["worker_nodes"]))
    return job


@pytest.mark.parametrize("number, code, options", [
    (1, 70, ()), (3, 70, ()), (3, 72, ("--master_restarts=0",)), (4, 70, ()),
    (4, 71, ("--server_restarts=0", "--replicas=0")),
], ids=["workers", "master and a worker", "master", "servers and a worker", "servers"])
def test_host_powered_off_in_the_middle(launch, four_hosts, number, code, options):
    """If this fails, a dead machine hangs a job, leaves the others running, or one of them is blamed; or what
    could have been had elsewhere is given as the reason."""
    job = train_for_ever(launch, WIDE, *options)
    if number == 4 and not options:  # what its servers have is elsewhere, too
        wait_for(lambda: all(re.search(rf"place server {server} by \S+ whole ", job.run_log()) for server in (1, 2)), 20,
                 lambda: f"copies\n{job.run_log()}")
    four_hosts.hosts[number].power_off()
    assert job.wait(60) == code, job.stderr()
    assert f"host{number} (10.213.0.{number}) was lost: nothing was heard of it for" in job.stderr()
    job.expect_nothing_left(3)


@pytest.mark.parametrize("number, code", [(1, 70), (2, 71)])
def test_network_cut(launch, four_hosts, number, code):
    """If this fails, processes behind a broken switch run until somebody remembers them."""
    job = train_for_ever(launch, SMALL)
    four_hosts.hosts[number].cut()
    assert job.wait(60) == code, job.stderr()
    job.expect_nothing_left(12)
    four_hosts.hosts[number].heal()


def test_network_of_the_launcher_cut(launch, four_hosts):
    """If this fails, a laptop that is closed leaves a cluster at work for nobody."""
    job = launch(SMALL, STUBBORN)
    job.wait_for_output("up", 2)
    four_hosts.launcher.cut()
    assert job.wait(60) == 72
    assert ("this machine was cut off from all others: nothing was heard of host1, host2, host3 for"
            in job.stderr())
    job.expect_nothing_left(12)
    four_hosts.launcher.heal()


def pids(host, text):
    return [pid for pid, line in host.processes().items() if text in line]


@pytest.mark.parametrize("victim", ["psd_run", "ssh", "keeper", "agent"])
def test_kill_9(launch, four_hosts, victim):
    """If this fails, killing one process of the launcher leaves others without a head."""
    job = launch(SMALL, STUBBORN)
    job.wait_for_output("up", 2)
    agents = sorted(pids(four_hosts.hosts[1], "psd_run --agent"))
    assert len(agents) == 2, "the keeper and the agent"
    if victim == "psd_run":
        os.kill(job.pid(), signal.SIGKILL)
    elif victim == "ssh":
        (ssh,) = pids(four_hosts.launcher, "-- host1 ")
        os.kill(ssh, signal.SIGKILL)
    else:
        os.kill(agents[0 if victim == "keeper" else 1], signal.SIGKILL)
    code = job.wait(60)
    assert code == (137 if victim == "psd_run" else 70), job.stderr()
    if victim != "psd_run":
        assert "host1 (10.213.0.1) was lost" in job.stderr()
    job.expect_nothing_left(12)


def test_stopped_ssh(launch, four_hosts):
    """If this fails, a connection that is only half alive holds a job for ever."""
    job = launch(SMALL, STUBBORN)
    job.wait_for_output("up", 2)
    (ssh,) = pids(four_hosts.launcher, "-- host1 ")
    os.kill(ssh, signal.SIGSTOP)
    assert job.wait(60) == 70
    assert "host1 (10.213.0.1) was lost: nothing was heard of it for" in job.stderr()
    job.expect_nothing_left(12)


def test_stopped_psd_run(launch):
    """If this fails, a launcher that slept too long says that machines were lost, and not why."""
    job = launch(SMALL, STUBBORN)
    job.wait_for_output("up", 2)
    os.kill(job.pid(), signal.SIGSTOP)
    wait_for(lambda: not any("trap" in line for host in job.bed.hosts[1:]
                             for line in host.processes().values()), 15, "all ends by itself")
    os.kill(job.pid(), signal.SIGCONT)
    os.kill(job.process.pid, signal.SIGCONT)  # nsenter stops with its child
    assert job.wait(60) == 72, job.stderr()
    assert "psd_run itself was stopped for" in job.stderr()
    job.expect_nothing_left(12)


def test_stopped_agent_is_ended(launch, four_hosts):
    """If this fails, what a stopped agent started runs on, for ever."""
    job = launch(SMALL, STUBBORN)
    job.wait_for_output("up", 2)
    (keeper, agent) = sorted(pids(four_hosts.hosts[1], "psd_run --agent"))
    os.kill(agent, signal.SIGSTOP)
    assert job.wait(60) == 70
    assert "host1 (10.213.0.1) was lost: nothing was heard of it for" in job.stderr()
    job.expect_nothing_left(20)


def test_stopped_keeper_does_no_harm(launch, four_hosts):
    """If this fails, a stopped keeper costs the job, or stays behind."""
    job = launch(SMALL, "sh -c 'echo up; sleep 1'")
    job.wait_for_output("up", 2)
    os.kill(min(pids(four_hosts.hosts[1], "psd_run --agent")), signal.SIGSTOP)
    assert job.wait(60) == 0, job.stderr()
    job.expect_nothing_left(3)


def test_interrupt_over_ssh(launch):
    """If this fails, Ctrl-C on the launcher loses what workers on other hosts could have saved."""
    job = launch(WIDE, "sh -c 'trap \"echo saved; exit 0\" TERM; echo up; while :; do sleep 0.05; "
                       "done'")
    job.wait_for_output("up", 5)
    os.kill(job.pid(), signal.SIGINT)
    assert job.wait() == 130
    assert job.stdout().count("saved") == 5
    job.expect_nothing_left(3)


def test_second_interrupt_over_ssh(launch):
    """If this fails, an impatient second Ctrl-C leaves processes on other hosts."""
    job = launch(WIDE, STUBBORN)
    job.wait_for_output("up", 5)
    os.kill(job.pid(), signal.SIGINT)
    wait_for(lambda: "INTERRUPT" in job.run_log(), 30, "the first signal is seen")
    os.kill(job.pid(), signal.SIGINT)
    assert job.wait(60) == 130
    job.expect_nothing_left(3)


def test_lost_host_of_a_worker_policy_continue(launch, four_hosts):
    """If this fails, a job that may lose workers ends with the machine of one."""
    config = {"worker_nodes": ["host1", "host2", "host4"], "server_nodes": ["host2"],
              "master_node": "host3"}
    job = launch(config, *BRISK, "--on_worker_death=continue", worker("--steps", 2000))
    job.wait_for_output("step 10", 3)
    four_hosts.hosts[4].power_off()
    assert job.wait(60) == 0, job.stdout()[-2000:] + job.stderr()
    assert "host4 (10.213.0.4) was lost" in job.stderr()
    assert "(worker 2 died on the way)" in job.stderr()
    assert job.stdout().count("closed") == 2


@pytest.mark.parametrize("servers, arguments, ways", [
    (["host2"], ("--sum",), ["restart"]),
    (["host2", "host4"], ("--sum",), ["another server", "restart"]),
    (["host2", "host4"], (), ["another server"]),
], ids=["sums on one server", "sums on two servers", "copies"])
def test_lost_host_of_a_server(launch, four_hosts, servers, arguments, ways):
    """If this fails, a machine that had only a server takes a job with it that could go on without."""
    config = {"worker_nodes": ["host1", "host3"], "server_nodes": servers, "master_node": "host3"}
    command = worker("--awkward", "--elements", 150_000, "--steps", 150, *arguments)
    calm = launch(config, *BRISK, command)
    assert calm.wait(120) == 0, calm.stderr()
    job = launch(config, *BRISK, command)
    job.wait_for_output("step 10\n", 2)
    four_hosts.hosts[2].power_off()
    assert job.wait(120) == 0, job.stdout()[-2000:] + job.stderr()
    assert "host2 (10.213.0.2) was lost" in job.stderr()
    assert "server0 goes from host2 to host1" in job.stderr() or "another server" in ways
    (failover,) = result(job)["failovers"]
    assert failover["process"] == "server0" and failover["by"] in ways
    assert digests(job) == digests(calm)


def test_much_output_over_ssh(launch):
    """If this fails, lines are lost or torn on their way, or the bytes of a log differ."""
    job = launch({"worker_nodes": ["host1", "host1", "host2", "host2"], "server_nodes": ["host3"],
                  "master_node": "host3"},
                 "sh -c 'seq 1 20000 | sed \"s/$/ of $PSD_RANK/\"'")
    assert job.wait(60) == 0, job.stderr()
    for rank in range(4):
        assert job.log(f"worker{rank}").decode().splitlines() == [
            f"{i} of {rank}" for i in range(1, 20001)]
