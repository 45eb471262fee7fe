# SPDX-License-Identifier: Apache-2.0
"""Sparse tables of which memory holds a part (full="spill"), with real processes: no bit depends on where a row is, and no
file outlives its server."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import uuid

import pytest

from helpers import BRISK, HERE, digests, program, result, wait_for
from test_scale import open_gate
from test_scale_servers import scale, wait_for_places, wait_until_left
from test_sparse_checkpoints import (EVERY, SCRIPT, TABLES, digests as digests_of_tables, kill_everything, ordered,
                                     train as train_saved)
from test_checkpoints import ended_well, go_on, manifests
from test_survive_rows import GATE
from test_survive_copies import kill_in_turn, wait_until_whole

pytest.importorskip("numpy")

ALL = ("--hot", 200_000)  # as many buckets, and all rows in memory
FEW = ("--hot", 300)      # a tenth


def has_lmdb():
    """Does the build have it? tests/cluster/helpers.py knows where it is."""
    return b"mdb_env_open" in pathlib.Path(program("ps_server")).read_bytes()


pytestmark = pytest.mark.skipif(not has_lmdb(), reason="LMDB is not installed: tools/setup.sh build")


def train(start, *options, servers=1, arguments=(), name="job", cold=None):
    where = () if cold is None else ("--cold_dir", cold)
    return start(*BRISK, "--workers", 2, "--servers", servers, *where, *options, "-o", "logs", "--", sys.executable,
                 HERE / "rows_worker.py", *map(str, arguments), name=name)


def expected_of(start, *options, arguments=(), **how):
    calm = train(start, *options, name="calm", arguments=(*ALL, *arguments), **how)
    assert calm.wait(120) == 0, calm.stderr()
    return digests(calm)


def show(title, *options):
    return subprocess.run([program("psd_run"), "show", title, *options], capture_output=True, text=True, timeout=60).stdout


def wait_for_rows_on_disk(job, title):
    """Of all servers together; what each of them tells."""
    def servers():
        return [one for one in json.loads(show(title, "--json"))["processes"] if one["role"] == "server"]

    wait_for(lambda: sum(one.get("rows_on_disk", 0) for one in servers()) > 1000 or job.process.poll() is not None, 30,
             lambda: f"rows on the disk, not {servers()}")
    return servers()


@pytest.mark.parametrize("servers, options", [(1, ("--lanes=1",)), (1, ("--lanes=4",)), (3, ("--lanes=2", "--transport=tcp"))])
def test_same_bits_as_in_memory(start, tmp_path, servers, options):
    """If this fails, a table that is larger than memory is trained otherwise than one that is not; or it leaves files."""
    cold = tmp_path / "cold"
    cold.mkdir()
    expected = expected_of(start, *options, servers=servers)
    title = f"same-bits-{uuid.uuid4().hex[:8]}"
    job = train(start, *options, "--name", title, servers=servers, arguments=(*FEW, *GATE), cold=cold)
    job.wait_for_output("holding", seconds=60)
    wait_for_rows_on_disk(job, title)
    (job.directory / "gate").touch()
    assert job.wait(120) == 0, job.stdout() + job.stderr()
    assert digests(job) == expected
    assert list(cold.iterdir()) == []


def test_a_worker_is_replaced(start):
    """If this fails, a replacement sees other rows of the step that it repeats when memory does not hold them."""
    arguments = ("--die", "none", "--steps", 60)
    expected = expected_of(start, servers=2, arguments=arguments)
    job = train(start, "--on_worker_death=wait", servers=2, arguments=(*FEW, "--die", "1:40", "--steps", 60))
    assert job.wait(120) == 0, job.stdout() + job.stderr()
    assert digests(job) == expected and "MEMBER-LOST worker 1" in job.log("master").decode()


def test_servers_are_killed(start, tmp_path):
    """If this fails, the copy of a server lacks rows that its owner had on the disk, or a killed server leaves files there."""
    cold = tmp_path / "cold"
    cold.mkdir()
    expected = expected_of(start, servers=2)
    job = train(start, "--replicas", 1, servers=2, arguments=(*FEW, *GATE), cold=cold)
    kill_in_turn(job, 2, 2)
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected
    assert [one["process"] for one in result(job)["failovers"]] == ["server0", "server1"]
    assert list(cold.iterdir()) == []


def test_a_worker_and_then_a_server_killed(start):
    """If this fails, the version before of a row that was on the disk is lost with its server."""
    arguments = ("--die", "none", "--steps", 60)
    expected = expected_of(start, servers=2, arguments=arguments)
    job = train(start, "--replicas", 1, "--on_worker_death=wait", servers=2,
                arguments=(*FEW, "--die", "1:40", "--steps", 60, "--hold", "30:gate", "--hold", "closing:gate2"))
    job.wait_for_output("holding")
    wait_until_whole(job, 2)
    (job.directory / "gate").touch()
    wait_for(lambda: "MEMBER-LOST worker 1" in job.log("master").decode() or job.process.poll() is not None, 60, "worker 1 is dead")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    job.wait_for_output("holding", 2, seconds=60)
    (job.directory / "gate2").touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected


# ---- checkpoints

def on_disk_but_oldest(capacity):
    """The script of all kinds of tables. Of those that have no capacity, memory keeps so many rows."""
    lines = [line.replace("**drawn)", "**drawn)" if "oldest" in line else "**drawn, **hot)") for line in SCRIPT.splitlines()]
    return "\n".join(lines).replace("learning_rate=0.05)", f'learning_rate=0.05)\nhot = dict(capacity_rows={capacity}, full="spill")')


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a job with all rows in memory has at its end."""
    return digests_of_tables(ended_well(train_saved(tmp_path_factory.mktemp("plain"), script=on_disk_but_oldest(200_000))))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A job that wrote three generations, the second and third of what has changed, and then was killed, all of it."""
    directory = tmp_path_factory.mktemp("written")
    (directory / "cold").mkdir()
    job = train_saved(directory, "--checkpoint", "saved", "--checkpoint_every", f"{EVERY}steps", "--keep", 3, "--cold_dir", "cold",
                      holds=[1, *(step * EVERY + 2 for step in range(1, 4))], script=on_disk_but_oldest(400))
    go_on(job, 1, lambda: ordered(job, EVERY), "the first is asked for")
    for number in (1, 2, 3):
        step = number * EVERY + 2
        go_on(job, step, lambda: number in manifests(directory / "saved") and (number == 3 or ordered(job, step - 2 + EVERY)),
              f"generation {number} is there")
    kill_everything(job)
    return directory


@pytest.mark.parametrize("servers, lanes, capacity", [(1, 1, 400), (3, 1, 400), (2, 2, 50), (2, 1, 200_000)])
def test_resumed_job_ends_with_the_same_bits(killed, undisturbed, tmp_path, servers, lanes, capacity):
    """If this fails, a checkpoint lacks rows that were on the disk only, or a job that goes on from it does not keep them there."""
    job = ended_well(train_saved(tmp_path, "--resume", killed / "saved", servers=servers, lanes=lanes,
                                 script=on_disk_but_oldest(capacity)))
    assert f"begins at {' '.join(TABLES * [str(3 * EVERY)])}\n" in job.stdout()
    assert digests_of_tables(job) == undisturbed


def test_killed_servers_leave_no_files(killed):
    """If this fails, what a server that was killed while rows went to the disk had there stays for ever."""
    assert list((killed / "cold").iterdir()) == []


# ---- servers come and go

def test_servers_come_and_go(start):
    """If this fails, rows that are on a disk do not move with their place."""
    arguments = ("--steps", 150)
    expected = expected_of(start, arguments=arguments)
    title = f"on-disk-{uuid.uuid4().hex[:8]}"
    job = train(start, "--name", title, "--max_servers=3", arguments=(*FEW, *arguments, "--hold", "closing:gateclosing"))
    job.title = title
    job.wait_for_output("step 8\n", 2)
    assert scale(job, "--servers", 3).returncode == 0
    wait_for_places(job, {0: 2, 1: 2, 2: 2})
    assert scale(job, "--servers", 1).returncode == 0
    wait_until_left(job, "server2")
    wait_until_left(job, "server1")
    open_gate(job, "closing")
    assert job.wait(120) == 0, job.stdout() + job.stderr() + job.log("master").decode()
    assert digests(job) == expected


# ---- what is told, and what is refused

def test_show_tells_where_rows_are(start):
    """If this fails, nobody sees how many rows are in memory, and how many on the disk."""
    title = f"shown-{uuid.uuid4().hex[:8]}"
    job = train(start, "--name", title, arguments=(*FEW, *GATE))
    job.wait_for_output("holding")

    (rows,) = wait_for_rows_on_disk(job, title)
    assert rows["rows_in_memory"] <= 4 * 300 and rows["bytes_on_disk"] > 0
    assert re.search(r"^server0: \d+ rows in memory, \d+ on the disk \(\d+\.\d MiB\)$", show(title), re.MULTILINE), show(title)
    (job.directory / "gate").touch()
    assert job.wait(60) == 0, job.stderr()


def test_a_directory_that_is_not_there_is_refused_by_name(start, tmp_path):
    """If this fails, a table whose rows cannot be written is opened all the same, or nobody hears what is missing."""
    job = train(start, arguments=FEW, cold=tmp_path / "nowhere")
    assert job.wait(60) != 0
    said = job.stdout() + job.stderr()
    assert "sparse table adagrad" in said and f"{tmp_path}/nowhere: No such file or directory" in said and "--cold_dir" in said


def test_without_it_nothing_is_asked_of_the_directory(start, tmp_path):
    """If this fails, jobs that want nothing of it end because of --cold_dir, or TMPDIR."""
    job = train(start, arguments=("--steps", 4), cold=tmp_path / "nowhere")
    assert job.wait(60) == 0, job.stderr()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_loses_no_row(start, small_disk):
    """If this fails, a job whose disk is full loses rows that were to go there; or nobody hears that it is full."""
    arguments = ("--large", "--steps", 12)
    expected = expected_of(start, arguments=arguments)
    disk = small_disk(4)
    job = train(start, arguments=("--hot", 2000, *arguments), cold=disk)
    assert job.wait(120) == 0, job.stdout() + job.stderr()
    assert digests(job) == expected
    log = job.log("server0").decode()
    assert "ROWS-STAY" in log and "No space left on device" in log and str(disk) in log
