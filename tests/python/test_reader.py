# SPDX-License-Identifier: Apache-2.0
"""Reading the values of a running job from outside, in real jobs."""

import multiprocessing
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import numpy as np
import pytest

import poseidon
from helpers import BRISK, program, wait_for
from intruder import answer, connect, handshake
from test_strangers import crc32c
from test_survive_copies import wait_until_whole

IDS, WIDTH, ELEMENTS = 500, 3, 200_000

# Every step adds 1 to each number, for each worker. So a value says of which step it is.
TRAIN = """
    import pathlib
    poseidon.init()
    add = dict(rule="add", reduce="sum")
    rows, dense = poseidon.SparseTable("rows", 3, **add), poseidon.Table("dense", 200_000, **add)
    votes = poseidon.Table("sum", 1, use="sum", reduce="sum")
    ids, ones, flat = np.arange(0, 1000, 2), np.ones((500, 3), np.float32), np.ones(200_000, np.float32)
    gate, step = pathlib.Path("gate"), rows.step
    deadline = time.monotonic() + 120
    while True:
        if votes.push_pull(np.array([gate.exists()], np.float32)).wait()[0] > 0:
            break  # all leave after the same step
        a, b = rows.push(ids, ones), dense.push(flat)
        a.wait(), b.wait()
        step += 1
        assert time.monotonic() < deadline, "nobody opened the gate"
        if step == 3:
            say("training")
    say("steps", step)
"""


def key_of(job, name="key"):
    """A reader's environment, as psd_run tells it."""
    file = job.directory / name
    said = subprocess.run([program("psd_run"), "reader-key", str(file)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    words = dict(word.split("=", 1) for word in said.stdout.split())
    assert words["PSD_READER_KEY_FILE"] == str(file)
    return words["PSD_MASTER_ADDRESS"], str(file)


@pytest.fixture
def training(start):
    """A job that trains until finish() is called, and must end well then."""
    jobs = []

    def begin(**options):
        options.setdefault("options", BRISK)
        jobs.append(start(TRAIN, **{"servers": 2, **options}))
        jobs[-1].wait_for_output("training", 2)
        return jobs[-1]

    yield begin
    for job in jobs:
        (job.directory / "gate").touch()
        assert job.wait(60) == 0, job.stdout() + job.stderr()


def check_rows(reading, steps, workers=2):
    """Each row is of its step, and none is half of another."""
    assert np.array_equal(reading.values, np.repeat(steps[:, None], WIDTH, 1) * workers)
    assert (reading.step, reading.newest) == (steps.min(), steps.max())


def read_until(reader, step, ids=None):
    """Reads rows until they are of that step; they never get older."""
    ids = np.arange(0, 1000, 2)[::-1].copy() if ids is None else ids
    steps, last = np.zeros(ids.size, np.uint64), np.zeros(ids.size, np.uint64)
    deadline = time.monotonic() + 60
    while last.min() < step:
        reading = reader.lookup("rows", ids, steps=steps)
        check_rows(reading, steps)
        assert (steps >= last).all()
        assert 0 < reading.age < 60
        last[:] = steps
        assert time.monotonic() < deadline, f"rows stay at step {last.min()}, expected {step}"
    return int(last.min())


@pytest.mark.parametrize("env", [{}, {"PSD_TRANSPORT": "tcp"}, {"PSD_FORCE_TLS": "1"}], ids=["shm", "tcp", "sealed"])
def test_reading_in_mid_training(training, env, monkeypatch):
    """If this fails, what somebody outside reads of a running job is torn, of another step than told, or not to be had."""
    job = training(env=env)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with poseidon.Reader(*key_of(job)) as reader:
        read_until(reader, 20)
        dense = reader.read("dense")
        chunks = [dense.values[first:first + 65536] for first in range(0, ELEMENTS, 65536)]
        assert all((chunk == chunk[0]).all() for chunk in chunks)
        assert {int(chunk[0]) // 2 for chunk in chunks} <= set(range(dense.step, dense.newest + 1))
        assert np.array_equal(reader.lookup("rows", [[1, 3], [5, 10**12]]).values, np.zeros((2, 2, WIDTH)))
        assert reader.lookup("rows", np.zeros(0, int)).values.shape == (0, WIDTH)


def test_more_rows_than_a_request_holds(training):
    """If this fails, a lookup of many rows is refused, or some of them come twice or not at all."""
    job = training(servers=1)
    ids = np.arange(150_000)
    with poseidon.Reader(*key_of(job)) as reader:
        reading = reader.lookup("rows", ids)
    want = np.where((ids < 1000) & (ids % 2 == 0), 1, 0)
    assert np.array_equal(reading.values > 0, np.repeat(want[:, None], WIDTH, 1) > 0)


def test_what_cannot_be_read(training):
    """If this fails, a mistake ends in a deadline, or in numbers that mean nothing."""
    job = training(servers=1)
    with poseidon.Reader(*key_of(job), timeout_ms=2000) as reader:
        with pytest.raises(poseidon.StateError, match="table sum is a sum"):
            reader.read("sum")
        with pytest.raises(poseidon.TimeoutError, match="table nothing: no worker has opened it"):
            reader.lookup("nothing", [1])
        with pytest.raises(poseidon.InvalidError, match=r"use read\(\)"):
            reader.lookup("dense", [1])
        with pytest.raises(poseidon.InvalidError, match=r"use lookup\(\)"):
            reader.read("rows")
    with pytest.raises(poseidon.ClosedError):
        reader.read("dense")


def test_end_of_the_job(training):
    """If this fails, a reader waits for a job that is over, or says nothing of it."""
    job = training(servers=1)
    with poseidon.Reader(*key_of(job)) as reader:
        reader.read("dense")
        (job.directory / "gate").touch()
        job.process.wait(60)
        with pytest.raises(poseidon.Error, match="the job is over|Connection refused") as info:
            reader.lookup("rows", [1], timeout_ms=2000)
        assert isinstance(info.value, (poseidon.ClosedError, poseidon.TimeoutError))


def test_readers_are_counted(training):
    """If this fails, nobody sees who reads a job."""
    job = training(servers=1)
    address, key = key_of(job)

    def shown():
        return subprocess.run([program("psd_run"), "show"], capture_output=True, text=True, check=True).stdout

    def counted():
        return re.findall(r"^(\d+) readers?$", shown(), re.M)

    with poseidon.Reader(address, key):
        with poseidon.Reader(address, key):
            wait_for(lambda: counted() == ["2"], 30, shown)
        wait_for(lambda: counted() == ["1"], 30, shown)
    wait_for(lambda: counted() == [], 30, shown)


def read_for_ever(address, key, queue):
    with poseidon.Reader(address, key) as reader:
        while True:
            queue.put(reader.lookup("rows", np.arange(1000)).step)


def test_death_of_a_reader_is_nothing(training):
    """If this fails, a job notices that a reader was killed, or waits for one that was stopped."""
    job = training(servers=1)
    address, key = key_of(job)
    spawn = multiprocessing.get_context("spawn")
    queues = [spawn.Queue() for _ in range(2)]
    dying = [spawn.Process(target=read_for_ever, args=(address, key, queue)) for queue in queues]
    try:
        for process in dying:
            process.start()
        for queue in queues:
            queue.get(timeout=60)
        os.kill(dying[0].pid, signal.SIGKILL)
        os.kill(dying[1].pid, signal.SIGSTOP)
        with poseidon.Reader(address, key) as reader:
            read_until(reader, reader.lookup("rows", [0]).step + 50)
    finally:
        for process in dying:
            process.kill()
            process.join()


# ---- who may -----------------------------------------------------------------------------------


def test_other_keys_are_refused(training, tmp_path):
    """If this fails, somebody reads a job without its key, or with that of another job."""
    job = training(servers=1)
    address, key = key_of(job)
    other = tmp_path / "other.key"
    subprocess.run([program("psd_run"), "secret", str(other)], check=True)
    with pytest.raises(poseidon.RefusedError, match="authentication failed"):
        poseidon.Reader(address, other)
    os.chmod(key, 0o644)
    with pytest.raises(poseidon.InvalidError, match="others may read it"):
        poseidon.Reader(address, key)
    os.chmod(key, 0o600)
    with pytest.raises(poseidon.InvalidError, match="PSD_READER_KEY_FILE"):
        poseidon.Reader(address)


def test_readers_key_opens_nothing_else(training, tmp_path):
    """If this fails, who was given a reader's key can join the job, watch it, or command it."""
    job = training(servers=1)
    address, key = key_of(job)
    secret = bytes.fromhex(pathlib.Path(key).read_text())
    port = int(address.rpartition(":")[2])
    for name in ("worker:0", "worker:*", "observer", "server:0.0", "standby:0.0"):
        with connect(port) as peer:
            assert not handshake(peer, secret, f"psd1 plain {name} master".encode())
    said = subprocess.run([program("psd_run"), "show", "--master", address, "--secret_file", key],
                          capture_output=True, text=True, check=False)
    assert said.returncode != 0 and "authentication failed" in said.stderr


def frame(kind, body=b"", **fields):
    """A frame's header with a right checksum, and its payload."""
    start = struct.pack("<4sBBHIHBBQQIIIIHHBBhI", b"PSD1", 1, kind, 0, len(body), 0, fields.get("dtype", 0), 0, 1,
                        fields.get("step", 0), 1, 1, fields.get("table", 0), fields.get("chunk", 0), 0, 0, 0, 0, 0, 0)
    return start + struct.pack("<I", crc32c(start)) + body


def hello(role, job):
    body = struct.pack("<BIIIIQIQ", role, 2**32 - 1, 0, 0, 0, 77, 0, job)
    return frame(1, body + struct.pack("<HHQII", 0, 0, 0, 0, 0))


def job_number(secret, port):
    """From the master's WELCOME to a reader."""
    with connect(port) as peer:
        assert handshake(peer, secret, b"psd1 plain reader master", then=hello(6, 0))
        said = b""
        while len(said) < 64 + 33:
            said += peer.recv(4096)
    assert said[5] == 2, said
    return struct.unpack_from("<IIIIIIBQ", said, 64)[7]


@pytest.mark.parametrize("kind,name", [(45, "SPARSE_PUSH"), (77, "SPARSE_PUSH_PULL"), (30, "PUSH"), (61, "STEP_ADD"), (36, "STATE_PULL")])
def test_reader_cannot_push(training, kind, name):
    """If this fails, a reader changes the model by a frame that libpsd would never send."""
    job = training(servers=1, options=(*BRISK, "--lanes=1"))
    address, key = key_of(job)
    secret = bytes.fromhex(pathlib.Path(key).read_text())
    number = job_number(secret, int(address.rpartition(":")[2]))
    push = struct.pack("<IIIIQfff4x", 1, 0, 1, 0, 0, 1e6, 1e6, 1e6)
    with connect(int(lane_address(job).rpartition(":")[2])) as peer:
        assert handshake(peer, secret, b"psd1 plain reader server:0.0", then=hello(6, number))
        peer.sendall(frame(kind, push if kind in (45, 77) else b"", dtype=1 if kind in (45, 77) else 0))
        answer(peer)  # WELCOME, and the end of the connection
    wait_for(lambda: f"{name} from a reader".encode() in job.log("server0"), 30, lambda: job.log("server0").decode())
    with poseidon.Reader(address, key) as reader:
        read_until(reader, reader.lookup("rows", [0]).step + 5)


def lane_address(job):
    """Where the only lane listens."""
    for line in job.log("server0").decode().splitlines():
        if "listens on tcp://" in line:
            return line.partition("listens on ")[2].partition(",")[0]
    raise AssertionError(job.log("server0").decode())


# ---- servers that die, move and come back ------------------------------------------------------


def test_server_is_killed_under_a_reader(training):
    """If this fails, a reader loses a job whose servers are replaced by their copies, or reads values that went back."""
    job = training(servers=3, options=(*BRISK, "--replicas", 1))
    with poseidon.Reader(*key_of(job)) as reader:
        for server in range(2):
            at = read_until(reader, 5)
            wait_until_whole(job, 3)
            os.kill(job.pid_of(f"server{server}"), signal.SIGKILL)
            read_until(reader, at + 30)

