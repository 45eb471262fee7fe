# SPDX-License-Identifier: Apache-2.0
"""psd_run on one machine: codes, logs, signals, and that nothing is ever left behind.

The workers here are shell scripts that never join the job, so servers and master do not leave by
themselves: --grace_ms keeps that wait short."""

import json
import os
import signal
import stat

import pytest

from helpers import bin_directory, wait_for

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
    (("show",), 2, "--master"),
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
