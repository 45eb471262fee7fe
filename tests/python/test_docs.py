# SPDX-License-Identifier: Apache-2.0
"""What the documentation says about tests: those that it names are there, and no kind of script is without one."""

import pathlib
import re
import subprocess

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"`(?!build/)(?:[\w/]*/)?(test_\w+|\w+_test)(\.py|\.c)?`")  # build/: programs


def known():
    """Names of all test functions and files of tests."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "src", "tests", "bench",
                             "examples"], cwd=TREE, capture_output=True, text=True, check=False).stdout.split()
    files = [TREE / path for path in listed] or [*TREE.glob("src/**/*"), *TREE.glob("tests/**/*")]
    tests = [path for path in files if path.suffix in (".py", ".c") and path.exists()]
    functions = {name for path in tests
                 for name in re.findall(r"^(?:def )?(test_\w+)\(", path.read_text(errors="replace"), re.MULTILINE)}
    return functions, {path.name for path in tests}


FUNCTIONS, FILES = known()


@pytest.mark.parametrize("page", sorted(path.name for path in (TREE / "docs").glob("*.md")))
def test_named_tests_are_there(page):
    """If this fails, a promise of the documentation is shown by a test that nobody runs."""
    missing = []
    for name, ending in NAME.findall((TREE / "docs" / page).read_text()):
        is_there = f"{name}{ending}" in FILES if ending else \
            name in FUNCTIONS or f"{name}.c" in FILES or f"test_{name}.c" in FILES
        if not is_there:
            missing.append(name + ending)
    assert not missing, missing


def test_every_kind_of_script_names_its_test():
    """If this fails, docs/automatic.md promises something that no test checks."""
    text = (TREE / "docs" / "automatic.md").read_text()
    tables = re.findall(r"^\| kind of script \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 30
    bare = [row for row in rows if not re.search(r"`test_\w+`[^|]*\|$", row)]
    assert not bare, bare
