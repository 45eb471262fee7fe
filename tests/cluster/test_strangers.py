# SPDX-License-Identifier: Apache-2.0
"""Peers that are no part of the job talk to the ports of a running one: the job goes on, the log
says so in a few lines, and no daemon grows. What they say in frames is only heard by a job without
a secret; test_security.py has those who try to get past one."""

import pathlib
import random
import re
import struct

import pytest

from helpers import BRISK, INSECURE, SANITIZED, nodes_at, program, resident_bytes, wait_for
from intruder import answer, connect

MAGIC = b"PSD1"
HELLO, PUSH = 1, 30
VERSION = 1
GROWTH_MAX = (16 if SANITIZED else 1) * 8 << 20
CONNECTIONS = 1000


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def header(kind=HELLO, version=VERSION, payload_bytes=0):
    """A frame's 64 bytes, with a right checksum."""
    start = MAGIC + struct.pack("<BBHI", version, kind, 0, payload_bytes) + bytes(48)
    return start + struct.pack("<I", crc32c(start))


class Target:
    """A training that waits at step 20, and the daemon of it that is to be troubled."""

    def __init__(self, hand, name, insecure):
        self.hand = hand
        self.gate = hand.directory / "gate"
        hand.environment = INSECURE if insecure else {}
        switch = ("--insecure",) if insecure else ()
        daemons = {"master": hand.master(2, 1, *BRISK, *switch), "server0": hand.server(0, *switch)}
        self.workers = [hand.worker(rank, "--steps", 40, "--hold", f"20:{self.gate}")
                        for rank in range(2)]
        self.workers[0].wait_for_output("holding")
        self.daemon = daemons[name]
        self.processes = [*self.workers, *daemons.values()]
        address = [node["address"] for node in self.nodes()
                   if node["role"] == name.rstrip("0")][0]
        self.port = int(address.rpartition(":")[2])
        self.before = resident_bytes(self.daemon.pid)

    def nodes(self):
        return nodes_at(self.hand.address, self.hand.environment)

    def warnings(self):
        return re.findall(r" warn (?!AS-ROOT|INSECURE).*", self.daemon.output())

    def expect_unharmed(self):
        growth = resident_bytes(self.daemon.pid) - self.before
        self.gate.touch()
        assert [process.wait() for process in self.processes] == [0] * 4, self.daemon.output()
        assert growth < GROWTH_MAX


@pytest.fixture(params=["master", "server0"])
def frames_target(request, hand):
    """Anybody may talk to it."""
    return Target(hand, request.param, insecure=True)


@pytest.fixture(params=["master", "server0", "master-insecure", "server0-insecure"])
def target(request, hand):
    name, _, insecure = request.param.partition("-")
    return Target(hand, name, bool(insecure))


def test_garbage(target):
    """If this fails, a browser or a scanner that finds the port breaks the job."""
    noise = random.Random(7)
    for text in (noise.randbytes(5000), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100),
                 b"\x16\x03\x01\x02\x00" + noise.randbytes(512)):
        with connect(target.port) as peer:
            peer.sendall(text)
            answer(peer)
    wait_for(target.warnings, 30, "a warning")
    assert len(target.warnings()) <= 6
    target.expect_unharmed()


@pytest.mark.parametrize("kind", [HELLO, PUSH])
def test_oversized_length(frames_target, kind):
    """If this fails, one frame that promises 4 GiB makes a daemon allocate them."""
    with connect(frames_target.port) as peer:
        peer.sendall(header(kind, payload_bytes=0xFFFFFFF0))
        answer(peer)
    wait_for(frames_target.warnings, 30, "a warning")
    assert len(frames_target.warnings()) == 1
    frames_target.expect_unharmed()


def test_largest_hello_allowed(frames_target):
    """If this fails, a stranger may send more than a HELLO before anybody knows it."""
    with connect(frames_target.port) as peer:
        peer.sendall(header(HELLO, payload_bytes=4097))
        answer(peer)
    wait_for(frames_target.warnings, 30, "a warning")
    frames_target.expect_unharmed()


@pytest.mark.parametrize("piece", [header()[:17], header(payload_bytes=100),
                                   header(payload_bytes=100) + bytes(99)],
                         ids=["header", "nothing", "body"])
def test_truncated_frame(frames_target, piece):
    """If this fails, a peer that dies in the middle of a frame leaves something behind."""
    with connect(frames_target.port) as peer:
        peer.sendall(piece)
    wait_for(frames_target.warnings, 30, "a warning")
    frames_target.expect_unharmed()


def test_damaged_header(frames_target):
    """If this fails, a flipped bit in a header is believed."""
    damaged = bytearray(header(payload_bytes=10) + bytes(10))
    damaged[40] ^= 1
    with connect(frames_target.port) as peer:
        peer.sendall(damaged)
        answer(peer)
    wait_for(lambda: any("checksum" in line for line in frames_target.warnings()), 30, "a warning")
    frames_target.expect_unharmed()


def test_frame_before_hello(frames_target):
    """If this fails, a stranger may push gradients."""
    with connect(frames_target.port) as peer:
        peer.sendall(header(PUSH, payload_bytes=16) + bytes(16))
        answer(peer)
    wait_for(lambda: any("HELLO" in line for line in frames_target.warnings()), 30, "a warning")
    frames_target.expect_unharmed()


def test_other_version(frames_target):
    """If this fails, mixed versions fail by riddles instead of by name."""
    with connect(frames_target.port) as peer:
        peer.sendall(header(version=99, payload_bytes=4) + bytes(4))
        said = answer(peer).decode("latin-1")
    assert "peer speaks protocol version 99, we speak 1" in said
    wait_for(lambda: any("99" in line for line in frames_target.warnings()), 30, "a warning")
    frames_target.expect_unharmed()


def test_port_scanner(target):
    """If this fails, connections that say nothing and go fill the log or the memory."""
    for _ in range(CONNECTIONS):
        connect(target.port).close()
    target.expect_unharmed()
    assert len(target.warnings()) < 60


def test_silence_and_idle_connections(target):
    """If this fails, a thousand peers that say nothing lock everybody out, or stay for ever."""
    peers = []
    for _ in range(CONNECTIONS):
        try:
            peers.append(connect(target.port))
        except OSError:
            break  # refusing them is a way to survive, too
    assert target.nodes(), "the master does not answer any more"
    for peer in peers:
        peer.settimeout(15)
        answer(peer)  # ends when the daemon has lost its patience, or had no room
        peer.close()
    assert target.warnings()
    assert len(target.warnings()) < 60
    target.expect_unharmed()


def limited(soft, hard, *command):
    """A command that may open so many descriptors, and may raise that to `hard`."""
    return ("sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@"', *command)


def descriptor_limit(pid):
    text = pathlib.Path(f"/proc/{pid}/limits").read_text()
    return int(re.search(r"^Max open files +(\d+)", text, re.MULTILINE).group(1))


def test_descriptors_are_raised(hand):
    """If this fails, daemons that a shell started with few descriptors run out of them."""
    master = hand.start("master", *limited(200, 3000, program("ps_master")), "--workers", 1,
                        "--servers", 1, "--port", hand.port)
    server = hand.start("server0", *limited(200, 3000, program("ps_server")), "--index", 0,
                        "--master_address", hand.address, "--lanes=2")
    server.wait_for_output("JOINED")
    assert [descriptor_limit(process.pid) for process in (master, server)] == [3000, 3000]
    assert hand.worker(0).wait() == 0
    assert [process.wait() for process in (master, server)] == [0, 0]


def test_members_beside_strangers_when_descriptors_are_few(hand, crowd):
    """If this fails, silent strangers at many lanes take the descriptors of a daemon, and members
    that come later are turned away."""
    lanes, limit = 8, 300
    master = hand.master(1)
    server = hand.start("server0", *limited(limit, limit, program("ps_server")), "--index", 0,
                        "--master_address", hand.address, f"--lanes={lanes}")
    wait_for(lambda: server.output().count("JOINED") == lanes, 30, "all lanes have joined")
    ports = [int(port) for port in re.findall(r"listens on tcp://127\.0\.0\.1:(\d+)",
                                              server.output())]
    assert len(ports) == lanes
    strangers = crowd(limit // 2, ports)
    worker = hand.worker(0, "--elements", 300_000, "--open_timeout_ms", 20_000)
    assert worker.wait(60) == 0, worker.output()
    assert [process.wait() for process in (master, server)] == [0, 0]
    assert strangers.end()[0] > limit
