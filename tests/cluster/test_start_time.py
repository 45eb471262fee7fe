# SPDX-License-Identifier: Apache-2.0
"""How long a job takes to gather when all its processes are there already."""

import pathlib
import re
import shutil
import subprocess
import time

import pytest

from helpers import HERE, SANITIZED, library_path, program

WORKERS = 100
SECONDS_MAX = 2.0
IDLE_MIN = 0.9  # of the processors: a machine that does other things, too, shows nothing


def idle_share(seconds=0.3):
    """How much of the machine nobody used for so long."""
    def read():
        fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        return int(fields[3]) + int(fields[4]), sum(map(int, fields))

    idle, total = read()
    time.sleep(seconds)
    idle_after, total_after = read()
    return (idle_after - idle) / max(total_after - total, 1)


@pytest.fixture(scope="module")
def herd(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("herd") / "herd"
    library = library_path()
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-I", str(HERE.parents[1] / "include"),
                    str(HERE / "herd.c"), "-o", str(path), str(library),
                    f"-Wl,-rpath,{library.parent}"], check=True)
    return path


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_a_hundred_workers_join(hand, herd, sealed):
    """If this fails, the proof of the secret makes large jobs wait, or some of them fail."""
    hand.environment = {"PSD_FORCE_TLS": "1"} if sealed else {}
    master = hand.master(WORKERS, 2)
    servers = [hand.start(f"server{index}", program("ps_server"), "--index", index,
                          "--master_address", hand.address, "--lanes=2") for index in range(2)]
    for server in servers:
        server.wait_for_output("JOINED")
    before = idle_share()
    workers = hand.start("herd", herd, WORKERS, environment={"PSD_MASTER_ADDRESS": hand.address})
    assert workers.wait(60) == 0, workers.output()
    assert [process.wait() for process in (master, *servers)] == [0, 0, 0]
    seconds = float(re.search(r"in ([\d.]+) s", workers.output()).group(1))
    idle = min(before, idle_share())
    print(f"\n{workers.output().strip()}; {idle:.0%} of the machine was idle before and after")
    assert "0 failed" in workers.output()
    if idle >= IDLE_MIN and not SANITIZED:
        assert seconds < SECONDS_MAX
