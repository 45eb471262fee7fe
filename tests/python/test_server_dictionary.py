# SPDX-License-Identifier: Apache-2.0
"""Slurm's variables become the dictionary of a cluster, without Slurm."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from poseidon import slurm  # noqa: E402
from poseidon.cluster import cluster  # noqa: E402
from poseidon.slurm import ServerDictionary  # noqa: E402

LISTS = [("linux", ["linux"]), ("node-0", ["node-0"]), ("jean-zay-ia810", ["jean-zay-ia810"]),
         ("alpha,beta,gamma", ["alpha", "beta", "gamma"]), ("linux[1,2]", ["linux1", "linux2"]),
         ("lx[15,18,32-33]", ["lx15", "lx18", "lx32", "lx33"]),
         ("compute-b2[011,022]", ["compute-b2011", "compute-b2022"]),
         ("b04-[09-10]", ["b04-09", "b04-10"]), ("n[9-11]", ["n9", "n10", "n11"]),
         ("tux[2,1-2]", ["tux2", "tux1", "tux2"]),
         ("rack[0-1]_blade[0-2]", [f"rack{i}_blade{k}" for i in range(2) for k in range(3)]),
         ("nodeA,nodeB[001,003],nodeC", ["nodeA", "nodeB001", "nodeB003", "nodeC"]),
         ("n[1-2].ib.cluster", ["n1.ib.cluster", "n2.ib.cluster"]), ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
         ("linux[0000-1023]", [f"linux{i:04}" for i in range(1024)]),
         ("n[08-101]", [f"n{i:02}" for i in range(8, 102)]),
         ("rack[00-12,14]_blade[0-2],alpha,tux[1-3,6]",
          [f"rack{i:02}_blade{k}" for i in [*range(13), 14] for k in range(3)] +
          ["alpha", "tux1", "tux2", "tux3", "tux6"])]


def step(nodes, counts, node, local, **more):
    return {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": nodes, "SLURM_JOB_NODELIST": "x[1-9]",
            "SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_TASKS_PER_NODE": "9(x9)",
            "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local),
            "SLURM_STEP_RESV_PORTS": "12000-12003", **more}


@pytest.mark.parametrize("text, names", LISTS)
def test_hostlist(text, names):
    """If this fails, tasks look for each other on machines that do not exist."""
    assert slurm.expand_hostlist(text) == names


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="scontrol is not installed")
@pytest.mark.parametrize("text, names", LISTS)
def test_hostlist_is_what_slurm_says(text, names, tmp_path):
    """If this fails, the table above is not Slurm's."""
    config = tmp_path / "slurm.conf"  # scontrol wants one, and asks nobody
    config.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    done = subprocess.run(["scontrol", "show", "hostnames", text], capture_output=True, text=True,
                          check=False, timeout=300, env={"SLURM_CONF": str(config),
                                                        "PATH": "/usr/bin:/bin"})
    if text.startswith("n[1-2]"):  # of a name behind brackets Slurm knows nothing
        assert done.stdout == ""
        return
    assert done.stdout.split() == names


@pytest.mark.parametrize("text, column", [
    ("", 1), ("n[1-", 2), ("n[]", 3), ("n[1-,4]", 3), ("n[3-1]", 3), ("n[a-c]", 3), ("n1,,n2", 4),
    ("n[1,2,m3]", 7), ("n1]", 3), ("n[1-2]]", 7), ("n[0-65536]", 3), ("n[0-999][0-999]", 1)])
def test_bad_hostlist(text, column):
    """If this fails, a mistake is read as a name."""
    with pytest.raises(ValueError, match=rf"\(column {column}\)"):
        slurm.expand_hostlist(text)


def test_counts_and_ports():
    """If this fails, tasks are counted where there are none."""
    assert slurm.expand_counts("3(x2),2,1") == [3, 3, 2, 1]
    assert slurm.expand_ports("12000,12005-12006") == [12000, 12005, 12006]
    for bad in ("", "3(x2", "0", "a", "3,,1", "1(x65537)", "1(x99999999999)"):
        with pytest.raises(ValueError):
            slurm.expand_counts(bad)
    for bad in ("", "12000-", "12003-12000", "70000"):
        with pytest.raises(ValueError):
            slurm.expand_ports(bad)


def test_one_node_several_tasks():
    """If this fails, tasks of one node get wrong roles or ports."""
    found = slurm.server_dictionary(["ps", "worker", "worker"],
                                    step("n1", "3", 0, 2, TFSERVER="10.0.0.1"))
    assert found == ({"ps": ["10.0.0.1:12000"], "worker": ["10.0.0.1:12001", "10.0.0.1:12002"]},
                     "worker", 1)


def test_several_nodes_with_one_task():
    """If this fails, one task on each of several nodes gets a wrong role."""
    found = slurm.server_dictionary(["ps", "worker", "worker"],
                                    step("n[1-3]", "1(x3)", 2, 0, TFSERVER="a\nb\nc\n"))
    assert found == ({"ps": ["a:12000"], "worker": ["b:12000", "c:12000"]}, "worker", 1)


@pytest.mark.parametrize("tasks, servers", [
    (["ps", "ps"] + ["worker"] * 6, ["a:12000", "a:12001"]),
    ((["ps"] + ["worker"] * 3) * 2, ["a:12000", "b:12000"])])
def test_several_nodes_with_several_tasks(tasks, servers):
    """If this fails, servers are not together on the first node, or not one on each, as asked for."""
    own = {}
    for node in range(2):
        for local in range(4):
            places, role, index = slurm.server_dictionary(
                tasks, step("n[1-2]", "4(x2)", node, local, TFSERVER="a b"))
            own[f"{'ab'[node]}:{12000 + local}"] = places[role][index]
            assert places["ps"] == servers
            assert len(places["worker"]) == 6
    assert all(address == found for address, found in own.items())


def test_uneven_tasks():
    """If this fails, nodes must all have the same number of tasks."""
    tasks = ["ps", "worker", "worker", "worker", "ps", "worker", "worker"]
    assert slurm.server_dictionary(tasks, step("n[1-3]", "4,2,1", 2, 0, TFSERVER="a,b,c")) == (
        {"ps": ["a:12000", "b:12000"],
         "worker": ["a:12001", "a:12002", "a:12003", "b:12001", "c:12000"]}, "worker", 4)


def test_both_numbers():
    """If this fails, a list that is too short is used as far as it goes."""
    with pytest.raises(ValueError, match="has 2 entries, but there are 3 tasks"):
        slurm.server_dictionary(["ps", "worker"], step("n1", "3", 0, 0, TFSERVER="a"))
    with pytest.raises(ValueError, match="TFSERVER has 1 addresses, but there are 2 nodes"):
        slurm.server_dictionary(["ps", "worker"], step("n[1-2]", "1(x2)", 0, 0, TFSERVER="a"))
    with pytest.raises(ValueError, match="--resv-ports=5"):
        slurm.server_dictionary(["worker"] * 5, step("n1", "5", 0, 0, TFSERVER="a"))
    with pytest.raises(LookupError, match="not started by Slurm"):
        slurm.server_dictionary(["ps"], {})


def test_names_of_tf_for_slurm(monkeypatch):
    """If this fails, scripts for tf_for_slurm need more than another import."""
    for name, value in step("n[1-2]", "2(x2)", 1, 1, TFSERVER="a\nb").items():
        monkeypatch.setenv(name, value)
    tasks = ["ps", "worker", "worker", "worker"]
    assert ServerDictionary.GetServerDictionary(tasks) == slurm.server_dictionary(tasks) == (
        {"ps": ["a:12000"], "worker": ["a:12001", "b:12000", "b:12001"]}, "worker", 2)
    assert ServerDictionary.GetServerDictionary(tasks, InfinyBand=True)[1:] == ("worker", 2)
    monkeypatch.delenv("TFSERVER")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "10.0.0.[1-2]")
    with pytest.warns(UserWarning, match="TFSERVER"):
        assert ServerDictionary.GetServerDictionary(tasks, InfinyBand=True)[1:] == ("worker", 2)


def test_cluster_of_each_environment():
    """If this fails, a script has to know who started it."""
    config = {"cluster": {"chief": ["a:1"], "worker": {"1": "b:2"}},
              "task": {"type": "worker", "index": 1}}
    assert cluster(environment={"TF_CONFIG": json.dumps(config)}) == (
        {"chief": ["a:1"], "worker": ["", "b:2"]}, "worker", 1)
    assert cluster(environment={"PSD_PEERS": "tcp://a:1,tcp://[::2]:2", "PSD_RANK": "1"}) == (
        {"worker": ["a:1", "[::2]:2"]}, "worker", 1)
    assert cluster(environment=step("n[1-2]", "1(x2)", 1, 0, TFSERVER="a b")) == (
        {"ps": [], "worker": ["a:12000", "b:12000"]}, "worker", 1)
    assert cluster(environment={}) == ({}, "worker", 0)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        cluster(environment={"TF_CONFIG": "{"})
