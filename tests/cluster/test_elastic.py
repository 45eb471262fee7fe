# SPDX-License-Identifier: Apache-2.0
"""Workers come and go while the job runs: real processes, started one by one."""

import random
import re
import signal
import time

import pytest
from helpers import BRISK, free_port


def newcomer(hand, name, *arguments, **environment):
    """Asks for no rank: it gets one that nobody has had."""
    return hand.worker("auto", *arguments, name=name, environment={"PSD_RANK": "", **environment})


def counts_from(master):
    """Rank by rank: the step from which on it counts."""
    return {int(rank): int(step) for rank, step in
            re.findall(r"worker (\d+) counts from step (\d+) on", master.output())}


def run_with_one_that_joins(hand, *arguments):
    """Worker 0 stands before step 20 until the other has joined: what worker 0 saw in all steps."""
    gate = hand.directory / "gate"
    master = hand.master(1, 2, *BRISK, "--max_workers=3")
    servers = [hand.server(index) for index in range(2)]
    first = hand.worker(0, "--steps", 40, "--hold", f"20:{gate}", *arguments)
    first.wait_for_output("holding")
    second = newcomer(hand, "second", "--steps", 40, "--pull_first", *arguments)
    second.wait_for_output("joined 1 1")
    gate.touch()
    assert [process.wait() for process in (first, second, master, *servers)] == [0] * 5
    assert counts_from(master) == {1: 22}
    assert "step 22\n" in second.output() and "step 21\n" not in second.output()
    return re.search(r"values (\w+)", first.output()).group(1)


@pytest.mark.parametrize("kind", [(), ("--elements", 200_000), ("--staleness", 2), ("--zoo",)],
                         ids=["small", "large", "stale", "zoo"])
def test_a_worker_joins_by_hand(hand, kind):
    """If this fails, a worker cannot join a job that trains, or begins with another step than all are told."""
    run_with_one_that_joins(hand, *kind)


def test_the_same_schedule_gives_the_same_bits(hand, tmp_path):
    """If this fails, what a job learns depends on more than who joined with which step."""
    seen = set()
    for run in range(3):
        hand.directory = tmp_path / f"run{run}"
        hand.directory.mkdir()
        hand.port = free_port()
        seen.add(run_with_one_that_joins(hand, "--awkward", "--elements", 70_000))
    assert len(seen) == 1


def test_a_worker_waits_for_its_step_longer_than_for_an_operation(hand):
    """If this fails, a worker that is to count from a later step on gives up before the others have come there."""
    gate = hand.directory / "gate"
    master = hand.master(1, 2, *BRISK, "--max_workers=2")
    servers = [hand.server(index) for index in range(2)]
    first = hand.worker(0, "--steps", 40, "--hold", f"20:{gate}")
    first.wait_for_output("holding")
    second = newcomer(hand, "second", "--steps", 40, "--pull_first", PSD_JOIN_STEP="30", PSD_OP_TIMEOUT_MS="300")
    second.wait_for_output("joined 1 1")
    time.sleep(1)  # so much later the others go on
    gate.touch()
    assert [process.wait() for process in (first, second, master, *servers)] == [0] * 5
    assert counts_from(master) == {1: 30}
    assert "step 30\n" in second.output() and "step 29\n" not in second.output()


def test_a_worker_is_told_which_step_it_could_have(hand):
    """If this fails, a worker that asks for a step that may be over joins with another one, or disturbs the others."""
    gate = hand.directory / "gate"
    master = hand.master(1, 1, *BRISK, "--max_workers=2")
    server = hand.server()
    first = hand.worker(0, "--steps", 40, "--hold", f"20:{gate}")
    first.wait_for_output("holding")
    second = newcomer(hand, "second", "--steps", 40, PSD_JOIN_STEP="21")
    assert second.wait() == 1
    assert "is to count from step 21 on (join_step), but the first step that it can have is 22" in second.output()
    third = newcomer(hand, "third", "--steps", 40, "--pull_first", PSD_JOIN_STEP="22")
    third.wait_for_output("joined 1 1")
    gate.touch()
    assert [process.wait() for process in (first, third, master, server)] == [0] * 4
    assert counts_from(master) == {1: 22}


@pytest.mark.parametrize("seed", range(6))
def test_workers_come_and_go_at_random(hand, seed):
    """If this fails, a gradient is lost or counts twice while workers join, leave and die, or the job hangs."""
    chance = random.Random(seed)
    steps = 300
    common = ("--equal", "--elements", chance.choice((100, 70_000)))  # the mean is the same, whoever is there
    gates = [(step, hand.directory / f"gate{step}") for step in sorted(chance.sample(range(5, 200), 3)) + [250]]
    holds = [word for step, gate in gates for word in ("--hold", f"{step}:{gate}")]
    master = hand.master(2, 2, *BRISK, "--max_workers=6", "--on_worker_death=continue")
    servers = [hand.server(index) for index in range(2)]
    stay = hand.worker(0, "--steps", steps, *holds, *common)
    leave = hand.worker(1, "--steps", chance.randrange(1, steps), *common)
    others = []
    for number, (_, gate) in enumerate(gates[:3]):
        stay.wait_for_output("holding", count=number + 1)
        last = chance.choice((steps, steps, chance.randrange(250, steps)))
        others.append(newcomer(hand, f"newcomer{number}", "--steps", last, "--pull_first", *common))
        if chance.random() < 0.5:
            others[-1].wait_for_output("joined")
        gate.touch()  # or it joins while the others are on their way
    stay.wait_for_output("holding", count=4)
    for other in others:
        other.wait_for_output("joined")
    victim = chance.choice(others)
    if chance.random() < 0.5:
        victim.signal(signal.SIGKILL)
    gates[3][1].touch()
    if victim.process.poll() is None:
        victim.signal(signal.SIGKILL)
    codes = {process.name: process.wait(60) for process in (stay, leave, master, *servers)}
    assert set(codes.values()) == {0}, f"{codes}\n{stay.output()[-500:]}\n{master.output()}"
    assert [other.wait(60) for other in others if other is not victim] == [0, 0]
    assert len(counts_from(master)) == 3


def test_too_few_wait_for_another(hand):
    """If this fails, a job goes on with fewer workers than it was told to need, or does not go on when one comes."""
    master = hand.master(2, 1, *BRISK, "--max_workers=4", "--min_workers=2", "--on_worker_death=continue")
    server = hand.server()
    stay = hand.worker(0, "--steps", 200)
    victim = hand.worker(1, "--steps", 200, "--die", "1:done:50")
    assert victim.wait() == 137
    master.wait_for_output("JOB-PAUSES 1 worker is left, min_workers is 2")
    second = newcomer(hand, "second", "--steps", 200, "--pull_first")
    assert [process.wait() for process in (stay, second, master, server)] == [0] * 4
    assert set(counts_from(master)) == {2}


def test_late_workers_join_at_the_current_step(hand):
    """If this fails, a job that could begin waits for its last worker, or that one repeats what is over."""
    gate = hand.directory / "gate"
    master = hand.master(3, 1, *BRISK, "--min_workers=2")
    server = hand.server()
    early = [hand.worker(rank, "--steps", 30, "--hold", f"10:{gate}") for rank in range(2)]
    early[0].wait_for_output("holding")
    late = hand.worker(2, "--steps", 30, "--pull_first")
    late.wait_for_output("joined 2 1")
    gate.touch()
    assert [process.wait() for process in (*early, late, master, server)] == [0] * 5
    assert set(counts_from(master)) == {2} and counts_from(master)[2] in (12, 13)


def test_a_worker_that_cannot_join_disturbs_nobody(hand):
    """If this fails, a program whose model is with its workers joins them with another one, or ends their job."""
    gate = hand.directory / "gate"
    master = hand.master(1, 1, *BRISK, "--max_workers=2")
    server = hand.server()
    first = hand.worker(0, "--steps", 30, "--hold", f"20:{gate}")
    first.wait_for_output("holding")
    second = hand.worker("auto", "--steps", 30, name="second", environment={"PSD_RANK": "", "PSD_JOIN": "off"})
    assert second.wait() == 1
    assert "this program cannot join it" in second.output()
    gate.touch()
    assert [process.wait() for process in (first, master, server)] == [0] * 3


def test_bad_numbers_of_workers(hand):
    """If this fails, a job with impossible numbers of workers starts, or it is not said which."""
    for arguments, text in ((("--max_workers=1",), "max_workers 1: the job has 2 workers"),
                            (("--min_workers=3",), "min_workers 3: the job has 2 workers"),
                            (("--max_workers=5000",), "max_workers")):
        master = hand.master(2, 1, *arguments, name=arguments[0].strip("-").replace("=", "_"))
        assert master.wait() == 2
        assert text in master.output()
