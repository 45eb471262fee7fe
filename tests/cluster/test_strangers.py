# SPDX-License-Identifier: Apache-2.0
"""Peers that are no part of the job talk to the ports of a running one: the job goes on, the log
says so in a few lines, and no daemon grows."""

import random
import re
import socket
import struct

import pytest

from helpers import BRISK, SANITIZED, python_worker, resident_bytes, wait_for

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


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def answer(peer):
    """All that the daemon says until it closes the connection."""
    said = b""
    while True:
        try:
            piece = peer.recv(4096)
        except ConnectionResetError:
            return said
        if not piece:
            return said
        said += piece


class Target:
    """A training that waits at step 20, and the daemon of it that is to be troubled."""

    def __init__(self, start, tmp_path, name):
        self.gate = tmp_path / "gate"
        self.name = name
        self.job = start(*BRISK, "--workers", 2, "--servers", 1, "--lanes=1", "--",
                         *python_worker("--steps", 40, "--hold", f"20:{self.gate}"))
        self.job.wait_for_output("holding")
        address = [node["address"] for node in self.job.nodes()
                   if node["role"] == name.rstrip("0")][0]
        self.port = int(address.rpartition(":")[2])
        self.pid = self.job.pid_of(name)
        self.before = resident_bytes(self.pid)

    def warnings(self):
        return re.findall(r" warn .*", self.job.log(self.name).decode())

    def expect_unharmed(self):
        growth = resident_bytes(self.pid) - self.before
        self.gate.touch()
        assert self.job.wait() == 0, self.job.stderr()
        assert self.job.stdout().count("closed") == 2
        assert growth < GROWTH_MAX


@pytest.fixture(params=["master", "server0"])
def target(request, start, tmp_path):
    return Target(start, tmp_path, request.param)


def test_garbage(target):
    """If this fails, a browser or a scanner that finds the port breaks the job."""
    noise = random.Random(7)
    for text in (noise.randbytes(5000), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100),
                 b"\x16\x03\x01\x02\x00" + noise.randbytes(512)):
        with connect(target.port) as peer:
            peer.sendall(text)
            answer(peer)
    wait_for(target.warnings, 5, "a warning")
    assert len(target.warnings()) <= 6
    target.expect_unharmed()


@pytest.mark.parametrize("kind", [HELLO, PUSH])
def test_oversized_length(target, kind):
    """If this fails, one frame that promises 4 GiB makes a daemon allocate them."""
    with connect(target.port) as peer:
        peer.sendall(header(kind, payload_bytes=0xFFFFFFF0))
        answer(peer)
    wait_for(target.warnings, 5, "a warning")
    assert len(target.warnings()) == 1
    target.expect_unharmed()


def test_largest_hello_allowed(target):
    """If this fails, a stranger may send more than a HELLO before anybody knows it."""
    with connect(target.port) as peer:
        peer.sendall(header(HELLO, payload_bytes=4097))
        answer(peer)
    wait_for(target.warnings, 5, "a warning")
    target.expect_unharmed()


@pytest.mark.parametrize("piece", [header()[:17], header(payload_bytes=100),
                                   header(payload_bytes=100) + bytes(99)],
                         ids=["header", "nothing", "body"])
def test_truncated_frame(target, piece):
    """If this fails, a peer that dies in the middle of a frame leaves something behind."""
    with connect(target.port) as peer:
        peer.sendall(piece)
    wait_for(target.warnings, 5, "a warning")
    target.expect_unharmed()


def test_damaged_header(target):
    """If this fails, a flipped bit in a header is believed."""
    damaged = bytearray(header(payload_bytes=10) + bytes(10))
    damaged[40] ^= 1
    with connect(target.port) as peer:
        peer.sendall(damaged)
        answer(peer)
    wait_for(lambda: any("checksum" in line for line in target.warnings()), 5, "a warning")
    target.expect_unharmed()


def test_frame_before_hello(target):
    """If this fails, a stranger may push gradients."""
    with connect(target.port) as peer:
        peer.sendall(header(PUSH, payload_bytes=16) + bytes(16))
        answer(peer)
    wait_for(lambda: any("HELLO" in line for line in target.warnings()), 5, "a warning")
    target.expect_unharmed()


def test_other_version(target):
    """If this fails, mixed versions fail by riddles instead of by name."""
    with connect(target.port) as peer:
        peer.sendall(header(version=99, payload_bytes=4) + bytes(4))
        said = answer(peer).decode("latin-1")
    assert "peer speaks protocol version 99, we speak 1" in said
    wait_for(lambda: any("99" in line for line in target.warnings()), 5, "a warning")
    target.expect_unharmed()


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
    assert target.job.nodes(), "the master does not answer any more"
    for peer in peers:
        peer.settimeout(15)
        answer(peer)  # ends when the daemon has lost its patience, or had no room
        peer.close()
    assert target.warnings()
    assert len(target.warnings()) < 60
    target.expect_unharmed()
