# SPDX-License-Identifier: Apache-2.0
"""What workers print: whole lines, all of them, in order, on the console and in the logs."""

import os
import subprocess
import sys

import pytest

from helpers import MARK, program, wait_for, worker_environment

QUICK = ("--grace_ms", "100")
TORCH = ("--personality", "torch")  # no servers: the job ends with its workers


def script(tmp_path, text, name="script"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors(tmp_path, closed):
    """If this fails, psd_run under a daemon that closes them hangs, or its sockets get its lines."""
    done = subprocess.run(["sh", "-c", f"exec {program('psd_run')} {' '.join(QUICK)} 'echo hi' {closed}"],
                          cwd=tmp_path, timeout=30, capture_output=True, text=True, check=False,
                          env={**os.environ, **worker_environment()})
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("logs/*/worker0.log")
    assert log.read_text() == "hi\n"
    assert ("[worker0] hi\n" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_daemons_with_closed_descriptors(hand):
    """If this fails, a daemon that was started without them writes its log into a connection."""
    closed = ("sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-')
    master = hand.start("master", *closed, program("ps_master"), "--workers", 1, "--servers", 1,
                        "--port", hand.port)
    server = hand.start("server0", *closed, program("ps_server"), "--index", 0,
                        "--master_address", hand.address, "--lanes=1")
    worker = hand.worker(0, "--steps", 3)
    assert worker.wait() == 0, worker.output()
    assert (server.wait(), master.wait()) == (0, 0)
