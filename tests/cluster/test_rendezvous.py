# SPDX-License-Identifier: Apache-2.0
"""psd_run processes that were started one by one and become one job: through a shared directory, or by
a name and a port."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import bed
from helpers import (BRISK, NO_SECRET, Job, free_port, make_secret, program, python_worker, wait_for,
                     worker_environment)

import condor  # noqa: E402  (bed puts tests/testbed on the path)

STALE_S = 5  # after which a file whose time does not move is nobody's


class Group:
    """The psd_run of one job, here, each in a directory of its own."""

    def __init__(self, directory, size, *options, servers=1, way=None, environment=None):
        self.directory = directory
        self.meeting = directory / "meeting"
        self.size = size
        self.servers = servers
        self.way = way or ["--rendezvous", str(self.meeting)]
        self.options = options
        self.environment = {**NO_SECRET, **worker_environment(), **(environment or {})}
        self.members = {}
        self.lives = 0

    def start(self, rank, *command, size=None, options=(), host=None, prefix=()):
        self.lives += 1
        directory = self.directory / f"rank{rank}-{self.lives}"
        prefix = host.inside(user="root", directory=directory) if host is not None else prefix
        job = Job(directory, *self.way, "--rank", str(rank),
                  "--size", str(size or self.size),
                  *(["--servers", str(self.servers)] if self.servers is not None else []),
                  *self.options, *options, *BRISK, "--", *command, environment=self.environment, prefix=prefix)
        self.members.setdefault(rank, []).append(job)
        return job

    def start_all(self, *command, ranks=None):
        for rank in ranks if ranks is not None else range(self.size):
            self.start(rank, *command)

    def last(self, rank):
        return self.members[rank][-1]

    def codes(self, seconds=40.0):
        return [self.last(rank).wait(seconds) for rank in sorted(self.members)]

    def all_errors(self):
        return "\n".join(f"-- rank {rank}\n{job.stderr()}" for rank, jobs in
                         sorted(self.members.items()) for job in jobs)

    def expect_nothing_left(self):
        for jobs in self.members.values():
            for job in jobs:
                job.expect_nothing_left()

    def kill(self):
        for jobs in self.members.values():
            for job in jobs:
                if job.process.poll() is None:
                    job.process.kill()
                    job.process.wait()


@pytest.fixture
def group(tmp_path):
    groups = []

    def make(size, *options, **more):
        groups.append(Group(tmp_path, size, *options, **more))
        return groups[-1]

    yield make
    for made in groups:
        made.kill()


def run_directory(meeting, run="job"):
    path = meeting / f"psd-{run}"
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def entry(rank, size, port=0, **more):
    """A file as psd_run writes it."""
    return json.dumps({"psd_rendezvous": 1, "run": "job", "rank": rank, "size": size,
                       "incarnation": 7, "token": "00" * 8, "pid": 1, "host": "gone",
                       "addresses": ["127.0.0.1"], "port": port, **more})


# ------------------------------------------------------------------------------------- meeting ---


def test_a_job_of_five(group):
    """If this fails, psd_run processes of a batch system do not find each other."""
    made = group(5, servers=2)
    made.start_all(*python_worker("--steps", 20), ranks=[3, 1, 4, 0, 2])
    assert made.codes() == [0] * 5, made.all_errors()
    first = made.last(0)
    for rank in range(3):
        assert f"[worker{rank}] step 19\n" in first.stdout()
        assert first.log(f"worker{rank}").decode().splitlines()[-1] == "closed"
    assert "job ended well" in first.stderr()
    places = dict(re.findall(r"PROCESS (\w+) pid \d+ on (\w+): ", first.run_log()))
    assert places == {"master": "rank0", "server0": "rank0", "server1": "rank1", "worker0": "rank2",
                      "worker1": "rank3", "worker2": "rank4"}
    assert list(made.meeting.iterdir()) == [], "something was left in the directory"
    made.expect_nothing_left()


def test_place_of_a_worker(group):
    """If this fails, a worker does not learn its rank, or works in another's directory."""
    made = group(3, environment={"OWN": "kept"})
    made.start_all("sh", "-c", "echo $PSD_ROLE $PSD_RANK/$PSD_WORLD_SIZE $OWN; pwd; echo "
                   "$PSD_LOCAL_RANK of $PSD_LOCAL_SIZE on node $PSD_NODE_RANK of $PSD_NUM_NODES")
    assert made.codes() == [0] * 3, made.all_errors()
    for rank in (0, 1):
        lines = made.last(0).log(f"worker{rank}").decode().splitlines()
        assert lines == [f"worker {rank}/2 kept", str(made.last(rank + 1).directory),
                         f"{rank} of 2 on node 0 of 1"]


def test_scripts_without_servers(group):
    """If this fails, a script for torch.distributed has a rank that runs nothing, or ranks of one
    computer take themselves for several computers."""
    made = group(3, "--personality", "torch,mpi", servers=None)
    made.start_all("sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                   "$GROUP_RANK/$GROUP_WORLD_SIZE $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE "
                   "$PSD_NUM_SERVERS", ranks=[2, 0, 1])
    assert made.codes() == [0] * 3, made.all_errors()
    for rank in range(3):
        assert made.last(0).log(f"worker{rank}").decode() == f"{rank}/3 {rank}/3 0/1 0/1 0\n"
    made.expect_nothing_left()


def test_servers_that_run_the_command(group):
    """If this fails, tasks of TensorFlow that a batch system starts one by one do not form a
    cluster."""
    made = group(4, "--personality", "tf_config", "--chief")
    made.start_all("sh", "-c", "echo $TF_CONFIG; [ $PSD_ROLE != ps ] || exec sleep 100")
    assert made.codes() == [0] * 4, made.all_errors()
    names = ("ps0", "chief", "worker0", "worker1")
    told = [json.loads(made.last(0).log(name)) for name in names]
    assert [(one["task"]["type"], one["task"]["index"]) for one in told] == [
        ("ps", 0), ("chief", 0), ("worker", 0), ("worker", 1)]
    assert all(one["cluster"] == told[0]["cluster"] for one in told)
    assert {role: len(tasks) for role, tasks in told[0]["cluster"].items()} == {
        "ps": 1, "chief": 1, "worker": 2}
    made.expect_nothing_left()


def test_more_than_descriptors(group):
    """If this fails, a job of some hundred processes does not begin where 1024 descriptors are
    usual, or its workers have more than their user allows."""
    made = group(12, "--personality", "torch", servers=None)
    made.start(0, "sh", "-c", "ulimit -n", prefix=("prlimit", "--nofile=32:4096"))
    made.start_all("true", ranks=range(1, 12))
    assert made.codes() == [0] * 12, made.all_errors()
    assert made.last(0).log("worker0") == b"32\n"


def test_failure_is_everybodys(group):
    """If this fails, a batch system takes a job that failed for a success."""
    made = group(3)
    made.start_all("sh", "-c", "test $PSD_RANK = 0 && exit 3; sleep 60")
    assert made.codes() == [3] * 3, made.all_errors()
    made.expect_nothing_left()


def test_killed_worker_is_no_eviction(group):
    """If this fails, a worker that somebody killed sends the others back to waiting, for an hour."""
    made = group(3)
    made.start_all("sh", "-c", "test $PSD_RANK = 0 && kill -TERM $$; sleep 60")
    assert made.codes() == [143] * 3, made.all_errors()
    made.expect_nothing_left()


def test_by_name(group, tmp_path):
    """If this fails, containers cannot meet under a name."""
    secret = make_secret(tmp_path / "own_secret")
    way = ["--coordinator", f"localhost:{free_port()}", "--secret_file", str(secret)]
    made = group(3, way=way)
    made.start_all(*python_worker("--steps", 5), ranks=[2, 1, 0])
    assert made.codes() == [0] * 3, made.all_errors()


def test_rank_from_the_completion_index(group, tmp_path):
    """If this fails, the pods of an indexed job do not know who they are."""
    secret = make_secret(tmp_path / "own_secret")
    way = ["--coordinator", f"localhost:{free_port()}", "--secret_file", str(secret), "--size", "3"]
    jobs = [Job(tmp_path / f"pod{i}", *way, "--", "sh", "-c", "echo rank $PSD_RANK",
                environment={**NO_SECRET, "JOB_COMPLETION_INDEX": str(i)}) for i in range(3)]
    assert [job.wait(60) for job in jobs] == [0] * 3, jobs[0].stderr()
    assert "[worker1] rank 1\n" in jobs[0].stdout()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network without cards")
def test_computer_without_a_network(tmp_path):
    """If this fails, who sits in an aeroplane cannot try what the cluster will run."""
    secret = make_secret(tmp_path / "own_secret")
    words = f"{program('psd_run')} --coordinator localhost:{free_port()} --secret_file {secret} --size 3"
    ranks = " ".join(f"{words} --rank {rank} -o {tmp_path}/logs{rank} -- sh -c 'echo up as $PSD_RANK' & last=$!;" for rank in range(3))
    done = subprocess.run(["unshare", "--net", "sh", "-c", f"ip link set lo up; {ranks} wait $last; code=$?; wait; exit $code"],
                          cwd=tmp_path, env={**os.environ, **NO_SECRET}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"up as {worker}\n" in done.stdout for worker in range(2)), done.stdout + done.stderr


def test_addresses_that_were_chosen(group):
    """If this fails, a machine with several networks is reached by the wrong one."""
    port = str(free_port())
    made = group(3, "--initial_port", port, "--final_port", port,
                 environment={"PSD_ADVERTISE": "localhost"})
    made.start_all("sh", "-c", "echo $PSD_ADDR")
    assert made.codes() == [0] * 3, made.all_errors()
    assert f"has joined the job at tcp://127.0.0.1:{port}\n" in made.last(1).stderr()
    assert "READY master at tcp://127.0.0.1:" in made.last(0).run_log()
    assert made.last(0).log("worker1") == b"127.0.0.1\n"


def test_address_of_somebody_else(group):
    """If this fails, a wrong address is found out by servers that nobody reaches."""
    made = group(2)
    made.start(0, "true")
    made.start(1, "true", options=("--advertise_addr", "203.0.113.9"))
    assert made.codes() == [3, 3], made.all_errors()
    assert "is to be reached at 203.0.113.9 (--advertise_addr), which is none of its own" \
        in made.last(0).stderr()


def test_program_that_is_missing(group):
    """If this fails, what is missing on one machine is found out while the others train."""
    made = group(3)
    made.start_all("no-such-program")
    assert made.codes() == [3] * 3, made.all_errors()
    assert "rank1: no-such-program: " in made.last(0).stderr()


# ------------------------------------------------------------------------------- what lies there ---


def test_old_files_and_half_a_file(group):
    """If this fails, what other runs left behind keeps a job from starting, or misleads it."""
    made = group(4, servers=2)
    run = run_directory(made.meeting)
    for index in range(10):
        (made.meeting / f"worker_{index}_10.0.0.9:{12345 + index}.tfcluster").write_text(json.dumps(
            {"task": "worker", "worker_idx": index, "ip_address": "10.0.0.9", "port": 12345 + index}))
    (made.meeting / "ps_0_10.0.0.9:1.tfcluster").write_text('{"task": "ps", "worker_')
    (run / "rank-0").write_text(entry(0, 4, port=free_port()))
    (run / "rank-1").write_text(entry(1, 4)[:40])
    (run / "rank-2").write_text("")
    (run / ".rank-3.0123456789abcdef").write_text("{")
    made.start_all(*python_worker("--steps", 5))
    assert made.codes() == [0] * 4, made.all_errors()
    assert re.search(r"11 \.tfcluster files of other runs, such as worker \d at 10\.0\.0\.9:",
                     made.last(0).stderr())
    assert len(list(made.meeting.glob("*.tfcluster"))) == 11


def test_stale_address_of_somebody_else(group):
    """If this fails, an address that now belongs to another program is taken for the coordinator's."""
    made = group(2)
    stranger = subprocess.Popen(["python3", "-c",
                                 "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\n"
                                 "print(s.getsockname()[1], flush=True)\nwhile True:\n"
                                 "    c = s.accept()[0]\n    c.sendall(b'220 hello' * 100)\n"
                                 "    print('met', flush=True)\n"],
                                stdout=subprocess.PIPE, text=True)
    try:
        port = int(stranger.stdout.readline())
        (run_directory(made.meeting) / "rank-0").write_text(entry(0, 2, port=port))
        made.start(1, *python_worker("--steps", 5))
        assert stranger.stdout.readline() == "met\n"
        made.start(0, *python_worker("--steps", 5))
        assert made.codes() == [0, 0], made.all_errors()
    finally:
        stranger.kill()
        stranger.wait()


def test_rank_twice(group):
    """If this fails, two processes with one rank train as one, or stop each other."""
    made = group(3)
    made.start(1, "sh", "-c", "echo up; sleep 1")
    wait_for(lambda: (made.meeting / "psd-job" / "rank-1").exists(), 30, "rank 1 is there")
    second = made.start(1, "true")
    assert second.wait(60) == 3
    assert re.search(r"rank 1 of run job is taken: \S+ \(pid \d+\) lives there", second.stderr())
    made.members[1].pop()
    made.start(0, "sh", "-c", "echo up; sleep 1")
    made.start(2, "sh", "-c", "echo up; sleep 1")
    assert made.codes() == [0] * 3, made.all_errors()


def test_rank_twice_by_name(group, tmp_path):
    """If this fails, a pod that was started anew cannot take its place again, or two share one."""
    secret = make_secret(tmp_path / "own_secret")
    way = ["--coordinator", f"localhost:{free_port()}", "--secret_file", str(secret)]
    made = group(3, way=way)
    first = made.start(1, "echo", "up")
    made.start(0, "echo", "up")
    wait_for(lambda: "has joined" in first.stderr(), 30, "the first of them")
    second = made.start(1, "echo", "up")
    assert first.wait(60) == 75, made.all_errors()
    assert "started later has its place" in first.stderr()
    made.start(2, "echo", "up")
    assert [second.wait(60), made.last(0).wait(60), made.last(2).wait(60)] == [0, 0, 0]


def test_sizes_differ(group):
    """If this fails, half of a job waits for ranks that the other half does not know."""
    made = group(3)
    made.start(0, "true")
    wrong = made.start(1, "true", size=4)
    assert wrong.wait(60) == 73, made.all_errors()
    assert "--size 4, the coordinator --size 3" in wrong.stderr()
    made.members[1].clear()
    made.start(1, "true")
    made.start(2, "true")
    assert made.codes() == [0] * 3, made.all_errors()
    assert "refused: rank 1 on " in made.last(0).stderr()


def test_wrong_secret(group, tmp_path):
    """If this fails, whoever can write into the directory can join."""
    made = group(2, "--max_wait", "3")
    other = make_secret(tmp_path / "other_secret")
    made.start(0, "true")
    stranger = made.start(1, "true", options=("--secret_file", str(other)))
    assert stranger.wait(60) == 124, made.all_errors()
    assert made.last(0).wait(60) == 124
    assert "missing: rank 1" in made.last(0).stderr()


def test_directories_that_will_not_do(tmp_path):
    """If this fails, a wrong directory is found out by waiting for an hour."""
    def refused(meeting, *more):
        done = subprocess.run([program("psd_run"), "--rendezvous", str(meeting), "--rank", "0",
                               "--size", "2", *more, "--", "true"], capture_output=True, text=True,
                              timeout=120, cwd=tmp_path, check=False)
        assert done.returncode in (2, 3), done.stderr
        return done.stderr

    (tmp_path / "file").write_text("")
    assert "file: it is no directory" in refused(tmp_path / "file")
    open_to_all = run_directory(tmp_path / "open")
    open_to_all.chmod(0o755)
    assert "psd-job is open to others (mode 0755); run: chmod 700 " in refused(tmp_path / "open")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "psd-job").symlink_to("/tmp")
    assert "it is a link or a file" in refused(tmp_path / "linked")
    assert "--job_id a/b: letters, digits" in refused(tmp_path / "new", "--job_id", "a/b")
    assert "Not a directory" in refused(tmp_path / "file" / "below")
    if os.geteuid() == 0:
        os.chown(run_directory(tmp_path / "theirs"), 7700, 7700)
        assert "psd-job belongs to user 7700, this is user 0" in refused(tmp_path / "theirs")


@pytest.mark.parametrize("words, text", [
    (["--rank", "0"], "--size is needed"),
    (["--size", "2"], "--rank is needed"),
    (["--rank", "2", "--size", "2"], "--rank 2 of --size 2: ranks are 0 to 1"),
    (["--rank", "0", "--size", "2", "--servers", "2"], "leaves no worker"),
    (["--rank", "0", "--size", "1"], "--size 1: must be 2 to"),
    (["--rank", "0", "--size", "3", "--min_workers", "3"], "--min_workers 3: there are 2"),
    (["--rank", "0", "--size", "2", "--workers", "1"], "--workers does not go with --rendezvous: there"),
    (["--rank", "0", "--size", "2", "--coordinator", "a:1"], "give only one"),
    (["--rank", "0", "--size", "2", "--initial_port", "9", "--final_port", "8"],
     "--initial_port 9 is greater than --final_port 8"),
    (["--rank", "0", "--size", "2", "--dry_run"], "--dry_run does not go with"),
    (["--rank", "0", "--size", "2", "--sync", "."], "--sync does not go with --rendezvous: several"),
    (["--rank", "1", "--size", "2", "--tf_config", "w.json"], "--tf_config does not go with"),
    (["--rank", "1", "--size", "2", "--roles", "ps,worker"], "--roles is about the tasks of Slurm"),
    (["--rank", "1", "--size", "2", "--servers", "0"], "--servers 0: a job of personality poseidon needs servers"),
    (["--rank", "1", "--size", "2", "--personality", "tf3"], "must be some of poseidon"),
    (["--rank", "1", "--size", "3", "--personality", "torch", "--servers", "1"], "torch has none"),
])
def test_usage(tmp_path, words, text):
    """If this fails, a mistake on the command line is found out late, or never."""
    done = subprocess.run([program("psd_run"), "--rendezvous", str(tmp_path / "meeting"), *words, "--",
                           "true"], capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          check=False)
    assert done.returncode == 2 and text in done.stderr, done.stderr
    assert not (tmp_path / "meeting").exists()


# ------------------------------------------------------------------------------- coming and going ---


def test_who_is_missing(group):
    """If this fails, people wait without knowing for whom."""
    made = group(5, "--max_wait", "12")
    made.start_all("true", ranks=[0, 1, 3])
    assert made.codes() == [124] * 3, made.all_errors()
    assert "3/5 are here, missing: rank 2, 4 (" in made.last(0).stderr()
    assert "3/5 are here after 12 s (--max_wait), missing: rank 2, 4;" in made.last(0).stderr()


def test_show_and_stop_while_waiting(group):
    """If this fails, a job that waits for others cannot be found, or not be called off."""
    made = group(4)
    made.start_all("true", ranks=[0, 2])
    wait_for(lambda: "has joined" in made.last(2).stderr(), 30, "rank 2")

    def ask(*words):
        return subprocess.run([program("psd_run"), *words], capture_output=True, text=True,
                              timeout=120, check=False)

    shown = ask("show", "--json", "true")
    assert json.loads(shown.stdout)["state"] == "waiting for rank 1, 3", shown
    assert "waiting for rank 1, 3" in ask("list").stdout
    assert "job true" in ask("show", "true").stdout
    assert ask("stop", "true").returncode == 0
    assert made.codes() == [143, 143], made.all_errors()


def test_much_output_is_complete(group):
    """If this fails, what workers print is lost on its way to rank 0."""
    made = group(3)
    made.start_all("sh", "-c", "seq -f 'line %.0f of a worker that prints a lot' 1 100000",
                   ranks=[2, 1, 0])
    assert made.codes() == [0] * 3, made.all_errors()
    for rank in (0, 1):
        lines = made.last(0).log(f"worker{rank}").decode().splitlines()
        assert lines == [f"line {n} of a worker that prints a lot" for n in range(1, 100001)]


@pytest.mark.parametrize("named", [("--job_id", "4711"), ()])
def test_enough_workers(group, named):
    """If this fails, a job waits for ever for a slot that the pool does not have; or a run without a
    name of its own leaves word of its end for the next one."""
    made = group(5, "--max_wait", "2", "--min_workers", "2", *named, servers=2)
    made.start_all("sh", "-c", "echo $PSD_RANK of $PSD_WORLD_SIZE", ranks=[0, 1, 2, 4])
    assert made.codes() == [0] * 4, made.all_errors()
    assert "begins with 2 of 3 workers; rank 3 did not come" in made.last(0).stderr()
    assert "[worker1] 1 of 2\n" in made.last(0).stdout()
    late = made.start(3, "true")
    assert late.wait(60) == (0 if named else 124), late.stderr()


def held(tmp_path, steps=60):
    """A worker whose rank 0 waits at step 20, and the file that it waits for."""
    gate = tmp_path / "gate"
    return python_worker("--steps", steps, "--pull_first", "--hold", f"20:{gate}"), gate


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_worker_is_replaced(group, tmp_path, how):
    """If this fails, one evicted worker costs the work of all."""
    made = group(4)
    command, gate = held(tmp_path)
    made.start_all(*command)
    made.last(0).wait_for_output("step 19", 3)
    made.last(2).process.send_signal(how)
    assert made.last(2).wait(60) in (128 + how, -how)
    made.start(2, *command)
    made.last(0).wait_for_output("[worker1] joined 1 2", 1)
    gate.touch()
    assert made.codes() == [0] * 4, made.all_errors()
    assert "starts again" not in made.last(0).stderr()
    made.expect_nothing_left()


def test_server_that_is_back_at_once(group, tmp_path):
    """If this fails, a job whose server was moved quickly ends, although all are there."""
    secret = make_secret(tmp_path / "own_secret")
    made = group(4, servers=2, way=["--coordinator", f"localhost:{free_port()}", "--secret_file",
                                    str(secret)])
    command, gate = held(tmp_path)
    made.start_all(*command)
    made.last(0).wait_for_output("step 19", 2)
    former = made.last(1)
    made.start(1, *command)
    assert former.wait(60) == 75, made.all_errors()
    made.last(0).wait_for_output("step 19", 4)
    gate.touch()
    assert made.codes() == [0] * 4, made.all_errors()
    assert "the job starts again when all are back" in made.last(0).stderr()
    made.expect_nothing_left()


def test_several_workers_are_replaced(group, tmp_path):
    """If this fails, workers that come back at the same time bring the job down."""
    made = group(6)
    command, gate = held(tmp_path)
    made.start_all(*command)
    made.last(0).wait_for_output("step 19", 5)
    for rank in (2, 3, 4, 5):
        made.last(rank).process.send_signal(signal.SIGTERM)
    for rank in (2, 3, 4, 5):
        assert made.last(rank).wait(60) == 143
    made.start_all(*command, ranks=(2, 3, 4, 5))
    for rank in (1, 2, 3, 4):
        made.last(0).wait_for_output(f"[worker{rank}] joined {rank} 2")
    gate.touch()
    assert made.codes() == [0] * 6, made.all_errors()
    assert "starts again" not in made.last(0).stderr()
    made.expect_nothing_left()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_group_begins_anew(group, tmp_path, rank, how):
    """If this fails, an evicted server or master ends a job that its batch system would finish."""
    made = group(4, servers=2)
    command, gate = held(tmp_path)
    made.start_all(*command)
    made.last(0).wait_for_output("step 19", 2)
    first = made.last(0)
    made.last(rank).process.send_signal(how)
    assert made.last(rank).wait(60) in (128 + how, -how)
    gate.touch()
    made.start(rank, *command)
    assert made.codes() == [0] * 4, made.all_errors()
    if rank == 1:
        assert "the job starts again when all are back" in first.stderr()
    assert made.last(0).stdout().count("] closed") == 2
    made.expect_nothing_left()


@pytest.mark.parametrize("rank", [1, 2])
def test_foreign_group_begins_anew(group, tmp_path, rank):
    """If this fails, a script of another system waits for ever for a peer that was evicted, or is
    given a new one where it does not look for it."""
    made = group(3, "--personality", "tf_config")
    gate = tmp_path / "gate"
    command = ("sh", "-c", f"echo up; [ $PSD_ROLE != ps ] || exec sleep 100; "
               f"while ! [ -e {gate} ]; do sleep 0.1; done")
    made.start_all(*command)
    made.last(0).wait_for_output("] up", 3)
    made.last(rank).process.send_signal(signal.SIGKILL)
    assert made.last(rank).wait(60) == -signal.SIGKILL
    made.start(rank, *command)
    made.last(0).wait_for_output("] up", 6)
    gate.touch()
    assert made.codes() == [0] * 3, made.all_errors()
    assert "the job starts again when all are back" in made.last(0).stderr()
    made.expect_nothing_left()


def test_worker_that_does_not_come_back(group, tmp_path):
    """If this fails, a job waits for ever for somebody whom the batch system has given up."""
    made = group(3, "--max_wait", "3")
    command, _ = held(tmp_path)
    made.start_all(*command)
    made.last(0).wait_for_output("step 19", 2)
    made.last(2).process.send_signal(signal.SIGTERM)
    assert made.last(2).wait(60) == 143
    codes = [made.last(0).wait(60), made.last(1).wait(60)]
    assert codes == [70, 70], made.all_errors()
    assert re.search(r"with code 70: rank2 .*was lost: its psd_run was asked to leave", made.last(0).stderr())
    made.expect_nothing_left()


def test_secret_is_not_for_others(group):
    """If this fails, the secret of a run can be read by other users, or outlives it."""
    made = group(2)
    made.start(0, "sleep", "0.1")
    secret = made.meeting / "psd-job" / "secret"
    wait_for(secret.exists, 30, "the secret")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    made.start(1, "sleep", "0.1")
    assert made.codes() == [0, 0], made.all_errors()
    assert not secret.exists()


# ------------------------------------------------------------------------- hosts and their network ---


def on_hosts(four_hosts, group, tmp_path):
    """A job of three on three hosts, at step 20."""
    made = group(3, "--max_wait", "60")
    command, gate = held(tmp_path)
    for rank in range(3):
        made.start(rank, *command, host=four_hosts.hosts[1 + rank])
    made.last(0).wait_for_output("step 19", 2)
    return made, command, gate


def test_network_of_a_worker_cut(four_hosts, group, launch, tmp_path):
    """If this fails, a cut network leaves processes behind, or the worker does not come back by itself."""
    made, _, gate = on_hosts(four_hosts, group, tmp_path)
    four_hosts.hosts[3].cut()
    wait_for(lambda: "rank2 (10.213.0.3) was lost: nothing was heard of it for" in
             made.last(0).stderr(), 12, "the loss is noticed")
    wait_for(lambda: not any("worker.py" in line and "psd_run" not in line for line in
                             four_hosts.hosts[3].processes().values()), 12, "nothing trains there")
    four_hosts.hosts[3].heal()
    wait_for(lambda: "rank2 is back, on host3" in made.last(0).stderr(), 30, "it is back")
    gate.touch()
    assert made.codes() == [0] * 3, made.all_errors()
    made.expect_nothing_left()


def test_coordinator_without_power(four_hosts, group, launch, tmp_path):
    """If this fails, a machine that goes silently takes the whole job with it, or leaves half of it."""
    made, command, gate = on_hosts(four_hosts, group, tmp_path)
    four_hosts.hosts[1].power_off()
    made.last(0).process.wait(60)
    gate.touch()
    for number in (2, 3):
        wait_for(lambda: not any("ps_server" in line or ("worker.py" in line and "psd_run" not in line)
                                 for line in four_hosts.hosts[number].processes().values()),
                 12, "nothing runs there")
    made.start(0, *command, host=four_hosts.hosts[4])
    assert made.codes(60) == [0] * 3, made.all_errors()
    made.expect_nothing_left()


def newest_step(saved):
    listed = subprocess.run([program("psd_run"), "checkpoint", "list", saved], capture_output=True, text=True, timeout=120,
                            check=True).stdout
    return max(int(line.split()[1]) for line in listed.splitlines()[1:])


def test_job_is_saved_before_a_rank_is_taken_away(tmp_path):
    """If this fails, a batch system that takes one of the processes away costs the job what it did since its last checkpoint,
    or the job begins at its beginning when that one is back."""
    saved = tmp_path / "saved"
    group = Group(tmp_path, 3, "--job_id", "run7", "--page", "off", "--checkpoint", str(saved), "--checkpoint_every", "1h")
    command = [program("mnist"), "--model", "softmax", "--epochs", "100000"]
    group.start_all(*command)
    group.last(0).wait_for_output("step 47")
    for number, rank in enumerate((2, 0), 1):
        group.last(rank).process.send_signal(signal.SIGTERM)
        assert group.last(rank).wait(90) == 143, group.all_errors()
        wait_for(lambda: "the job is saved at step" in group.all_errors(), 30, group.all_errors)
        assert len(list(saved.glob("manifest-*.json"))) == number, group.all_errors()
        step = newest_step(saved)
        group.start(rank, *command)
        group.last(0).wait_for_output(f"goes on at step {step}", seconds=90)
    group.last(0).process.send_signal(signal.SIGINT)
    assert group.codes(90) == [130] * 3, group.all_errors()
    assert list(group.meeting.iterdir()) == []


# ------------------------------------------------------------------------------- a pool of hosts ---


def run_pool(four_hosts, seed, *options, look=None, **more):
    """Six processes of an emitted submit file on four hosts; some are taken away, and come back
    elsewhere. look(pool, shared) is called at the end."""
    directory = pathlib.Path(four_hosts.directory / f"pool-{seed}")
    directory.mkdir()
    shared = directory / "shared"
    shared.mkdir()
    os.chown(shared, bed.hosts.USER_ID, bed.hosts.USER_ID)
    gate = directory / "gate"
    worker = [bed.PYTHON, str(bed.seen_inside(bed.HERE / "worker.py")), "--steps", "60",
              "--pull_first", "--hold", f"20:{gate}"]
    environment = {"PYTHONPATH": str(bed.seen_inside(bed.HERE)), "PYTHONDONTWRITEBYTECODE": "1",
                   "PSD_LIB": str(bed.seen_inside(bed.library_path())), **bed.SANITIZER}

    submit = subprocess.run(
        [program("psd_run"), "--emit", "condor", "--rendezvous", str(shared / "meeting"), "--size", "6",
         "--servers", str(1 + seed % 2), "--max_wait", "60", *(each.format(shared=shared) for each in options), "--", *worker],
        capture_output=True, text=True, check=True, timeout=120).stdout

    def command(number):
        return [str(bed.seen_inside(bed.bin_directory() / "psd_run")),
                *condor.words_of(submit, process=str(number), cluster=f"c{seed}")]

    pool = condor.Pool(four_hosts, 6, command, directory, seed, on_quiet=gate.touch, environment=environment,
                       grace_s=condor.grace_of(submit), **{"evictions": 1 + seed % 3, **more})
    try:
        assert pool.run(90) == [0] * 6, pool.story()
        lasts = [directory / f"scratch-0-{pool.tasks[0].lives}" / "stdout"]
        workers = 5 - seed % 2
        assert lasts[0].read_text().count("] closed\n") == workers, pool.story()
        assert list((shared / "meeting").iterdir()) == [], pool.story()
        for host in four_hosts.hosts:
            wait_for(lambda: not host.processes(), 12, f"left on {host.name}")
        if look is not None:
            look(pool, shared)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("seed", [0])
def test_pool_with_evictions(four_hosts, seed):
    """If this fails, a batch system that moves processes about loses the job."""
    run_pool(four_hosts, seed)


@pytest.mark.all
@pytest.mark.parametrize("seed", range(1, 20))
def test_pool_with_evictions_more(four_hosts, seed):
    """If this fails, processes that are taken away and run again end as one job by luck alone: more of it, of all
    kinds."""
    run_pool(four_hosts, seed)


@pytest.mark.parametrize("seed", [0, pytest.param(5, marks=pytest.mark.all), pytest.param(9, marks=pytest.mark.all)])
def test_pool_that_saves_goes_on(four_hosts, seed):
    """If this fails, what HTCondor is told with --checkpoint does not let an evicted job save, or it begins at its beginning
    when its processes are back."""
    def look(pool, shared):
        console = pool.story()
        saved = {int(step) for step in re.findall(r"the job is saved at step (\d+)", console)}
        went_on = {int(step) for step in re.findall(r"the job goes on from step (\d+)", console)}
        evicted = sum("is evicted" in event for event in pool.events)
        assert evicted and went_on & saved, console
        assert newest_step(shared / "saved") >= max(saved, default=0)

    def is_training(pool):
        return any("step 19\n" in path.read_text() for path in pool.directory.glob("scratch-0-1/stdout"))

    run_pool(four_hosts, seed, "--checkpoint", "{shared}/saved", "--checkpoint_every", "1h", look=look, evictions=2,
             signals=(signal.SIGTERM,), is_ready=is_training)
