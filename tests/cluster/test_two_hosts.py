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
        self.process.communicate(timeout=20)
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
    assert b"psd1 tls worker:0 master" in wire, "identities are names, and no secret"
    assert saved_digests(tmp_path / "there") == saved_digests(tmp_path / "here")
    print(f"\n{len(wire)} bytes on the wire, nothing readable; {len(clear)} on loopback, in clear")


def test_plain_mode_from_another_host(hand, hosts, secret_file):
    """If this fails, a member on the network may ask for bytes without encryption."""
    port = free_port()
    master = hand.start("master", *hosts.inside(
        0, program("ps_master"), "--workers", 1, "--servers", 1, "--bind", hosts.addresses[0],
        "--port", port))
    master.wait_for_output("LISTENING")
    script = ("import sys; from intruder import *\n"
              "secret = bytes.fromhex(open(sys.argv[1]).read())\n"
              "for mode in ('plain', 'tls'):\n"
              "    identity = f'psd1 {mode} observer master'.encode()\n"
              f"    with connect({port}, '{hosts.addresses[0]}') as peer:\n"
              "        print(mode, handshake(peer, secret, identity))")
    asked = subprocess.run(hosts.inside(1, sys.executable, "-c", script, secret_file),
                           capture_output=True, text=True, timeout=20, check=True,
                           env={**os.environ, "PYTHONPATH": str(HERE),
                                "PYTHONDONTWRITEBYTECODE": "1"})
    assert asked.stdout.split() == ["plain", "False", "tls", "True"], asked.stdout + asked.stderr
    wait_for(lambda: re.search("MEMBER-REFUSED .*not allowed here: mode plain", master.output()), 5,
             "a line in the log")
    master.process.terminate()
    assert master.wait() == 143


def test_failures_from_another_host_shut_the_door(hand, hosts):
    """If this fails, a host can go on guessing as fast as it likes."""
    port = free_port()
    master = hand.start("master", *hosts.inside(
        0, program("ps_master"), "--workers", 1, "--servers", 1, "--bind", hosts.addresses[0],
        "--port", port))
    master.wait_for_output("LISTENING")

    def knock(host, times):
        script = ("from intruder import *\n"
                  f"for _ in range({times}):\n"
                  f"    with connect({port}, '{hosts.addresses[0]}') as peer:\n"
                  "        peer.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); answer(peer)\n")
        subprocess.run(hosts.inside(host, sys.executable, "-c", script), timeout=20, check=True,
                       env={**os.environ, "PYTHONPATH": str(HERE),
                            "PYTHONDONTWRITEBYTECODE": "1"})

    def heard():
        """How often somebody was heard; the same of one host is only counted, until a line of
        another tells the number."""
        hidden = re.findall(r"\((\d+) warnings before it not shown\)", master.output())
        return master.output().count("not a TLS record") + sum(map(int, hidden))

    knock(1, 20)
    knock(0, 1)
    master.wait_for_output("warnings before it not shown")
    assert 3 <= heard() - 1 <= 8, master.output()
    master.process.terminate()
    assert master.wait() == 143
