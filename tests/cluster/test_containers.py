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
def test_two_jobs_by_names(tmp_path):
    """If this fails, a job cannot be run in containers, or two at once on one machine take each other's names."""
    why = containers.missing()
    if why is not None:
        pytest.skip(f"no containers: {why}")
    secret = make_secret(tmp_path / "secret")
    # A container that asks for a name before the network's name server is up hears nothing for 20 s, once or twice.
    join = "psd_run --coordinator ps:7070 --size 3 --secret_file /secret --max_wait 150"
    jobs = [subprocess.Popen(
        [sys.executable, containers.__file__, str(bin_directory().absolute()), str(secret),
         f"ps={join} --rank 0 hello", f"worker={join} --rank 1 hello",
         f"worker2={join} --rank 2 hello"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **NO_SECRET}) for _ in range(2)]
    try:
        told = [job.communicate(timeout=400) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    for job, (output, errors) in zip(jobs, told):
        if job.returncode == NOT_HERE:
            pytest.skip(errors.strip())
        assert job.returncode == 0, output + errors
        for name in ("ps", "worker", "worker2"):
            assert f"== {name} ended with 0\n" in output
        for rank in (0, 1):
            assert f"[worker{rank}] hello from worker {rank}: 20\n" in output
        assert re.search(r"rank 1 of 3 has joined the job at tcp://10\.214\.0\.\d+:7070", output)
