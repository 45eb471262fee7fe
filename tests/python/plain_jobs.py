# SPDX-License-Identifier: Apache-2.0
"""Runs plain PyTorch scripts, by themselves and as jobs of several workers, and reads what they print."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import uuid

import pytest

import warm

torch = pytest.importorskip("torch", reason="no PyTorch here (tools/setup.sh frameworks)")

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("PSD_BIN", TREE / "bin")).absolute()
AUTO = TREE / "python" / "poseidon" / "auto"
DEADLINE_S = 600  # of a job that hangs: busy cores take their time


def environment(directory, **more):
    """Without a word of Poseidon, but where libpsd lies."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith("PSD_") and name != "PYTHONPATH"}
    return {**clean, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(directory),
            "PSD_LIB": str((BIN / "ps_server").resolve().parent / "libpsd.so.0"), **more}


class Done:
    """A job that has ended."""

    def __init__(self, directory, result):
        self.directory, self.code = directory, result.returncode
        self.out, self.err = result.stdout, result.stderr
        path = directory / "poseidon_run.log"
        self.run_log = path.read_text() if path.exists() else ""

    def log(self, rank):
        (logs,) = (self.directory / "logs").iterdir()
        return (logs / f"worker{rank}.log").read_bytes()

    def notes(self):
        """What the workers told, each once, as the console shows it; why the job was stopped is in its last line."""
        return [line for line in self.err.splitlines() if line.startswith(("psd_run: worker", "psd_run: job ended"))
                and "automatic distribution" in line]


def call(directory, *words, **variables):
    directory.mkdir(parents=True, exist_ok=True)
    rendezvous = directory / "rt"
    rendezvous.mkdir(mode=0o700, exist_ok=True)
    return subprocess.run([str(word) for word in words], cwd=directory, capture_output=True,
                          text=True, timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
                          env=environment(rendezvous, **variables))


@pytest.fixture(name="job")
def fixture_job(tmp_path):
    """Runs a script, or the text of one, with two workers. Cold: in processes that import torch themselves, where a test
    is about what warm.py names."""

    def run(script, *arguments, options=(), workers=2, psd_run=BIN / "psd_run", cold=False, **variables):
        directory = tmp_path / f"job{uuid.uuid4().hex[:8]}"
        return Done(directory, call(directory, psd_run, "--workers", workers, "--grace_ms", 200,
                                    *options, "--", python(cold), written(tmp_path, script),
                                    *arguments, **variables))

    return run


def written(directory, script):
    if isinstance(script, pathlib.Path):
        return script
    path = directory / f"train{uuid.uuid4().hex[:8]}.py"
    path.write_text(textwrap.dedent(script))
    return path


def python(cold=False, framework="torch"):
    return sys.executable if cold else warm.python(framework)


def alone(directory, script, *arguments, cold=False):
    """The script as it runs without psd_run."""
    directory = directory / f"alone{uuid.uuid4().hex[:8]}"
    done = call(directory, python(cold), written(directory.parent, script), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(text, word):
    """What a script printed behind a word, the last time."""
    return [line[len(word) + 1:] for line in text.splitlines() if line.startswith(f"{word} ")][-1]


def steps(text):
    return torch.tensor([json.loads(line[5:]) for line in text.splitlines()
                         if line.startswith("STEP ")], dtype=torch.float64)


def by_kind(text):
    """What a script that goes through several kinds printed for each."""
    _, *parts = ("\n" + text).split("\nKIND ")
    return {part.split("\n", 1)[0]: part for part in parts}
