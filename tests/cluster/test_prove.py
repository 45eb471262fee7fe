# SPDX-License-Identifier: Apache-2.0
"""One run of each kind of `make prove` (docs/reliability.md), and that the moments at which it kills are in test builds only."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from helpers import HERE, SANITIZED, library_path, program

TREE = HERE.parents[1]
PROVE = HERE.parent / "prove"
BUILD = TREE / "build-prove"

sys.path.insert(0, str(PROVE))
import asked  # noqa: E402
from field import missing  # noqa: E402
from plan import CELLS  # noqa: E402
from tape import NEVER, Tape  # noqa: E402

needs_points = pytest.mark.skipif(not (BUILD / "tests" / "prove" / "psd_points").exists(),
                                  reason="no build with fail points: make build-prove")


def listed():
    """The map of fail points, by the header."""
    header = (TREE / "src" / "base" / "fail_points.h").read_text()
    return re.findall(r"^    X\((\w+), ", header, re.MULTILINE)


def passed():
    """The lines that pass one."""
    return [name for folder in ("server", "master", "client") for path in (TREE / "src" / folder).rglob("*.c")
            for name in re.findall(r"psi_fail_point\((\w+)\)", path.read_text())]


def test_every_point_is_listed_and_passed():
    """If this fails, a fail point is in the map and nowhere else, in two places, or there are fewer than sixty."""
    assert sorted(passed()) == sorted(listed())
    assert len(listed()) >= 60


def traces(path):
    """What a program has of fail points: symbols, and words that are not the names of its functions."""
    whole = pathlib.Path(path).resolve().read_bytes()
    symbols = subprocess.run(["nm", "-a", path], capture_output=True, text=True, check=True).stdout.split()
    words = {"FAIL-POINT", "PSD_FAIL_", *listed()} - set(symbols)
    return [name for name in symbols if "fail_point" in name] + [word for word in words if word.encode() in whole]


def test_programs_for_people_have_no_fail_points():
    """If this fails, whoever can set a variable can end a daemon of a build that is not for tests."""
    for path in (program("ps_server"), program("ps_master"), program("psd_run"), library_path()):
        assert traces(path) == []


def blow(role, *killed, apart_ms=0.0, phase="run", void=False, point=""):
    """As a run notes it."""
    return {"role": role, "killed": list(killed), "apart_ms": apart_ms, "phase": phase, "void": void, "point": point,
            "action": "kill", "reached": bool(point)}


def run_with(*blows, verdict="held"):
    return {"verdict": verdict, "mode": "bsp", "seconds": 60, "blows": list(blows)}


def test_what_is_asked_for_is_counted():
    """If this fails, the scoreboard says that enough was shown when it was not, or `make prove` passes over runs that are
    missing."""
    struck = run_with(blow("server", "server0"), blow("server", "server1", point="server_round_full"),
                      blow("both", "server0", "master", apart_ms=70), blow("both", "master", "server0", apart_ms=130),
                      blow("cut", "machine of server1"))
    assert asked.count([struck]) == {"servers killed": 3, "... bsp": 3, "... at fail points": 1, "masters killed": 1,
                                     "server and master within 100 ms": 1, "machines cut off": 1}
    assert asked.missing([struck])["... bsp"] == asked.ASKED["... bsp"] - 3
    assert asked.more([struck]) is None  # nobody knows how long other modes take
    each = [{**struck, "mode": mode} for mode in asked.MODES]
    assert asked.more(each) == (193, 96.5)  # 7 of 200 masters: 28 times as much, of 7 runs of a minute, two at a time
    worthless = [run_with(blow("server", "server0"), verdict="failed"), run_with(blow("server", "server0"), verdict="void"),
                 run_with(blow("server", "server0", void=True), blow("server", "server0", phase="start"))]
    assert not +asked.count(worthless)
    assert asked.missing(each * 40) == {} and asked.more(each * 40) == (0, 0)
    cut, killed = CELLS["bsp-machine-cut-off"], CELLS["sum-keep-killed"]
    assert asked.adds(cut, {"machines cut off": 1}) and not asked.adds(killed, {"machines cut off": 1})
    assert asked.adds(killed, {"... sum keep": 1}) and not asked.adds(killed, {"... bsp": 1})
    assert asked.adds(killed, {}), "when nothing is missing, every run is welcome"


TOGGLE = """
import sys
sys.path.insert(0, sys.argv[1])
from tape import NEVER, Tape
tape = Tape(sys.argv[2])
print("writes", flush=True)
while True:
    tape.set("stop_at", 384)
    tape.set("stop_at", NEVER)
"""


def test_a_tape_is_never_read_half_written(tmp_path):
    """If this fails, a worker may take a number that is just being written for a step at which to stop, and leave the others:
    the run fails, and nothing was wrong with the job."""
    tape = Tape(tmp_path / "0.tape", create=True)
    with subprocess.Popen([sys.executable, "-c", TOGGLE, str(PROVE), str(tape.path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline() == b"writes\n"
            assert {tape.get("stop_at") for _ in range(1_000_000)} <= {384, NEVER}
        finally:
            writer.kill()


@needs_points
def test_programs_for_tests_have_fail_points():
    """If this fails, the test before would not see them either."""
    assert len(traces(BUILD / "ps_server")) > 60
    assert "psi_fail_point_pass" in traces(BUILD / "ps_master")


@needs_points
def test_a_point_is_armed_by_the_environment():
    """If this fails, a point that somebody asks for is not the one at which a process dies, or a wrong name is not told."""
    done = subprocess.run([BUILD / "ps_server", "--version"], capture_output=True, text=True, timeout=120, check=False,
                          env={"PSD_FAIL_POINT": "server_round_aplied:1:kill"})
    assert done.returncode == 2
    assert "server_round_aplied:1:kill: no such point" in done.stderr


@needs_points
@pytest.mark.skipif(SANITIZED, reason="it has a build of its own, without sanitizers")
@pytest.mark.parametrize("name", CELLS)
def test_nothing_is_lost(name, tmp_path):
    """If this fails, somebody who dies takes an acknowledged push along, counts one twice, changes a bit, or ends the job; or a
    job that two deaths may end does so by another's name."""
    if CELLS[name].way == "hosts" and missing():
        pytest.skip(missing())
    done = subprocess.run([sys.executable, PROVE / "prove.py", "--cell", name, "--out", tmp_path], capture_output=True, text=True,
                          timeout=180, check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PSD_BIN": str(BUILD)})
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(done.stdout)
    may_end = any(blow["may_end"] for blow in record["blows"])
    assert record["verdict"] in (("held", "ended by name") if may_end else ("held",)), record
    assert [blow["killed"] for blow in record["blows"] if not blow["void"]], record
