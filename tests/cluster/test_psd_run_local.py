# SPDX-License-Identifier: Apache-2.0
"""psd_run on one machine: codes, logs, signals, and that nothing is ever left behind.

The workers here are shell scripts that never join the job, so servers and master do not leave by
themselves: --grace_ms keeps that wait short."""

import json
import getpass
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

import pytest

from helpers import (BRISK, SANITIZED, bin_directory, free_port, library_path, program,
                     python_worker, wait_for)

QUICK = ("--grace_ms", "100")

# Ignores TERM, has a child, and a grandchild in a session of its own that ignores TERM as well.
STUBBORN = """trap '' TERM
(setsid sh -c 'trap "" TERM; while :; do sleep 100; done' &)
sleep 100 &
echo up
while :; do wait; sleep 100; done
"""


def script(tmp_path, text, name="script.sh"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.smoke
def test_success_prefixes_logs_and_summary(start):
    """If this fails, the first command of the manual does not work."""
    job = start(
        *QUICK, "--workers", 2, "--servers", 2,
        "sh -c 'echo \"I am $PSD_RANK of $PSD_WORLD\"; echo oops >&2; printf end'",
    )
    assert job.wait() == 0, job.stderr()
    for rank in (0, 1):
        assert f"[worker{rank}] I am {rank} of 2\n" in job.stdout()
        assert f"[worker{rank}] end\n" in job.stdout()
        assert job.log(f"worker{rank}") == f"I am {rank} of 2\noops\nend".encode()
    assert "job ended well in" in job.stderr()
    assert "2 workers, 2 servers; logs in ./logs/poseidon_log_" in job.stderr()
    for name in ("master", "server0", "server1", "worker0", "worker1"):
        assert f"PROCESS {name} pid" in job.run_log()
        job.log(name)


# Listens on its own port and greets all the others, as a library that talks from worker to worker.
MEET = """import os, socket
peers = os.environ["PSD_PEERS"].split(",")
own = peers[int(os.environ["PSD_RANK"])]
assert own == f"tcp://{os.environ['PSD_ADDR']}:{os.environ['PSD_PORT']}", own
listener = socket.create_server((os.environ["PSD_ADDR"], int(os.environ["PSD_PORT"])))
listener.settimeout(20)
for peer in peers:
    host, port = peer.removeprefix("tcp://").rsplit(":", 1)
    while True:
        try:
            sent = socket.create_connection((host, int(port)), 20)
            break
        except ConnectionRefusedError:
            pass  # it has not come so far
    sent.sendall(b"x")
for _ in peers:
    assert listener.accept()[0].recv(1) == b"x"
print("met", len(peers), "in", os.environ["PSD_LOG_DIR"], os.environ.get("OMP_NUM_THREADS"))
"""


def test_names_of_all_processes(start):
    """If this fails, a script that wants names must guess who runs where."""
    job = start("--workers", 2, "--servers", 1, "sh -c 'echo hosts $PSD_HOSTS'")
    assert job.wait() == 0, job.stderr()
    names = ",".join(f"{name}=127.0.0.1" for name in ("master", "server0", "worker0", "worker1"))
    assert f"[worker1] hosts {names}\n" in job.stdout()


def test_servers_hear_that_workers_are_done(start):
    """If this fails, nobody can see in a server's log which workers it still had."""
    job = start("--workers", 2, "--servers", 2, *BRISK, "--", *python_worker("--steps", 3))
    assert job.wait() == 0, job.stderr()
    (directory,) = (job.directory / "logs").iterdir()
    for server in range(2):
        text = (directory / f"server{server}.log").read_text()
        for worker in range(2):
            assert text.count(f"ps {server} received done {worker}\n") == 1, text


def test_workers_find_each_other(start, tmp_path):
    """If this fails, workers that talk to each other need their addresses written by hand."""
    path = script(tmp_path, MEET, "meet.py")
    jobs = [start(*QUICK, "--workers", 3, f"{sys.executable} {path}", name=name)
            for name in ("one", "two")]
    for job in jobs:
        assert job.wait() == 0, job.stdout() + job.stderr()
        (logs,) = (job.directory / "logs").iterdir()
        share = max(1, len(os.sched_getaffinity(0)) // 3)
        for rank in range(3):
            assert job.log(f"worker{rank}").decode() == f"met 3 in {logs} {share}\n"
        assert f"OMP_NUM_THREADS={share} for each worker" in job.run_log()


# In its first life rank 0 takes the port of rank 1, which waits for that and then wants it.
SNATCH = """import os, signal, socket, sys
rank, first = os.environ["PSD_RANK"], os.environ["PSD_RESTART_COUNT"] == "0"
victim = (os.environ["PSD_ADDR"], int(os.environ["PSD_PEERS"].rsplit(":", 1)[1]))
if rank == "0" and first:
    thief = socket.create_server(victim)
    signal.pause()
while rank == "1" and first:
    try:
        socket.create_connection(victim, 20)
        break
    except ConnectionRefusedError:
        pass  # not taken yet
socket.create_server((os.environ["PSD_ADDR"], int(os.environ["PSD_PORT"])))
print("listens")
"""


def test_port_that_somebody_took(start, tmp_path):
    """If this fails, a program that has nothing to do with the job can make it fail."""
    job = start(*QUICK, "--workers", 2,
                f"{sys.executable} {script(tmp_path, SNATCH, 'snatch.py')}")
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert "worker1: somebody else has port" in job.run_log()
    assert job.stderr().count("the job starts again with other ports") == 1
    assert job.log("worker1.1") == b"listens\n" and b"Address already in use" in job.log("worker1")


def test_threads_that_somebody_chose(start):
    """If this fails, psd_run undoes what its user said about threads, or slows a lone worker."""
    job = start(*QUICK, "--workers", 2, "sh -c 'echo $OMP_NUM_THREADS'", environment={
        "OMP_NUM_THREADS": "5"})
    assert job.wait() == 0
    assert job.log("worker0") == b"5\n" and "OMP_NUM_THREADS=" not in job.run_log()
    job = start(*QUICK, "sh -c 'echo $OMP_NUM_THREADS'", name="alone")
    assert job.wait() == 0
    assert job.log("worker0") == b"\n"


def test_workers_start_when_the_servers_are_there(start, tmp_path):
    """If this fails, workers run while a server that never comes is still waited for."""
    begun = tmp_path / "begun"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = tmp_path / "bin"
    slow.mkdir()
    for name in ("psd_run", "ps_master"):
        shutil.copy(bin_directory() / name, slow / name)
    script(slow, f'#!/bin/sh\nread line < {gate}\nexec {program("ps_server")} "$@"\n', "ps_server")
    (slow / "ps_server").chmod(0o755)
    job = start(*QUICK, f"touch {begun}", bin_path=slow)
    job.master_address()
    with open(gate, "w", encoding="ascii") as file:  # opens when the server reads it
        assert "START worker0" not in job.run_log() and not begun.exists()
        file.write("go\n")
    assert job.wait() == 0, job.stderr()
    assert begun.exists()


@pytest.mark.parametrize("keep", [False, True])
def test_variables_that_somebody_has_set(start, tmp_path, keep):
    """If this fails, a variable left over in a shell gives two workers one rank, or one that was
    set on purpose cannot win."""
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({"worker_nodes": [
        {"host": "localhost", "env": {"PSD_ROLE": "chief"}}, "localhost"],
        "server_nodes": ["localhost"], "env": {"PSD_JOB_ID": "mine"}}))
    job = start(*QUICK, *(["--keep_env"] if keep else []), "-c", config,
                "sh -c 'echo $PSD_RANK $PSD_JOB_ID $PSD_ROLE $PSD_WORLD_SIZE'",
                environment={"PSD_RANK": "7"})
    assert job.wait() == 0, job.stderr()
    assert [job.log(f"worker{i}").decode() for i in (0, 1)] == (
        ["7 mine chief 2\n", "7 mine worker 2\n"] if keep else
        ["0 sh worker 2\n", "1 sh worker 2\n"])
    assert job.stderr().count("you have set PSD_RANK, PSD_ROLE, PSD_JOB_ID, but workers get the job's "
                              "own") == (0 if keep else 1)


def test_gpus_are_dealt_out(start, tmp_path):
    """If this fails, all workers of a machine crowd on its first GPU."""
    job = start(*QUICK, "--workers", 2, "--gpus_per_worker", 2, "sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    assert job.wait() == 0, job.stderr()
    assert [job.log(f"worker{i}") for i in (0, 1)] == [b"0,1\n", b"2,3\n"]
    job = start(*QUICK, "--workers", 2, "--gpus_per_worker", 2, "sh -c 'echo $CUDA_VISIBLE_DEVICES'",
                environment={"CUDA_VISIBLE_DEVICES": "4,GPU-5af,6,7"}, name="given")
    assert job.wait() == 0, job.stderr()
    assert [job.log(f"worker{i}") for i in (0, 1)] == [b"4,GPU-5af\n", b"6,7\n"]
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({"worker_nodes": [{"host": "localhost", "slots": 3, "gpus": 4}],
                                  "server_nodes": ["localhost"]}))
    job = start("-c", config, "--gpus_per_worker", 2, "true", name="many")
    assert job.wait() == 2
    assert "localhost has 4 GPUs for 3 workers" in job.stderr()


# Hands on what podman would and no more: named variables, and the first descriptors.
PODMAN = """#!{python}
import os, sys
assert sys.argv[1] == "run", sys.argv
words = sys.argv[2:]
options = [words.pop(0) for _ in range(sum(word.startswith("--") for word in words[:words.index("IMAGE")]))]
assert words.pop(0) == "IMAGE" and "--rm" in options
kept = sum(int(word.split("=")[1]) for word in options if word.startswith("--preserve-fds="))
names = [word.split("=", 1)[1] for word in options if word.startswith("--env=")]
os.closerange(3 + kept, 1 << 16)
os.fstat(2 + kept)
os.execve(words[0], words, {{name: os.environ[name] for name in names if name in os.environ}})
"""


def image_job(start, tmp_path, image, *command, name="job"):
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({
        "worker_nodes": ["localhost"] * 2, "server_nodes": ["localhost"], "image": image,
        "env": {"PSD_LIB": str(library_path()), "SECRET_WORD": "hunter2"}}))
    return start(*BRISK, "-c", config, "-x", "GIVEN", "--", *command, name=name,
                 environment={"GIVEN": "g", "LEFT_OUT": "x", "LD_LIBRARY_PATH": "/outside"})


def test_podman(start, tmp_path):
    """If this fails, a worker in a container knows neither its place nor the job's secret."""
    podman = script(tmp_path, PODMAN.format(python=sys.executable), "podman")
    podman.chmod(0o755)
    job = image_job(start, tmp_path, f"{podman} run --rm IMAGE", *python_worker("--steps", 5))
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert job.log("worker1").decode().splitlines()[-1] == "closed"
    assert "--env=SECRET_WORD " in job.run_log() and "hunter2" not in job.run_log()
    job = image_job(start, tmp_path, f"{podman} run --rm IMAGE", "/usr/bin/env", name="env")
    assert job.wait() == 0, job.stderr()
    lines = job.log("worker1").decode().splitlines()
    assert {"PSD_RANK=1", "PSD_SECRET_FD=3", "GIVEN=g", "SECRET_WORD=hunter2"} <= set(lines)
    assert not [line for line in lines if line.startswith(("LEFT_OUT", "LD_LIBRARY_PATH"))]


def test_program_of_an_image_is_looked_for_inside(start, tmp_path):
    """If this fails, a machine needs outside what only the container has; or a missing podman is
    found when half of the job runs."""
    inside = script(tmp_path, "#!/bin/sh\necho inside $1\n", "apptainer")
    inside.chmod(0o755)
    job = image_job(start, tmp_path, f"{inside}", "only-in-there", "train.py")
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert job.log("worker0") == b"inside only-in-there\n"
    job = image_job(start, tmp_path, "podmann run IMAGE", "true", name="missing")
    assert job.wait() == 3
    assert "image: podmann: no such program" in job.stderr()


@pytest.mark.parametrize("image,text", [
    ("docker run --rm IMAGE", "podman run, with the same options, and apptainer exec hand it on"),
    ("podman IMAGE", "needs a verb"),
])
def test_images_that_cannot_work(start, tmp_path, image, text):
    """If this fails, workers wait in a container for a job whose secret they cannot have."""
    job = image_job(start, tmp_path, image, "true")
    assert job.wait() == 2
    assert text in job.stderr()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signal_that_nobody_handles(start, tmp_path, number):
    """If this fails, a warning that the time is nearly up ends workers that know nothing of it."""
    gate = tmp_path / "gate"
    waits = f"until [ -e {gate} ]; do sleep 0.05; done; exec true"
    hears = (f"import os, signal, time; signal.signal({number}, lambda *_: open({str(gate)!r}, 'w')); "
             f"print('up', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)")
    job = start(*QUICK, "--workers", 2, "--auto=off", "--", "sh", "-c",
                f"if [ $PSD_RANK = 0 ]; then echo up; {waits}; else {sys.executable} -c \"{hears}\"; fi")
    job.wait_for_output("up", count=2)
    job.process.send_signal(number)
    assert job.wait() == 0, job.stderr()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT])
def test_signals_for_the_workers(start, tmp_path, number):
    """If this fails, a training that saves when it is told to is never told."""
    text = f"trap 'echo told; exit 0' {number.value}\necho up\nwhile :; do sleep 0.02; done\n"
    job = start(*QUICK, "--workers", 2, f"sh {script(tmp_path, text)}")
    job.wait_for_output("up", 2)
    job.process.send_signal(number)
    assert job.wait() == 0, job.stderr()
    assert job.stdout().count("told") == 2


def test_server_that_never_leaves(start, tmp_path):
    """If this fails, a finished training hangs because a service does not notice its end."""
    own = tmp_path / "bin"
    own.mkdir()
    for name in ("psd_run", "ps_master"):
        shutil.copy(bin_directory() / name, own / name)
    script(own, f"""#!/bin/sh
trap '' TERM
{program("ps_server")} "$@"
echo stays
while :; do sleep 1; done
""", "ps_server").chmod(0o755)
    job = start(*BRISK, "--grace_ms", 300, "--workers", 2, "--", *python_worker("--steps", 5),
                bin_path=own)
    assert job.wait() == 0, job.stderr()
    assert b"stays" in job.log("server0") and "job ended well" in job.stderr()


def test_plain_program(start):
    """If this fails, a command that is no worker takes ten seconds and two red lines to say so."""
    job = start("--workers", 2, "true")
    assert job.wait(9) == 0, job.stderr()
    assert "no worker joined the job: each ran the command by itself, as a plain program" in job.stderr()
    assert "SIGTERM" not in job.stderr()


def test_exit_code_of_the_first_failure(start):
    """If this fails, a failed training looks like a success, or the others run on."""
    job = start(
        "--workers", 3,
        "sh -c 'if [ $PSD_RANK = 1 ]; then echo the reason; exit 3; fi; exec sleep 100'",
    )
    assert job.wait() == 3
    assert "| the reason" in job.stderr()
    *_, last = job.stderr().splitlines()
    assert "worker 1 (pid" in last and "ended with code 3; it printed last: the reason; logs in" in last, last


def test_killed_worker_gives_128_plus_signal(start):
    """If this fails, a crash is reported as something else."""
    job = start("sh -c 'kill -SEGV $$'")
    assert job.wait() == 128 + signal.SIGSEGV
    assert "was killed by signal 11" in job.stderr()


@pytest.mark.parametrize("name", ["server0", "master"])
def test_killed_daemon_ends_the_job(start, name):
    """If this fails, a job without its server hangs until somebody looks."""
    job = start("--workers", 2, "--master_restarts", 0, "sh -c 'echo up; exec sleep 100'")
    job.wait_for_output("up", 2)
    os.kill(job.pid_of(name), signal.SIGKILL)
    assert job.wait(60) == 128 + signal.SIGKILL
    assert f"{'ps_master' if name == 'master' else 'server 0'} (pid" in job.stderr()


def test_on_worker_death_continue(start):
    """If this fails, one lost worker ends a job that was told to go on."""
    job = start(
        *QUICK, "--workers", 2, "--on_worker_death=continue", "sh -c '[ $PSD_RANK = 0 ] || exit 9'"
    )
    assert job.wait() == 0, job.stderr()
    assert "(worker 1 died on the way)" in job.stderr()


def test_the_last_line_names_all_who_died(start):
    """If this fails, of a job that lost several workers nobody can tell which, or the line has no end."""
    job = start(*QUICK, "--workers", 4, "--on_worker_death=continue", "sh -c '[ $PSD_RANK = 2 ] || exit 9'")
    assert job.wait() == 0, job.stderr()
    assert "(workers 0, 1 and 3 died on the way)" in job.stderr()
    job = start(*QUICK, "--workers", 80, "--on_worker_death=continue", "sh -c '[ $PSD_RANK = 2 ] || exit 9'")
    assert job.wait() == 0, job.stderr()
    assert re.search(r"\(workers 0, 1, 3, [0-9, ]+ \d+ more died on the way\); logs in", job.stderr())


def test_on_worker_death_wait_restarts(start):
    """If this fails, a worker is not replaced, or its logs overwrite each other."""
    job = start(
        *QUICK, "--on_worker_death=wait",
        "sh -c 'echo life $PSD_RESTART_COUNT rank $PSD_RANK; [ $PSD_RESTART_COUNT = 2 ]'",
    )
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0") == b"life 0 rank 0\n"
    assert job.log("worker0.1") == b"life 1 rank 0\n"
    assert job.log("worker0.2") == b"life 2 rank 0\n"


def test_restarts_are_limited(start):
    """If this fails, a worker that always dies is restarted for ever."""
    job = start("--on_worker_death=wait", "--max_restarts", 1, "sh -c 'exit 5'")
    assert job.wait() == 5
    assert job.run_log().count("PROCESS worker0 pid") == 2


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_lets_workers_finish(start, number, code):
    """If this fails, Ctrl-C loses what a worker could have saved."""
    job = start(
        "--workers", 2,
        "sh -c 'trap \"echo saved; exit 0\" TERM; echo up; while :; do sleep 0.05; done'",
    )
    job.wait_for_output("up", 2)
    job.process.send_signal(number)
    assert job.wait() == code
    assert job.stdout().count("saved") == 2


def test_second_interrupt_kills_at_once(start, tmp_path):
    """If this fails, an impatient second Ctrl-C leaves processes or waits for the stubborn."""
    job = start("--workers", 2, f"sh {script(tmp_path, STUBBORN)}")
    job.wait_for_output("up", 2)
    job.process.send_signal(signal.SIGINT)
    wait_for(lambda: "INTERRUPT" in job.run_log(), 30, "the first signal is seen")
    job.process.send_signal(signal.SIGINT)
    assert job.wait(4) == 130


def test_kill_9_of_psd_run_leaves_nothing(start, tmp_path):
    """If this fails, an out-of-memory kill of the launcher leaves a job without a head."""
    job = start("--workers", 2, f"sh {script(tmp_path, STUBBORN)}")
    job.wait_for_output("up", 2)
    job.process.kill()
    job.process.wait()
    job.expect_nothing_left(10)


def test_kill_9_of_the_agent_leaves_nothing(start, tmp_path):
    """If this fails, a dead agent leaves its children to nobody."""
    job = start("--workers", 2, f"sh {script(tmp_path, STUBBORN)}")
    job.wait_for_output("up", 2)
    os.kill(job.agent_pid(), signal.SIGKILL)
    assert job.wait(60) == 72
    assert "psd_run's helper process on this machine" in job.stderr()


def test_background_children_end_with_the_job(start, tmp_path):
    """If this fails, a data loader outlives the training that started it."""
    text = "(setsid sleep 100 &)\nsleep 100 &\nexit 0\n"
    job = start(*QUICK, f"sh {script(tmp_path, text)}")
    assert job.wait() == 0


def test_hang_up_is_ignored_under_nohup(start):
    """If this fails, closing a terminal ends a job that nohup should have kept."""
    job = start("sh -c 'echo up; exec sleep 100'", prefix=("nohup",))
    job.wait_for_output("up")
    job.process.send_signal(signal.SIGHUP)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 143
    assert "INTERRUPT signal 1\n" not in job.run_log()


def test_hang_up_ends_the_job_otherwise(start):
    """If this fails, closing a terminal leaves the job running unseen."""
    job = start("sh -c 'echo up; exec sleep 100'")
    job.wait_for_output("up")
    job.process.send_signal(signal.SIGHUP)
    assert job.wait() == 128 + signal.SIGHUP


def test_much_output_is_complete(start):
    """If this fails, lines are lost or torn when workers print as fast as they can."""
    job = start(*QUICK, "--workers", 4, "sh -c 'seq 1 20000 | sed \"s/$/ of $PSD_RANK/\"'")
    assert job.wait() == 0
    lines = set(job.stdout().splitlines())
    for rank in range(4):
        wanted = [f"{i} of {rank}" for i in range(1, 20001)]
        assert job.log(f"worker{rank}").decode().splitlines() == wanted
        assert {f"[worker{rank}] {line}" for line in wanted} <= lines


def test_command_list_and_placeholders(start):
    """If this fails, workers do not get their own commands."""
    job = start(*QUICK, "--workers", 2, "echo first {rank}/{world}, echo second {rank} {role}")
    assert job.wait() == 0
    assert "[worker0] first 0/2\n" in job.stdout()
    assert "[worker1] second 1 worker\n" in job.stdout()


def test_flags_only_for_scripts_that_know_them(start, tmp_path):
    """If this fails, old scripts miss their flags, or strict ones die of them."""
    knows = script(tmp_path, "echo \"$@\" # master_address\n", "knows.sh")
    plain = script(tmp_path, "echo \"<$@>\"\n", "plain.sh")
    job = start(*QUICK, "--", "sh", knows, "--x", name="knows")
    assert job.wait() == 0
    assert "--x --distributed --master_address tcp://127.0.0.1:" in job.stdout()
    assert "--client_id 0\n" in job.stdout()
    job = start(*QUICK, "--", "sh", plain, "--x", name="plain")
    assert job.wait() == 0
    assert "[worker0] <--x>\n" in job.stdout()


def test_cluster_file(start, tmp_path):
    """If this fails, the documented way to describe a cluster does not work."""
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({
        "worker_nodes": ["127.0.0.1", {"host": "localhost", "env": {"SIDE": "right"}}],
        "server_nodes": ["localhost"],
        "env": {"SIDE": "left", "FROM": "file"},
        "worker_commands": ["sh -c 'echo $SIDE $FROM'", "sh -c 'echo $SIDE $FROM'"],
    }))
    job = start(*QUICK, "-c", config, "--out=elsewhere")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0", "elsewhere") == b"left file\n"
    assert job.log("worker1", "elsewhere") == b"right file\n"


def test_two_jobs_at_once(start, tmp_path):
    """If this fails, two users of one machine cannot run jobs at the same time."""
    jobs = [start(*QUICK, "-o", tmp_path / "shared", "sh -c 'echo $PSD_MASTER_ADDRESS'",
                  name=f"job{i}") for i in range(3)]
    assert [job.wait() for job in jobs] == [0, 0, 0]
    assert len({job.stdout() for job in jobs}) == 3
    assert len(list((tmp_path / "shared").iterdir())) == 3


@pytest.mark.all
def test_two_jobs_at_once_many_times(start):
    """If this fails, two jobs now and then choose the same port, name or directory."""
    for i in range(50):
        jobs = [start("sh -c 'echo $PSD_MASTER_ADDRESS'", name=f"{i}-{k}") for k in range(2)]
        assert [job.wait() for job in jobs] == [0, 0], jobs[0].stderr() + jobs[1].stderr()
        assert jobs[0].stdout() != jobs[1].stdout()


@pytest.mark.parametrize("arguments,code,text", [
    ((), 2, "nothing to run"),
    (("--hartbeat_ms=3", "true"), 2, "did you mean --heartbeat_ms?"),
    (("echo 'abc",), 2, "column 6"),
    (("--workers", "0x", "true"), 2, "--workers"),
    (("--workers", "3", "echo a, echo b"), 2, "2 commands for 3 workers"),
    (("echo a, echo b",), 2, "2 commands for 1 worker: \"A, B\" is a command for each worker"),
    (("--workers", "two", "true"), 2, "two is not a number from 1 to 1024"),
    (("lst",), 2, "did you mean list?"),
    (("lgos", "worker0"), 2, "did you mean logs?"),
    (("-c", "nowhere.json", "true"), 2, "nowhere.json"),
    (("--pass=some", "true"), 2, "pass=some"),
    (("no-such-program",), 3, "no-such-program: no such program"),
    (("-o", "/dev/null/x", "true"), 3, "/dev/null"),
    (("show",), 3, "no job of yours runs on this machine"),
    (("show", "a", "b"), 2, "b is one argument too many"),
    (("show", "--jsn"), 2, "did you mean --json?"),
    (("logs",), 2, "of which process?"),
    (("logs", "--since", "soon", "worker0"), 2, "30s, 10m or 2h"),
    (("stop", "nobody"), 3, "no job of yours"),
    (("status",), 2, "psd_run show"),
    (("secret",), 2, "usage: psd_run secret FILE"),
    (("secret", "a", "b"), 2, "usage: psd_run secret FILE"),
    (("secret", "--help-me"), 2, "usage: psd_run secret FILE"),
    (("--restart=always", "true"), 2, "must be one of never, on-failure, exit-code"),
    (("--restart=never", "--on_worker_death=wait", "true"), 2,
     "--restart=never and on_worker_death=wait contradict each other"),
    (("--restart=on-failure", "--on_worker_death=continue", "true"), 2, "contradict each other"),
    (("--restart_scope=group", "true"), 2, "give --restart=on-failure"),
    (("--check", "--dry_run", "true"), 2, "--check and --dry_run contradict each other"),
    (("--detach", "--check", "true"), 2, "--detach and --check contradict each other"),
    (("--result_regex=(", "true"), 2, "result_regex '('"),
    (("--name", "a/b", "true"), 2, "--name a/b"),
    (("--show=first", "true"), 2, "--show=first: must be all, none or ranks like 0,2-5"),
    (("--log_mode=nowhere", "true"), 2, "must be one of launcher, nodes, both"),
    (("--sync", "/nowhere", "-c", "two.json", "true"), 2, "two.json"),
])
def test_mistakes_are_explained(start, arguments, code, text):
    """If this fails, a mistake on the command line starts something or explains nothing."""
    job = start(*arguments)
    assert job.wait() == code
    assert text in job.stderr()
    assert "PROCESS" not in job.run_log()


def test_machine_without_an_address(start, tmp_path):
    """If this fails, a name that nobody knows starts half a job, or is not named."""
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({"worker_nodes": ["localhost", "no-such-host.invalid"],
                                  "server_nodes": ["::1"], "username": "ann"}))
    job = start("-c", config, "true")
    assert job.wait() == 3
    assert "no-such-host.invalid (ssh ann@no-such-host.invalid): " in job.stderr()
    assert "run: ssh ann@no-such-host.invalid true" in job.stderr()
    assert "PROCESS" not in job.run_log()


@pytest.mark.parametrize("node", ["127.0.0.1:{port}", "ann@127.0.0.1", "[::1]:{port}"])
def test_login_to_this_machine(start, tmp_path, node):
    """If this fails, a port or a user of ssh is dropped in silence and the job runs as it likes."""
    node = node.format(port=free_port())
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({"worker_nodes": [node], "server_nodes": ["localhost"],
                                  "ssh_options": ["-oProxyCommand=false"]}))
    job = start("-c", config, "--trust_ssh_options", "true")
    assert job.wait() == 3
    assert "(ssh " in job.stderr()
    assert "PROCESS" not in job.run_log()


@pytest.mark.parametrize("asked", [["--check"], ["--dry_run"], []])
@pytest.mark.parametrize("evil", ["-oProxyCommand=touch evil", "-oHostname=\"x'$(>evil)'\""])
def test_a_cluster_file_runs_nothing_here(start, tmp_path, asked, evil):
    """If this fails, whoever wrote a cluster file runs what they like on the user's machine."""
    config = tmp_path / "cluster.json"
    config.write_text(json.dumps({"worker_nodes": ["no-such-host.invalid"],
                                  "server_nodes": ["localhost"],
                                  "ssh_options": ["-Jno-such-gate.invalid", evil]}))
    job = start("-c", config, *asked, "true")
    assert job.wait() == 2
    assert f'"{evil}" is not among those that are known' in job.stderr(), job.stderr()
    assert "--trust_ssh_options" in job.stderr()
    assert not (job.directory / "evil").exists()


def test_missing_daemons_are_named(start, tmp_path):
    """If this fails, a broken installation gives a riddle."""
    alone = tmp_path / "alone"
    alone.mkdir()
    program = alone / "psd_run"
    program.write_bytes((bin_directory() / "psd_run").read_bytes())
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    job = start("true", bin_path=alone, environment={"PATH": "/usr/bin:/bin"})
    assert job.wait() == 3
    assert "ps_master: neither in" in job.stderr()


def test_show_without_a_master(start):
    """If this fails, `show` hangs or fails without saying why."""
    job = start("show", "--master", "tcp://127.0.0.1:1")
    assert job.wait() == 3
    assert "tcp://127.0.0.1:1" in job.stderr()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is warned")
def test_root_is_warned_in_the_logs(start):
    """If this fails, what a new user reads first has nothing to do with the job."""
    job = start("--servers", 3, "true")
    assert job.wait() == 0
    assert " AS-ROOT " not in job.stderr(), "on one machine the logs have it"
    assert b" AS-ROOT " in job.log("master") and b" AS-ROOT " in job.log("server2")


def test_secrets_stay_out_of_the_run_log(start):
    """If this fails, whoever reads a log reads a password."""
    job = start(*QUICK, "--", "true", "--token", "hunter2", "--api_key=hunter3")
    assert job.wait() == 0
    assert "hunter" not in job.run_log()


def test_help_teaches(start):
    """If this fails, -h does not show how to begin."""
    job = start("-h")
    assert job.wait() == 0
    for text in ("--cluster_config", '"worker_nodes"', "examples", "exit code", "--heartbeat_ms"):
        assert text in job.stdout()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_secret_writes_no_file(start, flag):
    """If this fails, asking for help leaves a secret in a file named -h."""
    job = start("secret", flag)
    assert job.wait() == 0
    assert "usage: psd_run secret FILE" in job.stdout()
    assert {path.name for path in job.directory.iterdir()} == {"stdout", "stderr"}


def test_version(start):
    """If this fails, nobody can tell which psd_run a machine has."""
    job = start("--version")
    assert job.wait() == 0
    assert re.fullmatch(r"psd_run \d+\.\d+\.\d+\n", job.stdout())


def test_near_misses_of_variables_are_named(start):
    """If this fails, a setting with a letter missing is silently ignored."""
    job = start("--dry_run", "true", environment={"PSD_HARTBEAT_MS": "10", "PSD_LIBX": "1"})
    assert job.wait() == 0
    assert "PSD_HARTBEAT_MS is set, but psd_run knows none of that name; did you mean " \
        "PSD_HEARTBEAT_MS?" in job.stderr()
    assert "PSD_LIBX" not in job.stderr()


# ---------------------------------------------------------------------------------- names, verbs ---


def verb(job, *words, code=0):
    """Runs psd_run show, logs, stop or list where the job was started."""
    done = subprocess.run([program("psd_run"), *words], cwd=job.directory, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def held(start, tmp_path):
    """A job named held: worker 0 waits at step 15 until the gate opens."""
    gate = tmp_path / "gate"
    job = start("--name", "held", "--workers", 2, "--servers", 2, "--", *python_worker(
        "--steps", 30, "--hold", f"15:{gate}"))
    job.gate = gate
    job.wait_for_output("holding")
    yield job
    gate.touch()
    job.wait()


def test_show_of_a_running_job(held):
    """If this fails, nobody sees how a job of psd_run is doing without its secret."""
    wait_for(lambda: verb(held, "show", "--json").count('"step": 14') == 2, 10,
             "step 14 of both workers is known")
    story = json.loads(verb(held, "show", "hel", "--json"))
    assert (story["name"], story["state"], story["exit_code"]) == ("held", "running", None)
    assert [process["name"] for process in story["processes"]] == [
        "master", "server0", "server1", "worker0", "worker1"]
    assert all(process["state"] == "running" for process in story["processes"])
    lines = verb(held, "show").splitlines()
    heads = [line for line in lines if line.startswith("PROCESS")][0].split()
    assert heads == ["PROCESS", "MACHINE", "COMMAND", "HOSTNAME", "PID", "STATUS", "CREATED", "STEP",
                     "STEPS/S", "VALUE", "ADDRESS"]
    row = [line for line in lines if line.startswith("worker0")][0]
    assert f' {story["processes"][3]["pid"]} ' in row
    assert "loss=0.0666667" in row and "running" in row and "..." in row
    assert "worker.py" in verb(held, "show", "--no_trunc")
    assert verb(held, "list").splitlines()[1].split()[:3] == ["held", str(held.process.pid),
                                                              "running"]
    assert "which job? or none" not in verb(held, "show", "other", code=3)


def test_logs_of_a_running_job(held):
    """If this fails, people must look for files to see what a worker prints."""
    assert verb(held, "logs", "worker0").splitlines()[-1] == "holding"
    assert "JOB-START" in verb(held, "logs", "held", "mas")
    assert "which one?" in verb(held, "logs", "worker", code=3)
    candidates = verb(held, "logs", "wrker0", code=3).partition("; it has: ")[2]
    assert sorted(candidates.partition(" (")[0].split()) == ["master", "server0", "server1", "worker0", "worker1"]
    assert verb(held, "logs", "--since", "0s", "worker0") == ""
    assert verb(held, "logs", "--since", "1h", "worker0") == verb(held, "logs", "worker0")
    stamped = verb(held, "logs", "-t", "worker0").splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} started", stamped)
    with subprocess.Popen([program("psd_run"), "logs", "-f", "worker1"], cwd=held.directory,
                          stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline() == "started\n", "it follows before the job goes on"
        held.gate.touch()
        assert held.wait() == 0
        assert follower.communicate(timeout=120)[0].splitlines()[-1] == "closed"
    assert verb(held, "logs", "worker1").splitlines()[-1] == "closed", "after its end, too"


def test_stop_of_a_running_job(held):
    """If this fails, a job can only be stopped by the terminal that started it."""
    assert "job held is stopped" in verb(held, "stop", "held")
    assert held.wait() == 143
    assert "no job of yours" in verb(held, "list")
    assert verb(held, "stop", code=3) == "psd_run: no job of yours runs on this machine\n"


def look(job, *words):
    done = subprocess.run([program("psd_run"), "logs", *words], cwd=job.directory,
                          capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def test_logs_are_those_of_this_directory(start, held):
    """If this fails, somebody reads the log of another job, and believes it to be of theirs."""
    mine = start(*QUICK, "--name", "mine", "echo of mine", name="mine")
    assert mine.wait() == 0
    said = look(mine, "worker0")
    assert said[0] == "of mine\n"
    assert re.fullmatch(r"psd_run: this is of a job that has ended: \./logs/\S+/worker0\.log\n",
                        said[1])
    out, err = look(held, "worker0")
    assert out.endswith("holding\n") and "this is of job held, which runs: /" in err
    (mine.directory / "logs").rename(mine.directory / "moved")
    out, err = look(mine, "worker0")
    assert out.endswith("holding\n") and "this is of job held, which runs: /" in err
    assert look(mine, "-o", "moved", "worker0") == ("of mine\n", "")
    assert look(mine, "held", "worker0")[1] == ""


def test_logs_of_the_newest_life(start, tmp_path):
    """If this fails, the log of a life long past is shown, or a job that did not start hides those
    of the last one."""
    job = start(*QUICK, "--restart", "on-failure", "--max_restarts", 1,
                "sh -c 'echo life $PSD_RESTART_COUNT; exit 1'")
    assert job.wait() == 1
    assert look(job, "worker0")[0] == "life 1\n"
    (directory,) = (job.directory / "logs").iterdir()
    for life in (10, 9, 11, 2):  # whichever the directory lists first
        (directory / f"worker0.{life}.log").write_text(f"life {life}\n")
    assert look(job, "worker0")[0] == "life 11\n"
    assert look(job, "work")[0] == "life 11\n"
    failed = start("./not-there", name="job")
    assert failed.wait() == 3
    assert len(list((job.directory / "logs").iterdir())) == 2, "or this shows nothing"
    out, err = look(job, "worker0")
    assert out == "life 11\n" and "which is newer, has no log of worker0" in err


def test_names_of_jobs(start, held):
    """If this fails, two jobs share a name and one cannot be reached."""
    second = start("--name", "held", "true", name="second")
    assert second.wait() == 3
    assert "a job named held runs already" in second.stderr()
    third = start("sh -c 'echo up; sleep 100'", name="third")
    third.wait_for_output("up")
    assert re.search(r"which job\? Several run: .*\. Name one: psd_run show \w+\n", verb(held, "show", code=3))
    assert "job sh is stopped" in verb(held, "stop", "sh")
    assert third.wait() == 143


def test_changed_command_replaces_the_job(start):
    """If this fails, "edit and run again" leaves the old job running beside the new one."""
    first = start("run", "--name", "again", "sh -c 'echo one; sleep 100'", name="where")
    first.wait_for_output("one")
    same = subprocess.run([program("psd_run"), "run", "--name", "again",
                           "sh -c 'echo one; sleep 100'"], cwd=first.directory,
                          capture_output=True, text=True, timeout=120, check=True)
    assert "job again runs already, with this very command" in same.stdout
    assert first.process.poll() is None
    other = start("run", "--name", "again", "sh -c 'echo two; sleep 100'", name="other")
    other.wait_for_output("two")
    assert first.wait() == 143
    assert "job again runs and is replaced; what differs: command, directory" in other.stderr()
    by = f"psd_run run (pid {other.process.pid} in {other.directory}), which replaces it"
    assert f"stopping the job: {by}; what differs: command" in first.stderr()
    assert f"INTERRUPT {by}" in first.run_log()
    assert f"stopped by {by}" in json.loads(first.log("result", ending="json"))["cause"]
    assert "job again is stopped" in verb(other, "stop", "again")
    assert other.wait() == 143


@pytest.mark.parametrize("words", [
    ["-o", "elsewhere", "--workers", 2, "--auto=off"], ["--auto", "off", "--workers=2", "--detach"],
    ["--workers", 2, "--auto=off", "--show=0", "--servers=1", "--max_restarts", 3],
    ["--workers", 2, "--auto=off", "--", "sh", "-c", "echo one; sleep 100"]])
def test_the_same_job_is_left_alone_however_it_is_written(start, words):
    """If this fails, another order of options, or another place for logs, kills a running job."""
    first = start("run", "--name", "same", "--workers", 2, "--auto=off",
                  "sh -c 'echo one; sleep 100'", name="where")
    first.wait_for_output("one", count=2)
    command = [] if "--" in words else ["sh -c 'echo one; sleep 100'"]
    same = subprocess.run([program("psd_run"), "run", "--name", "same", *map(str, words), *command],
                          cwd=first.directory, capture_output=True, text=True, timeout=120,
                          check=False)
    assert "job same runs already" in same.stdout, same.stderr
    assert first.process.poll() is None
    assert "job same is stopped" in verb(first, "stop", "same")
    assert first.wait() == 143


@pytest.mark.parametrize("what, words", [
    ("machines", ["--workers", 2]), ("environment", ["-x", "PLACE=here"]),
    ("settings", ["--timeout", 1000]), ("command", ["--token=other"])])
def test_another_job_replaces_whatever_differs(start, what, words):
    """If this fails, a job that was meant to be replaced goes on, and its user waits for the new."""
    first = start("run", "--name", "other", "--", "sh", "-c", "echo one; sleep 100", "x",
                  "--token=one", name="where")
    first.wait_for_output("one")
    token = words.pop() if what == "command" else "--token=one"
    second = start("run", "--name", "other", *words, "--", "sh", "-c", "echo one; sleep 100", "x",
                   token, name="where")
    assert first.wait() == 143
    second.wait_for_output("one")
    assert f"job other runs and is replaced; what differs: {what}\n" in second.stderr()
    assert "job other is stopped" in verb(second, "stop", "other")
    assert second.wait() == 143


def test_another_value_of_a_variable_that_is_handed_on_replaces_the_job(start):
    """If this fails, a run with another value of a variable of -x is taken for the one before."""
    words = ["run", "--name", "valued", "-x", "RATE", "-x", "OTHER_*", "sh -c 'echo $RATE; sleep 100'"]
    first = start(*words, name="where", environment={"RATE": "0.1", "OTHER_A": "a"})
    first.wait_for_output("0.1")
    second = start(*words, name="where", environment={"RATE": "0.2", "OTHER_A": "a"})
    second.wait_for_output("0.2")
    assert first.wait() == 143
    assert "job valued runs and is replaced; what differs: environment\n" in second.stderr()
    third = start(*words, name="where", environment={"RATE": "0.2", "OTHER_A": "b"})
    third.wait_for_output("0.2")
    assert second.wait() == 143
    assert "job valued is stopped" in verb(third, "stop", "valued")
    assert third.wait() == 143


@pytest.mark.parametrize("out", ["my logs", "logs\nof mine", "/".join(["d" * 200] * 19)])
def test_detached_job_with_an_odd_place_for_logs(start, out):
    """If this fails, a job in the background that did not start hides its reason."""
    job = start("--detach", "-o", out, "./not-there")
    assert job.wait() == 3
    assert "not-there: " in job.stderr() and "the job did not start" in job.stderr()
    job = start("--detach", "--name", "odd", "-o", out, "sleep 100", name="runs")
    assert job.process.wait(60) == 0, job.stderr()
    assert f"logs in {out}/poseidon_log_" in job.stdout()
    assert "job odd is stopped" in verb(job, "stop", "odd")
    job.expect_nothing_left()


def test_place_for_logs_that_is_too_long(start):
    """If this fails, logs get names that were cut, or none, and nobody says why."""
    job = start("-o", "/".join(["d" * 200] * 20), "true")
    assert job.wait() in (2, 3)
    assert "leaves no room for the names of logs" in job.stderr()


def test_detached_job(start, tmp_path):
    """If this fails, a job in the background dies with the terminal, or cannot be found again."""
    gate = tmp_path / "gate"
    front = start("--detach", "--name", "behind", *BRISK, "--", *python_worker(
        "--steps", 30, "--hold", f"15:{gate}"))
    assert front.process.wait(60) == 0, front.stderr()
    assert "job behind runs in the background" in front.stdout()
    wait_for(lambda: "holding" in verb(front, "logs", "behind", "worker0"), 30, "it trains")
    assert "behind" in verb(front, "list")
    with subprocess.Popen([program("psd_run"), "logs", "-f", "worker0"], cwd=front.directory,
                          stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline() == "started\n", "it follows before the job goes on"
        gate.touch()
        assert follower.communicate(timeout=120)[0].splitlines()[-1] == "closed"
    front.expect_nothing_left()
    (directory,) = (front.directory / "logs").iterdir()
    assert "job ended well" in (directory / "console.log").read_text()
    assert json.loads((directory / "result.json").read_text())["exit_code"] == 0


def test_detached_job_lets_go_of_its_caller(tmp_path):
    """If this fails, `psd_run --detach ... 2>&1 | tail` waits until the job is over."""
    name = f"behind{os.getpid()}"
    front = subprocess.run([program("psd_run"), "--detach", "--name", name, "sleep 100"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=120)
    try:
        assert front.returncode == 0, front.stderr
        assert "runs in the background" in front.stdout
    finally:
        ended = subprocess.run([program("psd_run"), "stop", name], cwd=tmp_path,
                               capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_detached_job_that_cannot_start(start):
    """If this fails, --detach says that all is well although nothing runs."""
    job = start("--detach", "no-such-program")
    assert job.wait() == 3
    (directory,) = (job.directory / "logs").iterdir()
    assert "no-such-program: no such program" in (directory / "console.log").read_text()
    assert "no-such-program: no such program" in job.stderr()
    assert "the job did not start" in job.stderr()


@pytest.fixture
def runtime():
    """A short path: the names of sockets are."""
    with tempfile.TemporaryDirectory(prefix="psd-rt-") as path:
        yield pathlib.Path(path)


def test_private_directory(start, runtime):
    """If this fails, another user can take the place where jobs are found, or look into it."""
    job = start("sh -c 'echo up; sleep 100'", environment={"XDG_RUNTIME_DIR": str(runtime)})
    job.wait_for_output("up")
    assert stat.S_IMODE((runtime / "poseidon").stat().st_mode) == 0o700
    assert [path.name for path in (runtime / "poseidon").iterdir()] == ["sh.sock"]
    job.process.terminate()
    assert job.wait() == 143
    assert not list(runtime.iterdir()), "the last job takes the directory along"
    (runtime / "poseidon").mkdir(mode=0o755)
    job = start("true", environment={"XDG_RUNTIME_DIR": str(runtime)}, name="second")
    assert job.wait() == 0
    assert "is not a directory of yours alone" in job.stderr()


def test_kill_9_of_a_detached_launcher_leaves_no_entry(start, runtime):
    """If this fails, a job whose launcher was killed stays in the list of jobs as a dead socket."""
    front = start("--detach", "--name", "behind", "sleep 100",
                  environment={"XDG_RUNTIME_DIR": str(runtime)})
    assert front.process.wait(60) == 0, front.stderr()
    assert (runtime / "poseidon" / "behind.sock").exists()
    os.kill(int(re.search(r"\(pid (\d+)\)", front.stdout())[1]), signal.SIGKILL)
    front.expect_nothing_left(10)
    assert not list(runtime.iterdir())


# ------------------------------------------------------------------- restarts, results, looking ---


def test_restart_on_failure_and_by_exit_code(start):
    """If this fails, a policy restarts what it should leave, or leaves what it should restart."""
    command = "sh -c 'echo life $PSD_RESTART_COUNT; [ $PSD_RESTART_COUNT = 2 ] || exit 9'"
    job = start(*QUICK, "--restart=on-failure", command, name="on-failure")
    assert job.wait() == 0, job.stderr()
    job = start(*QUICK, "--restart=exit-code", command, name="exit-code")
    assert job.wait() == 9
    assert job.run_log().count("PROCESS worker0 pid") == 1
    killed = "sh -c '[ $PSD_RESTART_COUNT = 1 ] || kill -9 $$'"
    job = start(*QUICK, "--restart=exit-code", killed, name="killed")
    assert job.wait() == 0, job.stderr()


@pytest.mark.parametrize("scope", ["process", "group"])
def test_restarts_wait(start, scope):
    """If this fails, what fails at once uses its restarts up before the cause can pass."""
    job = start("--personality", "torch", "--restart=on-failure", f"--restart_scope={scope}",
                "--max_restarts", 9, "--", "sh", "-c", "date +%s%N; exit 6")
    wait_for(lambda: "restart 3 of 9, in 2.0 s" in job.stderr(), 30, "the third restart")
    job.process.terminate()  # which nobody has to wait for
    assert job.wait() == 143, job.stderr()
    times = [int(line.split()[1]) / 1e9 for line in job.stdout().splitlines()]
    assert len(times) == 3, "nothing is started in a job that stops"
    assert times[1] - times[0] >= 0.5 and times[2] - times[1] >= 1


def test_restart_of_the_whole_job(start):
    """If this fails, a job whose server died is not begun anew, or its logs are overwritten."""
    job = start(*BRISK, "--workers", 2, "--restart=on-failure", "--restart_scope=group", "--",
                *python_worker("--steps", 10, "--die", "1:done:3"))
    assert job.wait() == 0, job.stderr()
    assert "restart 1 of 3" in job.stderr()
    assert b"joined 1 1" in job.log("worker1.1")
    assert job.log("master.1") and b"step 2" in job.log("worker1")
    job = start(*QUICK, "--restart=on-failure", "--restart_scope=group", "--max_restarts", 2,
                "sh -c 'exit 6'", name="always")
    assert job.wait() == 6
    assert job.run_log().count("PROCESS worker0 pid") == 3


def test_result_in_the_summary(start):
    """If this fails, the line that matters must be looked for among thousands."""
    job = start("--workers", 2, "--result_regex", "^accuracy: [0-9.]+$", "--show", "none",
                "sh -c 'echo accuracy: 0.1; echo accuracy: 0.$PSD_RANK; echo other'")
    assert job.wait() == 0
    assert "psd_run: result: worker0: accuracy: 0.0\n" in job.stderr()
    assert job.stdout() == ""
    (directory,) = (job.directory / "logs").iterdir()
    assert json.loads((directory / "result.json").read_text())["result"] == (
        "worker0: accuracy: 0.0")


def test_result_json_of_a_failure(start):
    """If this fails, a program cannot tell why a job failed."""
    job = start("--workers", 2, "sh -c '[ $PSD_RANK = 0 ] && exec sleep 100; exit 5'")
    assert job.wait() == 5
    (directory,) = (job.directory / "logs").iterdir()
    story = json.loads((directory / "result.json").read_text())
    assert story["exit_code"] == 5 and "worker 1" in story["cause"]
    by_name = {process["name"]: process for process in story["processes"]}
    assert [name for name, process in by_name.items() if process["cause"]] == ["worker1"]
    assert (by_name["worker1"]["state"], by_name["worker1"]["code"]) == ("failed", 5)
    assert (by_name["worker0"]["state"], by_name["worker0"]["signal"]) == ("stopped", 15)
    assert by_name["worker1"]["started"] <= by_name["worker1"]["ended"]


def test_result_that_nobody_printed(start):
    """If this fails, a misspelt expression looks like a job without a result line."""
    job = start("--result_regex", "^accuracy", "echo other")
    assert job.wait() == 0
    assert "result: no line of a worker matches --result_regex '^accuracy'" in job.stderr()


def story_of(job):
    (directory,) = (job.directory / "logs").iterdir()
    return json.loads((directory / "result.json").read_text())


def test_result_json_of_a_stopped_job(start, tmp_path):
    """If this fails, a job that somebody stopped looks like one whose processes failed."""
    job = start("--name", "ended", "--workers", 2, "--servers", 2, *BRISK, "--", *python_worker(
        "--steps", 30, "--hold", f"15:{tmp_path / 'gate'}"))
    job.wait_for_output("holding")
    job.wait_for_step(0, 14)
    job.wait_for_step(1, 14)
    verb(job, "stop", "ended")
    assert job.wait() == 143
    story = story_of(job)
    assert re.fullmatch(rf"stopped by psd_run stop of {getpass.getuser()} \(pid \d+\)", story["cause"]), story
    assert {process["state"] for process in story["processes"]} == {"stopped"}
    assert {process["step"] for process in story["processes"][3:]} == {14}
    assert f"job was {story['cause']} after " in job.stderr() and "job ended" not in job.stderr()


def test_result_json_of_a_short_job(start):
    """If this fails, the steps of a job that ends at once are lost."""
    job = start("--workers", 2, *BRISK, "--", *python_worker("--steps", 300))
    assert job.wait() == 0, job.stderr()
    story = story_of(job)
    assert {process["step"] for process in story["processes"][2:]} == {299}, story["processes"]
    assert {process["state"] for process in story["processes"]} == {"done"}


def test_command_of_a_job_is_the_users(start):
    """If this fails, the list of jobs shows psd_run's options instead of what runs."""
    job = start("--workers", 2, "--name", "plain", "sh -c 'exit 0' --token=hunter2")
    assert job.wait() == 0, job.stderr()
    assert story_of(job)["command"] == "sh -c exit 0 --token=***"
    assert story_of(job)["arguments"].startswith("--workers 2 --name plain ")


def test_worker_without_a_close(start):
    """If this fails, a program that forgets psd_close() looks like a lost connection."""
    job = start(*BRISK, "--", *python_worker("--steps", 3, "--unclosed"))
    assert job.wait() == 70
    assert f"worker 0 (pid {job.pid_of('worker0')}) ended with code 0 without psd_close()" in (
        job.stderr())


def test_timeout(start):
    """If this fails, a job that hangs holds a machine until somebody comes."""
    job = start("--timeout", 1, "sleep 100")
    assert job.wait() == 124
    assert "not done within 1 s" in job.stderr()


def test_workers_that_do_not_join_have_the_time_that_is_given(start):
    """If this fails, a program that never joins is waited for although somebody said how long."""
    job = start("--start_timeout_ms=1500", "sleep 100")
    assert job.wait() == 124
    assert "waiting for worker 0: not here after 1500 ms" in job.stderr()


def test_dry_run_starts_nothing(start):
    """If this fails, looking at what would happen makes it happen."""
    traced = shutil.which("strace") is not None and not SANITIZED  # which look for leaks by ptrace
    job = start("--dry_run", "--workers", 2, "echo {rank} --token=hunter2", prefix=(
        "strace", "-f", "-e", "trace=execve,clone,clone3,fork,vfork,connect", "-o", "trace") if
        traced else ())
    assert job.wait() == 0
    assert "ps_master --workers 2 --servers 1" in job.stdout()
    assert "echo 1 --token=***" in job.stdout() and "hunter2" not in job.stdout()
    assert "PSD_RANK=1" in job.stdout()
    assert {path.name for path in job.directory.iterdir()} <= {"stdout", "stderr", "trace"}
    if traced:
        trace = (job.directory / "trace").read_text()
        assert trace.count("execve(") == 1 and "clone" not in trace and "connect(" not in trace


def test_check_of_this_machine(start):
    """If this fails, --check runs something, or finds fault with what is fine."""
    job = start("--check", "--workers", 2, "touch made")
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert "everything is ready" in job.stdout()
    assert not (job.directory / "made").exists() and not (job.directory / "logs").exists()
    job = start("--check", "no-such-program", name="missing")
    assert job.wait() == 3
    assert "no-such-program: no such program" in job.stdout()


# Tells psd_run something beside its output; the loud one never stops.
NOTES = r"""import os, sys
descriptor = int(os.environ["PSD_NOTE_FD"].split(":")[0])
print("own output", flush=True)
os.write(descriptor, b"a word\x1b[31m to psd_run\nwithout an end: " + b"x" * 5000)
os.write(descriptor, b"\n")
if sys.argv[1:] == ["loud"]:
    for number in range(1000):
        os.write(descriptor, b"again %d\n" % number)
"""


def test_notes_reach_the_console_and_no_log(start, tmp_path):
    """If this fails, what the hook for Python does is not told, or told where it does not belong."""
    path = script(tmp_path, NOTES, "notes.py")
    job = start(*QUICK, "--workers", 2, f"{sys.executable} {path}")
    assert job.wait() == 0, job.stderr()
    assert job.stderr().count(": a word?[31m to psd_run\n") in (1, 2)
    for rank in (0, 1):
        assert job.log(f"worker{rank}") == b"own output\n"
        assert f"NOTE worker{rank}: a word?[31m to psd_run\n" in job.run_log()
    longest = max(len(line) for line in job.stderr().splitlines())
    assert 600 < longest < 700
    job = start(*QUICK, "--workers", 1, f"{sys.executable} {path} loud", name="loud")
    assert job.wait() == 0, job.stderr()
    assert job.run_log().count(" NOTE worker0: ") == 16
    assert "(more notes than are shown)" in job.stderr()
    job = start(*QUICK, "--auto", "off", "sh -c 'echo ${PSD_NOTE_FD-none}'", name="off")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0") == b"none\n"


# Says why it ends, in the first lines of many, and ends: worker 1 for another reason.
LAST_WORDS = r"""import os, sys
descriptor = int(os.environ["PSD_NOTE_FD"].split(":")[0])
rank = os.environ["PSD_RANK"]
for number in range(20):
    os.write(descriptor, b"note %d\n" % number)
os.write(descriptor, b"last word: %s\n" % sys.argv[1 + int(rank)].encode())
print("own output", flush=True)
sys.exit(2)
"""


def test_last_words_are_the_cause(start, tmp_path):
    """If this fails, psd_run's last line does not say why a worker has ended, although that told it; or everybody
    repeats it."""
    path = script(tmp_path, LAST_WORDS, "last_words.py")
    job = start(*QUICK, "--workers", 2, f"{sys.executable} {path} because because")
    assert job.wait() == 2, job.stderr()
    *_, last = job.stderr().splitlines()
    assert re.match(r"psd_run: job ended after \d+\.\d s with code 2: because; logs in ", last), last
    assert job.stderr().count("because") == 1 and "last lines" not in job.stderr()
    (directory,) = (job.directory / "logs").iterdir()
    assert json.loads((directory / "result.json").read_text())["cause"] == "because"
    job = start(*QUICK, "--workers", 2, "--on_worker_death", "continue", f"{sys.executable} {path} thirst hunger",
                name="other")
    assert job.wait() == 2, job.stderr()
    assert re.search(r"ended with code 2 \((thirst|hunger)\); the job goes on without it", job.stderr()), job.stderr()
    assert all(word in job.stderr() for word in ("thirst", "hunger")), job.stderr()


def test_nothing_is_written_through_a_link(start, tmp_path):
    """If this fails, a job in a cloned repository writes into any file of the user's."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    directory = tmp_path / "job"
    (directory / "files").mkdir(parents=True)
    (directory / "poseidon_run.log").symlink_to(precious)
    for name in ("worker_0.json", "worker_0.json.part"):
        (directory / "files" / name).symlink_to(precious)
    job = start(*QUICK, "--personality", "tf_config", "--tf_config_dir", "files", "true")
    assert job.wait() == 0, job.stderr()
    assert precious.read_text() == "precious"
    assert "poseidon_run.log: it is a link" in job.stderr()
    assert json.loads((directory / "files" / "worker_0.json").read_text())["task"]["index"] == 0


def test_job_in_a_job(start):
    """If this fails, a script that starts jobs of its own cannot be run by psd_run."""
    inner = [str(bin_directory().absolute() / "psd_run"), *QUICK, "--workers", "2", "--",
             *python_worker("--steps", 3)]
    job = start(*QUICK, "--auto=off", "--workers", 2, "--", *inner)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    for outer in (0, 1):
        log = "\n".join(line.removeprefix(f"[worker{outer}] ")
                        for line in (job.stdout() + job.stderr()).splitlines()
                        if line.startswith(f"[worker{outer}] "))
        for rank in (0, 1):
            assert f"[worker{rank}] closed" in log
        assert "job ended well" in log and "you have set" not in log
