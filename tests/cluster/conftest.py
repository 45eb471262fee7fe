# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with real processes."""

import os
import subprocess

import pytest

from helpers import Hand, Job, bin_directory, make_secret
from hosts import hosts  # noqa: F401 - a fixture


def pytest_collection_modifyitems(items):
    """Without programs there is nothing to test."""
    if not (bin_directory() / "psd_run").exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="psd_run is not built"))


@pytest.fixture(scope="session", autouse=True)
def secret_file(tmp_path_factory):
    """A secret that every process of every test finds in its environment, as on a machine where
    somebody starts jobs by hand. Tests that want another one, or none, say so."""
    if not (bin_directory() / "psd_run").exists():
        yield None
        return
    path = make_secret(tmp_path_factory.mktemp("secret") / "secret")
    os.environ["PSD_SECRET_FILE"] = str(path)
    yield path
    del os.environ["PSD_SECRET_FILE"]


@pytest.fixture
def start(tmp_path):
    """Starts jobs with psd_run, and kills what a failed test leaves of them."""
    jobs = []

    def begin(*arguments, name="job", **options):
        jobs.append(Job(tmp_path / name, *arguments, **options))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()


@pytest.fixture
def hand(tmp_path):
    """Starts the processes of a job one by one. Afterwards nothing may be left."""
    processes = Hand(tmp_path)
    yield processes
    failed = [process.name for process in processes.processes if process.process.poll() is None]
    processes.kill_all()
    processes.expect_nothing_left()
    assert not failed, f"still running at the end of the test: {failed}"


@pytest.fixture
def small_disk(tmp_path):
    """Mounts file systems of a few MiB (root only), and takes them away again."""
    mounted = []

    def mount(mebibytes):
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", path],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", path], check=True)
