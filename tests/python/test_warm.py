# SPDX-License-Identifier: Apache-2.0
"""What is run warm is run as Python would run it: all other tests that do so rest on this."""

import os
import signal
import subprocess
import sys

import pytest

from conftest import environment
from helpers import Job, wait_for

pytest.importorskip("torch", reason="no PyTorch here (tools/setup.sh frameworks)")

import warm  # noqa: E402

LOOK = """
import os, random, sys
import numpy
word = "torch" in sys.modules
import torch.nn
print(__name__, __file__ == sys.argv[0], sys.argv[1:], os.getcwd(), os.environ["MINE"], sys.path[:2], sys.stdin.read(), word,
      sys.modules["torch"] is torch)
print(random.random(), numpy.random.rand(), torch.initial_seed(), file=sys.stderr)
os.write(int(os.environ["PIPE"]), b"through a pipe")
sys.exit(int(sys.argv[1]))
"""


def call(directory, python, script, *arguments):
    reader, writer = os.pipe()
    done = subprocess.run([python, script, *arguments], cwd=directory, input="typed", capture_output=True, text=True,
                          timeout=300, check=False, pass_fds=[writer],
                          env={**os.environ, **environment(MINE="mine", PIPE=str(writer))})
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"through a pipe", done.stderr
    return done


def test_a_script_finds_what_python_gives_it(tmp_path):
    """If this fails, scripts are tested in surroundings that they do not have elsewhere."""
    script = tmp_path / "look.py"
    script.write_text(LOOK)
    fresh = call(tmp_path, sys.executable, script, "7", "more")
    first, second = (call(tmp_path, warm.python("torch"), script, "7", "more") for _ in range(2))
    assert first.returncode == second.returncode == fresh.returncode == 7
    assert first.stdout == second.stdout == fresh.stdout
    assert not set(first.stderr.split()) & set(second.stderr.split()), "two children draw the same"


def test_signals_reach_the_script_and_its_end_the_caller(tmp_path):
    """If this fails, psd_run kills something else than the script, or reads of another end."""
    script = tmp_path / "wait.py"
    script.write_text("import os, signal, sys, time\n"
                      "if 'hears' in sys.argv:\n"
                      "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
                      "open('pid', 'w').write(f'{os.getpid()} ')\n"
                      "time.sleep(60)\n")
    for arguments, sent, code in ((("hears",), signal.SIGTERM, 3), ((), signal.SIGTERM, -15), ((), signal.SIGKILL, -9)):
        (tmp_path / "pid").unlink(missing_ok=True)
        process = subprocess.Popen([warm.python("torch"), script, *arguments], cwd=tmp_path)
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith(" "), 60, "the script")
        child = int((tmp_path / "pid").read_text())
        assert child != process.pid
        process.send_signal(sent)
        assert process.wait(60) == code
        wait_for(lambda: not os.path.exists(f"/proc/{child}"), 60, "the end of the script")


def test_the_hook_sees_the_import(tmp_path):
    """If this fails, plain scripts are not distributed when they are run warm, and their tests see one process."""
    script = tmp_path / "train.py"
    script.write_text("import sys\nbefore = '_poseidon_auto.torch' in sys.modules\nfrom torch import nn\n"
                      "print(before, '_poseidon_auto.torch' in sys.modules)\n")
    job = Job(tmp_path / "job", "--workers", 2, "--", warm.python("torch"), script,
              environment={**environment(), "PYTHONPATH": ""})
    assert job.wait(60) == 0, job.stderr()
    assert job.log("worker1") == b"False True\n"


ENDS = """
import atexit, sys, threading, time

class Noted:
    def __del__(self):
        print("the script's object is gone")
    def __repr__(self):
        return "noted"

def late():
    time.sleep(0.2)
    print("a thread has ended")

atexit.register(print, "second")
atexit.register(print, "first")
noted = Noted()
sys.stdout.write("begun, ")
threading.Thread(target=late).start()
END
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "sys.exit('words')", "raise KeyError(noted)"])
def test_a_script_ends_as_under_python(tmp_path, end):
    """If this fails, what a script does in its end is left out, or it ends with another code than it does elsewhere."""
    script = tmp_path / "end.py"
    script.write_text(ENDS.replace("END", end))
    fresh, warmed = (subprocess.run([python, script], capture_output=True, text=True, timeout=300, check=False)
                     for python in (sys.executable, warm.python("torch")))
    assert (warmed.returncode, warmed.stdout) == (fresh.returncode, fresh.stdout)
    assert warmed.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]
