# SPDX-License-Identifier: Apache-2.0
"""Workers and servers of one host: that they share memory, that it changes no bit, that only they do,
and that nothing of it outlives them.

PSD_KILLS=200 kills so many workers at random moments instead of a few."""

import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from helpers import BRISK, HERE, SANITIZED, Job, free_port, library_path, program
from helpers import python_worker, saved_digests, wait_for

KILLS = int(os.environ.get("PSD_KILLS", 20))
NOBODY = 65534
MEMORIES = ("ordinary", "region", "view")
POLICIES = ("fail", "continue", "wait")
ALLOWANCE = 64 << 20  # of each process, beside tensors: programs, rings, buffers


# ---- what a process has --------------------------------------------------------------------------


def mapped(pid):
    """The segments that a process has mapped, by inode."""
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [int(line.split()[4]) for line in lines if "/memfd:psd" in line]


def owned(pid):
    """The segments that a process can hand to others: inode -> bytes."""
    found = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(entry).startswith("/memfd:psd"):
                found[entry.stat().st_ino] = entry.stat().st_size
        except OSError:
            continue  # closed meanwhile
    return found


def resident(pid):
    """Bytes of memory that are there because of this process: everything resident, but for what it
    maps of other processes' segments. A segment of its own counts once, however often it is mapped."""
    own = owned(pid)
    others = 0
    segments = dict.fromkeys(own, 0)
    inode = 0
    total = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if re.match(r"[0-9a-f]+-[0-9a-f]+$", words[0]):
            inode = int(words[4]) if "/memfd:psd" in line else 0
        elif words[0] == "Rss:" and inode == 0:
            total += int(words[1]) * 1024
        elif words[0] == "Rss:" and inode in own:
            segments[inode] += int(words[1]) * 1024
        elif words[0] == "Rss:":
            others += int(words[1]) * 1024
    return total + sum(min(rss, own[inode]) for inode, rss in segments.items()), others


def proportional(pid):
    """Pss of a process: a page that n mappings share counts 1/n in each, so all together count once."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)[1]) * 1024


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def share_memory(pid, other):
    return bool(set(mapped(pid)) & set(mapped(other)))


def tcp_connections(pid):
    """How many established connections a process has."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
        except OSError:
            continue
        if found:
            inodes.add(found.group(1))
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[3] == "01" and line.split()[9] in inodes for line in lines)


# ---- the same bits -------------------------------------------------------------------------------


def run_zoo(start, name, *words, servers=1, lanes=1, policy="fail", transport="auto"):
    """A job with tables of every kind; what it saved and what its workers saw."""
    job = start("--workers", 2, "--servers", servers, f"--lanes={lanes}",
                f"--on_worker_death={policy}", "--", *python_worker(
                    "--zoo", "--elements", 150_000, "--steps", 4, "--save", "saved", *words),
                name=name, environment={"PSD_TRANSPORT": transport})
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    seen = set(re.findall(r"values (\w{40})", job.stdout()))
    assert len(seen) == 1, "two workers saw different values"
    return saved_digests(job.directory / "saved"), seen.pop(), job


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """What every job of that kind must end with: from one server, one lane, over tcp."""
    directory = tmp_path_factory.mktemp("reference")

    def start(*arguments, name, **options):
        return Job(directory / name, *arguments, **options)

    return run_zoo(start, "job", transport="tcp")[:2]


CASES = [(servers, lanes, memory, transport, POLICIES[number % 3])
         for number, (servers, lanes, memory, transport) in enumerate(
             itertools.product((1, 2, 3), (1, 4), MEMORIES, ("tcp", "auto")))]
CASES += [(2, 1, memory, "auto", policy) for memory in MEMORIES for policy in POLICIES]


@pytest.mark.parametrize("servers,lanes,memory,transport,policy", [
    pytest.param(*case, marks=[] if case[0] == 2 else pytest.mark.all) for case in sorted(set(CASES))])
def test_same_bits(start, reference, servers, lanes, memory, transport, policy):
    """If this fails, the way that bytes take, or the memory they lie in, changes the result."""
    saved, seen, _ = run_zoo(start, "job", "--memory", memory, servers=servers, lanes=lanes,
                             policy=policy, transport=transport)
    assert (saved, seen) == reference


@pytest.mark.parametrize("memory", MEMORIES)
def test_same_bits_after_a_cut(start, reference, memory):
    """If this fails, a connection that is lost and made again loses or repeats a gradient, or a view
    goes on showing what the old one showed."""
    saved, seen, job = run_zoo(start, "job", "--memory", memory, "--cut", 2, "--check", servers=2)
    assert job.stdout().count("cut") == 4, "there was nothing to cut"
    assert (saved, seen) == reference


# ---- views ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers,policy,transport", [
    (1, "fail", "auto"), (2, "fail", "auto"), (3, "continue", "auto"), (1, "wait", "auto"),
    (2, "wait", "auto"), (1, "fail", "tcp"), (2, "wait", "tcp"),
])
def test_views_show_what_a_pull_brings(start, reference, servers, policy, transport):
    """If this fails, values read in place are not the values of their step."""
    saved, seen, _ = run_zoo(start, "job", "--memory", "view", "--check", servers=servers,
                             policy=policy, transport=transport)
    assert (saved, seen) == reference


# ---- really shared -------------------------------------------------------------------------------


def start_held_job(hand, gate, *words, transport="auto"):
    """A worker that waits before step 3, its server and its master."""
    master = hand.master(1, 1)
    server = hand.server()
    worker = hand.worker(0, "--steps", 5, "--tables", 1, "--elements", 200_000, "--hold",
                         f"3:{gate}", *words, environment={"PSD_TRANSPORT": transport})
    worker.wait_for_output("holding")
    return master, server, worker


@pytest.mark.parametrize("memory", MEMORIES)
def test_memory_is_shared(hand, tmp_path, memory):
    """If this fails, what is called shared memory is not: bytes go through sockets after all."""
    gate = tmp_path / "gate"
    processes = start_held_job(hand, gate, "--memory", memory)
    _, server, worker = processes
    assert tcp_connections(worker.pid) == 1, "to the master, and none to the server"
    of_worker = [inode for inode, size in owned(worker.pid).items() if size == 800_000]
    of_server = [inode for inode, size in owned(server.pid).items() if size >= 800_000]
    assert len(of_worker) == (0 if memory == "ordinary" else 1)
    assert len(of_server) == 1
    assert set(of_worker) <= set(mapped(server.pid)), "the server reads gradients elsewhere"
    assert set(of_server) <= set(mapped(worker.pid)), "the worker reads values elsewhere"
    if memory == "view":
        mappings = mapped(worker.pid).count(of_server[0])
        assert mappings > 1, "the view is no mapping of the server's values"
    gate.touch()
    assert [process.wait() for process in processes] == [0, 0, 0]


@pytest.mark.parametrize("memory", MEMORIES)
def test_resident_memory(hand, tmp_path, memory):
    """If this fails, somewhere lies a copy of the model that nobody needs, or memory leaks by step.

    Counted is what is resident because of a process, see resident(); and, as the kernel counts, all of
    them together."""
    tensor = 64 << 20
    gates = [tmp_path / "gate2", tmp_path / "gate6"]
    holds = [word for gate, step in zip(gates, (2, 6)) for word in ("--hold", f"{step}:{gate}")]
    master = hand.master(2, 1)
    server = hand.server(0, "--slot_pool_mib=8")  # what it keeps of a worker that is ahead differs from run to run
    workers = [hand.worker(rank, "--steps", 7, "--tables", 1, "--elements", tensor // 4, "--rule",
                           "adam", "--memory", memory, *holds) for rank in range(2)]
    for held, gate in enumerate(gates):
        workers[0].wait_for_output("holding", 240, held + 1)
        wait_for(lambda: f"step {(1, 5)[held]}" in workers[1].output(), 60, "the other worker")
        of_server, of_workers = resident(server.pid), [resident(worker.pid) for worker in workers]
        together = sum(proportional(process.pid) for process in (server, *workers))
        print(f"\n{memory}: server {of_server}, workers {of_workers}, together {together}")
        assert of_server[0] <= 3 * tensor + ALLOWANCE, "parameters and two of adam's"
        own = 1 if memory == "view" else 2
        assert all(each[0] <= own * tensor + ALLOWANCE for each in of_workers), "gradient, parameters"
        assert together <= (3 + 2 * own) * tensor + 3 * ALLOWANCE
        gate.touch()
    assert [process.wait(60) for process in (master, server, *workers)] == [0] * 4


def test_tcp_shares_nothing(hand, tmp_path):
    """If this fails, transport=tcp is not heeded."""
    gate = tmp_path / "gate"
    processes = start_held_job(hand, gate, "--memory", "view", transport="tcp")
    _, server, worker = processes
    assert tcp_connections(worker.pid) == 2
    assert not share_memory(worker.pid, server.pid)
    gate.touch()
    assert [process.wait() for process in processes] == [0, 0, 0]


def test_more_tables_than_descriptors(start):
    """If this fails, a model of many tensors that trains over tcp does not over shared memory."""
    seen = set()
    for transport, prefix in (("tcp", ()), ("auto", ("prlimit", "--nofile=256:256"))):
        job = start("--workers", 2, "--lanes=2", "--", *python_worker(
            "--tables", 400, "--elements", 20_000, "--steps", 3), name=transport, prefix=prefix,
            environment={"PSD_TRANSPORT": transport})
        assert job.wait(60) == 0, job.stdout() + job.stderr()
        seen.update(re.findall(r"values (\w{40})", job.stdout()))
    assert len(seen) == 1


@pytest.mark.parametrize("elements", [10_000, 20_000])
@pytest.mark.parametrize("memory", MEMORIES)
def test_many_small_tables_at_once(start, memory, elements):
    """If this fails, more small gradients and values under way than there is room for end the
    connection, again and again."""
    job = start("--workers", 2, "--lanes=1", "--", *python_worker(
        "--tables", 300, "--elements", elements, "--steps", 3, "--memory", memory))
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert len(set(re.findall(r"values (\w{40})", job.stdout()))) == 1
    assert "closed by the peer" not in job.stderr() + job.stdout()


# ---- counted -------------------------------------------------------------------------------------

STEP_BYTES = 4 * 65536 * 4  # what counted.c pushes and pulls in a step


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The worker that does nothing else, and the library that counts."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    if SANITIZED:
        pytest.skip("a sanitizer has copies and sends of its own")
    directory = tmp_path_factory.mktemp("counted")
    library = library_path()
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-I", str(HERE.parents[1] / "include"),
                    str(HERE / "counted.c"), "-o", str(directory / "counted"), str(library),
                    f"-Wl,-rpath,{library.parent}"], check=True)
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", "-fno-builtin",
                    "-fno-tree-loop-distribute-patterns", str(HERE / "counts.c"),
                    "-o", str(directory / "counts.so"), "-ldl"], check=True)
    return directory


def run_counted(hand, counted, steps, memory, policy, settings):
    """The totals of the server and of its worker."""
    name = f"{memory}-{policy}-{steps}"
    hand.port = free_port()
    totals = {}
    environment = {"LD_PRELOAD": str(counted / "counts.so"), **settings,
                   "COUNTS_FILE": str(hand.directory / f"{name}.counts")}
    master = hand.master(1, 1, f"--on_worker_death={policy}", name=f"{name}-master")
    server = hand.start(f"{name}-server", program("ps_server"), "--index", 0, "--master_address",
                        hand.address, "--lanes=1", environment=environment)
    worker = hand.start(f"{name}-worker", counted / "counted", steps, memory,
                        environment={**environment, "PSD_RANK": "0",
                                     "PSD_MASTER_ADDRESS": hand.address})
    for process in (worker, server, master):
        assert process.wait(40) == 0, process.output()
    for who, process in (("server", server), ("worker", worker)):
        text = (hand.directory / f"{name}.counts.{process.pid}").read_text()
        totals[who] = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}
    return totals


def per_step(hand, counted, memory, policy="fail", **settings):
    """What one more step costs: who -> what -> how much."""
    few = run_counted(hand, counted, 10, memory, policy, settings)
    many = run_counted(hand, counted, 110, memory, policy, settings)
    return {who: {what: (many[who][what] - few[who][what]) / 100 for what in many[who]}
            for who in many}


@pytest.mark.parametrize("memory,policy,copies", [
    ("ordinary", "fail", 2),  # the gradient to the server, the values to their place
    ("region", "fail", 1),    # the values
    ("view", "fail", 0),
    ("view", "wait", 1),      # the server keeps two versions, so that values move
])
def test_no_copy_too_many_and_no_crypto(hand, counted, memory, policy, copies):
    """If this fails, the way between processes of one host costs more than it should: a copy, a byte
    through a socket, or encryption. Sealing is forced, to show that none happens."""
    cost = per_step(hand, counted, memory, policy, PSD_FORCE_TLS="1")
    print(f"\n{memory}, {policy}: {cost}")
    assert cost["worker"]["copied"] == copies * STEP_BYTES
    assert cost["server"]["copied"] == 0
    for who in ("worker", "server"):
        assert cost[who]["moved"] < 4096
        assert cost[who]["sealed"] < 1  # heartbeats of the worker's or the lane's to the master


def run_copied(hand, counted, steps, **settings):
    """The totals of two servers, each with a copy in the other one, and of their worker."""
    name = f"copied-{settings.get('PSD_TRANSPORT', 'auto')}-{steps}"
    hand.port = free_port()
    environment = {"LD_PRELOAD": str(counted / "counts.so"), **settings,
                   "COUNTS_FILE": str(hand.directory / f"{name}.counts")}
    master = hand.master(1, 2, "--replicas=1", name=f"{name}-master")
    servers = [hand.start(f"{name}-server{index}", program("ps_server"), "--index", index, "--master_address",
                          hand.address, "--lanes=1", "--replicas=1", environment=environment) for index in range(2)]
    gate = hand.directory / f"{name}.gate"
    worker = hand.start(f"{name}-worker", counted / "counted", steps, "view", gate,
                        environment={**environment, "PSD_RANK": "0", "PSD_MASTER_ADDRESS": hand.address})
    wait_for(lambda: master.output().count("COPY-WHOLE") == 2, 30, lambda: master.output())
    gate.touch()
    for process in (worker, *servers, master):
        assert process.wait(40) == 0, process.output()
    totals = {"copied": 0, "moved": 0}
    for server in servers:
        for line in (hand.directory / f"{name}.counts.{server.pid}").read_text().splitlines():
            totals[line.split()[0]] = totals.get(line.split()[0], 0) + int(line.split()[1])
    return totals


def test_a_copy_on_this_host_takes_values_where_they_are(hand, counted):
    """If this fails, servers of one host copy what they tell each other more than once, or send it through sockets."""
    few, many = (run_copied(hand, counted, steps) for steps in (10, 110))
    print(f"\nservers with copies, 100 steps: {many['copied'] - few['copied']} bytes copied, "
          f"{many['moved'] - few['moved']} moved")
    assert many["copied"] - few["copied"] < (100 + 8) * STEP_BYTES  # once; and snapshots, before the copy was whole
    assert many["moved"] - few["moved"] < 100 * 8192


def test_counters_count(hand, counted):
    """If this fails, the test before this one proves nothing."""
    plain = per_step(hand, counted, "ordinary", PSD_TRANSPORT="tcp")
    sealed = per_step(hand, counted, "ordinary", PSD_TRANSPORT="tcp", PSD_FORCE_TLS="1")
    for who in ("worker", "server"):
        assert plain[who]["moved"] > 2 * STEP_BYTES
        assert plain[who]["sealed"] == 0
        assert sealed[who]["sealed"] > 1
    few, many = (run_copied(hand, counted, steps, PSD_TRANSPORT="tcp") for steps in (10, 110))
    assert many["moved"] - few["moved"] > 100 * 3.5 * STEP_BYTES  # in, out, and to the other server, which hears it


# ---- who is not on this host ---------------------------------------------------------------------


def run_placed(hand, hosts, worker_words, server_words, gate, saved):
    """A job whose worker and whose server are started through the given words, and held."""
    port = free_port()
    address = hosts.addresses[0]
    words = ("--steps", 5, "--elements", 100_000, "--memory", "view", "--hold", f"3:{gate}",
             "--save", saved)
    master = hand.start("master", *hosts.inside(
        0, program("ps_master"), "--workers", 1, "--servers", 1, "--bind", address, "--port", port))
    server = hand.start("server", *server_words, program("ps_server"), "--index", 0,
                        "--master_address", f"tcp://{address}:{port}", "--bind", address,
                        "--lanes=1")
    worker = hand.start("worker", *worker_words, *python_worker(*words),
                        environment={"PSD_MASTER_ADDRESS": f"tcp://{address}:{port}",
                                     "PSD_RANK": "0"})
    worker.wait_for_output("holding")
    return master, server, worker


def namespaces(pid):
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("net", "mnt", "uts")}


def test_two_containers_of_one_name(hand, hosts, tmp_path):
    """If this fails, two containers are taken for one host because they have the same name, or the
    other way round: then nothing works, or memory goes where it should not."""
    digests = []
    for number, (where, apart) in enumerate((("one", False), ("two", True))):
        gate = tmp_path / f"gate{number}"
        alone = ("unshare", "--mount", "--uts", "--")
        processes = run_placed(hand, hosts, hosts.inside(1 if apart else 0, *alone),
                               hosts.inside(0, *alone), gate, tmp_path / where)
        _, server, worker = processes
        theirs, ours = namespaces(server.pid), namespaces(worker.pid)
        assert (theirs["net"] != ours["net"]) == apart
        assert theirs["mnt"] != ours["mnt"] and theirs["uts"] != ours["uts"]
        assert share_memory(worker.pid, server.pid) != apart
        assert tcp_connections(worker.pid) == (2 if apart else 1)
        gate.touch()
        for process in processes:
            assert process.wait(60) == 0, process.output()
        digests.append(saved_digests(tmp_path / where))
    assert digests[0] == digests[1]


def test_another_user_of_this_host(hand, tmp_path, secret_file):
    """If this fails, the memory of one user is mapped by another, or the other cannot take part."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    place = pathlib.Path(f"/tmp/psd-test-{os.getpid()}")
    gate = place / "gate"
    place.mkdir()
    try:
        shutil.copy(secret_file, place / "secret")
        os.chmod(place / "secret", 0o600)
        os.chown(place / "secret", NOBODY, NOBODY)
        master = hand.master(1, 1)
        server = hand.server()
        worker = hand.start(
            "worker", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            *python_worker("--steps", 5, "--elements", 100_000, "--memory", "view", "--check",
                           "--hold", f"3:{gate}"),
            environment={"PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "0",
                         "PSD_SECRET_FILE": str(place / "secret")})
        worker.wait_for_output("holding")
        assert not share_memory(worker.pid, server.pid)
        assert tcp_connections(worker.pid) == 2
        gate.touch()
        for process in (worker, server, master):
            assert process.wait(60) == 0, process.output()
    finally:
        shutil.rmtree(place)


# ---- killed --------------------------------------------------------------------------------------

KILL_WORDS = ("--elements", 300_000, "--memory", "region", "--equal", "--steps", 1_000_000)


def unix_sockets(hosts):
    """The kernel's list, without its first line, as a host of its own sees it."""
    done = subprocess.run(hosts.inside(0, "cat", "/proc/net/unix"), capture_output=True, text=True,
                          check=True)
    return done.stdout.splitlines()[1:]


class Victims:
    """A job of its own host whose worker 1 is killed again and again."""

    def __init__(self, hand, hosts, policy):
        self.hand, self.hosts = hand, hosts
        self.dice = random.Random(self.seed())
        self.port = free_port()
        self.master = self.start("master", program("ps_master"), "--workers", 2, "--servers", 1,
                                 "--port", self.port, *BRISK, f"--on_worker_death={policy}")
        self.server = self.start("server", program("ps_server"), "--index", 0, "--master_address",
                                 self.address, "--lanes=1")
        self.steady = self.worker(0, "steady")
        self.count = 0

    address = property(lambda self: f"tcp://127.0.0.1:{self.port}")

    @staticmethod
    def seed():
        seed = int(os.environ.get("PSD_SEED", time.time_ns() % 1_000_000))
        print(f"\nPSD_SEED={seed}")
        return seed

    def start(self, name, *command, **environment):
        name = f"{name}-{len(self.hand.processes)}"
        return self.hand.start(name, *self.hosts.inside(0, *command), environment=environment)

    def worker(self, rank, name):
        return self.start(name, *python_worker(*KILL_WORDS), PSD_MASTER_ADDRESS=self.address,
                          PSD_RANK=str(rank))

    def kill_one(self):
        """Lets worker 1 come, and kills it some time later: it writes or pushes all the time."""
        victim = self.worker(1, "victim")
        victim.wait_for_output("step ")
        time.sleep(self.dice.uniform(0, 0.05))
        victim.signal(signal.SIGKILL)
        assert victim.wait() == 128 + signal.SIGKILL, victim.output()
        assert "Error" not in victim.output(), victim.output()
        self.count += 1
        self.expect_alive()

    def expect_alive(self):
        assert self.server.process.poll() is None, self.server.output()
        assert self.steady.process.poll() is None, self.steady.output()

    def steps(self):
        return self.steady.output().count("step ")

    def expect_progress(self):
        before = self.steps()
        wait_for(lambda: self.steps() > before + 3 or self.steady.process.poll() is not None, 20,
                 "the job goes on")
        self.expect_alive()

    def end(self):
        self.master.process.terminate()
        assert self.master.wait() == 143
        self.steady.wait()
        self.server.wait()
        assert "Error" not in self.steady.output().replace("error PSD_ERR", ""), (
            self.steady.output()[-2000:])


def expect_clean(hosts, before):
    wait_for(lambda: not unix_sockets(hosts), 30, f"unix sockets left: {unix_sockets(hosts)}")
    assert set(os.listdir("/dev/shm")) - before == set()


def test_workers_killed_while_they_write_policy_wait(hand, hosts):
    """If this fails, a worker that dies somewhere in its own memory spoils values, takes the server
    along, or leaves something of itself behind."""
    in_memory = set(os.listdir("/dev/shm"))
    job = Victims(hand, hosts, "wait")
    open_files, mappings = [], []
    for _ in range(KILLS * 3 // 4):
        job.kill_one()
        open_files.append(descriptors(job.server.pid))
        mappings.append(len(mapped(job.server.pid)))
    last = job.worker(1, "last")
    last.wait_for_output("step ")
    job.expect_progress()
    print(f"{job.count} killed; the server had {min(open_files)}..{max(open_files)} descriptors, "
          f"{min(mappings)}..{max(mappings)} mappings")
    assert len(unix_sockets(hosts)) > 0, "the list is of another host"
    assert max(open_files) <= min(open_files) + 4, "what the dead had open stays open"
    assert max(mappings) <= min(mappings) + 12, "what the dead had shared stays mapped"
    job.end()
    assert last.wait() == 1
    assert "Error" not in last.output().replace("error PSD_ERR", ""), last.output()[-2000:]
    expect_clean(hosts, in_memory)


def test_workers_killed_while_they_write_policy_continue(hand, hosts):
    """If this fails, likewise, where the others go on without it."""
    in_memory = set(os.listdir("/dev/shm"))
    for _ in range(max(KILLS // 4, 1)):
        job = Victims(hand, hosts, "continue")
        job.kill_one()
        wait_for(lambda job=job: "MEMBER-LEFT worker 1" in job.master.output(), 30, "it is missed")
        job.expect_progress()
        # All that is left of the dead one is gone: the ring, the bell, its gradients.
        wait_for(lambda job=job: set(mapped(job.server.pid)) <= set(
            mapped(job.steady.pid)) | set(owned(job.server.pid)), 10, "its memory is let go")
        job.end()
    expect_clean(hosts, in_memory)


def test_server_killed(hand, hosts):
    """If this fails, workers hang, or crash, when the memory they read has lost its owner."""
    in_memory = set(os.listdir("/dev/shm"))
    job = Victims(hand, hosts, "fail")
    other = job.worker(1, "other")
    other.wait_for_output("step 3")
    job.server.signal(signal.SIGKILL)
    for worker in (job.steady, other):
        assert worker.wait(60) == 1
        assert re.search("error PSD_ERR_.*server 0", worker.output()), worker.output()[-2000:]
    assert job.master.wait(60) == 71
    assert job.server.wait() == 128 + signal.SIGKILL
    expect_clean(hosts, in_memory)
