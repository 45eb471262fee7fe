# SPDX-License-Identifier: Apache-2.0
"""The examples are short, run, and learn."""

import gzip
import json
import os
import re
import subprocess
import sys
import uuid

import pytest

from conftest import TREE, environment
from helpers import Job, program, result, wait_for

EXAMPLES = sorted((TREE / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_is_short(path):
    """If this fails, an example is no example any more."""
    assert len(path.read_text().splitlines()) < 150


def logistic(tmp_path, name, *arguments, workers=2, servers=1):
    job = Job(tmp_path / name, "--workers", workers, "--servers", servers, "--", sys.executable,
              TREE / "examples" / "python" / "logistic.py", *arguments, environment=environment())
    assert job.wait(60) == 0, job.stderr()
    return [job.log(f"worker{rank}").decode().split() for rank in range(workers)]


def test_logistic_regression(tmp_path):
    """If this fails, the first example that people try does not learn, or not repeatably."""
    first = logistic(tmp_path, "first")
    again = logistic(tmp_path, "again", servers=2)
    assert {words[-1] for words in first + again} == {first[0][-1]}
    assert float(first[0][3]) > 0.94
    assert float(logistic(tmp_path, "adam", "--rule", "adam")[0][3]) > 0.94


def test_one_leaves_when_it_is_asked_to(tmp_path):
    """If this fails, the example dies in the middle of a step when psd_run scale takes a worker away, or the others stop."""
    title = f"logistic-{uuid.uuid4().hex[:8]}"
    job = Job(tmp_path / "job", "--workers", 2, "--servers", 1, "--max_workers", 3, "--on_worker_death=continue", "--name", title, "--",
              sys.executable, TREE / "examples" / "python" / "logistic.py", "--steps", 100_000_000, environment=environment())

    def psd_run(*words):
        return subprocess.run([program("psd_run"), *words], capture_output=True, text=True, timeout=60, check=False)

    def workers(what):
        shown = json.loads(psd_run("show", title, "--json").stdout or "{}")
        return [process.get(what) for process in shown.get("processes", ()) if process["role"] == "worker"]

    try:
        wait_for(lambda: len(workers("step")) == 2 and all(workers("step")), 60, lambda: f"both train {workers('step')} {job.stderr()}")
        assert psd_run("scale", title, "--workers=-1").returncode == 0, job.stderr()
        job.wait_for_output("[worker1] leaves before step")
        wait_for(lambda: workers("state")[1] == "left", 60, job.stderr)
    finally:
        psd_run("stop", title)
    assert job.wait(60) == 143, job.stderr()
    ended = {process["name"]: process for process in result(job)["processes"]}
    assert ended["worker1"]["state"] == "left" and ended["worker1"]["code"] == 0, ended["worker1"]


PLAIN = TREE / "examples" / "pytorch" / "mnist.py"


def test_plain_pytorch_script(tmp_path):
    """If this fails, the script that people are shown first, and that knows nothing of Poseidon, is not distributed, or does
    not learn."""
    pytest.importorskip("torch")
    assert "poseidon" not in PLAIN.read_text().split('"""')[2] and len(PLAIN.read_text().splitlines()) < 80
    job = Job(tmp_path / "job", "--workers", 2, "--", sys.executable, PLAIN, environment={"PATH": os.environ["PATH"]})
    assert job.wait(120) == 0, job.stderr()
    accuracies = {job.log(f"worker{rank}").decode().split()[-1] for rank in range(2)}
    assert len(accuracies) == 1 and float(accuracies.pop()) > 0.95, job.stdout()
    assert "automatic distribution of mnist.py: 2 workers" in job.stderr()
    assert "weights equal to the bit on 2 workers" in job.stderr()


def test_plain_pytorch_script_reads_mnist(tmp_path):
    """If this fails, the plain script does not find the files that examples/mnist/fetch.sh fetches."""
    pytest.importorskip("torch")
    for part in ("train", "t10k"):
        labels = bytes(number % 10 for number in range(60))
        images = b"".join(bytes([25 * label]) * 784 for label in labels)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels))
    done = subprocess.run([sys.executable, PLAIN, "--data", tmp_path, "--epochs", "1"], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0 and re.search(r"accuracy: [01]\.\d{4}", done.stdout), done.stdout + done.stderr
