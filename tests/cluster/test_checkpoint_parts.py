# SPDX-License-Identifier: Apache-2.0
"""What a worker has itself, in the checkpoints of psd_run --checkpoint: with real processes, weights compared to the bit."""

import pathlib
import re
import signal
import subprocess
import sys

import pytest

from helpers import Job, program, wait_for

SCRIPT = pathlib.Path(__file__).with_name("parts.py")
ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 400


def train(directory, *options, steps=STEPS, hold=None):
    directory.mkdir(exist_ok=True)
    words = [sys.executable, SCRIPT, steps] + ([] if hold is None else [hold])
    return Job(directory, "--workers", 2, "--servers", 1, "--page", "off", "--lanes", 1, "--log_level", "debug", "--auto", "off", *options, "--", *words)


def weights(job):
    found = {(job.directory / f"weights{rank}.bin").read_bytes() for rank in range(2)}
    assert len(found) == 1, "the workers' weights differ"
    return found.pop()


def manifests(directory):
    return {int(path.stem.split("-")[1]) for path in directory.glob("manifest-*.json")}


def ended_well(job):
    assert job.wait(90) == 0, job.stdout() + job.stderr()
    return job


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the weights have to be."""
    return weights(ended_well(train(tmp_path_factory.mktemp("whole"))))


@pytest.mark.parametrize("every", ["30ms", "50steps", "epoch"])
def test_a_job_of_sums_goes_on_from_worker_0s_part(tmp_path, undisturbed, every):
    """If this fails, a job whose weights are with its workers loses everything with them, or goes on with other weights
    than it had."""
    saved = tmp_path / "saved"
    job = train(tmp_path / "first", "--checkpoint", saved, "--checkpoint_every", every, hold=250)
    wait_for(lambda: manifests(saved) or job.process.poll() is not None, 60, lambda: job.run_log() + job.stderr())
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    shown = subprocess.run([program("psd_run"), "checkpoint", "show", saved], capture_output=True, text=True, timeout=120,
                           check=True).stdout
    assert "worker0.safetensors" in shown
    assert subprocess.run([program("psd_run"), "checkpoint", "verify", saved], timeout=120, check=False).returncode == 0
    again = ended_well(train(tmp_path / "again", "--resume", saved))
    begun = {int(step) for step in re.findall(r"began at (\d+)", again.stdout())}
    assert len(begun) == 1 and min(begun) > 0
    assert every == "30ms" or min(begun) % (50 if every == "50steps" else 10) == 0
    assert weights(again) == undisturbed


def test_sigterm_saves_first(tmp_path, undisturbed):
    """If this fails, a batch system's time limit costs a job of sums all its work since the last checkpoint."""
    saved = tmp_path / "saved"
    job = train(tmp_path / "first", "--checkpoint", saved, "--checkpoint_every", "1h", steps=10 ** 7)
    wait_for(lambda: "offered" in job.stdout(), 60, job.run_log)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(60) == 143
    assert len(manifests(saved)) == 1, job.stderr() + job.run_log()


def test_nothing_to_save_is_said(tmp_path):
    """If this fails, somebody trains for days with --checkpoint and finds an empty directory."""
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import poseidon, numpy\nposeidon.init()\n" \
             "table = poseidon.Table('w', 10, 'float32', use='sum')\n" \
             "while True:\n    table.push_pull(numpy.ones(10, 'f')).wait()\n"
    job = Job(tmp_path, "--workers", 1, "--servers", 1, "--page", "off", "--auto", "off",
              "--checkpoint", "saved", "--checkpoint_every", "1s", "--", sys.executable, "-c", script)
    wait_for(lambda: any("nothing is saved: the job's tables are sums" in path.read_text()
                         for path in job.directory.glob("logs/*/master.log")), 60, job.run_log)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(60) == 143
    assert not manifests(tmp_path / "saved")
