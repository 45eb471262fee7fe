# SPDX-License-Identifier: Apache-2.0
"""Plain scripts of JAX under psd_run."""

import importlib.util
import os
import subprocess
import sys

import pytest

from conftest import TREE, environment
from helpers import Job

if importlib.util.find_spec("optax") is None:
    pytest.skip("no JAX here (tools/setup.sh frameworks)", allow_module_level=True)

SCRIPT = TREE / "tests" / "python" / "plain" / "optax_loop.py"


def job(directory, kind, *options, workers=2, script=SCRIPT):
    made = Job(directory / kind, "--workers", workers, "--grace_ms", 200, *options, "--", sys.executable,
               script, kind, environment={**environment(), "PYTHONPATH": ""})
    code = made.wait(120)
    return code, made.stderr(), [made.log(f"worker{rank}").decode() for rank in range(workers)]


def test_a_plain_loop_is_stopped_where_it_begins(tmp_path):
    """If this fails, every worker trains the same model on the same data, and the job ends well."""
    code, said, logs = job(tmp_path, "optax")
    assert code == 2, said
    assert "automatic distribution stopped optax_loop.py: it calls jax.value_and_grad" in said
    assert "psd.distributed(optimizer)" in said and "--auto off" in said
    assert not any("TRAINED" in log for log in logs)


@pytest.mark.all
@pytest.mark.parametrize("kind,options,workers,code,word", [
    ("bare", (), 2, 2, None), ("own", (), 2, 0, "TRAINED"), ("forward", (), 2, 0, "LOSS"),
    ("optax", ("--auto", "off"), 2, 0, "TRAINED"), ("optax", (), 1, 0, "TRAINED")])
def test_what_is_stopped_and_what_is_not(tmp_path, kind, options, workers, code, word):
    """If this fails, a loop without optax trains on all workers alike, or a script is stopped that trains
    nothing, or takes care of it, or has one worker."""
    ended, said, logs = job(tmp_path, kind, *options, workers=workers)
    assert ended == code, said
    assert word is None or all(word in log for log in logs)


@pytest.mark.all
def test_with_gradients_not_watched_the_update_is(tmp_path):
    """If this fails, one mistake in what watches gradients lets every worker train the same."""
    script = tmp_path / "mutated.py"
    script.write_text("import jax, runpy\njax.grad, jax.value_and_grad = jax.grad.__wrapped__, "
                      f"jax.value_and_grad.__wrapped__\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n")
    code, said, logs = job(tmp_path, "optax", script=script)
    assert code == 2 and "it calls optax.apply_updates" in said, said
    assert not any("TRAINED" in log for log in logs)


@pytest.mark.all
def test_what_a_library_asks_the_script_has_not_asked(tmp_path):
    """If this fails, every worker trains the same as soon as the script imports torch, which looks for variables of
    that kind, and the script is said to know which worker it is."""
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "asking.py").write_text("import os\nos.environ.get('RANK')\n")
    script = tmp_path / "train.py"
    script.write_text(f"import runpy, sys\nsys.path.insert(0, {str(library)!r})\nimport asking\n"
                      f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n")
    code, said, logs = job(tmp_path, "optax", script=script)
    assert code == 2 and "it calls jax.value_and_grad" in said, said
    assert not any("TRAINED" in log for log in logs)


@pytest.mark.all
def test_without_psd_run_nothing_happens(tmp_path):
    """If this fails, the script itself is wrong."""
    done = subprocess.run([sys.executable, str(SCRIPT), "optax"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=300, check=False, env=os.environ)
    assert done.returncode == 0 and "TRAINED" in done.stdout, done.stderr
