# SPDX-License-Identifier: Apache-2.0
"""One of each: a network cut, a machine without power, a process stopped, one killed; over ssh, under
Slurm and by rendezvous. `make test-faults` does so to every process and machine, many times."""

import pytest

import faults


@pytest.fixture(scope="module")
def field():
    """Hosts of its own, with Slurm on them."""
    why = faults.slurm_bed.missing()
    if why is not None:
        pytest.skip(f"no hosts: {why}")
    made = faults.Field()
    yield made
    made.remove()


def rarely(name):
    return pytest.param(name, marks=pytest.mark.all)


@pytest.mark.parametrize("name", [
    "ssh cut host2",  # a server and a worker
    rarely("ssh off host4"),  # the master and a worker
    rarely("ssh stop server1"),
    "ssh kill keeper3",  # the agent below it asks a server and a worker to stop
    rarely("rendezvous cut host4"),  # two workers
    "rendezvous off host2",  # a server
    "rendezvous stop worker1",
    rarely("rendezvous kill server1"),
    "slurm stop master",
    rarely("slurm kill agent2"),
    rarely("slurm cut host4"),  # a worker
    "slurm off host3",  # a server
])
def test_the_first_cause_is_named(field, name):
    """If this fails, a batch system takes a lost machine for a failing script, and somebody looks for
    a mistake in a worker that only died of it."""
    wrong, words, _ = faults.run_case(field, faults.Case(*name.split()))
    assert wrong == "", words
