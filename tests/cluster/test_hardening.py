# SPDX-License-Identifier: Apache-2.0
"""What running daemons have given up, as the kernel tells it, and how they leave a job whose secret
they do not have. src/secure/harden_test.c makes the forbidden calls themselves."""

import os
import pathlib
import subprocess
import time

import pytest

from helpers import program, wait_for

SOON = 45.0  # seconds: a wrong secret does not become right by waiting, which others do for a minute


def kernel_says(pid):
    """/proc/PID/status as a dictionary."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def threads_of(pid):
    return [int(entry.name) for entry in pathlib.Path(f"/proc/{pid}/task").iterdir()]


def make_secret(directory, name="secret"):
    path = directory / name
    subprocess.run([program("psd_run"), "secret", path], check=True, capture_output=True)
    return path


def with_secret(path):
    return {"PSD_SECRET_FILE": str(path)}


def start_daemons(hand, *arguments):
    """A master and a server of two lanes, both serving."""
    secret = make_secret(hand.directory)
    master = hand.start("master", program("ps_master"), "--workers", 1, "--servers", 1, "--port",
                        hand.port, *arguments, environment=with_secret(secret))
    server = hand.start("server0", program("ps_server"), "--index", 0, "--master_address",
                        hand.address, "--lanes=2", *arguments, environment=with_secret(secret))
    wait_for(lambda: server.output().count("JOINED lane") == 2 or server.process.poll() is not None,
             what="both lanes have joined")
    return master, server


def stop(*processes):
    for process in processes:
        process.signal(15)
    for process in processes:
        process.wait()


def test_daemons_have_given_up_what_they_do_not_need(hand):
    """If this fails, a bug in a daemon is worth all that its account may do."""
    master, server = start_daemons(hand)
    if "NOT-HARDENED built with a sanitizer" in master.output():
        stop(server, master)
        pytest.skip("built with a sanitizer: daemons are not hardened")
    wait_for(lambda: len(threads_of(server.pid)) == 3, 30, "two lanes; those with nothing to stand by for have left")
    for process in (master, server):
        assert process.output().count(" HARDENED no_new_privs, no core files, no capabilities") == 1
        for thread in threads_of(process.pid):
            status = kernel_says(thread)
            assert status["NoNewPrivs"] == "1", process.name
            assert all(int(status[name], 16) == 0
                       for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")), process.name
            if "built without libseccomp" not in process.output():
                assert status["Seccomp"] == "2", process.name
    stop(server, master)


def test_hardening_can_be_switched_off(hand):
    """If this fails, nobody can look into a daemon that misbehaves, or it is off in silence."""
    master, server = start_daemons(hand, "--harden=off")
    for process in (master, server):
        assert process.output().count(" NOT-HARDENED ") == 1
        assert kernel_says(process.pid)["Seccomp"] == kernel_says("self")["Seccomp"], process.name
    stop(server, master)


def test_root_is_warned(hand):
    """If this fails, people run daemons as root without knowing that nothing asks for it."""
    master, server = start_daemons(hand)
    for process in (master, server):
        assert process.output().count("running as root") == (1 if os.geteuid() == 0 else 0)
    stop(server, master)


def test_a_master_with_a_name_is_found(hand):
    """If this fails, a hardened server can no longer look up its master."""
    secret = make_secret(hand.directory)
    master = hand.start("master", program("ps_master"), "--workers", 1, "--servers", 1, "--port",
                        hand.port, environment=with_secret(secret))
    server = hand.start("server0", program("ps_server"), "--index", 0, "--master_address",
                        f"tcp://localhost:{hand.port}", "--lanes=1",
                        environment=with_secret(secret))
    server.wait_for_output("JOINED")
    stop(server, master)


def test_a_master_whose_name_is_not_known_yet(hand, tmp_path):
    """If this fails, a server that is started before its master's name is known never finds it, or
    one that knows it keeps name services that it does not need."""
    if os.geteuid() != 0:
        pytest.skip("a file of host names of its own needs root")
    hosts, resolver = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text("127.0.0.1 localhost\n")
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    master = hand.master()
    server = hand.start("server0", "unshare", "--mount", "sh", "-c",
                        f'mount --bind {hosts} /etc/hosts && mount --bind {resolver}'
                        ' /etc/resolv.conf && exec "$0" "$@"',
                        program("ps_server"), "--index", 0, "--master_address",
                        f"tcp://the-master.invalid:{hand.port}", "--lanes=1")
    server.wait_for_output("MASTER-UNKNOWN look up host the-master.invalid: ")
    with hosts.open("a") as file:
        file.write("127.0.0.1 the-master.invalid\n")
    server.wait_for_output("JOINED")
    stop(server, master)


def test_the_wrong_secret_is_final(hand):
    """If this fails, a process with another job's secret waits a minute and blames the network."""
    right = with_secret(make_secret(hand.directory))
    wrong = with_secret(make_secret(hand.directory, "other"))
    master = hand.start("master", program("ps_master"), "--workers", 1, "--servers", 1, "--port",
                        hand.port, environment=right)
    master.wait_for_output("LISTENING")
    begin = time.monotonic()
    server = hand.start("server0", program("ps_server"), "--index", 0, "--master_address",
                        hand.address, "--lanes=2", environment=wrong)
    worker = hand.start("worker0", program("hello"), environment={
        "PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "0", **wrong})
    assert server.wait() == 77
    assert worker.wait() != 0
    assert time.monotonic() - begin < SOON
    for process in (server, worker):
        assert "do both have the secret of the same job?" in process.output(), process.output()
    assert "JOB-END refused by the master" in server.output().splitlines()[-1]
    assert master.process.poll() is None
    stop(master)
