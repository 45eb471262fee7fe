# SPDX-License-Identifier: Apache-2.0
"""psd_run under a real Slurm: four nodes, and a launcher that is none of them but has sbatch."""

import json
import re
import shlex
import subprocess
import uuid

import pytest

from bed import CHECKOUT, PYTHON, hosts, seen_inside, worker
from helpers import BRISK, HERE, SANITIZED, library_path, wait_for
import slurm as slurm_bed

FRAMEWORKS = HERE.parents[1] / ".venv-frameworks"
needs_frameworks = pytest.mark.skipif(
    SANITIZED or not (FRAMEWORKS / "versions").exists(),
    reason="no frameworks (tools/setup.sh frameworks), or a build with sanitizers, which they have not")

# Ignores TERM, and has a grandchild in a session of its own that ignores TERM as well.
STUBBORN = ("sh -c 'trap \"\" TERM; (setsid sh -c \"trap : TERM; while :; do sleep 100; done\" &) ; "
            "echo up; while :; do sleep 100 & wait $!; done'")


@pytest.fixture(scope="module")
def cluster():
    """Slurm on hosts of its own."""
    why = slurm_bed.missing()
    if why is not None:
        pytest.skip(f"no Slurm: {why}")
    bed = hosts.Testbed(4)
    try:
        yield slurm_bed.Slurm(bed)
    finally:
        bed.remove()


class Batch:
    """A job of Slurm: a script that was given to sbatch."""

    def __init__(self, slurm, lines, *options, arguments=(), environment=None):
        self.slurm = slurm
        self.directory = slurm.shared / f"job-{uuid.uuid4().hex[:8]}"
        self.environment = {"PATH": f"{seen_inside(library_path()).parent}:{slurm_bed.PATH}",
                            "PYTHONPATH": str(seen_inside(HERE)),
                            "PSD_LIB": str(seen_inside(library_path())),
                            "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        slurm.run("mkdir", self.directory)
        script = self.directory / "script"
        script.write_text(lines if lines.startswith("#!") else f"#!/bin/sh\n{lines}\n")
        done = self.run("sbatch", "--parsable", "--output=out", "--open-mode=append", *options,
                        script, *arguments)
        self.id = int(done.stdout)

    def run(self, *command, check=True):
        return self.slurm.run(*command, environment=self.environment, directory=self.directory,
                              check=check)

    def text(self, name="out"):
        path = self.directory / name
        return path.read_text(errors="replace") if path.exists() else ""

    def run_log(self):
        return self.text("poseidon_run.log")

    def show(self):
        """A controller that is busy may not answer: it is asked again."""
        text = wait_for(lambda: self.run("scontrol", "-o", "show", "job", self.id, check=False).stdout, 60,
                        lambda: f"slurmctld tells of job {self.id}\n{self.slurm.logs()}")
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for_output(self, text, count=1, seconds=30.0):
        wait_for(lambda: self.text().count(text) >= count, seconds,
                 f"{count} x {text!r}\n{self.text()}\n{self.run_log()}\n{self.slurm.logs()}")

    def wait(self, seconds=60.0):
        """The script's exit code: 128 + N for a signal."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: self.show()["JobState"] in ended, seconds,
                 f"the job ends\n{self.text()}\n{self.run_log()}\n{self.slurm.logs()}")
        code, number = map(int, self.show()["ExitCode"].split(":"))
        return 128 + number if number else code

    def places(self):
        """{process: host}"""
        return dict(re.findall(r"PROCESS (\w+) pid \d+ on (\w+): ", self.run_log()))

    def expect_nothing_left(self, seconds=12.0):
        wait_for(lambda: not self.slurm.processes(), seconds, lambda: f"left: {self.slurm.processes()}")


@pytest.fixture
def sbatch(cluster):
    """Submits scripts. Afterwards all hosts are up, all nodes idle and empty."""
    jobs = []

    def submit(lines, *options, **more):
        jobs.append(Batch(cluster, lines, *options, **more))
        return jobs[-1]

    yield submit
    for job in jobs:
        cluster.run("scancel", job.id, check=False)
    for host in cluster.bed.hosts:
        if host.holder is None:
            host.boot()
            host.wait_until_up()
            cluster.add(host)
    cluster.wait_until_ready()
    wait_for(lambda: not cluster.processes(), 20, lambda: f"left: {cluster.processes()}")


def psd_run(*words):
    """A line of a script."""
    return "exec psd_run " + shlex.join(map(str, words))


# ------------------------------------------------------------------------------------- starting ---


def test_uneven_tasks_train(sbatch):
    """If this fails, a batch job has to be described a second time, to psd_run."""
    job = sbatch(psd_run(*BRISK, "--servers", 2, worker("--steps", 20)), "-N3", "-n7")
    assert job.wait() == 0, job.text() + job.run_log()
    assert job.show()["NumTasks"] == "7"
    assert job.places() == {"master": "host1", "server0": "host1", "server1": "host1",
                            "worker0": "host1", "worker1": "host1", "worker2": "host2",
                            "worker3": "host2", "worker4": "host3"}
    for rank in range(5):
        assert f"[worker{rank}] step 19\n" in job.text()
    assert re.search(r"READY master at tcp://10\.213\.0\.1:\d+\n", job.run_log())
    assert "job ended well" in job.text()
    job.expect_nothing_left()


def test_every_task_is_a_worker(sbatch):
    """If this fails, a job without a word about servers has none, or fewer workers than tasks."""
    job = sbatch(psd_run(*BRISK, worker("--steps", 5)), "-N2", "--ntasks-per-node=2")
    assert job.wait() == 0, job.text() + job.run_log()
    assert job.places() == {"master": "host1", "server0": "host1", "server1": "host2",
                            "worker0": "host1", "worker1": "host1", "worker2": "host2",
                            "worker3": "host2"}


def test_roles_of_the_tasks(sbatch):
    """If this fails, servers run on other nodes than the list says."""
    job = sbatch(psd_run(*BRISK, "--roles", "worker*3,ps,ps,worker", worker("--steps", 3)),
                 "-N2", "--ntasks-per-node=3", "--distribution=cyclic")
    assert job.wait() == 0, job.text() + job.run_log()
    assert job.places() == {"master": "host1", "server0": "host2", "server1": "host2",
                            "worker0": "host1", "worker1": "host1", "worker2": "host1",
                            "worker3": "host2"}


def test_spread_servers_and_tasks_of_a_file(sbatch, cluster):
    """If this fails, servers share a node although each was to have its own."""
    job = sbatch(psd_run(*BRISK, "--ps", 2, "--placement", "spread", worker("--steps", 3)),
                 "-N2", "--ntasks-per-node=4")
    assert job.wait() == 0, job.text() + job.run_log()
    assert (job.places()["server0"], job.places()["server1"]) == ("host1", "host2")
    (job.directory / "tasks.json").write_text(json.dumps(
        {"tasks": ["ps", "worker", "worker", "ps"], "env": {"SIDE": "left"}}))
    again = sbatch(psd_run("-c", job.directory / "tasks.json", "sh -c 'echo side $SIDE'"),
                   "-N2", "--ntasks-per-node=2")
    assert again.wait() == 0, again.text() + again.run_log()
    assert again.places()["server1"] == "host2"
    assert "[worker1] side left\n" in again.text()


def test_shell_of_salloc(cluster):
    """If this fails, psd_run on a login node takes that for a node of the job."""
    done = cluster.run("salloc", "-N2", "--ntasks-per-node=1", "psd_run", "--roles", "ps,worker",
                       "sh -c 'echo on $(hostname), $SLURM_JOB_NODELIST, ${SLURM_PROCID-no rank}'",
                       environment={"PATH": f"{seen_inside(library_path()).parent}:"
                                            f"{slurm_bed.PATH}"}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[worker0] on host2, host[1-2], no rank\n" in done.stdout


def test_all_that_workers_print(sbatch):
    """If this fails, srun holds back, labels or changes what agents say."""
    lines = 2000
    job = sbatch("export SLURM_LABELIO=1\n" + psd_run(
        "--servers", 1, "--show", "none",
        f"{PYTHON} -c \"import sys; [sys.stdout.buffer.write(bytes(range(256)) * 8 + b'end\\n') "
        f"for _ in range({lines})]\""), "-N3", "-n3")
    assert job.wait() == 0, job.text() + job.run_log()
    (directory,) = (job.directory / "logs").iterdir()
    for rank in range(2):
        assert (directory / f"worker{rank}.log").read_bytes() == (bytes(range(256)) * 8 +
                                                                  b"end\n") * lines


def addresses(*tasks):
    """["10.213.0.1:18000", ...] of (host, port) pairs."""
    return [f"10.213.0.{host}:{port}" for host, port in tasks]


@pytest.mark.parametrize("placement, servers", [("pack", [(1, 0), (1, 1)]),
                                                ("spread", [(1, 0), (2, 0)])])
def test_dictionary_of_two_nodes(sbatch, placement, servers):
    """If this fails, scripts that start their own servers do not find each other."""
    job = sbatch("srun --resv-ports=4 -l psd_run --print_cluster --json --ps 2 "
                 f"--placement {placement}", "-N2", "--ntasks-per-node=4")
    assert job.wait() == 0, job.text()
    tasks = dict(re.findall(r"^(\d): (.*)$", job.text(), re.M))
    told = [json.loads(tasks[str(task)]) for task in range(8)]
    cluster = told[0]["cluster"]
    first = min(int(address.rpartition(":")[2]) for address in sum(cluster.values(), []))
    places = [(host, local) for host in (1, 2) for local in range(4)]
    workers = [place for place in places if place not in servers]
    assert cluster == {role: addresses(*((host, first + local) for host, local in those))
                       for role, those in (("ps", servers), ("worker", workers))}
    for task, place in enumerate(places):
        role, those = ("ps", servers) if place in servers else ("worker", workers)
        assert told[task] == {"cluster": cluster,
                              "task": {"type": role, "index": those.index(place)}}


def test_dictionary_of_a_part_of_the_job(sbatch):
    """If this fails, a rank's host is derived from counts instead of being looked at."""
    job = sbatch("srun -N2 -n3 -w host3,host2 --distribution=cyclic -l sh -c "
                 "'psd_run --print_cluster --roles worker,ps,worker; hostname'", "-N3", "--ntasks-per-node=2")
    assert job.wait() == 0, job.text()
    lines = {}
    for task, line in re.findall(r"^(\d): (.*)$", job.text(), re.M):
        lines.setdefault(task, []).append(line)
    cluster = json.loads(lines["0"][0])
    hosts_of = [address.split(":")[0] for address in cluster["worker"][:1] + cluster["ps"] +
                cluster["worker"][1:]]
    assert sorted(hosts_of) == ["10.213.0.2", "10.213.0.2", "10.213.0.3"]
    for own in lines.values():
        role, index = own[1].split()
        assert json.loads(own[0]) == cluster
        assert cluster[role][int(index)].startswith(f"10.213.0.{own[2].removeprefix('host')}:")


def test_dictionary_in_a_script(sbatch):
    """If this fails, a script has to ask the nodes for their addresses by itself."""
    job = sbatch("psd_run --print_cluster --roles ps,worker,worker --interface 10.213.0.0/24 && "
                 "TFSERVER='a,b' psd_run --print-cluster --roles ps,worker,worker --json && "
                 "TFSERVER='a b c' psd_run --print-cluster --roles ps,worker,worker", "-N2", "-n3")
    assert job.wait() == 2, job.text()
    first, second, error, _ = job.text().splitlines()
    cluster = json.loads(first)
    ports = [int(address.rpartition(":")[2]) for address in cluster["ps"] + cluster["worker"]]
    assert cluster == {"ps": addresses((1, ports[0])),
                       "worker": addresses((1, ports[0] + 1), (2, ports[0]))}
    assert json.loads(second) == {"cluster": {"ps": [f"a:{ports[0]}"], "worker": [
        f"a:{ports[1]}", f"b:{ports[0]}"]}}
    assert error == "psd_run: TFSERVER has 3 addresses, but there are 2 nodes"


def test_secret_is_sealed_on_the_wire(sbatch, cluster):
    """If this fails, whoever listens on the network of the cluster can join the job."""
    name = f"secret-{uuid.uuid4().hex[:8]}"
    cluster.run(seen_inside(library_path()).parent / "psd_run", "secret", name)
    secret = (cluster.shared / name).read_text().strip()
    heard = cluster.shared / f"{name}.heard"
    tap = subprocess.Popen(cluster.bed.hosts[2].inside(PYTHON, seen_inside(HERE / "capture.py"),
                                                       "eth0", heard, user="root"),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert tap.stdout.readline() == "ready\n"
    job = sbatch(psd_run(*BRISK, "--secret_file", cluster.shared / name, "--servers", 1,
                         worker("--steps", 3)), "-N2", "-n2")
    assert job.wait() == 0, job.text() + job.run_log()
    tap.communicate(timeout=120)
    wire = heard.read_bytes()
    assert b"psd_agent" in wire and b"MUNGE:" in wire
    assert bytes.fromhex(secret) not in wire and secret.encode() not in wire


def test_check(sbatch):
    """If this fails, nobody can see whether an allocation is ready without a job."""
    job = sbatch(psd_run("--check", "--servers", 1, "echo"), "-N2", "-n2")
    assert job.wait() == 0, job.text()
    assert "everything is ready" in job.text()


@pytest.mark.parametrize("words, error", [
    (["--roles", "ps,worker*4"], "the list of roles has 5 entries, but there are 4 tasks"),
    (["--roles", "ps,wrker*3"], "column 4: \"wrker*3\" is no role"),
    (["--servers", "4"], "4 servers among 4 tasks leave no worker"),
    (["--servers", "1", "--workers", "2"], "1 servers are 3 processes, but there are 4 tasks"),
    (["--roles", "ps,worker*3", "--servers", "1"], "give only one of them"),
])
def test_bad_roles(sbatch, words, error):
    """If this fails, a mistake in the roles starts another job than was meant."""
    job = sbatch(psd_run(*words, "echo"), "-N2", "-n4")
    assert job.wait() == 2
    assert error in job.text()


def test_no_psd_run_on_a_node(sbatch):
    """If this fails, a node that lacks Poseidon is not named. Homes are separate here."""
    job = sbatch(f"cp -r {seen_inside(library_path()).parent}/ps* /home/psd\nPATH={slurm_bed.PATH}\n"
                 "exec /home/psd/psd_run --servers 1 echo", "-N2", "-n2")
    assert job.wait() == 3
    assert "host2 (srun -w host2): " in job.text()
    assert "psd_run is not there: install Poseidon on that node" in job.text()


def test_emitted_script_trains(sbatch, cluster):
    """If this fails, the script that psd_run writes does not run what it was written for."""
    name = f"digits{uuid.uuid4().hex[:8]}"  # jobs of a user have names of their own: of another suite, too
    program = seen_inside(library_path()).parent / "psd_run"
    done = cluster.run(program, "--emit", "sbatch", "--nodes", 2, "--setup",
                       "echo set up with ${1:-nothing}", "--name", name, "--ps", 2,
                       "--placement=spread", *BRISK, worker("--steps", 5))
    job = sbatch(done.stdout, "--ntasks-per-node=2", arguments=["3.11"])
    assert job.wait() == 0, job.text() + job.run_log()
    assert "set up with 3.11\n" in job.text()
    assert (job.show()["JobName"], job.show()["NumNodes"], job.show()["Requeue"]) == (name, "2",
                                                                                    "1")
    assert job.places() == {"master": "host1", "server0": "host1", "server1": "host2",
                            "worker0": "host1", "worker1": "host2"}


# ------------------------------------------------------------------------ one psd_run per task ---


def srun(*words, options=()):
    """A line of a script: one psd_run for each task."""
    return "exec srun " + shlex.join([*map(str, options), "psd_run", *map(str, words)])


def test_a_psd_run_for_each_task_trains(sbatch):
    """If this fails, `srun psd_run` starts as many jobs as there are tasks."""
    job = sbatch(srun(*BRISK, "--roles", "ps,worker*3,ps,worker,worker", worker("--steps", 20)),
                 "-N3", "-n7")
    assert job.wait() == 0, job.text() + job.run_log()
    for rank in range(5):
        assert job.text().count(f"[worker{rank}] step 19\n") == 1
    assert job.text().count("job ended well") == 1
    job.expect_nothing_left()


def test_tasks_of_a_step_on_part_of_the_job(sbatch):
    """If this fails, a step uses nodes of the job that are not its own, or mixes up its tasks."""
    job = sbatch(srun(*BRISK, worker("--steps", 5),
                      options=["-N2", "-n4", "-w", "host3,host2", "--distribution=cyclic"]),
                 "-N3", "--ntasks-per-node=2")
    assert job.wait() == 0, job.text() + job.run_log()
    found = re.findall(r"MACHINE (?:\S+ )*?is (host\d), address (\S+),", job.run_log())
    assert sorted(found) == [("host2", "10.213.0.2")] * 2 + [("host3", "10.213.0.3")] * 2
    assert job.text().count("step 4\n") == 3


def test_cancelled_tasks_leave_nothing(sbatch):
    """If this fails, tasks that wait for each other outlive their step."""
    job = sbatch(srun("--servers", 1, STUBBORN), "-N3", "-n4")
    job.wait_for_output("] up\n", 3)
    job.run("scancel", job.id)
    job.expect_nothing_left(25)


def test_reserved_ports(sbatch):
    """If this fails, tasks meet or listen on ports that Slurm may have given to another job."""
    job = sbatch(srun("--servers", 1, "sh -c 'echo up $PSD_PORT of $SLURM_RESERVED; "
                                      "while ! [ -e go ]; do sleep 0.1; done'",
                      options=["--resv-ports=2", "sh", "-c",
                               "SLURM_RESERVED=$SLURM_STEP_RESV_PORTS exec \"$0\" \"$@\""]),
                 "-w", "host[1-2]", "-n3")
    job.wait_for_output("] up ", 2)
    found = job.run("ss", "-Hltn", "sport >= 18000 and sport <= 18999")
    here = job.slurm.run("ss", "-Hltn", "sport >= 18000 and sport <= 18999",
                         host=job.slurm.bed.hosts[1])
    (job.directory / "go").touch()
    assert job.wait() == 0, job.text() + job.run_log()
    assert (found.stdout, len(here.stdout.splitlines())) == ("", 1)
    lines = re.findall(r"\[worker(\d)\] up (\d+) of (\d+)-(\d+)", job.text())
    reserved = set(range(int(lines[0][2]), int(lines[0][3]) + 1))
    assert len(lines) == 2 and {int(line[1]) for line in lines} == reserved


def test_scripts_without_servers(sbatch):
    """If this fails, a task of srun runs nothing with a script that knows no servers, or tasks
    listen on ports that Slurm may have given to another job."""
    job = sbatch(srun(*BRISK, "--personality", "torch",
                      "sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                      "$GROUP_RANK/$GROUP_WORLD_SIZE $PSD_PORT'", options=["--resv-ports=3"]),
                 "-N2", "-n3")
    assert job.wait() == 0, job.text() + job.run_log()
    found = re.findall(r"^\[worker\d\] (\S+) (\S+) (\S+) (\d+)$", job.text(), re.M)
    first = int(min(port for *_, port in found))
    assert 18000 <= first <= 18997, found
    assert sorted(found) == [("0/3", "0/2", "0/2", str(first)), ("1/3", "1/2", "0/2", str(first + 1)),
                             ("2/3", "0/1", "1/2", str(first))]


def test_roles_without_servers(sbatch):
    """If this fails, a list of roles without a ps is refused where scripts know none, or TensorFlow
    gets servers that the list does not have."""
    job = sbatch(psd_run(*BRISK, "--personality", "tf_config", "--roles", "worker*3",
                         "sh -c 'echo $PSD_ROLE of $PSD_NUM_WORKERS, $PSD_NUM_SERVERS'"),
                 "-N2", "-n3")
    assert job.wait() == 0, job.text() + job.run_log()
    assert job.text().count("worker of 3, 0\n") == 3


def test_secret_of_a_file(sbatch, cluster):
    """If this fails, a cluster without MUNGE cannot run one psd_run for each task."""
    name = f"secret-{uuid.uuid4().hex[:8]}"
    cluster.run(seen_inside(library_path()).parent / "psd_run", "secret", name)
    job = sbatch(srun(*BRISK, "--secret_file", cluster.shared / name, worker("--steps", 3)),
                 "-N2", "-n3")
    assert job.wait() == 0, job.text() + job.run_log()
    job.expect_nothing_left()


def test_signal_to_tasks(sbatch):
    """If this fails, a signal to a step ends those that should hand it on."""
    job = sbatch(srun("--servers", 1, "sh -c 'trap \"touch told.$PSD_RANK; exit 0\" USR1; echo up; "
                                      "while :; do sleep 100 & wait $!; done'"), "-N2", "-n3")
    job.wait_for_output("] up\n", 2)
    job.run("scancel", "--signal=USR1", f"{job.id}.0")
    assert job.wait() == 0, job.text() + job.run_log()
    assert (job.directory / "told.0").exists() and (job.directory / "told.1").exists()


def test_killed_coordinator_ends_all_tasks(sbatch, cluster):
    """If this fails, tasks wait for a first one that nobody will start again."""
    job = sbatch(srun("--servers", 1, STUBBORN, options=["--wait=0"]), "-w", "host[1-3]", "-n4")
    job.wait_for_output("] up\n", 3)
    (pid,) = set(re.findall(r"psd_run\[(\d+)\] JOB ", job.run_log()))
    cluster.run("kill", "-9", pid, host=cluster.bed.hosts[1])
    assert job.wait(60) != 0
    job.expect_nothing_left()


@pytest.mark.all
def test_power_failure_under_tasks(sbatch, cluster):
    """If this fails, tasks wait for one whose node is gone. srun stays until Slurm knows it."""
    job = sbatch(srun("--servers", 1, STUBBORN), "-w", "host[1-3]", "-n4", "--no-requeue")
    job.wait_for_output("] up\n", 3)
    cluster.bed.hosts[3].power_off()
    job.expect_nothing_left(40)


def test_failure_of_one_task_is_the_code_of_all(sbatch):
    """If this fails, Slurm takes a job that failed for one that ended well."""
    job = sbatch(srun("--servers", 1, "sh -c '[ $PSD_RANK = 1 ] && exit 7; sleep 100'"),
                 "-N2", "-n3")
    assert job.wait() == 7, job.text() + job.run_log()
    job.expect_nothing_left()


# -------------------------------------------------------------------- TensorFlow's own servers ---

# The cluster with hooks. Worker 1 comes when a file "go" is there.
HOOKS = ("sh -c 'case \"$*\" in *\"worker --task_index 1 \"*) "
         "while ! [ -e go ]; do sleep 0.1; done;; esac; "
         f"exec {CHECKOUT}/.venv-frameworks/bin/python \"$@\"' x "
         f"{CHECKOUT}/examples/tensorflow/cluster_hooks.py")
TF1 = ("--personality", "tf1", "--servers", 2, "--grace_ms", 60000, HOOKS)


def expect_all_ended_by_themselves(job):
    """Every ps has heard from every worker, and psd_run had to end nobody."""
    (directory,) = (job.directory / "logs").iterdir()
    result = json.loads((directory / "result.json").read_text())
    ended = {each["name"]: (each["state"], each["code"]) for each in result["processes"]}
    assert ended == {name: ("done", 0) for name in ("ps0", "ps1", "worker0", "worker1")}, ended
    for ps in range(2):
        told = re.findall(rf"ps {ps} received done (\d)\n", (directory / f"ps{ps}.log").read_text())
        assert sorted(told) == ["0", "1"]
    job.expect_nothing_left()


@needs_frameworks
@pytest.mark.parametrize("line", [pytest.param(psd_run, marks=pytest.mark.all), srun])  # the next test has psd_run, too
def test_tensorflow_cluster_with_hooks(sbatch, line):
    """If this fails, parameter servers of TensorFlow keep their nodes when the workers are done."""
    job = sbatch("touch go\n" + line(*TF1), "-N2", "-n4")
    assert job.wait(240) == 0, job.text() + job.run_log()
    expect_all_ended_by_themselves(job)


@needs_frameworks
def test_tensorflow_worker_after_the_others_have_ended(sbatch):
    """If this fails, a worker of TensorFlow that comes late keeps all servers from ending, or waits
    for workers that have ended."""
    job = sbatch(psd_run(*TF1), "-N2", "-n4")
    wait_for(lambda: " EXIT worker0 " in job.run_log(), 240, f"{job.text()}\n{job.run_log()}")
    (job.directory / "go").touch()
    assert job.wait(240) == 0, job.text() + job.run_log()
    assert "[worker0] worker 0 did 10 iterations, the last one was 10\n" in job.text()
    assert "[worker1] worker 1 did 1 iterations, the last one was 11\n" in job.text()
    expect_all_ended_by_themselves(job)


# --------------------------------------------------------------------------------------- ending ---


def test_scancel_leaves_nothing(sbatch):
    """If this fails, a cancelled job keeps nodes busy."""
    job = sbatch(psd_run("--servers", 1, STUBBORN), "-N3", "-n4")
    job.wait_for_output("] up\n", 3)
    job.run("scancel", job.id)
    job.expect_nothing_left(25)


@pytest.mark.parametrize("then", ["exit 0", "exec sleep 1000"], ids=["ends", "goes on"])
def test_killed_psd_run_leaves_nothing(sbatch, cluster, then):
    """If this fails, agents outlive the psd_run that srun started them for, or an srun that was
    killed with it makes Slurm kill them before they have ended what they started."""
    job = sbatch(psd_run("--servers", 1, STUBBORN).removeprefix("exec ")
                 + f" &\necho $! >pid\nwait\necho alone\n{then}",
                 "-w", "host[1-3]", "-n4")  # Slurm would take others while these are being cleaned up
    job.wait_for_output("] up\n", 3)
    cluster.run("kill", "-9", job.text("pid").strip(), host=cluster.bed.hosts[1])
    job.wait_for_output("alone\n")

    def others():
        return [command for found in cluster.processes().values() for command in found.values()
                if command != "sleep 1000" and not command.endswith(".batch]")]

    wait_for(lambda: not others(), 30, "nothing but the script is left")


def test_power_failure_of_a_node(sbatch, cluster):
    """If this fails, the loss of a node is noticed only when Slurm's own time is up."""
    job = sbatch(psd_run("--servers", 1, STUBBORN), "-w", "host[1-3]", "-n4", "--no-requeue")
    job.wait_for_output("] up\n", 3)
    cluster.bed.hosts[3].power_off()
    wait_for(lambda: "MACHINE-LOST host3" in job.run_log(), 12, job.run_log())
    job.expect_nothing_left(20)
    assert "was lost" in job.text()


def test_signal_before_the_time_limit(sbatch):
    """If this fails, workers are not told in time to save what they have."""
    job = sbatch(psd_run("--servers", 1, "sh -c 'trap \"echo told; exit 0\" USR1; echo up; "
                                         "while :; do sleep 100 & wait $!; done'"),
                 "-N3", "-n3", "--signal=B:USR1@30")
    job.wait_for_output("] up\n", 2)
    job.run("scancel", "--batch", "--signal=USR1", job.id)
    assert job.wait() == 0, job.text() + job.run_log()
    assert job.text().count("] told\n") == 2


def test_requeued_job_counts_its_lives(sbatch):
    """If this fails, a worker cannot tell that it has to go on where it was."""
    job = sbatch(psd_run("--servers", 1, "sh -c 'echo life $PSD_RESTART_COUNT; "
                                         "[ $PSD_RESTART_COUNT = 1 ] || sleep 1000'"),
                 "-N2", "-n2", "--requeue")
    job.wait_for_output("] life 0\n")
    job.run("scontrol", "requeue", job.id)
    wait_for(lambda: job.show()["JobState"] == "PENDING", 30, "the job waits")
    job.run("scontrol", "update", f"JobId={job.id}", "StartTime=now")  # Slurm would wait 2 minutes
    job.wait_for_output("] life 1\n", seconds=60)
    assert job.wait() == 0, job.text() + job.run_log()


def test_job_is_saved_before_its_limit_and_goes_on(sbatch):
    """If this fails, a job that Slurm ends at its limit loses what it did since its last checkpoint, begins at its
    beginning when it is run again, or comes back after it was cancelled."""
    job = sbatch(psd_run(*BRISK, "--servers", 1, "--checkpoint", "saved", "--checkpoint_every", "1h",
                         worker("--steps", 10**9)), "-N2", "-n2", "--requeue", "--signal=B:TERM@60")
    job.wait_for_output("] step 20\n")
    job.run("scancel", "--batch", "--signal=TERM", job.id)  # what Slurm does 60 s before the end
    job.wait_for_output("the job is saved at step ")
    step = int(re.search(r"the job is saved at step (\d+)", job.text()).group(1))
    wait_for(lambda: job.show()["JobState"] == "PENDING", 30, lambda: f"the job waits\n{job.text()}")
    job.run("scontrol", "update", f"JobId={job.id}", "StartTime=now")  # Slurm would wait 2 minutes
    job.wait_for_output(f"the job goes on from step {step}: generation 1 of ", seconds=60)
    # The first life may have come further than to the step that was saved.
    def life():
        return job.text().partition("the job goes on from step")[2]

    wait_for(lambda: f"] step {step + 20}\n" in life(), 60, lambda: f"its steps\n{job.text()}")
    assert "] step 0\n" not in life() and f"] step {step}\n" in life(), life()[:3000]
    job.run("scancel", job.id)  # a person does not want it any more
    job.expect_nothing_left(30)
    assert job.wait() != 0
    assert (job.show()["JobState"], job.show()["Restarts"]) == ("CANCELLED", "1"), job.text()[-2000:]
