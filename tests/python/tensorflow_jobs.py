# SPDX-License-Identifier: Apache-2.0
"""Runs scripts of TensorFlow, by themselves and as jobs of several workers, and reads what they print."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import uuid

import pytest

import warm

if importlib.util.find_spec("tensorflow") is None:  # importing it takes seconds
    pytest.skip("no TensorFlow here (tools/setup.sh frameworks)", allow_module_level=True)

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("PSD_BIN", TREE / "bin")).absolute()
DEADLINE_S = 600  # of a job that hangs: busy cores take their time


@pytest.fixture(name="cache", scope="session")
def fixture_cache(tmp_path_factory):
    """Where the operations are built, once for all tests."""
    return tmp_path_factory.mktemp("cache")


class Done:
    """A job, or a process alone, that has ended."""

    def __init__(self, directory, result):
        self.directory, self.code = directory, result.returncode
        self.out, self.err = result.stdout, result.stderr

    def log(self, name):
        (logs,) = (self.directory / "logs").iterdir()
        return (logs / f"{name}.log").read_text(errors="replace")

    def found(self, rank=None):
        """What a worker, or the process, told last."""
        text = self.out if rank is None else self.log(f"worker{rank}")
        return json.loads([line[6:] for line in text.splitlines() if line.startswith("FOUND ")][-1])


@pytest.fixture(name="call")
def fixture_call(tmp_path, cache):
    """Runs a command to its end."""

    def go(*words, path="", **variables):
        directory = tmp_path / uuid.uuid4().hex[:8]
        (directory / "rt").mkdir(parents=True, mode=0o700)
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith("PSD_") and name != "PYTHONPATH"}
        result = subprocess.run(
            [str(word) for word in words], cwd=directory, capture_output=True, text=True,
            timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
            env={**clean, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                 "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "",
                 "XDG_CACHE_HOME": str(cache), "XDG_RUNTIME_DIR": str(directory / "rt"),
                 "PSD_LIB": str((BIN / "ps_server").resolve().parent / "libpsd.so.0"), **variables})
        return Done(directory, result)

    return go


@pytest.fixture(name="job")
def fixture_job(call):
    """Runs a script that imports poseidon, which must end well."""

    def go(*words, workers=2, options=(), code=0, framework="tensorflow", **variables):
        python = warm.python(framework) if framework else sys.executable
        done = call(BIN / "psd_run", "--workers", workers, "--servers", 1, *options, "--",
                    python, *words, path=str(TREE / "python"), **variables)
        assert done.code == code, done.out + done.err
        return done

    return go


@pytest.fixture(name="plain")
def fixture_plain(call):
    """Runs a script that knows nothing of Poseidon. Cold: in processes that import TensorFlow themselves, where a test is
    about what warm.py names."""

    def go(*words, workers=2, options=(), cold=False, **variables):
        return call(BIN / "psd_run", "--workers", workers, "--servers", 1, "--grace_ms", 200,
                    *options, "--", sys.executable if cold else warm.python("tensorflow"), *words, **variables)

    return go


@pytest.fixture(name="alone")
def fixture_alone(call):
    """Runs a script by itself, which must end well."""

    def go(*words, **variables):
        done = call(warm.python("tensorflow"), *words, **variables)
        assert done.code == 0, done.err
        return done

    return go
