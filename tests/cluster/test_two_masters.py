# SPDX-License-Identifier: Apache-2.0
"""Two masters for one job: the first was taken for dead, and is not. It leaves as soon as a member that knows the second
speaks to it, and nothing that it thinks counts."""

import contextlib
import re
import signal
import socket

import pytest

from helpers import free_port, program
from intruder import Wiretap

STEPS = ("--awkward", "--elements", 150_000, "--steps", 30)
# Who is cut off, or finds no core for a second, has time: only the two masters decide here.
PATIENT = ("--heartbeat_ms=100", "--dead_heartbeats=200", "--lost_grace_ms=20000", "--master_grace_ms=30000")


class Switch(Wiretap):
    """The address at which members look for their master: leads to one of several."""

    def __init__(self, port, to):
        super().__init__(to, listens=port)

    def turn(self, to):
        """Leads there from now on. Everybody has to come anew."""
        self.target = ("127.0.0.1", to)
        lines, self.sockets = self.sockets, []
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def switch(hand):
    hand.environment = {"PSD_FORCE_TLS": "1"}  # through a forwarder
    between = Switch(hand.port, free_port())
    yield between
    between.close()


def start_master(hand, name, port, *options):
    return hand.start(name, program("ps_master"), "--workers", 2, "--servers", 1, "--port", port, *PATIENT, *options)


def start_members(hand, *held):
    return [hand.server(), *(hand.worker(rank, *STEPS, *held) for rank in range(2))]


def end(members, master):
    """Everybody ends well; what the workers were given."""
    for process in [*members, master]:
        assert process.wait(60) == 0, process.output() + master.output()
    return sorted(re.findall(r"values ([0-9a-f]{40})", "".join(one.output() for one in members)))


def test_the_older_of_two_masters_leaves(hand, switch):
    """If this fails, a master that was stopped, and replaced meanwhile, goes on as if it had been alone: members hear two,
    or a death, a departure or a barrier is decided twice."""
    calm = end(start_members(hand), start_master(hand, "calm", switch.target[1]))
    first_port, second_port, gate = switch.target[1], free_port(), hand.directory / "gate"
    first = start_master(hand, "first", first_port)
    members = start_members(hand, "--hold", f"20:{gate}")
    members[1].wait_for_output("holding")
    first.signal(signal.SIGSTOP)
    second = start_master(hand, "second", second_port, "--term", 2, "--tell_joins", "--ready_fd", 1)
    second.wait_for_output(f"tcp://127.0.0.1:{second_port}")
    switch.turn(second_port)
    second.wait_for_output("MASTER-BACK")
    second.wait_for_output("\nback worker", count=2)
    known = first.output()
    first.signal(signal.SIGCONT)
    switch.turn(first_port)
    assert first.wait() == 75
    switch.turn(second_port)
    later = first.output()[len(known):]
    assert "JOB-END another life of the master has taken over: its term is 2, this one's 1 (exit code 75)" in later
    assert not re.search("MEMBER-LOST|MEMBER-LEFT|MEMBER-DONE", later), later
    gate.touch()
    assert end(members, second) == calm
    assert second.output().count("MASTER-BACK") == 1
    assert sorted(re.findall(r"\ndone worker (\d)", second.output())) == ["0", "1"]
    assert "MEMBER-LOST" not in second.output()
