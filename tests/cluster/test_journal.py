# SPDX-License-Identifier: Apache-2.0
"""A master that no psd_run starts: its journal lets somebody start it again, and the job goes on."""

import re
import signal

import pytest

from helpers import BRISK

STEPS = ("--awkward", "--elements", 150_000, "--steps", 30)


class Lives:
    """A job of two workers and a server whose master is started again and again."""

    def __init__(self, hand, *held):
        self.hand = hand
        self.journal = hand.directory / "journal"
        self.count = 0
        self.master = self.start_master()
        self.server = hand.server()
        self.workers = [hand.worker(rank, *STEPS, *held) for rank in range(2)]

    def start_master(self):
        self.count += 1
        self.master = self.hand.master(2, 1, *BRISK, "--journal", self.journal, name=f"master.{self.count}")
        return self.master

    def kill_master(self):
        self.master.signal(signal.SIGKILL)
        assert self.master.wait() == 137

    def end(self):
        """Everybody ends well; what the workers were given."""
        for process in [*self.workers, self.server, self.master]:
            assert process.wait(60) == 0, process.output() + self.master.output()
        return sorted(re.findall(r"values ([0-9a-f]{40})", "".join(one.output() for one in self.workers)))


@pytest.fixture
def calm(hand):
    """What workers get when nobody dies; the journal of that job is where it was."""
    values = Lives(hand).end()
    assert len(values) == 2
    return values


def test_master_started_again_with_its_journal(hand, calm):
    """If this fails, a master started again by hand does not get its job back, or a bit changes. The job before it is
    over, and its journal is taken for no life of this one."""
    job = Lives(hand, "--hold", f"20:{hand.directory / 'gate'}")
    for _ in range(2):
        job.workers[0].wait_for_output("holding")
        job.kill_master()
        job.start_master()
        job.master.wait_for_output("MASTER-BACK")
    (hand.directory / "gate").touch()
    assert job.end() == calm
    assert "poseidon over 3 " in job.journal.read_text()


def test_second_master_with_one_journal(hand):
    """If this fails, two masters of one job run at a time."""
    job = Lives(hand)
    second = hand.master(2, 1, "--journal", job.journal, name="second")
    assert second.wait() == 3
    assert "another ps_master of this job is running" in second.output()
    job.end()


def test_damaged_journal(hand, calm):
    """If this fails, a damaged journal is not told of, or costs the job."""
    job = Lives(hand, "--hold", f"20:{hand.directory / 'gate'}")
    job.workers[0].wait_for_output("holding")
    job.kill_master()
    job.start_master()
    job.master.wait_for_output("MASTER-BACK")
    job.kill_master()
    bytes_of = bytearray(job.journal.read_bytes())
    bytes_of[-40:] = b"\0" * 40
    job.journal.write_bytes(bytes_of)
    job.start_master()
    job.master.wait_for_output("1 of 2 lines are damaged; each counts as a life of the master")
    (hand.directory / "gate").touch()
    assert job.end() == calm


def test_journal_that_lost_a_life(hand, calm):
    """If this fails, a master whose journal is older than its job (a file brought back from somewhere) never gets the job
    again, or answers as an earlier life."""
    job = Lives(hand, "--hold", f"20:{hand.directory / 'gate'}")
    job.workers[0].wait_for_output("holding")
    first = job.journal.read_bytes()
    for _ in range(2):
        job.kill_master()
        job.start_master()
        job.master.wait_for_output("MASTER-BACK")
    job.kill_master()
    job.journal.write_bytes(first)
    job.start_master()
    assert job.master.wait() == 75
    assert "had lost lines: members know of life 3" in job.master.output()
    job.start_master()
    job.master.wait_for_output("MASTER-BACK")
    (hand.directory / "gate").touch()
    assert job.end() == calm


def test_lives_are_counted_once(hand):
    """If this fails, psd_run and a file both count the master's lives, and differ."""
    master = hand.master(2, 1, "--journal", hand.directory / "journal", "--term", 2, "--tell_joins", "--ready_fd", 1)
    assert master.wait() == 2
    assert "give one or the other" in master.output()
