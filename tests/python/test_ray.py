# SPDX-License-Identifier: Apache-2.0
"""Jobs on a Ray cluster: poseidon.ray. The cluster is real, with two nodes (raylets) on this machine."""

import base64
import gzip
import os
import pathlib
import shutil
import tempfile
import threading
import time

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="no Ray here (tools/setup.sh frameworks)")

import poseidon  # noqa: E402
import poseidon.ray  # noqa: E402
import ray_jobs  # noqa: E402
from conftest import PACKAGE_PATH  # noqa: E402
from helpers import MNIST_DATA, wait_for  # noqa: E402
from poseidon.ray import seal  # noqa: E402

NODE = {"num_cpus": 2, "object_store_memory": 80 << 20}
NAMED_S = 3.0
PATIENT = {"start_timeout": 300}  # each actor is a Python that imports Ray: on busy cores that takes its time


class TwoNodes:
    """The driver is on the first one."""

    def __init__(self, directory):
        from ray.cluster_utils import Cluster

        self.directory = directory
        self.cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        self.second = self.cluster.add_node(**NODE)
        ray.init(address=self.cluster.address, log_to_driver=False)

    def raylets(self):
        """Process numbers, the driver's node first."""
        return [process.process.pid for node in (self.cluster.head_node, self.second)
                for process in node.all_processes["raylet"]]

    def replace_second(self):
        """After a test has killed it."""
        self.cluster.remove_node(self.second, allow_graceful=False)
        self.second = self.cluster.add_node(**NODE)
        self.cluster.wait_for_nodes()

    def end(self):
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module", name="nodes")
def two_nodes():
    directory = tempfile.mkdtemp(prefix="psd_ray.", dir="/tmp")  # paths of sockets are short
    os.mkdir(os.path.join(directory, "ray"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", directory)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGE_PATH), os.path.dirname(__file__)]))
        patch.setenv("OMP_NUM_THREADS", "1")
        nodes = TwoNodes(directory)
        yield nodes
        nodes.end()
    shutil.rmtree(directory)


def children_of(pids):
    """Processes of daemons that these processes, or their children, have started."""
    found = set(pids)
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found - set(pids)
        found |= more


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def daemons(nodes):
    """Processes of ps_master and ps_server under the raylets."""
    return [pid for pid in children_of(nodes.raylets()) if name_of(pid) in ("ps_master", "ps_server")]


class Background:
    """A job that waits, in a thread, until something happens to it."""

    def __init__(self, directory, workers=2, args=(), **options):
        self.directory = directory
        self.error, self.result, self.ended = None, None, None
        self._thread = threading.Thread(target=self._run, args=(workers, args), kwargs=options, daemon=True)
        self._thread.start()
        wait_for(lambda: len(list(directory.glob("[0-9]"))) == workers or self.ended, 300, "workers")
        assert not self.error, self.error

    def _run(self, workers, args, **options):
        try:
            self.result = poseidon.ray.run(ray_jobs.wait_beside, (str(self.directory), *args),
                                           workers=workers, placement="spread", **{**PATIENT, **options})
        except poseidon.RunError as error:
            self.error = error
        self.ended = time.monotonic()

    def pid(self, rank):
        return int((self.directory / str(rank)).read_text())

    def wait(self):
        self._thread.join(100)
        assert not self._thread.is_alive()
        return self.error


def test_results_and_failures(nodes):
    """If this fails, a job on Ray gives no results, those of others, or does not say who failed."""
    results = poseidon.ray.run(ray_jobs.add_up, (ray.put(0.5),), {"steps": 2}, workers=2, **PATIENT,
                               placement="spread")
    assert [result["rank"] for result in results] == [0, 1]
    for result in results:
        assert result["values"].tolist() == [-1.5] * 4
        assert (result["local_rank"], result["nodes"]) == (0, 2)
    with pytest.raises(poseidon.RunError, match=r"worker 1 \(process \d+\) on node .* raised ValueError: no luck") \
            as caught:
        poseidon.ray.run(ray_jobs.one_raises, workers=2, **PATIENT)
    assert caught.value.rank == 1 and "in one_raises" in caught.value.traceback
    wait_for(lambda: not daemons(nodes), 10, "the end of all daemons")
    with pytest.raises(TypeError, match="3 is not a function"):
        poseidon.ray.run(3)


def test_sealing():
    """If this fails, the secret can be read on its way, or something else can be put in its place."""
    # RFC 7748, section 5.2
    scalar, point = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4", \
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    assert seal.x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == \
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    k = u = bytes([9]) + bytes(31)
    assert seal.x25519(k, u).hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"

    secret = bytes(range(32))
    mine = seal.KeyPair()
    sealed = seal.KeyPair().seal(secret, mine.public, "worker 1")
    assert secret not in sealed and mine.open(sealed, "worker 1") == secret
    with pytest.raises(seal.SealError, match="used before"):
        mine.open(sealed, "worker 1")
    for change in range(0, len(sealed), 16):
        mine = seal.KeyPair()
        changed = bytearray(seal.KeyPair().seal(secret, mine.public, "worker 1"))
        changed[change] ^= 1
        with pytest.raises(seal.SealError, match="changed on the way"):
            mine.open(bytes(changed), "worker 1")
    mine = seal.KeyPair()
    with pytest.raises(seal.SealError, match="not sealed for worker 2"):
        mine.open(seal.KeyPair().seal(secret, mine.public, "worker 1"), "worker 2")
    with pytest.raises(seal.SealError, match="public key is not one"):
        seal.KeyPair().seal(secret, bytes(32), "worker 1")


def digits(count):
    """Of MNIST, or made up where it is not here."""
    if not (MNIST_DATA / "train-images-idx3-ubyte.gz").exists():
        random = np.random.default_rng(1)
        labels = random.integers(0, 10, count).astype(np.uint8)
        return random.integers(0, 64, (count, 784), np.uint8) + \
            (np.arange(784) // 78 == labels[:, None]) * np.uint8(150), labels
    with gzip.open(MNIST_DATA / "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + 784 * count), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(MNIST_DATA / "train-labels-idx1-ubyte.gz") as file:
        return images, np.frombuffer(file.read(8 + count), np.uint8, offset=8)


@pytest.mark.all
def test_digits_as_in_one_process(nodes):
    """If this fails, training on Ray is not the training of one process."""
    pytest.importorskip("torch")
    images, labels = digits(2000)
    results = poseidon.ray.run(ray_jobs.train_digits, (ray.put(images), ray.put(labels), 60, 100),
                               workers=2, placement="spread", **PATIENT)
    weights, right = ray_jobs.train_digits(images, labels, 60, 100, rank=0, size=1)
    assert right > 1600
    for found, read in results:
        assert read == right
        for mine, theirs in zip(weights, found):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


@pytest.mark.all
def test_killed_worker_is_named(nodes, tmp_path):
    """If this fails, the driver waits for an actor that is dead, or tells of another one."""
    job = Background(tmp_path)
    killed = time.monotonic()
    os.kill(job.pid(1), 9)
    error = job.wait()
    assert f"worker 1 (process {job.pid(1)}) on node " in str(error) and " died: " in str(error)
    assert error.rank == 1 and job.ended - killed < NAMED_S
    wait_for(lambda: not daemons(nodes) and not os.path.exists(f"/proc/{job.pid(0)}"), 10, "the end of all")


@pytest.mark.all
def test_killed_server_is_named(nodes, tmp_path):
    """If this fails, the loss of a server is told as that of a worker, or late."""
    job = Background(tmp_path, servers=1)
    (server,) = [pid for pid in daemons(nodes) if name_of(pid) == "ps_server"]
    killed = time.monotonic()
    os.kill(server, 9)
    assert "server 0 (process " in str(job.wait()) and "ps_server was ended by signal 9" in str(job.error)
    assert job.ended - killed < NAMED_S
    wait_for(lambda: not daemons(nodes), 10, "the end of all daemons")


@pytest.mark.all
def test_killed_raylet_is_named(nodes, tmp_path):
    """If this fails, a lost node is told when Ray has missed its heartbeats, or not by its name."""
    job = Background(tmp_path)
    second = next(node for node in ray.nodes()
                  if node["Alive"] and node["NodeID"] != ray.get_runtime_context().get_node_id())
    there = children_of(nodes.raylets()[1:])
    killed = time.monotonic()
    os.kill(nodes.raylets()[1], 9)
    error = job.wait()
    name = f"node {second['NodeID'][:12]} ({second['NodeManagerAddress']})"
    assert f"{name} was lost: its raylet does not answer" in str(error)
    rank = 1 if job.pid(1) in there else 0
    assert f"There ran worker {rank}, server {rank};" in str(error)
    assert job.ended - killed < NAMED_S
    mine = [pid for pid in there if name_of(pid) in ("ps_server", "ps_master")] + [job.pid(0), job.pid(1)]
    wait_for(lambda: not any(map(name_of, mine)), 10, "the end of all that ran there")
    nodes.replace_second()


@pytest.mark.all
def test_no_room_is_said(nodes):
    """If this fails, a job that is too large for the cluster waits without a word."""
    with pytest.raises(poseidon.RunError, match="no room for 9 workers with {'CPU': 1} each"):
        poseidon.ray.run(ray_jobs.add_up, (0.5,), workers=9, start_timeout=1)
    with pytest.raises(poseidon.RunError, match="the time is up, and not done: worker 0"):
        poseidon.ray.run(time.sleep, (60,), workers=1, timeout=2, **PATIENT)
    wait_for(lambda: not daemons(nodes), 10, "the end of all daemons")


def written_forms(secret):
    """Ways in which bytes may stand in a log, in JSON, or in memory."""
    return {secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret).rstrip(b"="),
            base64.urlsafe_b64encode(secret).rstrip(b"="), repr(secret)[2:-1].encode()}


def memory_of(pid):
    """What a process has in its memory, piece by piece: objects of its store, messages, caches."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode = line.split()[:2]
            first, last = (int(end, 16) for end in span.split("-"))
            if "r" in mode and "w" in mode:
                try:
                    memory.seek(first)
                    yield memory.read(last - first) or b""
                except (OSError, OverflowError, ValueError):
                    pass  # reserved, never touched


def files_under(directory):
    for path in pathlib.Path(directory).rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.read_bytes()


@pytest.mark.all
def test_secret_is_nowhere_in_ray(nodes, tmp_path, monkeypatch):
    """If this fails, who reads Ray's logs, its objects or its network can join the job."""
    drawn = []
    token_bytes = seal.secrets.token_bytes

    def draw(count):
        drawn.append(token_bytes(count))
        return drawn[-1]

    monkeypatch.setattr(seal.secrets, "token_bytes", draw)  # the job's secret, and the keys that seal it
    monkeypatch.setenv("PSD_LOG_LEVEL", "trace")
    mark, large = token_bytes(32), token_bytes(32)
    stored = ray.put(np.frombuffer(large * 8192, np.uint8))  # what is searched is where objects are
    job = Background(tmp_path, args=(mark, stored), env={"PSD_LOG_LEVEL": "trace"})
    assert len(drawn) == 1 + 5  # a master, two workers, two servers
    processes = [pid for pid in (*nodes.raylets(), *(each.process.pid for each in
                 nodes.cluster.head_node.all_processes["gcs_server"]))]
    hidden = [form for secret in drawn for form in written_forms(secret)]
    places = [memory_of(pid) for pid in processes] + [files_under(nodes.directory)]
    found = set()
    for place in places:
        for piece in place:
            assert not any(form in piece for form in hidden)
            found |= {name for name, value in (("mark", mark), ("large", large)) if value in piece}
    assert "large" in found, "the search does not see what is in the object store"
    (tmp_path / "end").touch()
    assert job.wait() is None and job.result == [0, 1]
    for piece in files_under(nodes.directory):
        assert not any(form in piece for form in hidden)
