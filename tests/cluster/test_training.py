# SPDX-License-Identifier: Apache-2.0
"""Whole trainings with real processes: that they learn, that they repeat to the bit, and that many
of them fit on one machine."""

import re

import pytest

from helpers import (HERE, MNIST_DATA, MNIST_DEFAULT, needs_mnist, program, python_worker,
                     saved_digests)


def test_mnist_is_where_the_readme_puts_it():
    """If this fails, somebody downloads the files as told, and the tests skip themselves."""
    tree = HERE.parents[1]
    (told,) = re.findall(r"`examples/mnist/fetch\.sh (\S+)`", (tree / "README.md").read_text())
    assert f"directory=${{1:-{told}}}" in (tree / "examples" / "mnist" / "fetch.sh").read_text()
    assert MNIST_DEFAULT == tree / told


def accuracy(job):
    """What the last line of worker 0 says."""
    found = re.search(r"^\[worker0\] MNIST accuracy: (\d\.\d+)$", job.stdout(), re.MULTILINE)
    assert found, job.stdout()
    return float(found.group(1))


def mnist(start, *arguments, workers=2, servers=2, options=(), name="job"):
    """Trains to the end; the accuracy and the job."""
    job = start("--workers", workers, "--servers", servers, *options, "--",
                program("mnist"), *arguments, name=name)
    assert job.wait(60) == 0, job.stdout() + job.stderr()
    return accuracy(job), job


def digests(start, name, *arguments, **options):
    """Trains 40 steps and returns what was saved."""
    job = mnist(start, "--steps", 40, "--save", "saved", *arguments, name=name, **options)[1]
    return saved_digests(job.directory / "saved")


def test_the_demo(start):
    """If this fails, `make demo` does: the first thing that anybody tries."""
    reached, job = mnist(start)
    assert reached >= 0.9
    assert job.stdout().splitlines()[-1].startswith("[worker0] MNIST accuracy: 0.9")
    assert "job ended well" in job.stderr()
    for name in ("master", "server0", "server1"):
        assert b"JOB-END all workers are done (exit code 0)" in job.log(name)
    printed = [line.removeprefix("[worker0] ") + "\n" for line in job.stdout().splitlines()]
    assert job.log("worker0").decode() == "".join(printed)
    assert job.log("worker1") == b""


@pytest.mark.smoke
def test_worker_logs_are_byte_identical(start):
    """If this fails, a log cannot be trusted: bytes are lost, added or changed on their way. What stderr says
    comes between lines of stdout, not into one."""
    text = r"printf 'a\tb\r\n\377\000\033[1m \n\nno newline'; echo err >&2; printf '\001'"
    job = start("--grace_ms", 100, "--workers", 2, "--", "sh", "-c", text)
    assert job.wait() == 0, job.stderr()
    for rank in (0, 1):
        log = job.log(f"worker{rank}")
        assert log.count(b"err\n") == 1 and b"\nno newline\x01" in log
        assert log.replace(b"err\n", b"", 1) == b"a\tb\r\n\xff\x00\x1b[1m \n\nno newline\x01"


@needs_mnist
@pytest.mark.parametrize("model,mode,least", [
    ("softmax", "bsp", 0.92), pytest.param("mlp", "bsp", 0.97, marks=pytest.mark.all),
    pytest.param("softmax", "ssp", 0.90, marks=pytest.mark.all), ("softmax", "async", 0.90),
])
def test_real_digits_are_learnt(start, model, mode, least):
    """If this fails, jobs end well and have learnt too little."""
    reached, job = mnist(start, "--data", MNIST_DATA, "--model", model, "--mode", mode)
    assert reached >= least


def test_bits_depend_on_nothing_but_the_seed(start):
    """If this fails, two runs of one training differ, or the number of servers or lanes shows."""
    reference = digests(start, "reference")
    assert digests(start, "again") == reference
    for servers in (1, 3):
        assert digests(start, f"servers{servers}", servers=servers) == reference
    for lanes in (1, 4):
        assert digests(start, f"lanes{lanes}", options=(f"--lanes={lanes}",)) == reference
    assert digests(start, "scalar", options=("--kernel=scalar",)) == reference
    assert digests(start, "checksum", options=("--payload_checksum=on",)) == reference
    assert digests(start, "seed", "--seed", 2) != reference


def test_bits_of_tables_of_many_chunks(start):
    """If this fails, chunks of a table that is spread over servers and lanes are mixed up."""
    seen = set()
    for servers, lanes, pool in ((1, 1, 48), (2, 2, 48), (3, 1, 1)):
        job = start("--workers", 3, "--servers", servers, f"--lanes={lanes}",
                    f"--slot_pool_mib={pool}", "--", *python_worker(
                        "--elements", 300_000, "--steps", 6, "--save", "saved"),
                    name=f"job{servers}")
        assert job.wait(60) == 0, job.stdout() + job.stderr()
        seen.add(tuple(saved_digests(job.directory / "saved")))
    assert len(seen) == 1


def test_going_on_from_a_save_ends_in_the_same_bits(start):
    """If this fails, a training that was saved and loaded is not the training it was."""
    straight = digests(start, "straight", "--momentum", 0.9, "--rate", 0.05)
    first = start("--workers", 2, "--", program("mnist"), "--steps", 17, "--momentum", 0.9,
                  "--rate", 0.05, "--save", "saved", name="first")
    assert first.wait(60) == 0, first.stderr()
    again = digests(start, "second", "--momentum", 0.9, "--rate", 0.05,
                    "--load", first.directory / "saved", servers=3)
    assert again == straight


def test_ten_jobs_at_once(start):
    """If this fails, jobs of one machine take each other's ports."""
    jobs = [start("--workers", 2, "--servers", 2, "--", program("hello"), name=f"job{i}")
            for i in range(10)]
    assert [job.wait(60) for job in jobs] == [0] * 10
    for job in jobs:
        assert job.stdout().count(": 20\n") == 2
