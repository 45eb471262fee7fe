# SPDX-License-Identifier: Apache-2.0
"""Jobs with more workers than a machine can run: simulated, from kept plans (tests/sim/large)."""

import re
import subprocess

import pytest

from helpers import HERE, program

LARGE = HERE.parent / "sim" / "large"


@pytest.mark.all
def test_a_thousand_workers():
    """If this fails, a thousand workers do not get through a hundred steps, ten deaths among them and a clean end; or the
    cost of one worker grows with the number of the others."""
    done = subprocess.run([program("psd_sim"), "--plan", LARGE / "thousand_workers.plan", "--seeds", "1"],
                          capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout
    counts = {name: int(number) for name, number in re.findall(r"^  (\w+) +(\d+)$", done.stdout, re.M)}
    assert counts["worker_kills"] == 10 and counts["jobs_finished"] == 1, done.stdout
    assert counts["steps"] >= 990 * 100, done.stdout
    assert counts["frames"] < 20 * counts["steps"], done.stdout
