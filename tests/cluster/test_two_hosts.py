# SPDX-License-Identifier: Apache-2.0
"""A job between two hosts (network namespaces, so root only), and somebody who taps the wire."""

import array
import os
import pathlib
import re
import subprocess
import sys

from helpers import BRISK, HERE, free_port, program, python_worker, saved_digests, wait_for

STEPS = 12
ELEMENTS = 3000


class Tap:
    """Listens on a wire from its making to end()."""

    def __init__(self, hosts, host, interface, path):
        self.path = path
        self.process = subprocess.Popen(
            hosts.inside(host, sys.executable, HERE / "capture.py", interface, path),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def end(self):
        self.process.communicate(timeout=120)
        return pathlib.Path(self.path).read_bytes()


def gradient_needles():
    """What worker.py pushes, as the 32 bytes that repeat in it."""
    return [array.array("f", [((rank + 1) * (step + 3) + i) % 11 / 16 for i in range(8)]).tobytes()
            for rank in range(2) for step in range(STEPS)]


def worker_words(saved):
    return python_worker("--steps", STEPS, "--elements", ELEMENTS, "--save", saved)


def run_job(hand, hosts, places, address, saved, port, **settings):
    """The processes of a job, each on its host; places: of the master, two servers, two workers."""
    daemons = [hand.start("master", *hosts.inside(
        places[0], program("ps_master"), "--workers", 2, "--servers", 2,
        "--bind", address(places[0]), "--port", port, *BRISK))]
    master = f"tcp://{address(places[0])}:{port}"
    for index in range(2):
        daemons.append(hand.start(f"server{index}", *hosts.inside(
            places[1 + index], program("ps_server"), "--index", index, "--master_address", master,
            "--bind", address(places[1 + index]), "--lanes=2")))
    workers = [hand.start(f"worker{rank}", *hosts.inside(places[3 + rank], *worker_words(saved)),
                          environment={"PSD_MASTER_ADDRESS": master, "PSD_RANK": str(rank), **settings})
               for rank in range(2)]
    for process in (*workers, *daemons):
        assert process.wait(40) == 0, process.output()


def test_nothing_can_be_read_on_the_wire(hand, hosts, tmp_path):
    """If this fails, whoever sees the packets reads names and gradients, or the job goes wrong."""
    tap = Tap(hosts, 0, "lo", tmp_path / "lo.raw")
    run_job(hand, hosts, [0] * 5, lambda host: "127.0.0.1", tmp_path / "here", free_port(),
            PSD_TRANSPORT="tcp")
    clear = tap.end()
    assert b"table0" in clear, "the tap is deaf"
    assert any(needle in clear for needle in gradient_needles()), "the tap is deaf"

    tap = Tap(hosts, 0, hosts.interfaces[0], tmp_path / "wire.raw")
    run_job(hand, hosts, [0, 0, 1, 1, 0], lambda host: hosts.addresses[host], tmp_path / "there",
            free_port())
    wire = tap.end()
    assert len(wire) > STEPS * ELEMENTS * 4
    for needle in (b"table0", b"table1", b"momentum", b"PSD1", *gradient_needles()):
        assert needle not in wire
    assert b"psd1 tls worker:0 master " in wire, "identities are names, and no secret"
    assert re.search(rb"psd1 tls worker:0@1\.[0-9a-f]{16} server:0\.1 [0-9a-f]{48}", wire)
    assert re.search(rb"psd1 tls server:1\.0 master [0-9a-f]{48}", wire)
    assert saved_digests(tmp_path / "there") == saved_digests(tmp_path / "here")
    print(f"\n{len(wire)} bytes on the wire, nothing readable; {len(clear)} on loopback, in clear")


def test_plain_mode_from_another_host(hand, hosts, secret_file):
    """If this fails, a member on the network may ask for bytes without encryption."""
    port = free_port()
    master = start_master(hand, hosts, port)
    script = ("import sys; from intruder import *\n"
              "secret = bytes.fromhex(open(sys.argv[1]).read())\n"
              "for mode in ('plain', 'tls'):\n"
              "    identity = f'psd1 {mode} observer master'.encode()\n"
              f"    with connect({port}, '{hosts.addresses[0]}') as peer:\n"
              "        print(mode, handshake(peer, secret, identity))")
    asked = subprocess.run(hosts.inside(1, sys.executable, "-c", script, secret_file),
                           capture_output=True, text=True, timeout=120, check=True,
                           env={**os.environ, "PYTHONPATH": str(HERE),
                                "PYTHONDONTWRITEBYTECODE": "1"})
    assert asked.stdout.split() == ["plain", "False", "tls", "True"], asked.stdout + asked.stderr
    wait_for(lambda: re.search("MEMBER-REFUSED .*not allowed here: mode plain", master.output()), 30,
             "a line in the log")
    master.process.terminate()
    assert master.wait() == 143


BESIEGE = """
import contextlib, sys, time
from intruder import *
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
wrong = wrong_greeting()
begin, knocks, tried = time.monotonic(), 0, 0
while time.monotonic() < begin + seconds:
    try:
        peer = connect(port, host)
    except ConnectionRefusedError:
        break  # the job is over
    with peer, contextlib.suppress(ConnectionError):
        knocks += 1
        peer.sendall(wrong)
        tried += len(answer(peer)) > 0
print(knocks, tried, time.monotonic() - begin)
"""

REPLAY = """
import sys
from intruder import *
host, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
recorded = greeting(bytes.fromhex(open(sys.argv[4]).read()), b"psd1 tls observer master")
said = []
for _ in range(times):
    with connect(port, host) as peer:
        peer.sendall(recorded)
        peer.settimeout(0.2)
        try:
            said.append(peer.recv(4096)[:1])
        except OSError:
            said.append(b"")
print(said.count(b"\\x16"), said.count(b"\\x15"))
"""


def start_script(hosts, host, script, *arguments):
    return subprocess.Popen(hosts.inside(host, sys.executable, "-c", script, *arguments),
                            stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(HERE),
                                 "PYTHONDONTWRITEBYTECODE": "1"})


def start_master(hand, hosts, port):
    master = hand.start("master", *hosts.inside(
        0, program("ps_master"), "--workers", 1, "--servers", 1, "--bind", hosts.addresses[0],
        "--port", port))
    master.wait_for_output("LISTENING")
    return master


def test_failures_from_the_members_own_host(hand, hosts):
    """If this fails, somebody on a machine of the job stops it from starting by failing often, or
    may guess as fast as it likes."""
    port = free_port()
    address = f"tcp://{hosts.addresses[0]}:{port}"
    master = start_master(hand, hosts, port)
    siege = start_script(hosts, 1, BESIEGE, hosts.addresses[0], port, 30)
    wait_for(lambda: "too many attempts" in master.output(), 30, "the limit is reached")
    server = hand.start("server0", *hosts.inside(
        1, program("ps_server"), "--index", 0, "--master_address", address, "--lanes=1",
        "--bind", hosts.addresses[1]))
    worker = hand.start("worker0", *hosts.inside(1, *python_worker("--steps", 5)),
                        environment={"PSD_MASTER_ADDRESS": address, "PSD_RANK": "0"})
    assert [process.wait(60) for process in (worker, server, master)] == [0, 0, 0]
    knocks, tried, seconds = map(float, siege.communicate(timeout=120)[0].split())
    print(f"\n{knocks:.0f} knocks in {seconds:.1f} s, {tried:.0f} handshakes tried")
    assert knocks > tried
    assert tried <= 64 + 100 * (seconds + 1)


def test_recorded_greetings_from_another_host(hand, hosts, secret_file):
    """If this fails, whoever recorded a member's first words makes a listener compute for ever."""
    port = free_port()
    master = start_master(hand, hosts, port)
    replay = start_script(hosts, 1, REPLAY, hosts.addresses[0], port, 300, secret_file)
    answers, alerts = map(int, replay.communicate(timeout=120)[0].split())
    assert answers == 1, "only the first of them can be new"
    assert alerts < 300
    wait_for(lambda: "a recorded greeting, said again" in master.output(), 30, "a line in the log")
    master.process.terminate()
    assert master.wait() == 143
