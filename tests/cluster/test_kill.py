# SPDX-License-Identifier: Apache-2.0
"""kill -9 and SIGSTOP of every process of a job, at many moments: what is promised then, happens.

Workers kill themselves at a named moment (worker.py), so the moment is exact; trainings of mnist
are killed from outside when the master knows that they have come to a step."""

import json
import os
import re
import shutil
import signal

import pytest

from helpers import BRISK, DEAD_MS, SERVER_WAIT_MS, Job, SANITIZED, nodes_at, program, python_worker, saved_digests, wait_for

MOMENTS = ("joined", "opened", "half:3", "sent:3", "done:3", "closing")
BIG = ("--elements", 200_000, "--steps", 8)  # four chunks a table, over two servers


def train(start, *arguments, options=(), workers=3, name="job", command=None):
    return start(*BRISK, "--workers", workers, "--servers", 2, *options, "--",
                 *(command or python_worker(*arguments)), name=name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What BIG saves when nobody dies."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), "--workers", 3, "--servers", 2, "--",
              *python_worker(*BIG, "--save", "saved"))
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    return saved_digests(job.directory / "saved")


# ------------------------------------------------------------------------------ a worker dies ---


@pytest.mark.parametrize("moment", MOMENTS)
def test_worker_killed_policy_fail(start, moment):
    """If this fails, a job that lost a worker hangs, or ends without saying whom it lost."""
    job = train(start, "--die", f"1:{moment}", "--steps", 1000)
    assert job.wait() == 128 + signal.SIGKILL
    assert re.search(r"worker 1 \(pid \d+\) was killed by signal 9", job.stderr())


def last_line(start, *options, workers=2, command=("--die", "1:done:3")):
    """What a job ends with whose worker 1 dies after step 3."""
    job = start(*BRISK, "--workers", workers, *options, "--", *python_worker("--steps", 1000, *command))
    assert job.wait() != 0
    return job.stderr().splitlines()[-1]


def test_the_last_line_names_what_would_have_helped(start):
    """If this fails, whoever loses a job to one killed worker is not told the option with which the others go on."""
    assert "was killed by signal 9 (Killed); with --on_worker_death=continue the others would have gone on without it; logs in " in \
        last_line(start)


@pytest.mark.parametrize("options,workers,command", [
    (("--on_worker_death=fail",), 2, ("--die", "1:done:3")),
    ((), 1, ("--die", "0:done:3")),
    ((), 2, ("--die", "1:started")),
    ((), 2, ("--op_timeout_ms", "nonsense")),
    (("--restart=on-failure", "--restart_scope=group", "--max_restarts=0"), 2, ("--die", "1:done:3")),
], ids=["it was chosen", "nobody is left", "it had not joined", "its own error", "the job begins anew"])
def test_the_last_line_names_nothing_that_does_not_help(start, options, workers, command):
    """If this fails, somebody is told to add an option that would have changed nothing, or that he has decided about."""
    assert "on_worker_death" not in last_line(start, *options, workers=workers, command=command)


def test_the_last_line_of_a_job_that_had_not_begun(start):
    """If this fails, somebody is told to go on without a worker that the others would have waited for."""
    job = start(*BRISK, "--workers", 2, "--", "sh", "-c", 'if [ "$PSD_RANK" = 0 ]; then exec sleep 1000; fi; exec "$@"', "sh",
                *python_worker("--steps", 1000))
    wait_for(lambda: any(node["role"] == "worker" and node["rank"] == 1 and node["state"] == "joined"
                         for node in nodes_at(job.master_address())), 60, "worker 1 in the job")
    os.kill(job.pid_of("worker1"), signal.SIGKILL)
    assert job.wait() == 137 and "on_worker_death" not in job.stderr().splitlines()[-1], job.stderr()


def test_the_last_line_when_all_were_killed(start):
    """If this fails, somebody is told that others would have gone on when there were none."""
    job = start(*BRISK, "--workers", 2, "--", *python_worker("--steps", 100_000))
    job.wait_for_step(1, 3)
    master, pids = job.pid_of("master"), [job.pid_of(f"worker{rank}") for rank in range(2)]
    os.kill(master, signal.SIGSTOP)  # it ends nothing before both are dead
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    os.kill(master, signal.SIGCONT)
    assert job.wait() == 137 and "on_worker_death" not in job.stderr().splitlines()[-1], job.stderr()


@pytest.mark.parametrize("moment,rank", [
    (MOMENTS[0], 0), *((moment, 2) for moment in MOMENTS),
    *(pytest.param(moment, 0, marks=pytest.mark.all) for moment in MOMENTS[1:])])
def test_worker_killed_policy_wait_changes_no_bit(start, undisturbed, moment, rank):
    """If this fails, a replacement repeats too much or too little of the step it comes into."""
    job = train(start, *BIG, "--save", "saved", "--die", f"{rank}:{moment}",
                options=("--on_worker_death=wait",))
    assert job.wait(40) == 0, job.stdout() + job.stderr()
    assert f"joined {rank} 2" in job.stdout()
    assert f"worker {rank} (pid" in job.stderr() and "restart 1 of 3" in job.stderr()
    assert saved_digests(job.directory / "saved") == undisturbed


@pytest.mark.smoke
def test_worker_killed_before_it_joined_policy_wait(start, undisturbed):
    """If this fails, a worker that dies while the job gathers is not replaced."""
    job = train(start, *BIG, "--save", "saved", "--die", "1:started",
                options=("--on_worker_death=wait",))
    assert job.wait(40) == 0, job.stdout() + job.stderr()
    assert saved_digests(job.directory / "saved") == undisturbed


def kill_at_step(job, rank, step):
    """A worker, which stands still whenever we look how far it is: so it is not done before it has been seen."""
    address = job.master_address()
    wait_for(lambda: f" PROCESS worker{rank} pid " in job.run_log(), 60, f"worker {rank}")
    pid = job.pid_of(f"worker{rank}")

    def reached():
        os.kill(pid, signal.SIGSTOP)
        if any((node["role"], node["rank"]) == ("worker", rank) and (node["step"] or 0) >= step for node in nodes_at(address)):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    wait_for(reached, 120, f"worker {rank} at step {step}")
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("step", [pytest.param(30, marks=pytest.mark.all), 60, pytest.param(300, marks=pytest.mark.all)])
def test_mnist_worker_killed_policy_wait_changes_no_bit(start, step):
    """If this fails, a real training that lost a worker on the way ends elsewhere."""
    command = [program("mnist"), "--steps", 400, "--save", "saved"]
    calm = train(start, command=command, workers=2, name="calm")
    assert calm.wait(60) == 0, calm.stderr()
    job = train(start, command=command, workers=2, options=("--on_worker_death=wait",))
    kill_at_step(job, 1, step)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert "goes on at step" in job.stdout()
    assert saved_digests(job.directory / "saved") == saved_digests(calm.directory / "saved")


def test_two_workers_killed_in_one_step_policy_wait(start, undisturbed, tmp_path):
    """If this fails, two deaths at once are more than the job can count."""
    gate = tmp_path / "gate"
    job = train(start, *BIG, "--save", "saved", "--hold", f"4:{gate}",
                options=("--on_worker_death=wait",))
    job.wait_for_output("holding")
    job.wait_for_output("step 3", 3)
    for rank in (1, 2):
        os.kill(job.pid_of(f"worker{rank}"), signal.SIGKILL)
    job.wait_for_output("joined 1 2")
    job.wait_for_output("joined 2 2")
    gate.touch()
    assert job.wait(40) == 0, job.stdout() + job.stderr()
    assert saved_digests(job.directory / "saved") == undisturbed


@pytest.mark.parametrize("moment,counted", [
    ("joined", "left: no step complete"),
    ("opened", "left: no step complete"),
    ("half:3", "left: tables complete through step 2"),
    ("sent:3", "left: tables complete through step [23]"),
    ("done:3", "left: tables complete through step 3"),
    ("closing", None),  # the others may be done before it is missed: then the job is simply over
])
def test_worker_killed_policy_continue(start, moment, counted):
    """If this fails, the others stop, or nobody can tell what the dead worker counted for."""
    job = train(start, *BIG, "--die", f"1:{moment}", options=("--on_worker_death=continue",))
    assert job.wait(40) == 0, job.stdout() + job.stderr()
    assert job.stdout().count("closed") == 2
    assert "the job goes on without it" in job.stderr()
    assert "(worker 1 died on the way)" in job.stderr()
    master = job.log("master").decode()
    assert len(re.findall("MEMBER-LOST worker 1 .*", master)) == 1
    assert counted is None or re.search(f"MEMBER-LEFT worker 1 {counted}$", master, re.M), master


def test_worker_killed_before_it_joined_policy_continue(start):
    """If this fails, a job that can never gather waits for its start to time out."""
    job = train(start, "--die", "1:started", options=("--on_worker_death=continue",))
    assert job.wait() == 137  # the start times out after a minute, which is not waited for
    assert re.search(r"worker 1 \(pid \d+\) was killed by signal 9 \(Killed\) without joining the "
                     "job, and the others waited for it", job.stderr())


@pytest.mark.parametrize("level", ["error", "info"])
def test_worker_that_ends_well_without_joining(start, level):
    """If this fails, the others wait a minute for a worker that psd_run saw leaving; or only a
    talkative master lets it see that."""
    job = train(start, command=["sh", "-c", "[ $PSD_RANK = 1 ] || exec " +
                                " ".join(python_worker("--steps", 10))],
                options=(f"--log_level={level}",))
    assert job.wait() == 70  # likewise
    assert "worker 1 (pid" in job.stderr() and "ended with code 0 without joining" in job.stderr()


def test_last_worker_killed_policy_continue(start):
    """If this fails, a job whose workers all died looks like a success."""
    job = train(start, "--die", "0:done:2", "--steps", 1000, workers=1,
                options=("--on_worker_death=continue",))
    assert job.wait() == 128 + signal.SIGKILL


@pytest.mark.smoke
def test_survivors_name_the_dead_worker(hand):
    """If this fails, the logs of the survivors do not tell which worker ended the job."""
    master = hand.master(2, 1, *BRISK)
    server = hand.server()
    survivor = hand.worker(0, "--steps", 100000)
    victim = hand.worker(1, "--steps", 100000)
    victim.wait_for_output("step 20")
    victim.signal(signal.SIGKILL)
    assert survivor.wait() == 1
    assert re.search(r"error PSD_ERR_\w+: .*worker 1 \(tcp://[\d.:]+\) lost", survivor.output())
    assert (master.wait(), server.wait(), victim.wait()) == (70, 70, 137)
    assert re.search("JOB-END .*worker 1 .* lost: .*", server.output())


def test_replacement_by_hand(hand):
    """If this fails, only psd_run can replace a worker, not a person."""
    master = hand.master(2, 1, *BRISK, "--on_worker_death=wait")
    server = hand.server()
    other = hand.worker(0, "--steps", 200)
    victim = hand.worker(1, "--steps", 200, "--die", "1:half:100")
    assert victim.wait() == 137
    again = hand.worker(1, "--steps", 200, name="again")
    assert [p.wait() for p in (other, again, master, server)] == [0, 0, 0, 0]
    assert "joined 1 2" in again.output()
    assert "step 100" in again.output() and "step 99\n" not in again.output()


def test_no_replacement_in_time(hand):
    """If this fails, a job waits for ever for a worker that nobody starts."""
    master = hand.master(2, 1, *BRISK, "--on_worker_death=wait", "--replacement_timeout_ms=300")
    server = hand.server()
    other = hand.worker(0, "--steps", 100000)
    victim = hand.worker(1, "--steps", 100000, "--die", "1:done:10")
    assert victim.wait() == 137
    assert (master.wait(), server.wait(), other.wait()) == (70, 70, 1)
    assert "worker 1 lost" in master.output() and "not replaced in 300 ms" in master.output()
    assert "not replaced in 300 ms" in other.output()


# ------------------------------------------------------------------- a server, the master dies ---


@pytest.mark.parametrize("moment", ["joined", "step 0", "step 40"])
@pytest.mark.parametrize("index", [0, 1])
def test_server_killed(hand, moment, index):
    """If this fails, a job without one of its servers hangs, or blames somebody else."""
    master = hand.master(2, 2, *BRISK, "--server_wait_ms=2000")  # in case no table is open yet
    servers = [hand.server(i) for i in range(2)]
    workers = [hand.worker(rank, "--steps", 100000, "--elements", 200_000) for rank in range(2)]
    workers[0].wait_for_output(moment)
    servers[index].signal(signal.SIGKILL)
    assert servers[index].wait() == 137
    for worker in workers:
        assert worker.wait(60) == 1
        assert re.search(rf"error PSD_ERR_\w+: .*server {index}", worker.output())
    assert master.wait(60) == 71
    assert re.search(rf"JOB-END server {index} .*lost", master.output())
    assert servers[1 - index].wait(60) == 71


@pytest.mark.parametrize("name", ["server1", "master"])
def test_daemon_killed_under_psd_run(start, name):
    """If this fails, psd_run does not tell which daemon ended the job, or leaves the rest."""
    job = start(*BRISK, "--workers", 2, "--servers", 2, "--master_restarts", 0, "--",
                *python_worker("--steps", 1_000_000))
    job.wait_for_output("step 30", 2)
    os.kill(job.pid_of(name), signal.SIGKILL)
    assert job.wait(60) == 137
    who = "ps_master" if name == "master" else "server 1"
    assert re.search(rf"{who} \(pid \d+\) was killed by signal 9", job.stderr())


@pytest.mark.parametrize("moment", ["joined", "step 0", "step 40"])
def test_master_killed(hand, moment):
    """If this fails, a job without its master never ends."""
    master = hand.master(2, 1, *BRISK)
    server = hand.server()
    workers = [hand.worker(rank, "--steps", 1_000_000) for rank in range(2)]
    workers[1].wait_for_output(moment)
    master.signal(signal.SIGKILL)
    assert master.wait() == 137
    for worker in workers:
        assert worker.wait(60) == 1
        assert re.search("error PSD_ERR_.*master", worker.output())
    assert server.wait(60) == 72
    assert re.search("JOB-END .*master", server.output())


@pytest.mark.parametrize("victim", ["psd_run", "agent"])
def test_launcher_killed_in_a_training(start, victim):
    """If this fails, a job goes on without anybody who could end it."""
    job = start(*BRISK, "--workers", 2, "--servers", 2, "--",
                *python_worker("--steps", 1_000_000, "--deaf"))
    job.wait_for_output("step 30", 2)
    os.kill(job.process.pid if victim == "psd_run" else job.agent_pid(), signal.SIGKILL)
    if victim == "psd_run":
        job.process.wait(60)
        job.expect_nothing_left(10)
    else:
        assert job.wait(60) == 72


# ------------------------------------------------------------------------------------ silence ---


def test_stopped_server(hand):
    """If this fails, workers wait for ever for a host that hangs."""
    master = hand.master(2, 2, *BRISK, f"--server_wait_ms={SERVER_WAIT_MS}")
    servers = [hand.server(i) for i in range(2)]
    workers = [hand.worker(rank, "--steps", 1_000_000) for rank in range(2)]
    workers[0].wait_for_output("step 20")
    servers[1].signal(signal.SIGSTOP)
    for worker in workers:
        assert worker.wait(60) == 1
        assert re.search(rf"error PSD_ERR_.*server 1 .*silent for {SERVER_WAIT_MS} ms \(server_wait_ms\)", worker.output())
    assert master.wait(60) == 71
    assert "server 1" in master.output().splitlines()[-1]
    assert servers[0].wait(60) == 71
    servers[1].signal(signal.SIGCONT)
    assert servers[1].wait(60) == 71


def test_stopped_worker_is_fenced(hand, tmp_path):
    """If this fails, a worker that slept disturbs the job that went on without it."""
    gate = tmp_path / "gate"
    master = hand.master(2, 1, *BRISK, "--on_worker_death=continue")
    server = hand.server()
    other = hand.worker(0, "--steps", 60, "--hold", f"50:{gate}")
    sleeper = hand.worker(1, "--steps", 60)
    sleeper.wait_for_output("step 5")
    sleeper.signal(signal.SIGSTOP)
    master.wait_for_output("MEMBER-LOST worker 1")
    other.wait_for_output("holding")
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait(60) == 1
    assert re.search("error PSD_ERR_FENCED: .*worker 1 .*", sleeper.output())
    gate.touch()
    assert [p.wait(60) for p in (other, master, server)] == [0, 0, 0]
    assert f"silent for {DEAD_MS} ms" in master.output()


def test_stopped_worker_policy_fail(hand):
    """If this fails, one hanging worker holds all others for ever."""
    master = hand.master(2, 1, *BRISK)
    server = hand.server()
    other = hand.worker(0, "--steps", 1_000_000)
    sleeper = hand.worker(1, "--steps", 1_000_000)
    sleeper.wait_for_output("step 5")
    sleeper.signal(signal.SIGSTOP)
    assert (master.wait(60), server.wait(60), other.wait(60)) == (70, 70, 1)
    assert re.search(f"error PSD_ERR_.*worker 1 .*silent for {DEAD_MS} ms", other.output())
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait(60) == 1
    assert "error PSD_ERR_" in sleeper.output()


@pytest.mark.parametrize("options, says", [
    (("--on_worker_death=continue",), "the job goes on without it"),
    (("--restart=on-failure",), "restart 1 of"),
])
def test_stopped_worker_does_not_hold_up_a_job_that_goes_on(start, tmp_path, options, says):
    """If this fails, one hanging worker keeps a finished job from ending, for ever; or is never started
    again."""
    gate = tmp_path / "gate"
    job = start(*BRISK, "--workers", 2, *options, "--",
                *python_worker("--steps", 60, "--pull_first", "--hold", f"20:{gate}"))
    job.wait_for_output("step 19", 2)
    os.kill(job.pid_of("worker1"), signal.SIGSTOP)
    wait_for(lambda: says in job.stderr(), 20, lambda: f"the worker is given up\n{job.stderr()}\n{job.run_log()}")
    gate.touch()
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    assert f"counts as dead: silent for {DEAD_MS} ms" in job.stderr()


@pytest.mark.parametrize("victim, code", [("worker1", 70), ("server0", 71), ("master", 72),
                                          ("agent", 72)])
def test_stopped_process_is_the_cause(start, victim, code):
    """If this fails, a worker that only died of it is blamed; or a stopped helper holds a job for
    ever."""
    job = start(*BRISK, "--workers", 2, "--servers", 2, "--master_grace_ms=0",
                f"--server_wait_ms={SERVER_WAIT_MS}", "-o", "logs", "--", *python_worker("--steps", 1_000_000))
    job.wait_for_output("step 10", 2)
    os.kill(job.agent_pid() if victim == "agent" else job.pid_of(victim), signal.SIGSTOP)
    assert job.wait(60) == code, job.stderr()
    (directory,) = (job.directory / "logs").iterdir()
    result = json.loads((directory / "result.json").read_text())
    assert result["exit_code"] == code
    assert [one["name"] for one in result["processes"] if one["cause"]] == (
        [] if victim == "agent" else [victim])
    assert [one["cause"] for one in result["machines"]] == [victim == "agent"]
    assert result["cause"] in job.stderr()
    if victim == "agent":
        assert "does not answer (nothing was heard of it for" in result["cause"]
    else:
        silent_ms = SERVER_WAIT_MS if victim == "server0" else DEAD_MS
        assert f"was silent for {silent_ms} ms, although its machine answers" in result["cause"]


def test_impatient_worker_is_not_the_cause(start):
    """If this fails, a worker that gave up waiting for a stopped server is blamed, because it was quicker
    than the master's patience."""
    job = start("--heartbeat_ms=500", "--workers", 2, "--servers", 2, "-o", "logs", "--",
                *python_worker("--steps", 1_000_000, "--op_timeout_ms", 3000))
    job.wait_for_output("step 10", 2)
    os.kill(job.pid_of("server1"), signal.SIGSTOP)
    assert job.wait(60) == 71, job.stderr()
    assert "PSD_ERR_TIMEOUT" in job.stdout(), "the worker was to be quicker"
    assert re.search(r"with code 71: server 1 \(pid \d+\) was silent for 4000 ms", job.stderr())


def test_short_pause_kills_nobody(hand, tmp_path):
    """If this fails, a process that was slow for a moment is taken for dead."""
    gate = tmp_path / "gate"
    processes = [hand.master(1, 1, "--heartbeat_ms=50", "--dead_heartbeats=200"), hand.server(),
                 hand.worker(0, "--steps", 20, "--hold", f"10:{gate}")]
    processes[2].wait_for_output("holding")
    for process in processes:
        process.signal(signal.SIGSTOP)
        wait_for(lambda: " (stopped)" in open(f"/proc/{process.pid}/status").read(), 30, "stop")
        process.signal(signal.SIGCONT)
    assert nodes_at(hand.address)[-1]["state"] == "running"
    gate.touch()
    assert [process.wait() for process in processes] == [0, 0, 0]


@pytest.mark.skipif(SANITIZED or shutil.which("strace") is None,
                    reason="sanitizers allocate as they like, or there is no strace")
def test_heartbeats_map_no_memory(hand, tmp_path):
    """If this fails, a worker that has the kernel fill much memory is silent meanwhile, and is taken for dead."""
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    processes = [hand.master(1, 1, "--heartbeat_ms=50", "--dead_heartbeats=200"), hand.server(),
                 hand.start("worker", "strace", "-f", "-qq", "-o", trace, "-e",
                            "trace=epoll_wait,sendmsg,mmap,munmap,mremap,mprotect,brk",
                            *python_worker("--steps", 1, "--hold", f"0:{gate}"),
                            environment={"PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "0"})]
    processes[2].wait_for_output("holding")

    def calls_of_our_thread():
        """After it first looked for work, and before the worker goes on."""
        lines = trace.read_text().splitlines()[:-1]  # the last may not be whole yet
        calls = [line.split(maxsplit=1) for line in lines]
        threads = {thread for thread, call in calls if call.startswith("sendmsg(")} - {calls[0][0]}
        ours = [call for thread, call in calls if thread in threads]
        looked = [index for index, call in enumerate(ours) if call.startswith("epoll_wait(")]
        return ours[looked[0]:] if looked else []

    wait_for(lambda: sum(call.startswith("sendmsg(") for call in calls_of_our_thread()) >= 5, 30, "five heartbeats")
    calls = calls_of_our_thread()
    gate.touch()
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert not [call for call in calls if not call.startswith(("epoll_wait", "sendmsg", "<..."))], calls
