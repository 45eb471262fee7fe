# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package: scripts of their own, run by psd_run as real jobs."""

import compileall
import os
import pathlib
import signal
import sys
import textwrap

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
PACKAGE_PATH = TREE / "python"
sys.path[:0] = [str(PACKAGE_PATH), str(TREE / "tests" / "cluster")]

from helpers import Job, bin_directory, library_path, make_secret  # noqa: E402

os.environ.setdefault("PSD_LIB", str(library_path()))


# Under nohup, and in the background of a shell, these come ignored, and every job would inherit that.
for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


def pytest_sessionstart(session):
    """Workers of tests write no files beside the package's; so they would all compile it anew."""
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(PACKAGE_PATH / "poseidon", quiet=2)


def pytest_collection_modifyitems(items):
    """Without programs there is nothing to test."""
    if not (bin_directory() / "psd_run").exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="psd_run is not built"))


@pytest.fixture(scope="session", autouse=True)
def own_jobs(tmp_path_factory):
    """Jobs of other people on this machine have the same user: tests see only their own."""
    path = tmp_path_factory.mktemp("rt")
    path.chmod(0o700)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(path)
    yield
    os.environ.pop("XDG_RUNTIME_DIR")
    if before is not None:
        os.environ["XDG_RUNTIME_DIR"] = before


@pytest.fixture(scope="session")
def secret_file(tmp_path_factory):
    """For processes that are started by hand."""
    return make_secret(tmp_path_factory.mktemp("secret") / "secret")


PREAMBLE = """
import os, sys, threading, time
import numpy as np
import poseidon


def attempt(function, *args, **kwargs):
    '''What it raises, as one line.'''
    try:
        return f"no error: {function(*args, **kwargs)!r}"
    except Exception as error:
        status = getattr(error, "status", None)
        return f"{type(error).__name__} {status.name if status is not None else '-'}: {error}"


def say(*words):
    print(*words, flush=True)

"""


def environment(**more):
    return {"PYTHONPATH": str(PACKAGE_PATH), "PYTHONDONTWRITEBYTECODE": "1", **more}


@pytest.fixture
def start(tmp_path):
    """Starts a script as a job: its worker's lines have the rank in front ("0: ...")."""
    jobs = []

    def begin(script, *arguments, workers=2, servers=1, options=(), env=None, name="job"):
        path = tmp_path / f"{name}.py"
        path.write_text(PREAMBLE + textwrap.dedent(script))
        jobs.append(Job(tmp_path / name, "--workers", workers, "--servers", servers, *options,
                        "--", sys.executable, path, *arguments,
                        environment=environment(**(env or {}))))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()


@pytest.fixture
def run(start):
    """Runs a script as a job that must end well, and returns the lines of each worker."""

    def complete(script, *arguments, workers=2, code=0, **options):
        job = start(script, *arguments, workers=workers, **options)
        assert job.wait(60) == code, job.stdout() + job.stderr()
        return [job.log(f"worker{rank}").decode().splitlines() for rank in range(workers)]

    return complete


@pytest.fixture
def elastic_job(tmp_path, secret_file):
    """Starts jobs whose workers come and go. Afterwards nothing is left of them."""
    from elastic_jobs import Job as ElasticJob  # which needs this file

    jobs = []

    def begin(workers, *rules, **options):
        directory = tmp_path / f"job{len(jobs)}"
        directory.mkdir()
        jobs.append(ElasticJob(directory, secret_file, workers, *rules, **options))
        return jobs[-1]

    yield begin
    for each in jobs:
        each.kill_all()
        each.expect_nothing_left()
