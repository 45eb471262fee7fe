# SPDX-License-Identifier: Apache-2.0
"""What counting costs a worker, in instructions, beside a build that counts nothing."""

import os
import re
import shutil
import subprocess

import pytest

from helpers import HERE, SANITIZED, library_path

TREE = HERE.parents[1]
UNCOUNTED = TREE / "build-uncounted"
FEW, MANY = 500, 2500
MOST = 0.02  # of a push_pull of 64 bytes
ROUNDS = 5

# What is done for telling goes by the clock, however many steps there are: twice a second, of 64 steps at most. Under valgrind, and
# on a machine that has more to do, few steps are made meanwhile.
TELLING = ("psi_client_tell", "psi_step_clock_heed", "psi_step_clock_look", "psi_mark_pushed")

pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind here: tools/setup.sh test fetches it"),
    pytest.mark.skipif(shutil.which("meson") is None, reason="no meson here, which builds what counts nothing"),
    pytest.mark.skipif(SANITIZED, reason="valgrind and sanitizers do not go together"),
    pytest.mark.skipif("PSD_BIN" in os.environ, reason="the build that counts nothing is like that of make, not like $PSD_BIN"),
]
JOB = ("--workers", 1, "--servers", 1, "--transport=tcp", "--spin_us=0", "--lanes=1")


def program_with(folder, library):
    path = folder / "pushes"
    subprocess.run(["cc", "-O2", "-I", str(TREE / "include"), str(HERE / "pushes.c"), "-o", str(path), str(library),
                    f"-Wl,-rpath,{library.parent}"], check=True)
    return path


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    return program_with(tmp_path_factory.mktemp("counting"), library_path())


@pytest.fixture(scope="module")
def uncounting(tmp_path_factory):
    if not (UNCOUNTED / "build.ninja").exists():
        subprocess.run(["meson", "setup", UNCOUNTED, "-Dcounting=false", "-Dtests=disabled", "-Dpage=disabled"], cwd=TREE, check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["meson", "compile", "-C", UNCOUNTED, "psd:shared_library"], check=True, stdout=subprocess.DEVNULL)
    return program_with(tmp_path_factory.mktemp("uncounting"), UNCOUNTED / "libpsd.so")


def counted(path):
    """Instructions of a run, all but those of psi_client_tell(), and all but those for telling."""
    said = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(path)], capture_output=True, text=True,
                          check=True).stdout

    def inclusive(name):  # a function has a line for each file that it has code of; the largest has all
        found = re.findall(rf"^\s*([\d,]+) .*:{name}(?: \[|$)", said, re.MULTILINE)
        return max((int(each.replace(",", "")) for each in found), default=0)

    (total,) = re.findall(r"^\s*([\d,]+) .*PROGRAM TOTALS$", said, re.MULTILINE)
    total = int(total.replace(",", ""))
    return total - inclusive("psi_client_tell"), total - sum(inclusive(name) for name in TELLING)


def test_counting_costs_little(start, counting, uncounting, tmp_path):
    """If this fails, counters, traffic or the clock of steps slow down jobs that make the smallest steps: psd_run watches every job."""
    def of(name, program, *options):
        def run(steps):
            path = tmp_path / f"{name}.{steps}"
            job = start(*options, *JOB, "--", "valgrind", "--tool=callgrind", f"--callgrind-out-file={path}", program, steps,
                        name=f"{name}{steps}")
            assert job.wait(120) == 0, job.stderr()
            return counted(path)

        return [(many - few) / (MANY - FEW) for many, few in zip(run(MANY), run(FEW))]

    # What else the machine does only adds to it: turns of the library's own thread, which go by the clock, and locks that were taken.
    rounds = []
    while not rounds or least["untold"] > (1 + MOST) * least["none"] and len(rounds) < ROUNDS:
        number = len(rounds)
        none, _ = of(f"none{number}-", uncounting, "--unwatched")
        alone, _ = of(f"alone{number}-", counting, "--unwatched")
        watched, untold = of(f"watched{number}-", counting, "--page", "off")
        rounds.append({"none": none, "alone": alone, "untold": untold, "watched": watched})
        least = {name: min(each[name] for each in rounds) for name in rounds[0]}

    def more(name):
        return f"{least[name]:.0f} ({least[name] / least['none'] - 1:.1%} more)"

    print(f"\na push_pull of 64 bytes: {least['none']:.0f} instructions where nothing is counted, {more('alone')} while nobody watches, "
          f"{more('untold')} while somebody does, {more('watched')} with what is kept of steps that are told")
    assert least["none"] < least["untold"]  # or nothing is counted at all
    assert least["untold"] <= (1 + MOST) * least["none"]
