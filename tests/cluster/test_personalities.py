# SPDX-License-Identifier: Apache-2.0
"""psd_run with scripts that were written for other systems: what they are told, when their job is
done, and that nothing of it is left. The scripts of tests/frameworks know nothing of Poseidon."""

import json
import re
import signal
import socket
import sys

import pytest

from bed import PYTHON, seen_inside
from helpers import HERE, SANITIZED, python_worker

FRAMEWORKS = HERE.parent / "frameworks"
FRAMEWORK_PYTHON = HERE.parents[1] / ".venv-frameworks" / "bin" / "python"

needs_frameworks = pytest.mark.skipif(
    SANITIZED or not (FRAMEWORK_PYTHON.parents[1] / "versions").exists(),
    reason="no frameworks (tools/setup.sh frameworks), or a build with sanitizers, which they have not")


def framework_command(name):
    return f"{FRAMEWORK_PYTHON} {FRAMEWORKS / name}"


def write(tmp_path, text, name):
    path = tmp_path / name
    path.write_text(text)
    return path


def expect_quiet_end(job, *names):
    """No log ends with a complaint, and no process is left. (TensorFlow's own information, I0000,
    speaks of rounding errors.)"""
    job.expect_nothing_left(2)
    for name in names:
        lines = job.log(name).decode(errors="replace").splitlines()
        for line in [line for line in lines if not re.match(r"I\d{4} ", line)][-10:]:
            assert not re.search(r"Traceback|[Ee]rror|[Ff]ailed|Aborted|core dumped|^[EF]\d{4} ",
                                 line), lines


# ------------------------------------------------------------------------------ real frameworks ---


@needs_frameworks
def test_tensorflow_with_four_flags(start):
    """If this fails, scripts of TensorFlow 1 do not find each other, or their ps is left behind."""
    job = start("--personality", "tf1", "--workers", 2, "--servers", 1,
                framework_command("tf1_flags.py"))
    assert job.wait(180) == 0, job.stdout() + job.stderr()
    for rank in (0, 1):
        assert f"worker {rank} stops at step" in job.log(f"worker{rank}").decode()
    assert b"ps 0 serves" in job.log("ps0")
    expect_quiet_end(job, "ps0", "worker0", "worker1")
    assert "job ended well" in job.stderr() and "2 workers, 1 ps" in job.stderr()


@needs_frameworks
def test_tensorflow_parameter_server_strategy(start):
    """If this fails, TensorFlow 2's own parameter servers cannot be started, or never end."""
    job = start("--personality", "tf_config", "--chief", "--workers", 3, "--servers", 1,
                framework_command("tf2_ps_strategy.py"))
    assert job.wait(180) == 0, job.stdout() + job.stderr()
    assert b"chief is done: slope" in job.log("chief")
    for name in ("worker0", "worker1", "ps0"):
        assert b"serves" in job.log(name)
    expect_quiet_end(job, "chief", "worker0", "worker1", "ps0")


@needs_frameworks
def test_torch_distributed(start):
    """If this fails, torch.distributed does not find its place in the environment."""
    job = start("--personality", "torch", "--workers", 2, framework_command("torch_env.py"))
    assert job.wait(180) == 0, job.stdout() + job.stderr()
    for rank in (0, 1):
        assert f"rank {rank} of 2: slope" in job.log(f"worker{rank}").decode()
    expect_quiet_end(job, "worker0", "worker1")


# ----------------------------------------------------------------------------------------- tf1 ---

def test_four_flags_to_the_byte(start):
    """If this fails, a script that reads its four flags does not get them as it expects."""
    job = start("--personality", "tf1", "--workers", 2, "--servers", 2, "--grace_ms", 10000,
                "sh -c 'echo \"$*\"' main --epochs 3")
    assert job.wait() == 0, job.stdout() + job.stderr()
    lines = {name: job.log(name).decode() for name in ("ps0", "ps1", "worker0", "worker1")}
    ps_hosts, worker_hosts = re.search(r"--ps_hosts (\S+) --worker_hosts (\S+)\n",
                                       lines["ps0"]).groups()
    for name, line in lines.items():
        assert line == (f"--epochs 3 --job_name {name[:-1]} --task_index {name[-1]} "
                        f"--ps_hosts {ps_hosts} --worker_hosts {worker_hosts}\n")
    addresses = (ps_hosts + "," + worker_hosts).split(",")
    assert len(set(addresses)) == 4
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses)


def test_kelda_command_line(launch):
    """If this fails, the flags differ from those of a container deployment: one task for each
    machine, all on port 2222."""
    job = launch({"server_nodes": ["host1"], "worker_nodes": ["host2", "host3"]},
                 "--personality", "tf1", "--grace_ms", "10000", "sh -c 'echo \"$0 $*\"' main")
    assert job.wait() == 0, job.stdout() + job.stderr()
    hosts = "--ps_hosts 10.213.0.1:2222 --worker_hosts 10.213.0.2:2222,10.213.0.3:2222\n"
    for name, task in (("ps0", "ps --task_index 0"), ("worker0", "worker --task_index 0"),
                       ("worker1", "worker --task_index 1")):
        assert job.log(name).decode() == f"main --job_name {task} {hosts}"
    job.expect_nothing_left(2)


def test_ps_that_never_exits(start):
    """If this fails, a job whose workers are done hangs on a ps that does not even hear TERM."""
    job = start("--personality", "tf1", "--workers", 2, "--servers", 2,
                "sh -c 'case \"$*\" in *\"job_name worker\"*) exit 0;; esac; trap \"\" TERM; "
                "while :; do sleep 100; done' x")
    assert job.wait(12) == 0, job.stderr()
    assert "job ended well" in job.stderr()


@pytest.mark.parametrize("how,code,words", [
    ("exit 7", 7, "ps 0 (pid "),
    ("kill -9 $$", 137, "was killed by signal 9"),
])
def test_ps_that_dies_before_the_workers(start, how, code, words):
    """If this fails, workers wait for ever for a ps that is gone, or the wrong one is blamed."""
    job = start("--personality", "tf1", "--workers", 2,
                f"sh -c 'case \"$*\" in *\"job_name worker\"*) exec sleep 100;; esac; {how}' x")
    assert job.wait(12) == code, job.stderr()
    assert words in job.stderr()


def test_worker_that_fails(start):
    """If this fails, the ps and the other workers outlive a worker that failed."""
    job = start("--personality", "tf1", "--workers", 2,
                "sh -c 'case \"$*\" in *\"worker --task_index 1\"*) echo broken; exit 5;; esac; "
                "exec sleep 100' x")
    assert job.wait(12) == 5, job.stderr()
    assert "worker 1 (pid" in job.stderr() and "| broken" in job.stderr()


def test_interrupted(start):
    """If this fails, Ctrl-C does not end the ps of a script."""
    job = start("--personality", "tf1", "sh -c 'echo up; exec sleep 100' x")
    job.wait_for_output("up", 2)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(12) == 143


# In its first life worker 0 takes the port of the ps, which waits for that, wants it, and then
# complains as TensorFlow does.
SNATCH = """import os, signal, socket, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
host, port = flags["--ps_hosts"].split(":")
first = os.environ["PSD_RESTART_COUNT"] == "0"
if flags["--job_name"] == "worker":
    if first:
        thief = socket.create_server((host, int(port)))
        signal.pause()
    while True:
        try:
            socket.create_connection((host, int(port)), 20)
            sys.exit()
        except ConnectionRefusedError:
            pass  # the ps has not come so far
while first:
    try:
        socket.create_connection((host, int(port)), 20)
        break
    except ConnectionRefusedError:
        pass  # not taken yet
try:
    server = socket.create_server(("0.0.0.0", int(port)))
except OSError:
    sys.exit("UnknownError: Could not start gRPC server")
print("listens", flush=True)
signal.pause()
"""


def test_port_of_a_ps_that_somebody_took(start, tmp_path):
    """If this fails, a stranger who takes the port of a ps makes the job fail."""
    job = start("--personality", "tf1", f"{sys.executable} {write(tmp_path, SNATCH, 'snatch.py')}")
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert "ps0: somebody else has port" in job.run_log()
    assert job.stderr().count("the job starts again with other ports") == 1
    assert job.log("ps0.1") == b"listens\n"


# ----------------------------------------------------------------------------------- tf_config ---

# Prints TF_CONFIG; ps and workers then wait for ever, the chief ends as it is told.
TASK = """import json, os, signal, sys
config = json.loads(os.environ["TF_CONFIG"])
print(json.dumps(config), flush=True)
if config["task"]["type"] in sys.argv[1].split(","):
    signal.pause()
sys.exit(int(sys.argv[2]) if config["task"]["type"] == "chief" else 0)
"""


def test_tf_config_of_every_task(start, tmp_path):
    """If this fails, TensorFlow is told of another cluster than the one that runs, or the files
    that --tf_config_dir leaves do not say the same."""
    path = write(tmp_path, TASK, "task.py")
    job = start("--personality", "tf_config", "--chief", "--evaluator", "--workers", 4,
                "--servers", 2, "--tf_config_dir", "files", "--grace_ms", 10000,
                f"{sys.executable} {path} none 0")
    assert job.wait() == 0, job.stdout() + job.stderr()
    seen = {name: json.loads(job.log(name))
            for name in ("chief", "worker0", "worker1", "evaluator", "ps0", "ps1")}
    cluster = seen["chief"]["cluster"]
    assert {kind: len(tasks) for kind, tasks in cluster.items()} == {
        "chief": 1, "worker": 2, "ps": 2}
    for name, config in seen.items():
        kind, index = re.fullmatch(r"([a-z]+)(\d*)", name).groups()
        assert config["cluster"] == cluster
        assert config["task"] == {"type": kind, "index": int(index or 0)}
        stem = f"{kind}_{index}" if index else kind
        assert json.loads((job.directory / "files" / f"{stem}.json").read_text()) == config
    assert len(list((job.directory / "files").iterdir())) == 6


def test_chief_that_fails(start, tmp_path):
    """If this fails, a job counts as done although its coordinator failed."""
    job = start("--personality", "tf_config", "--chief", "--workers", 2,
                f"{sys.executable} {write(tmp_path, TASK, 'task.py')} ps,worker 9")
    assert job.wait(12) == 9, job.stderr()


def test_workers_alone(start, tmp_path):
    """If this fails, strategies without ps cannot be run."""
    job = start("--personality", "tf_config", "--workers", 2, "--servers", 0,
                f"{sys.executable} {write(tmp_path, TASK, 'task.py')} none 0")
    assert job.wait() == 0, job.stderr()
    assert list(json.loads(job.log("worker1"))["cluster"]) == ["worker"]


def by_hand(directory, cluster, *tasks):
    """Files as people write them; their paths."""
    paths = []
    for kind, index in tasks:
        paths.append(directory / f"{kind}_{index}.json")
        paths[-1].write_text(json.dumps({"cluster": cluster,
                                         "task": {"type": kind, "index": index}}))
    return paths


def free_addresses(count):
    """So many that nobody listens on now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    return addresses


# Listens on its own address; a worker then says hello to the ps and ends.
HAND = """import json, os, signal, socket
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
def at(address):
    host, port = address.split(":")
    return host, int(port)
listener = socket.create_server(at(cluster[task["type"]][task["index"]]))
if task["type"] == "worker":
    while True:
        try:
            socket.create_connection(at(cluster["ps"][0]), 20)
            break
        except ConnectionRefusedError:
            pass  # it has not come so far
    print("met the ps")
else:
    print("serves", flush=True)
    signal.pause()
"""


def test_tasks_by_hand(start, tmp_path):
    """If this fails, a cluster of hand-made files needs a terminal and TF_CONFIG for each."""
    ps, *workers = free_addresses(3)
    cluster = {"ps": [ps], "worker": workers}
    files = by_hand(tmp_path, cluster, ("ps", 0), ("worker", 0), ("worker", 1))
    command = f"{sys.executable} {write(tmp_path, HAND, 'hand.py')}"
    server = start("--tf-config", files[0], command, name="ps")
    server.wait_for_output("[ps0] serves")
    one = start("--tf-config", files[1], command, name="one")
    assert one.wait() == 0, one.stderr()
    assert one.log("worker0") == b"met the ps\n"

    twice = start("--tf_config", files[0], command, name="twice")
    assert twice.wait() == 2
    assert f"ps 0 should listen on {ps}, where somebody does already" in twice.stderr()

    variable = start("--tf_config", "env", command, name="variable",
                     environment={"TF_CONFIG": files[2].read_text()})
    assert variable.wait() == 0, variable.stderr()
    assert variable.log("worker1") == b"met the ps\n"
    assert "you have set" not in variable.stderr()
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 130

    together = start("--tf_config", files[1], "--tf_config", files[0], command, name="together")
    assert together.wait() == 0, together.stderr()
    assert together.log("worker0") == b"met the ps\n" and together.log("ps0") == b"serves\n"


def test_task_by_hand_inside_slurm(start, tmp_path):
    """If this fails, a task that was laid out by hand becomes as many as Slurm has."""
    path = tmp_path / "ps.json"
    path.write_text('{"cluster": {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}, '
                    '"task": {"type": "worker", "index": 0}}')
    slurm = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "nowhere[1-3]", "SLURM_STEP_ID": "0",
             "SLURM_STEP_NODELIST": "nowhere[1-3]", "SLURM_STEP_NUM_TASKS": "3",
             "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_NODEID": "1", "SLURM_LOCALID": "0"}
    job = start("--tf_config", path, "sh -c 'echo $TF_CONFIG'", environment=slurm)
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert json.loads(job.log("worker0"))["task"] == {"type": "worker", "index": 0}


def test_partial_and_sparse_files(start, tmp_path):
    """If this fails, a task that knows only itself, or a map with gaps, is refused."""
    ps, own = free_addresses(2)
    command = "sh -c 'echo $PSD_ROLE $TF_CONFIG'"
    (alone,) = by_hand(tmp_path, {"ps": [ps], "worker": [own]}, ("worker", 3))
    job = start("--tf_config", alone, command, name="alone")
    assert job.wait() == 0, job.stderr()
    kind, text = job.log("worker3").decode().split(" ", 1)
    assert kind == "worker" and json.loads(text)["task"] == {"type": "worker", "index": 3}
    assert json.loads(text)["cluster"]["worker"] == [own]

    (sparse,) = by_hand(tmp_path, {"ps": {"0": ps}, "worker": {"2": own}}, ("worker", 2))
    job = start("--tf_config", sparse, command, name="sparse")
    assert job.wait() == 0, job.stderr()
    assert "some worker have no address" in job.stderr()
    cluster = json.loads(job.log("worker2").decode().split(" ", 1)[1])["cluster"]
    assert cluster == {"ps": [ps], "worker": {"2": own}}


def test_poseidon_workers_by_hand(start, hand, secret_file, tmp_path):
    """If this fails, a worker that another system gives TF_CONFIG alone cannot join a job whose
    daemons were started by hand."""
    hand.master(3, 1)
    hand.server()
    cluster = {"chief": ["a:1"], "ps": [f"127.0.0.1:{hand.port}"], "worker": ["b:1", "c:1"]}
    files = by_hand(tmp_path, cluster, ("chief", 0), ("worker", 0), ("worker", 1))
    jobs = [start("--personality", "poseidon", "--tf_config", "env", "--secret_file", secret_file,
                  "sh -c 'echo $PSD_RANK of $PSD_WORLD; exec \"$@\"' x "
                  + " ".join(python_worker("--steps", 3)), name=path.stem,
                  environment={"TF_CONFIG": path.read_text()}) for path in files]
    for rank, (job, name) in enumerate(zip(jobs, ("chief", "worker0", "worker1"))):
        assert job.wait(60) == 0, job.stdout() + job.stderr()
        lines = job.log(name).decode().splitlines()
        assert lines[0] == f"{rank} of 3" and lines[-1] == "closed"
    for daemon in hand.processes:
        assert daemon.process.wait(60) == 0, daemon.output()


def test_files_that_contradict_each_other(start, tmp_path):
    """If this fails, two halves of a cluster that do not fit are started all the same."""
    (one,) = by_hand(tmp_path, {"ps": ["a:1"], "worker": ["b:1"]}, ("ps", 0))
    (other,) = by_hand(tmp_path, {"ps": ["a:2"], "worker": ["b:1"]}, ("worker", 0))
    job = start("--tf_config", one, "--tf_config", other, "true")
    assert job.wait() == 2
    assert f"    {one}: ps 0 is a:1\n    {other}: ps 0 is a:2\n" in job.stderr()
    job = start("--tf_config", one, "--tf_config", one, "true", name="twice")
    assert job.wait() == 2
    assert f"{one} and {one} are both ps 0" in job.stderr()


# ------------------------------------------------------------------------- torch, dmlc, mpi-like ---

# Rank 0 has the store that the others talk to.
STORE = """import os, socket
e = os.environ
address = (e["MASTER_ADDR"], int(e["MASTER_PORT"]))
assert e["MASTER_PORT"] != e["PSD_PORT"]
if e["RANK"] == "0":
    store = socket.create_server(address)
    for _ in range(int(e["WORLD_SIZE"]) - 1):
        store.accept()[0].sendall(b"x")
else:
    while True:
        try:
            peer = socket.create_connection(address, 20)
            break
        except ConnectionRefusedError:
            pass  # rank 0 has not come so far
    assert peer.recv(1) == b"x"
names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE NODE_RANK "
         "ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT "
         "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE MASTER_ADDR")
print(*(e[name] for name in names.split()))
"""


def test_torch_over_ssh(launch):
    """If this fails, the store of rank 0 is looked for on another machine, or on a port that is
    taken there."""
    job = launch({"worker_nodes": ["host1", "host1", "host2"], "server_nodes": ["host4"]},
                 "--personality", "torch", "--name", "fit", "--", PYTHON, "-c", STORE)
    assert job.wait() == 0, job.stdout() + job.stderr()
    for rank, place in enumerate(("0 2 0", "1 2 0", "0 1 1")):
        local, size, group = place.split()
        assert job.log(f"worker{rank}").decode() == (
            f"{rank} 3 {local} {size} {group} 2 {group} default {rank} 3 fit 0 0 False "
            "10.213.0.1\n")
    assert not re.search(r"host4|launcher", job.run_log())
    job.expect_nothing_left(2)


def test_torch_beside_poseidon(start):
    """If this fails, a Poseidon job cannot use torch.distributed, too."""
    job = start("--personality", "poseidon,torch", "--workers", 2,
                "sh -c 'echo $RANK of $WORLD_SIZE, $MASTER_ADDR; exec \"$@\"' x "
                + " ".join(python_worker("--steps", 3)))
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    for rank in (0, 1):
        lines = job.log(f"worker{rank}").decode().splitlines()
        assert lines[0] == f"{rank} of 2, 127.0.0.1" and lines[-1] == "closed"


def test_ps_lite_in_all_three_roles(start):
    """If this fails, a ps-lite program misses a variable, or its processes do not meet."""
    job = start("--personality", "dmlc", "--workers", 3, "--servers", 2,
                f"{sys.executable} {FRAMEWORKS / 'dmlc_check.py'}", environment={"PORT": "8080"})
    assert job.wait() == 0, job.stdout() + job.stderr()
    for name in ("scheduler", "server0", "server1", "worker0", "worker1", "worker2"):
        assert job.log(name).decode().endswith("met 3 and 2\n")
    assert "you have set PORT, but workers get the job's own value" in job.stderr()
    assert "3 workers, 2 servers, 1 scheduler" in job.stderr()


def test_ps_lite_over_ssh(launch):
    """If this fails, the processes of ps-lite do not meet on several machines."""
    job = launch({"master_node": "host3", "server_nodes": ["host1"],
                  "worker_nodes": ["host1", "host2"]}, "--personality", "dmlc",
                 f"{PYTHON} {seen_inside(FRAMEWORKS / 'dmlc_check.py')}")
    assert job.wait() == 0, job.stdout() + job.stderr()
    for name in ("scheduler", "server0", "worker0", "worker1"):
        assert job.log(name).decode().endswith("met 2 and 1\n")
    job.expect_nothing_left(2)


def test_worker_that_is_restarted(start):
    """If this fails, a foreign worker that may be restarted is not, or does not know it."""
    job = start("--personality", "dmlc,torch", "--restart", "on-failure", "--max_restarts", 2,
                "--grace_ms", 100,
                "sh -c 'echo $DMLC_ROLE $DMLC_NUM_ATTEMPT $TORCHELASTIC_RESTART_COUNT of "
                "$TORCHELASTIC_MAX_RESTARTS; [ $DMLC_ROLE = worker ] || exec sleep 100; "
                "[ $DMLC_NUM_ATTEMPT = 1 ]'")
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert job.log("worker0") == b"worker 0 0 of 2\n"
    assert job.log("worker0.1") == b"worker 1 1 of 2\n"


def test_variables_of_mpi(start):
    """If this fails, programs that look for MPI's or Horovod's variables do not find them."""
    job = start("--personality", "mpi", "--workers", 2,
                "sh -c 'echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $PMI_RANK $PMI_SIZE "
                "$OMPI_COMM_WORLD_LOCAL_RANK $OMPI_COMM_WORLD_LOCAL_SIZE $HOROVOD_RANK "
                "$HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK "
                "$HOROVOD_CROSS_SIZE $HOROVOD_HOSTNAME ${RANK-none}'")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker1") == b"1 2 1 2 1 2 1 2 1 2 0 1 127.0.0.1 none\n"


def test_own_values(start):
    """If this fails, a rank that somebody left in the environment is believed; or, with
    --keep_env, is not."""
    own = {"RANK": "7", "TF_CONFIG": "{}"}
    command = "sh -c 'echo $RANK'"
    job = start("--personality", "torch", command, environment=own, name="ours")
    assert job.wait() == 0 and job.log("worker0") == b"0\n"
    assert job.stderr().count("you have set RANK, but workers get the job's own value") == 1
    job = start("--personality", "torch", "--keep_env", command, environment=own, name="theirs")
    assert job.wait() == 0 and job.log("worker0") == b"7\n"
    assert "you have set" not in job.stderr()


# ----------------------------------------------------------------------------------- bad input ---


@pytest.mark.parametrize("arguments,words", [
    (("--personality", "tf3"), "must be some of poseidon, tf1, tf_config, torch, dmlc, mpi"),
    (("--personality", ""), "must be some of"),
    (("--personality", "torch,"), "must be some of"),
    (("--personality", "poseidon,dmlc"), "ps_servers, with dmlc they run your command"),
    (("--personality", "dmlc,tf1"), "dmlc has a scheduler"),
    (("--personality", "torch", "--servers", "2"), "torch has none"),
    (("--personality", "torch", "--auto", "on"), "--auto on needs ps_servers"),
    (("--personality", "tf1", "--pass", "env"), "--pass is about Poseidon's own"),
    (("--personality", "torch", "--chief"), "--chief works only with --personality=tf_config"),
    (("--personality", "tf1,tf_config", "--chief"), "--chief does not go with --personality=tf1"),
    (("--personality", "tf_config", "--evaluator"), "there must be more of them"),
    (("--personality", "dmlc", "--servers", "0"), "--servers 0: a job of personality dmlc needs servers; give 1 to 256"),
    (("--tf_config", "/nowhere.json"), "open /nowhere.json: No such file"),
    (("--tf_config", "env"), "the variable TF_CONFIG is not set"),
    (("--tf_config", "w.json", "--workers", "2"), "give no cluster file, --workers"),
    (("--tf_config", "w.json", "--personality", "torch"), "is tf_config, tf1 or poseidon"),
    (("--tf_config", "w.json", "--personality", "poseidon"), "worker 1 is not in it"),
    (("--tf_config", "ps.json", "--personality", "poseidon"), "start ps_master where ps 0 is"),
    (("--tf_config", "alone.json", "--personality", "poseidon"), "no ps 0"),
    (("--tf_config", "w.json", "--personality", "tf1"), "need all addresses up to that of"),
    (("--tf_config", "no_task.json"), "no_task.json: it has no \"task\""),
    (("--tf_config", "bad.json"), "bad.json:1:26: address \"b\" must be host:port"),
])
def test_bad_input(start, tmp_path, arguments, words):
    """If this fails, a mistake is found late, or its message does not say what it is."""
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / "w.json").write_text(
        '{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 1}}')
    (directory / "ps.json").write_text('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps"}}')
    (directory / "alone.json").write_text(
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}')
    (directory / "no_task.json").write_text('{"cluster": {"ps": ["a:1"]}}')
    (directory / "bad.json").write_text('{"cluster": {"worker": [ "b"]}, "task": {}}')
    job = start(*arguments, "true", environment={"TF_CONFIG": ""})
    assert job.wait() == 2
    assert words in job.stderr(), job.stderr()


def test_one_command_for_each_worker(start):
    """If this fails, servers run the command of some worker or other."""
    job = start("--personality", "tf1", "--workers", 2, "true, false")
    assert job.wait() == 2
    assert "leave none for the servers, which run it too" in job.stderr()
