# SPDX-License-Identifier: Apache-2.0
"""A hundred workers come at once. How long that takes is printed."""

import shutil
import subprocess

import pytest

from helpers import HERE, library_path, program

WORKERS = 100


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
    """If this fails, some of many workers that come at once are not let in."""
    hand.environment = {"PSD_FORCE_TLS": "1"} if sealed else {}
    master = hand.master(WORKERS, 2)
    servers = [hand.start(f"server{index}", program("ps_server"), "--index", index,
                          "--master_address", hand.address, "--lanes=2") for index in range(2)]
    for server in servers:
        server.wait_for_output("JOINED")
    workers = hand.start("herd", herd, WORKERS, environment={"PSD_MASTER_ADDRESS": hand.address})
    assert workers.wait(60) == 0, workers.output()
    assert [process.wait() for process in (master, *servers)] == [0, 0, 0]
    print(f"\n{workers.output().strip()}")
    assert "0 failed" in workers.output()
