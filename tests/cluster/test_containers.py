# SPDX-License-Identifier: Apache-2.0
"""A job in containers that know each other by name alone."""

import os
import re
import subprocess
import sys

import pytest

import bed  # noqa: F401  (puts tests/testbed on the path)
from helpers import NO_SECRET, SANITIZED, bin_directory, make_secret

import containers

NOT_HERE = 77  # podman cannot run on this machine


@pytest.mark.skipif(SANITIZED, reason="the image has no sanitizer's libraries")
def test_job_by_names(tmp_path):
    """If this fails, a job cannot be run in containers."""
    why = containers.missing()
    if why is not None:
        pytest.skip(f"no containers: {why}")
    secret = make_secret(tmp_path / "secret")
    join = "psd_run --coordinator ps:7070 --size 3 --secret_file /secret --max_wait 30"
    done = subprocess.run(
        [sys.executable, containers.__file__, str(bin_directory().absolute()), str(secret),
         f"ps={join} --rank 0 hello", f"worker={join} --rank 1 hello",
         f"worker2={join} --rank 2 hello"],
        capture_output=True, text=True, timeout=150, env={**os.environ, **NO_SECRET}, check=False)
    if done.returncode == NOT_HERE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("ps", "worker", "worker2"):
        assert f"== {name} ended with 0\n" in done.stdout
    for rank in (0, 1):
        assert f"[worker{rank}] hello from worker {rank}: 20\n" in done.stdout
    assert re.search(r"rank 1 of 3 has joined the job at tcp://10\.214\.0\.\d+:7070", done.stdout)
