# SPDX-License-Identifier: Apache-2.0
"""Programs that were compiled with another version of psd.h than the library they run with.

The other header is made from today's, by taking fields from the ends of structs, or appending one. The program is compiled
with it and linked with the library as it is."""

import pathlib
import re
import shutil
import subprocess

import pytest

from helpers import library_path

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "include" / "psd"
STRUCTS = ["psd_open_args", "psd_rule_args", "psd_table_args", "psd_transfer", "psd_node", "psd_state"]

# The first of the fields that the older program does not have.
CUT = {"psd_open_args": "secret_file", "psd_rule_args": "momentum", "psd_table_args": "seed", "psd_transfer": "first",
       "psd_node": "step"}


def body(text, name):
    """Where the fields of a struct begin and end in the header."""
    start = text.index(f"\nstruct {name} {{\n") + len(f"\nstruct {name} {{\n")
    return start, text.index("\n};\n", start) + 1


def older(text):
    for name, field in CUT.items():
        start, end = body(text, name)
        (line,) = re.finditer(rf"^ .*\b{field};.*\n", text[start:end], re.M)
        text = text[: start + line.start()] + text[end:]
    return text


def newer(text):
    for name in STRUCTS:
        end = body(text, name)[1]
        text = text[:end] + "    uint64_t later;\n" + text[end:]
    return text


@pytest.fixture
def build(tmp_path):
    """versions.c, compiled with the header that `change` makes of today's."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")

    def compiled(change, *options):
        headers = tmp_path / "include" / "psd"
        headers.mkdir(parents=True)
        for part in ("elastic.h", "reader.h", "status.h"):
            shutil.copy(HEADERS / part, headers)
        (headers / "psd.h").write_text(change((HEADERS / "psd.h").read_text()))
        library = library_path()
        subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", *options, "-I", headers.parent, HERE / "versions.c", "-o",
                        tmp_path / "versions", library, f"-Wl,-rpath,{library.parent}"], check=True)
        return tmp_path / "versions"

    return compiled


def test_older_program_runs_with_this_library(build, start):
    """If this fails, a field more in a struct breaks every program that was built before."""
    job = start("--workers", 1, "--servers", 1, "--", build(older))
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert "done\n" in job.stdout()


def test_newer_program_runs_while_it_asks_for_nothing_new(build, start):
    """If this fails, a program must be compiled with the header of the oldest library it may meet."""
    job = start("--workers", 1, "--servers", 1, "--", build(newer, "-DLATER"))
    assert job.wait() == 0, job.stdout() + job.stderr()
    assert "done\n" in job.stdout()


@pytest.mark.parametrize("name", [name for name in STRUCTS if name != "psd_node"])
def test_newer_program_is_refused_what_is_unknown(build, start, name):
    """If this fails, an older library ignores in silence what a newer program asks of it."""
    job = start("--workers", 1, "--servers", 1, "--", build(newer, "-DLATER"), name)
    assert job.wait() != 0
    (said,) = re.findall(r"PSD_ERR_INVALID: (.*)", job.stdout())
    assert f"struct {name}" in said and "newer libpsd" in said
