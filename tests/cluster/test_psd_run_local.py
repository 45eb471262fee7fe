# SPDX-License-Identifier: Apache-2.0
"""psd_run on one machine: codes, logs, signals, and that nothing is ever left behind.

The workers here are shell scripts that never join the job, so servers and master do not leave by
themselves: --grace_ms keeps that wait short."""

import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile

import pytest

from helpers import BRISK, SANITIZED, bin_directory, program, python_worker, wait_for

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


def test_plain_program(start):
    """If this fails, a command that is no worker takes ten seconds and two red lines to say so."""
    job = start("--workers", 2, "true")
    assert job.wait() == 0, job.stderr()
    assert job.seconds < 5
    assert "no worker joined the job: the command ran as a plain program" in job.stderr()
    assert "SIGTERM" not in job.stderr()


def test_exit_code_of_the_first_failure(start):
    """If this fails, a failed training looks like a success, or the others run on."""
    job = start(
        "--workers", 3,
        "sh -c 'if [ $PSD_RANK = 1 ]; then echo the reason; exit 3; fi; exec sleep 100'",
    )
    assert job.wait() == 3
    assert job.seconds < 5
    assert "worker 1 (pid" in job.stderr() and "ended with code 3" in job.stderr()
    assert "| the reason" in job.stderr()


def test_killed_worker_gives_128_plus_signal(start):
    """If this fails, a crash is reported as something else."""
    job = start("sh -c 'kill -SEGV $$'")
    assert job.wait() == 128 + signal.SIGSEGV
    assert "was killed by signal 11" in job.stderr()


@pytest.mark.parametrize("name", ["server0", "master"])
def test_killed_daemon_ends_the_job(start, name):
    """If this fails, a job without its server hangs until somebody looks."""
    job = start("--workers", 2, "sh -c 'echo up; exec sleep 100'")
    job.wait_for_output("up", 2)
    os.kill(job.pid_of(name), signal.SIGKILL)
    assert job.wait(5) == 128 + signal.SIGKILL
    assert f"{'ps_master' if name == 'master' else 'server 0'} (pid" in job.stderr()


def test_on_worker_death_continue(start):
    """If this fails, one lost worker ends a job that was told to go on."""
    job = start(
        *QUICK, "--workers", 2, "--on_worker_death=continue", "sh -c '[ $PSD_RANK = 0 ] || exit 9'"
    )
    assert job.wait() == 0, job.stderr()
    assert "1 of them died on the way" in job.stderr()


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
    wait_for(lambda: "INTERRUPT" in job.run_log(), 5, "the first signal is seen")
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
    assert job.wait(10) == 128 + signal.SIGKILL


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


@pytest.mark.slow
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
    (("--log_mode=nowhere", "true"), 2, "must be one of launcher, both"),
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
    assert "PSD_HARTBEAT_MS means nothing; did you mean PSD_HEARTBEAT_MS?" in job.stderr()
    assert "PSD_LIBX" not in job.stderr()


# ---------------------------------------------------------------------------------- names, verbs ---


def verb(job, *words, code=0):
    """Runs psd_run show, logs, stop or list where the job was started."""
    done = subprocess.run([program("psd_run"), *words], cwd=job.directory, capture_output=True,
                          text=True, timeout=30, check=False)
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
    wait_for(lambda: '"step": 14' in verb(held, "show", "--json"), 10, "step 14 is known")
    story = json.loads(verb(held, "show", "hel", "--json"))
    assert (story["name"], story["state"], story["exit_code"]) == ("held", "running", None)
    assert [process["name"] for process in story["processes"]] == [
        "master", "server0", "server1", "worker0", "worker1"]
    assert all(process["state"] == "running" for process in story["processes"])
    lines = verb(held, "show").splitlines()
    heads = [line for line in lines if line.startswith("PROCESS")][0].split()
    assert heads == ["PROCESS", "MACHINE", "COMMAND", "HOSTNAME", "STATUS", "CREATED", "STEP",
                     "STEPS/S", "VALUE", "ADDRESS"]
    row = [line for line in lines if line.startswith("worker0")][0]
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
    assert verb(held, "logs", "--since", "0s", "worker0") == ""
    assert verb(held, "logs", "--since", "1h", "worker0") == verb(held, "logs", "worker0")
    stamped = verb(held, "logs", "-t", "worker0").splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} started", stamped)
    with subprocess.Popen([program("psd_run"), "logs", "-f", "worker1"], stdout=subprocess.PIPE,
                          text=True) as follower:
        held.gate.touch()
        assert held.wait() == 0
        assert follower.communicate(timeout=10)[0].splitlines()[-1] == "closed"
    assert verb(held, "logs", "worker1").splitlines()[-1] == "closed", "after its end, too"


def test_stop_of_a_running_job(held):
    """If this fails, a job can only be stopped by the terminal that started it."""
    assert "job held is stopped" in verb(held, "stop", "held")
    assert held.wait() == 143
    assert "no job of yours" in verb(held, "list")


def test_names_of_jobs(start, held):
    """If this fails, two jobs share a name and one cannot be reached."""
    second = start("--name", "held", "true", name="second")
    assert second.wait() == 3
    assert "a job named held runs already" in second.stderr()
    third = start("sh -c 'echo up; sleep 100'", name="third")
    third.wait_for_output("up")
    assert "which job?" in verb(held, "show", code=3)
    assert "job sh is stopped" in verb(held, "stop", "sh")
    assert third.wait() == 143


def test_changed_command_replaces_the_job(start):
    """If this fails, "edit and run again" leaves the old job running beside the new one."""
    first = start("run", "--name", "again", "sh -c 'echo one; sleep 100'", name="where")
    first.wait_for_output("one")
    same = subprocess.run([program("psd_run"), "run", "--name", "again",
                           "sh -c 'echo one; sleep 100'"], cwd=first.directory,
                          capture_output=True, text=True, timeout=20, check=True)
    assert "job again runs already, with this very command" in same.stdout
    assert first.process.poll() is None
    other = start("run", "--name", "again", "sh -c 'echo two; sleep 100'", name="other")
    other.wait_for_output("two")
    assert first.wait() == 143
    assert "job again is stopped" in verb(other, "stop", "again")
    assert other.wait() == 143


def test_detached_job(start, tmp_path):
    """If this fails, a job in the background dies with the terminal, or cannot be found again."""
    gate = tmp_path / "gate"
    front = start("--detach", "--name", "behind", *BRISK, "--", *python_worker(
        "--steps", 30, "--hold", f"15:{gate}"))
    assert front.process.wait(20) == 0, front.stderr()
    assert "job behind runs in the background" in front.stdout()
    wait_for(lambda: "holding" in verb(front, "logs", "behind", "worker0"), 20, "it trains")
    assert "behind" in verb(front, "list")
    with subprocess.Popen([program("psd_run"), "logs", "-f", "worker0"], stdout=subprocess.PIPE,
                          text=True) as follower:
        gate.touch()
        assert follower.communicate(timeout=20)[0].splitlines()[-1] == "closed"
    front.expect_nothing_left()
    (directory,) = (front.directory / "logs").iterdir()
    assert "job ended well" in (directory / "console.log").read_text()
    assert json.loads((directory / "result.json").read_text())["exit_code"] == 0


def test_detached_job_that_cannot_start(start):
    """If this fails, --detach says that all is well although nothing runs."""
    job = start("--detach", "no-such-program")
    assert job.wait() == 3
    (directory,) = (job.directory / "logs").iterdir()
    assert "no-such-program: no such program" in (directory / "console.log").read_text()
    assert "console.log says why" in job.stderr()


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
    assert not list((runtime / "poseidon").iterdir())
    (runtime / "poseidon").chmod(0o755)
    job = start("true", environment={"XDG_RUNTIME_DIR": str(runtime)}, name="second")
    assert job.wait() == 0
    assert "is not a directory of yours alone" in job.stderr()


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


def test_timeout(start):
    """If this fails, a job that hangs holds a machine until somebody comes."""
    job = start("--timeout", 1, "sleep 100")
    assert job.wait() == 124
    assert "not done within 1 s" in job.stderr()


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
