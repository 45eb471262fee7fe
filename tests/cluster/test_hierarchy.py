# SPDX-License-Identifier: Apache-2.0
"""Workers of one host push as one (network namespaces, so root only)."""

import re

import pytest

from helpers import BRISK, free_port, program, python_worker, saved_digests

STEPS = 40
ELEMENTS = 140000  # two chunks and a bit
TABLES = 2
PUSHED = 4 * ELEMENTS * TABLES * STEPS  # bytes of one worker in a whole job


class Run:
    """A job on two hosts: what it saved, and what went through the cable of the second host."""

    def __init__(self, hand, hosts, saved, workers_of, servers_of, hierarchy, *words):
        port = free_port()
        master = f"tcp://{hosts.addresses[0]}:{port}"
        before = hosts.bytes(1)
        ranks = [host for host, count in enumerate(workers_of) for _ in range(count)]
        daemons = [hand.start("master", *hosts.inside(
            0, program("ps_master"), "--workers", len(ranks), "--servers", len(servers_of),
            "--bind", hosts.addresses[0], "--port", port, *BRISK))]
        for index, host in enumerate(servers_of):
            daemons.append(hand.start(f"server{index}", *hosts.inside(
                host, program("ps_server"), "--index", index, "--master_address", master,
                "--bind", hosts.addresses[host], "--lanes=2")))
        workers = [hand.start(
            f"worker{rank}",
            *hosts.inside(host, *python_worker("--steps", STEPS, "--elements", ELEMENTS,
                                               "--awkward", "--save", saved, *words)),
            environment={"PSD_MASTER_ADDRESS": master, "PSD_RANK": str(rank),
                         "PSD_HIERARCHY": hierarchy}) for rank, host in enumerate(ranks)]
        for process in (*workers, *daemons):
            assert process.wait(60) == 0, process.output()
        after = hosts.bytes(1)
        self.received, self.sent = (after[i] - before[i] for i in range(2))
        self.digests = saved_digests(saved)


@pytest.mark.parametrize("workers_of, pushes", [((3, 3), 2), ((4, 4), 1)])
def test_one_host_pushes_as_one(hand, hosts, tmp_path, workers_of, pushes):
    """If this fails, every worker's gradient crosses the network, or placement changes the bits.

    Ranks 3, 4 and 5 are two nodes of the tree over ranks, so their host has to send two sums;
    4, 5, 6 and 7 are one."""
    flat = Run(hand, hosts, tmp_path / "flat", workers_of, [0], "off")
    grouped = Run(hand, hosts, tmp_path / "grouped", workers_of, [0], "auto")
    print(f"\n{workers_of[1]} workers, {PUSHED} bytes each: sent {flat.sent} -> {grouped.sent}, "
          f"received {flat.received} -> {grouped.received}")
    assert grouped.digests == flat.digests
    assert flat.sent > workers_of[1] * PUSHED and flat.received > workers_of[1] * PUSHED
    assert grouped.sent < (pushes + 0.3) * PUSHED
    assert grouped.received < 1.3 * PUSHED + PUSHED / STEPS * workers_of[1]


def test_bits_do_not_depend_on_placement(hand, hosts, tmp_path):
    """If this fails, a job gives other numbers when its workers are placed otherwise."""
    digests = [Run(hand, hosts, tmp_path / f"run{i}", workers_of, servers_of, hierarchy).digests
               for i, (workers_of, servers_of, hierarchy) in enumerate(
                   [((3, 3), [0, 1], "off"), ((3, 3), [0, 1], "auto"), ((1, 5), [0, 0], "auto"),
                    ((5, 1), [1], "auto")])]
    assert digests == [digests[0]] * len(digests)


def test_a_lost_worker_ends_the_job(hand, hosts):
    """If this fails, workers wait for ever for one of their host that is gone, or for its leader."""
    for victim in (3, 4):
        port = free_port()
        master = f"tcp://{hosts.addresses[0]}:{port}"
        daemons = [hand.start(f"master{victim}", *hosts.inside(
            0, program("ps_master"), "--workers", 6, "--servers", 1, "--bind", hosts.addresses[0],
            "--port", port, *BRISK))]
        daemons.append(hand.start(f"server{victim}", *hosts.inside(
            0, program("ps_server"), "--index", 0, "--master_address", master, "--bind",
            hosts.addresses[0], "--lanes=1")))
        workers = [hand.start(
            f"worker{victim}.{rank}",
            *hosts.inside(rank // 3, *python_worker("--steps", 1000, "--elements", ELEMENTS,
                                                    "--die", f"{victim}:half:5")),
            environment={"PSD_MASTER_ADDRESS": master, "PSD_RANK": str(rank)})
            for rank in range(6)]
        for rank, process in enumerate(workers):
            assert process.wait(60) == (137 if rank == victim else 1), process.output()
            if rank != victim:
                assert re.search(f"error .*worker {victim}", process.output()), process.output()
        for process in daemons:
            assert process.wait(60) != 0, process.output()
