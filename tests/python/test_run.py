# SPDX-License-Identifier: Apache-2.0
"""Jobs from functions: poseidon.run."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import poseidon
from conftest import PREAMBLE, environment
from helpers import wait_for

FACTOR = 3


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    """What run() leaves behind is found here."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield tmp_path / "tmp"


def factorial(number):
    return 1 if number < 2 else number * factorial(number - 1)


def train(rate, steps=3):
    table = poseidon.Table("w", 4, learning_rate=rate)
    for _ in range(steps):
        values = table.push_pull(np.full(4, poseidon.rank() + 1, np.float32)).wait()
    return {"rank": poseidon.rank(), "values": values, "factor": FACTOR * factorial(4)}


def test_results_by_rank(own_directory, capfd):
    """If this fails, a notebook gets no results, or those of others."""
    results = poseidon.run(train, (0.5,), {"steps": 2}, workers=3)
    assert [result["rank"] for result in results] == [0, 1, 2]
    for result in results:
        assert result["factor"] == 72 and result["values"].tolist() == [-2.0] * 4
    assert not list(own_directory.iterdir())
    assert "job ended well" in capfd.readouterr().out


def test_functions_of_a_notebook(own_directory, tmp_path):
    """If this fails, only functions of modules can be run."""
    script = tmp_path / "notebook.py"
    script.write_text(PREAMBLE + textwrap.dedent("""
        from math import floor
        from numpy import exp, float32
        more = values = object()  # names that are only attributes, or arguments, below
        scale, words = np.float64(2.5), {"a": [1, (2, 3)], "b": {4}}

        def even(n): return True if n == 0 else odd(n - 1)
        def odd(n): return False if n == 0 else even(n - 1)

        def make(offset):
            def inner(x, *, more=1):
                assert exp(float32(0)) == 1 and {}.values() is not None
                return offset + floor(x) + more + scale, words, even(10), [poseidon.size()]
            return inner

        print(poseidon.run(make(10), (1.5,), workers=2, quiet=True)[1])
        print(poseidon.run(lambda: np.arange(3).sum(), workers=1, quiet=True))
    """))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300,
                          check=False, env={**os.environ, **environment()})
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.replace("np.float64(14.5)", "14.5") == \
        "(14.5, {'a': [1, (2, 3)], 'b': {4}}, True, [2])"
    assert second in ("[3]", "[np.int64(3)]")


def test_worker_that_raises(own_directory):
    """If this fails, nobody learns which worker failed, and why."""
    def fail():
        if poseidon.rank() == 1:
            raise ValueError("no luck")
        poseidon.barrier()

    with pytest.raises(poseidon.RunError, match="worker 1 raised ValueError: no luck") as caught:
        poseidon.run(fail, workers=2, quiet=True)
    assert caught.value.rank == 1 and "in fail" in caught.value.traceback
    (kept,) = own_directory.iterdir()
    assert str(kept / "logs") in str(caught.value) and (kept / "logs").is_dir()
    assert kept.stat().st_mode & 0o077 == 0


def test_what_cannot_be_carried():
    """If this fails, an object arrives half, or the message does not say which one it was."""
    thing, objects = object(), np.array([{}])
    with pytest.raises(TypeError, match="<lambda>: variable thing: a builtins.object cannot be "):
        poseidon.run(lambda: thing)
    with pytest.raises(TypeError, match="variable objects: an array of objects cannot be carried"):
        poseidon.run(lambda: objects)
    with pytest.raises(TypeError, match="3 is not a function"):
        poseidon.run(3)
    with pytest.raises(poseidon.RunError, match="what worker 0 returned: a builtins.object cannot"):
        poseidon.run(lambda: object(), workers=1, quiet=True)


def test_plain_training_is_refused(tmp_path):
    """If this fails, every worker of a notebook trains the same model by itself, and nobody notices."""
    (tmp_path / "torch.py").write_text("")  # its name is all that matters
    script = tmp_path / "notebook.py"
    script.write_text(PREAMBLE + textwrap.dedent("""
        import torch

        def step(): return torch.nn

        def plain(): return step()
        def inside():
            import torch.optim
        def shared(): return step(), poseidon.rank()
        def shared_inside():
            import poseidon.torch
            return torch.nn

        from poseidon._plain import trains_by_itself
        for function in (plain, inside, shared, shared_inside, lambda: np.sum([1])):
            say(trains_by_itself(function))
        say(attempt(poseidon.run, plain, workers=2))
    """))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, **environment()})
    assert done.returncode == 0, done.stderr
    *found, refusal = done.stdout.splitlines()
    assert found == ["torch", "torch", "None", "None", "None"]
    assert "StateError" in refusal and "plain uses torch and nothing of poseidon" in refusal


def test_interrupt_ends_the_job(tmp_path):
    """If this fails, Ctrl-C in a notebook leaves a job behind."""
    script = tmp_path / "notebook.py"
    mark = tmp_path / "running"
    script.write_text(PREAMBLE + textwrap.dedent(f"""
        def wait():
            open({str(mark)!r} + str(poseidon.rank()), "w").close()
            threading.Event().wait(60)
        poseidon.run(wait, workers=2, quiet=True)
    """))
    process = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **environment(TMPDIR=str(tmp_path))})
    try:
        wait_for(lambda: all(pathlib.Path(f"{mark}{rank}").exists() for rank in range(2)), 30)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
        assert "KeyboardInterrupt" in error and time.monotonic() - begin < 50
    finally:
        process.kill()
        process.wait()
