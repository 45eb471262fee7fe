# SPDX-License-Identifier: Apache-2.0
"""Mistakes of people, one test each: the code, a message that names the mistake, nothing left
behind. Mistakes on psd_run's own command line are in test_psd_run_local.py, too."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys

import pytest

from helpers import BRISK, program, python_worker

USAGE, CANNOT_START = 2, 3


def expect_refusal(hand, code, text, *command, environment=None):
    """Runs a program that must refuse at once."""
    process = hand.start("program", *command, environment=environment)
    assert process.wait(60) == code, process.output()
    assert text in process.output()
    return process.output()


# ------------------------------------------------------------------------------------- options ---

ADDRESS = ("--master_address", "tcp://127.0.0.1:1")
JOB = ("--workers", 1, "--servers", 1)


@pytest.mark.parametrize("arguments,text", [
    ((), "how large is the job? give --workers and --servers"),
    (("--workers", 1), "how large is the job?"),
    (("--workers", 0, "--servers", 1), "option --workers: 0 is not a number from 1 to 1024"),
    (("--workers", 1025, "--servers", 1), "--workers: 1025 is not a number from 1 to 1024"),
    (("--workers", 1, "--servers", 257), "option --servers: 257 is not a number from 1 to 256"),
    (("--workers", "1x", "--servers", 1), "option --workers: 1x is not a number from 1 to 1024"),
    (("--workers",), "option --workers needs a value"),
    ((*JOB, "surplus"), "surplus: not an option"),
    ((*JOB, "--prot", 1), "unknown option --prot; did you mean --port?"),
    ((*JOB, "-x"), "unknown option -x"),
    ((*JOB, "--port", 70000), "option --port: 70000 is not a number from 0 to 65535"),
    ((*JOB, "--bind", "0.0.0.0"), "refusing to listen on 0.0.0.0"),
    ((*JOB, "--lanes=2"), "option --lanes is not one of ps_master"),
    ((*JOB, "--heartbeat_ms=9"), "heartbeat_ms=9: must be a number, 10 to 60000 ms"),
    ((*JOB, "--on_worker_death=ignore"), "must be fail, continue or wait"),
    (("-c", "nowhere.json"), "open nowhere.json: No such file or directory"),
])
def test_ps_master_refuses(hand, arguments, text):
    """If this fails, a mistake starts a master that waits for a job nobody meant."""
    expect_refusal(hand, USAGE, text, program("ps_master"), *arguments)


@pytest.mark.parametrize("arguments,text", [
    ((), "which server is this? give --index"),
    (("--index", 0), "where is the master?"),
    (("--index", 300, *ADDRESS), "option --index: 300 is not a number from 0 to 255"),
    (("--index", 0, "--master_address", "127.0.0.1:1"), "expected tcp://host:port"),
    (("--index", 0, "--master_address", "tcp://127.0.0.1:99999"), "a number from 0 to 65535"),
    (("--index", 0, *ADDRESS, "--bind", "0.0.0.0"), "refusing to listen on 0.0.0.0"),
    (("--index", 0, *ADDRESS, "--kernel=neon"), "must be auto, scalar, avx2 or avx512"),
    (("--index", 0, *ADDRESS, "--lanes=65"), "lanes=65: must be a number, 0 to 64"),
    (("--index", 0, *ADDRESS, "--servers", 0), "option --servers: 0 is not a number from 1"),
    (("--index", 0, *ADDRESS, "--on_worker_death=wait"), "is not one of ps_server"),
    (("--index", 0, *ADDRESS, "--indx", 1), "did you mean --index?"),
])
def test_ps_server_refuses(hand, arguments, text):
    """If this fails, a mistake starts a server that no job will ever use."""
    expect_refusal(hand, USAGE, text, program("ps_server"), *arguments)


@pytest.mark.parametrize("arguments,code,text", [
    (("--workers", 0, "true"), USAGE, "--workers: 0 is not a number from 1 to 1024"),
    (("--servers", 0, "true"), USAGE, "--servers 0: a job of personality poseidon needs servers; give 1 to 256"),
    (("--workers", 1025, "true"), USAGE, "1025 is not a number from 1 to 1024"),
    (("-c", "cluster.json", "--workers", 2, "true"), USAGE, "the cluster file (-c) says what runs where"),
    (("true", "extra"), USAGE, "extra: more than one argument"),
    (("true", "--workers", 2), USAGE, "--workers, behind the command: options of psd_run go before it"),
    (("--log_level=loud", "true"), USAGE, "must be error, warn, info, debug or trace"),
    (("show", "--heartbeat_ms=100"), USAGE, "is not one of psd_run show"),
    (("show", "--master", "nonsense"), CANNOT_START, "expected tcp://host:port"),
    (("/tmp",), CANNOT_START, "/tmp: is a directory"),
    (("/etc/passwd",), CANNOT_START, "/etc/passwd: not executable; run: chmod +x /etc/passwd"),
    (("./absent",), CANNOT_START, "./absent: no such program in {directory}"),
    (("absent",), CANNOT_START, "absent: no such program in PATH"),
    (("here.sh",), CANNOT_START, "no such program in PATH; for the one in {directory} write ./here.sh"),
    (("python3 t.py",), CANNOT_START, "t.py: No such file or directory in {directory}"),
    (("-o", "/proc/logs", "true"), CANNOT_START,
     "log directory /proc/logs: No such file or directory; -o DIR puts the logs somewhere else"),
])
def test_psd_run_refuses(start, tmp_path, arguments, code, text):
    """If this fails, a mistake starts processes, or is not explained."""
    directory = tmp_path / "job"
    directory.mkdir()
    script = directory / "here.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    job = start(*arguments)
    assert job.wait(60) == code
    assert text.format(directory=directory) in job.stderr()
    assert "PROCESS" not in job.run_log()


def test_bad_environment(hand):
    """If this fails, a typing error in a variable is silently the default."""
    expect_refusal(hand, USAGE, "PSD_HEARTBEAT_MS: heartbeat_ms=soon: must be a number",
                   program("ps_master"), *JOB, environment={"PSD_HEARTBEAT_MS": "soon"})


DAEMONS = {"ps_master": (*JOB, "--port", 0), "ps_server": ("--index", 0, *ADDRESS)}


@pytest.mark.parametrize("variable,meant", [
    ("PSD_LANEZ", "PSD_LANES"), ("PSD_OPEN_TIMOUT_MS", "PSD_OPEN_TIMEOUT_MS"),
    ("PSD_MASTER_ADRESS", "PSD_MASTER_ADDRESS")])
@pytest.mark.parametrize("daemon", DAEMONS)
def test_misspelt_variable(hand, daemon, variable, meant):
    """If this fails, a variable that nobody reads looks as if it had been heard."""
    process = hand.start("daemon", program(daemon), *DAEMONS[daemon], environment={variable: "3"})
    process.wait_for_output("HARDENED")
    assert f" warn UNKNOWN-VARIABLE {variable} is set and not known: did you mean {meant}?" in (
        process.output())
    assert process.output().count("UNKNOWN-VARIABLE") == 1  # those of the tests are no slips
    process.signal(signal.SIGTERM)
    assert process.wait(60) == 143


def test_misspelt_variable_explains_a_refusal(hand):
    """If this fails, "where is the master?" sends people to look for what they have set."""
    expect_refusal(hand, USAGE, "PSD_MASTER_ADRESS is set: did you mean PSD_MASTER_ADDRESS?",
                   program("ps_server"), "--index", 0,
                   environment={"PSD_MASTER_ADRESS": "tcp://127.0.0.1:1"})


@pytest.mark.parametrize("arguments,text", [
    (("--rate", "fast"), "--rate fast: expected a number"),
    (("--model", "gpt"), "--model gpt: not one of the names"),
    (("--stps", "3"), "--stps: no such option"),
    (("--staleness", "3"), "only --mode ssp has one"),
])
def test_mnist_refuses(hand, arguments, text):
    """If this fails, the example trains something else than was asked for."""
    expect_refusal(hand, USAGE, text, program("mnist"), *arguments)


# -------------------------------------------------------------------------------- cluster.json ---

NODES = '"worker_nodes": ["localhost"], "server_nodes": ["localhost"]'


@pytest.mark.parametrize("json_text,where,text", [
    ('{"worker_nodes": ["localhost"],\n "server_nodes": ["localhost",]}', "2:", ""),
    ('{\n  ' + NODES + ',\n  "mastr_node": "x"\n}', "3:", "master_node"),
    ('{' + NODES + ',\n"settings": {"heartbeat_ms": "soon"}}', "2:", "heartbeat_ms"),
    ('{"worker_nodes": [], "server_nodes": ["localhost"]}', "1:", "worker_nodes"),
    ('{"worker_nodes": ["localhost"]}', "1:", "server_nodes"),
    ('{' + NODES + ',\n' + NODES + '}', "2:", "worker_nodes"),
    ('{"worker_nodes": ["-oProxyCommand=x"], "server_nodes": ["localhost"]}', "1:", ""),
    ('[]', "1:", ""),
    ('', "1:", ""),
], ids=["comma", "unknown", "value", "empty", "missing", "twice", "option", "list", "nothing"])
@pytest.mark.parametrize("name", ["psd_run", "ps_master", "ps_server"])
def test_bad_cluster_file(hand, name, json_text, where, text):
    """If this fails, people search a mistake in a file without knowing the line."""
    path = hand.directory / "cluster.json"
    path.write_text(json_text)
    more = {"psd_run": ["true"], "ps_master": [], "ps_server": ["--index", 0]}[name]
    output = expect_refusal(hand, USAGE, text, program(name), "-c", path, *more)
    assert re.search(rf"{re.escape(str(path))}:{where}\d+: ", output), output


# ---------------------------------------------------------------------- ports, files and disks ---


@pytest.mark.smoke
def test_port_taken(hand):
    """If this fails, a second master on a port waits, or ends the first."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        output = expect_refusal(hand, CANNOT_START, "Address already in use (exit code 3)",
                                program("ps_master"), *JOB, "--port", port)
    assert "127.0.0.1" in output and str(port) in output


def test_port_taken_under_psd_run(start, tmp_path):
    """If this fails, psd_run hides why the master did not start."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        config = tmp_path / "cluster.json"
        config.write_text('{%s, "master_port": %d}' % (NODES, port))
        job = start("-c", config, "true")
        assert job.wait(60) == CANNOT_START
    assert "Address already in use" in job.stderr() and str(port) in job.stderr()


@pytest.mark.parametrize("daemon", DAEMONS)
@pytest.mark.parametrize("host,text", [
    ("192.0.2.7", "listen on 192.0.2.7 port 0: Cannot assign requested address"),
    ("no.such.host.invalid", "look up host no.such.host.invalid: ")])
def test_address_that_is_not_ours(hand, daemon, host, text):
    """If this fails, a daemon that cannot listen blames its options, or hides its exit code."""
    output = expect_refusal(hand, CANNOT_START, text, program(daemon), *DAEMONS[daemon],
                            "--bind", host)
    assert re.search(r" error JOB-END .* \(exit code 3\)$", output.splitlines()[-1]), output


def test_bad_ready_fd(hand):
    """If this fails, a master that cannot report its port looks as if it had."""
    expect_refusal(hand, CANNOT_START, "--ready_fd 99: Bad file descriptor",
                   program("ps_master"), *JOB, "--port", 0, "--ready_fd", 99)


def test_read_only_output_directory(start, tmp_path, request):
    """If this fails, a job runs for days and has no logs."""
    if os.geteuid() == 0:
        folder = request.getfixturevalue("small_disk")(1)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    else:
        folder = tmp_path / "closed"
        folder.mkdir()
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    job = start("-o", folder, "true")
    assert job.wait(60) == CANNOT_START
    assert str(folder) in job.stderr()
    assert "Read-only file system" in job.stderr() or "Permission denied" in job.stderr()
    assert "PROCESS" not in job.run_log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_full_disk_for_logs(start, small_disk):
    """If this fails, a full disk stops a training, or its output is lost on the terminal too."""
    disk = small_disk(1)
    job = start("--grace_ms", 100, "-o", disk, "--", "sh", "-c",
                "seq 1 300000; echo the end")
    assert job.wait(60) == 0, job.stderr()
    lines = job.stdout().splitlines()
    assert len(lines) == 300001 and lines[-1] == "[worker0] the end"
    assert job.stderr().count("log of worker0: No space left on device") == 1
    assert "the job goes on" in job.stderr()


# -------------------------------------------------------------------------------------- tables ---


def scripted(start, text, *options, workers=2):
    """A job whose workers run a piece of Python with psdlib."""
    return start(*BRISK, "--workers", workers, *options, "--", sys.executable, "-c",
                 "import sys, psdlib\nfrom psdlib import *\nc = Context()\n" + text)


def test_different_shapes(start):
    """If this fails, two workers train different models in one table."""
    job = scripted(start, """
try:
    t = c.table("weights", [3, 4] if c.rank == 0 else [4, 3])
    print("mine", flush=True)
except PsdError as e:
    print("refused", e, flush=True)
c.barrier()
c.close()
""")
    assert job.wait() == 0, job.stderr()
    assert job.stdout().count("mine") == 1
    (refused,) = re.findall("refused PSD_ERR_MISMATCH: .*", job.stdout())
    assert all(word in refused for word in ("weights", "f32[3,4]", "f32[4,3]")), refused


@pytest.mark.parametrize("first,second", [
    ("dtype=F32", "dtype=F64"), ("rule=SGD", "rule=ADAM"), ("staleness=0", "staleness=2"),
    ("rule_args={'learning_rate': 0.1}", "rule_args={'learning_rate': 0.2}"),
])
def test_different_arguments(start, first, second):
    """If this fails, one worker's idea of a table silently wins over the other's."""
    job = scripted(start, f"""
try:
    t = c.table("weights", [8], {first}) if c.rank == 0 else c.table("weights", [8], {second})
except PsdError as e:
    print("refused", e, flush=True)
c.barrier()
c.close()
""")
    assert job.wait() == 0, job.stderr()
    assert len(re.findall("refused PSD_ERR_MISMATCH: .*weights", job.stdout())) == 1


@pytest.mark.parametrize("lanes", [1, 4])
def test_too_big_a_table(start, lanes):
    """If this fails, one greedy table takes the servers down, or the error names no number."""
    job = scripted(start, """
try:
    c.table("huge", [10 * 2**28])
except PsdError as e:
    print("refused", e, flush=True)
t = c.table("small", [10], rule=ADD)
v = floats(10)
t.push_pull(0, floats(10, 1.0), v).wait()
print("went on", v[0], flush=True)
c.close()
""", "--memory_max_mib=256", f"--lanes={lanes}", "--servers", 2)
    assert job.wait() == 0, job.stdout() + job.stderr()
    refused = re.findall("refused PSD_ERR_TOO_BIG: (.*)", job.stdout())
    assert len(refused) == 2 and "huge" in refused[0]
    assert re.search(r"needs 5[12]\d\d MiB .* of 256 MiB", refused[0]), refused[0]
    assert job.stdout().count("went on 1.0") == 2


@pytest.mark.parametrize("call,name,text", [
    ("c.table('', [3])", "PSD_ERR_INVALID", "name"),
    ("c.table('t', [0])", "PSD_ERR_INVALID", "t"),
    ("c.table('t', [])", "PSD_ERR_INVALID", "dims"),
    ("c.table('t', [2**40, 2**40])", "PSD_ERR_INVALID", "t"),
    ("c.table('t', [3], dtype=9)", "PSD_ERR_INVALID", "dtype"),
    ("c.table('t', [3], rule=99)", "PSD_ERR_INVALID", "rule"),
    ("c.table('t', [3], backup_workers=1)", "PSD_ERR_INVALID", "backup"),
    ("c.table('t', [3]).push_pull(7, floats(3), floats(3))", "PSD_ERR_STEP", "7"),
    ("c.table('t', [3]).push(0, array.array('f', [1, float('nan'), 1]))",
     "PSD_ERR_NOT_FINITE", "index 1"),
    ("c.table('t', [200000]).pull(0, floats(200000), first=5)", "PSD_ERR_INVALID", "5"),
    ("c.table('t', [3]).start('push', 0, None, None)", "PSD_ERR_INVALID", "gradient"),
    ("c.save('saved', 0)", "PSD_ERR_STATE", "no table"),
    ("c.table('t', [3]), c.save('/dev/null/x', 0)", "PSD_ERR_IO", "/dev/null"),
])
def test_wrong_calls(start, call, name, text):
    """If this fails, a wrong call crashes the worker, or its message helps nobody."""
    job = scripted(start, f"""
try:
    {call}
    print("accepted")
except PsdError as e:
    print("refused", e, flush=True)
c.close()
""", workers=1)
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert re.search(rf"refused {name}: .*{re.escape(text)}", job.stdout()), job.stdout()


def test_worker_that_never_closes(start):
    """If this fails, a worker that forgets psd_close hangs the job, or passes for a success."""
    job = scripted(start, "print('leaving', flush=True)\nimport os\nos._exit(0)\n", "--grace_ms",
                   3000, workers=1)
    assert job.wait(60) == 70, job.stderr()  # it ended with 0, and never said done
    assert b"MEMBER-LOST worker 0" in job.log("master")


def test_exit_code_of_a_worker_that_gave_up(start):
    """If this fails, psd_run does not hand on the code that the worker chose."""
    job = start(*BRISK, "--workers", 2, "--", "sh", "-c",
                " ".join(python_worker("--steps", 1000, "--die", "1:done:5")) + "; exit 42")
    assert job.wait() == 42
    assert "ended with code 42" in job.stderr()
