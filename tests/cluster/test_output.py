# SPDX-License-Identifier: Apache-2.0
"""What workers print: whole lines, all of them, in order, on the console and in the logs."""

import os
import pathlib
import subprocess
import sys

import pytest

from helpers import program, wait_for, worker_environment

QUICK = ("--grace_ms", "100")
TORCH = ("--personality", "torch")  # no servers: the job ends with its workers


def script(tmp_path, text, name="script"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors(tmp_path, closed):
    """If this fails, psd_run under a daemon that closes them hangs, or its sockets get its lines."""
    done = subprocess.run(["sh", "-c", f"exec {program('psd_run')} {' '.join(QUICK)} 'echo hi' {closed}"],
                          cwd=tmp_path, timeout=120, capture_output=True, text=True, check=False,
                          env={**os.environ, **worker_environment()})
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("logs/*/worker0.log")
    assert log.read_text() == "hi\n"
    assert ("[worker0] hi\n" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_daemons_with_closed_descriptors(hand):
    """If this fails, a daemon that was started without them writes its log into a connection."""
    closed = ("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-')
    master = hand.start("master", *closed, program("ps_master"), "--workers", 1, "--servers", 1,
                        "--port", hand.port)
    server = hand.start("server0", *closed, program("ps_server"), "--index", 0,
                        "--master_address", hand.address, "--lanes=1")
    worker = hand.worker(0, "--steps", 3)
    assert worker.wait() == 0, worker.output()
    assert (server.wait(), master.wait()) == (0, 0)


# Lines of both streams at once, each in two writes, as Python's unbuffered print does.
BESIDE = """import os, sys, threading
def complain():
    for i in range(lines):
        sys.stderr.write(f"err {i:05d} " + "e" * 30 + "\\n")
lines = int(sys.argv[1])
thread = threading.Thread(target=complain)
thread.start()
for i in range(lines):
    print(f"out {i:05d} " + "o" * 30)
thread.join()
"""


def expect_whole(text, lines):
    """Every line of both streams is there, whole, once, and in order."""
    found = {"out": [], "err": []}
    for line in text.splitlines():
        name, number, rest = line.split(" ")
        assert rest == {"out": "o", "err": "e"}[name] * 30, line
        found[name].append(int(number))
    assert found == {"out": list(range(lines)), "err": list(range(lines))}


def shown(job, name="worker0"):
    """What the console showed of a process."""
    return "".join(line.removeprefix(f"[{name}] ") for line in job.stdout().splitlines(True)
                   if line.startswith(f"[{name}] "))


def test_streams_do_not_tear_each_other(start, tmp_path):
    """If this fails, a line of stderr lands inside a line of stdout."""
    job = start(*TORCH, "--workers", 2, "--", sys.executable, script(tmp_path, BESIDE), 5000)
    assert job.wait(60) == 0, job.stderr()
    for name in ("worker0", "worker1"):
        expect_whole(job.log(name).decode(), 5000)
        expect_whole(shown(job, name), 5000)


def test_very_long_and_unfinished_lines(start, tmp_path):
    """If this fails, a long line is cut, mixed with another, or the last words are lost."""
    text = ("import os, sys\n"
            "for i in range(40):\n"
            "    os.write(1, b'%02d' % i + b'x' * 20000)\n"
            "    os.write(2, b'beside\\n')\n"
            "os.write(1, b'\\nlast')\n"
            "os.write(2, b'words')\n")
    job = start(*TORCH, "--", sys.executable, script(tmp_path, text))
    assert job.wait() == 0, job.stderr()
    lines = job.log("worker0").decode().split("\n")
    assert lines.pop(lines.index("".join(f"{i:02d}" + "x" * 20000 for i in range(40))))
    assert lines[:-2] == ["beside"] * 40
    assert sorted(lines[-2:]) == ["last", "words"]
    assert sorted(shown(job).splitlines()[-2:]) == ["last", "words"]
    assert shown(job).count("x") == 40 * 20000


def test_text_between_carriage_returns(start, tmp_path):
    """If this fails, a progress bar costs the log some text, or lines of the other stream."""
    text = ("import os, sys\n"
            "for i in range(101):\n"
            "    sys.stderr.write(f'\\r{i:3d}%|####')\n"
            "    if i % 10 == 0: print('epoch', i // 10)\n"
            "sys.stderr.write('\\n')\n"
            "os.write(1, b'a\\rb\\rc')\n")
    job = start(*TORCH, "--", sys.executable, script(tmp_path, text))
    assert job.wait() == 0, job.stderr()
    log = job.log("worker0").decode()
    assert "".join(f"\r{i:3d}%|####" for i in range(101)) + "\n" in log
    assert [line for line in log.splitlines() if line.startswith("epoch")] == [
        f"epoch {i}" for i in range(11)]
    assert log.endswith("a\rb\rc")
    assert "100%|####\n" in shown(job), "its last state"
    assert shown(job).endswith("c\n"), "as on a terminal"
    assert [line for line in shown(job).splitlines() if line.startswith("epoch")] == [
        f"epoch {i}" for i in range(11)]


def test_prompt_shows_in_the_log_before_its_line_ends(start, tmp_path):
    """If this fails, `loading...` is not to be seen as long as something loads."""
    job = start(*TORCH, "--", "sh", "-c", "printf loading...; sleep 1000")

    def is_there():
        return [path for path in job.directory.glob("logs/*/worker0.log")
                if path.read_text() == "loading..."]

    wait_for(is_there, 30, "the prompt in the log")
    job.process.terminate()
    assert job.wait() == 143
    assert shown(job) == "loading...\n"


# What is printed reaches psd_run through another process, which outlives the one that printed.
THROUGH_TEE = """exec > >(tee "$1.$RANK.$PSD_RESTART_COUNT") 2>&1
for i in $(seq 1 200); do echo "line $i"; done
echo the reason >&2
exit $2
"""
LINES = "".join(f"line {i}\n" for i in range(1, 201)) + "the reason\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_last_lines_through_tee(start, tmp_path, workers):
    """If this fails, `exec > >(tee log)` costs a worker its last lines."""
    for i in range(10):
        job = start(*TORCH, "--workers", workers, "--", "bash", script(tmp_path, THROUGH_TEE),
                    tmp_path / f"{i}", 0, name=f"job{i}")
        assert job.wait() == 0, job.stderr()
        for rank in range(workers):
            assert job.log(f"worker{rank}").decode() == LINES
            assert shown(job, f"worker{rank}") == LINES
        assert "held" not in job.stderr()


def test_reason_of_a_failure_through_tee(start, tmp_path):
    """If this fails, the one line that says why a script failed is the one that is lost."""
    for i in range(10):
        job = start(*TORCH, "--", "bash", script(tmp_path, THROUGH_TEE), tmp_path / f"{i}", 3,
                    name=f"job{i}")
        assert job.wait() == 3, job.stderr()
        assert job.log("worker0").decode() == LINES
        assert "  | the reason\n" in job.stderr(), "among the last lines"


def test_last_lines_through_tee_over_ssh(launch):
    """If this fails, other machines lose the lines that this one keeps, or PYTHONUNBUFFERED."""
    text = ("exec > >(tee /dev/null) 2>&1; echo unbuffered $PYTHONUNBUFFERED; "
            "for i in $(seq 1 200); do echo line $i; done; echo the reason >&2; exit $RANK")
    for _ in range(2):
        job = launch({"worker_nodes": ["host1", "host2"], "server_nodes": ["host1"]}, *TORCH, "--",
                     "bash", "-c", text, environment={"PYTHONUNBUFFERED": "yes"})
        assert job.wait() == 1, job.stderr()
        assert job.log("worker1").decode() == "unbuffered yes\n" + LINES
        assert "  | the reason\n" in job.stderr()


def test_last_words_through_a_pipeline_of_a_job_that_failed(start, tmp_path):
    """If this fails, who is asked to stop because another failed cannot say what it still does, or
    dies of the broken pipe while it saves."""
    # Worker 1 has seen its first line at the far end. Before that its filter may not have taken its pipes yet; then it is
    # a process like any other, and asked to stop, too.
    text = """exec > >(sed -u 's/^/> /' | tee "$1.worker$RANK") 2>&1
trap 'for i in $(seq 1 50); do echo "saved $i"; done; exit 1' TERM
if [ "$RANK" = 0 ]; then while [ ! -e "$1" ]; do sleep 0.01; done; exit 3; fi
echo up
until grep -q up "$1.worker1" 2>/dev/null; do sleep 0.01; done
touch "$1"
while :; do sleep 0.01; done
"""
    for i in range(3):
        job = start(*TORCH, "--workers", 2, "--", "bash", script(tmp_path, text), tmp_path / f"{i}",
                    name=f"job{i}")
        assert job.wait() == 3, job.stderr()
        said = [line for line in job.log("worker1").decode().splitlines()
                if "Terminated" not in line]  # bash, about its sleep
        assert said == ["> up"] + [f"> saved {i}" for i in range(1, 51)]


def test_last_words_through_a_pipe_after_an_interrupt(start):
    """If this fails, Ctrl-C kills the filter before the worker, which then cannot save."""
    job = start(*TORCH, "--", "bash", "-c",
                "(trap 'for i in $(seq 1 50); do echo saved $i; done; exit 0' TERM; echo up; "
                "while :; do sleep 0.01; done) | cat")
    job.wait_for_output("up")
    job.process.terminate()
    assert job.wait() == 143
    said = [line for line in shown(job).splitlines() if "Terminated" not in line]
    assert said == ["up"] + [f"saved {i}" for i in range(1, 51)]


def test_last_lines_of_a_life_before_a_restart(start, tmp_path):
    """If this fails, the lines of a worker that is restarted are lost, or in the next life's log."""
    job = start(*TORCH, "--restart", "on-failure", "--max_restarts", 1, "--", "bash",
                script(tmp_path, THROUGH_TEE), tmp_path / "log", 3)
    assert job.wait() == 3, job.stderr()
    assert job.log("worker0").decode() == LINES
    assert job.log("worker0.1").decode() == LINES


def test_holder_of_the_output_is_named(start):
    """If this fails, nobody knows why a job lasts a second longer than its workers."""
    job = start(*TORCH, "--", "sh", "-c", "sleep 1000 & "
                "(while kill -0 $$; do sleep 0.01; done 2>/dev/null; echo late) & echo early")
    assert job.wait() == 0, job.stderr()
    assert job.log("worker0").decode() == "early\nlate\n"
    assert "worker0 has ended, but its output is still held open by pid " in job.stderr()
    assert "(sleep 1000), which printed nothing for 1 s: ended, too\n" in job.stderr()


@pytest.mark.all  # 10 s
def test_endless_writer_is_ended(start):
    """If this fails, something in the background that prints for ever keeps a job for ever."""
    job = start(*TORCH, "--", "sh", "-c", "(while echo again; do sleep 0.1; done) & echo first")
    assert job.wait(60) == 0, job.stderr()
    assert "which prints on and on: ended, too\n" in job.stderr()
    assert job.log("worker0").decode().count("again\n") > 10


def test_reader_of_the_console_that_stops(tmp_path):
    """If this fails, a pager that waits for a key stops the job, or a slow reader misses lines."""
    lines = 300000  # more than a pipe and psd_run keep
    job = subprocess.Popen([program("psd_run"), *TORCH, "--", "seq", str(lines)], cwd=tmp_path,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True,
                           env={**os.environ, **worker_environment()})
    wait_for(lambda: list(tmp_path.glob("logs/*/result.json")), 60, "the end of the job")
    (log,) = tmp_path.glob("logs/*/worker0.log")
    assert log.read_text().split() == [str(i) for i in range(1, lines + 1)]
    assert job.poll() is None, "it waits for its reader"
    shown, _ = job.communicate(timeout=120)
    assert job.returncode == 0
    seen, missing = 0, 0
    for line in shown.splitlines():
        if line.startswith("[worker0] "):
            seen += 1
            assert line == f"[worker0] {seen + missing}"
        else:
            missing += int(line.removeprefix("psd_run: ").split(" lines are missing here")[0])
    assert missing > 0 and seen + missing == lines


def test_stress_in_small():
    """If this fails, one of many runs loses lines: `make test-output` runs thousands."""
    done = subprocess.run([sys.executable, pathlib.Path(__file__).parent / "stress_output.py",
                           "--processes", "100", "--runs", "8"], timeout=300, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 short processes, 8 runs through tee, 8 runs beside a thread: 0 jobs" in done.stdout
