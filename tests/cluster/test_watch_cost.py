# SPDX-License-Identifier: Apache-2.0
"""What it costs a worker to be watched, in instructions: they do not depend on what else the machine does."""

import re
import shutil
import subprocess

import pytest

from helpers import HERE, SANITIZED, library_path

FEW, MANY = 500, 2500
MOST = 0.02  # of a push_pull of 64 bytes

pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here: tools/setup.sh test fetches it"),
    pytest.mark.skipif(SANITIZED, reason="valgrind and sanitizers do not go together"),
]
OPTIONS = ("--transport=tcp", "--spin_us=0", "--lanes=1")


@pytest.fixture(scope="module")
def pushes(tmp_path_factory):
    path, library = tmp_path_factory.mktemp("pushes") / "pushes", library_path()
    subprocess.run(["cc", "-O2", "-I", str(HERE.parents[1] / "include"), str(HERE / "pushes.c"), "-o", str(path), str(library),
                    f"-Wl,-rpath,{library.parent}"], check=True)
    return path


def counted(path):
    """Instructions of a run, without those of telling: that happens twice a second, however many steps there are."""
    said = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(path)], capture_output=True, text=True,
                          check=True).stdout
    (total,) = re.findall(r"^\s*([\d,]+) .*PROGRAM TOTALS$", said, re.MULTILINE)
    telling = re.findall(r"^\s*([\d,]+) .*:psi_client_tell(?: \[|$)", said, re.MULTILINE)
    return int(total.replace(",", "")) - sum(int(each.replace(",", "")) for each in telling)


def test_being_watched_costs_little(start, hand, pushes, tmp_path):
    """If this fails, psd_run, which watches every job, slows down those that make the smallest steps."""
    def under(name, steps):
        path = tmp_path / f"{name}.{steps}"
        return path, ("valgrind", "--tool=callgrind", f"--callgrind-out-file={path}", pushes, steps)

    def alone(steps):
        path, command = under("alone", steps)
        job = [hand.master(1, 1, name=f"master{steps}"), hand.server(0, "--transport=tcp", "--spin_us=0", name=f"server{steps}")]
        job.append(hand.start(f"worker{steps}", *command, environment={
            "PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "0", "PSD_TRANSPORT": "tcp", "PSD_SPIN_US": "0"}))
        assert [process.wait(120) for process in job] == [0, 0, 0], job[-1].output()
        return counted(path)

    def watched(steps):
        path, command = under("watched", steps)
        job = start("--page", "off", "--workers", 1, "--servers", 1, *OPTIONS, "--", *command, name=f"watched{steps}")
        assert job.wait(120) == 0, job.stderr()
        return counted(path)

    one, other = ((count(MANY) - count(FEW)) / (MANY - FEW) for count in (alone, watched))
    print(f"\na push_pull of 64 bytes: {one:.0f} instructions, {other:.0f} while somebody watches: {other / one - 1:.1%} more")
    assert other <= (1 + MOST) * one
