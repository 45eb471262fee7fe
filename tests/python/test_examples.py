# SPDX-License-Identifier: Apache-2.0
"""The examples are short, run, and learn."""

import sys

import pytest

from conftest import TREE, environment
from helpers import Job

EXAMPLES = sorted((TREE / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_is_short(path):
    """If this fails, an example is no example any more."""
    assert len(path.read_text().splitlines()) < 150


def logistic(tmp_path, name, *arguments, workers=2, servers=1):
    job = Job(tmp_path / name, "--workers", workers, "--servers", servers, "--", sys.executable,
              TREE / "examples" / "python" / "logistic.py", *arguments, environment=environment())
    assert job.wait(60) == 0, job.stderr()
    return [job.log(f"worker{rank}").decode().split() for rank in range(workers)]


def test_logistic_regression(tmp_path):
    """If this fails, the first example that people try does not learn, or not repeatably."""
    first = logistic(tmp_path, "first")
    again = logistic(tmp_path, "again", servers=2)
    assert {words[-1] for words in first + again} == {first[0][-1]}
    assert float(first[0][3]) > 0.94
    assert float(logistic(tmp_path, "adam", "--rule", "adam")[0][3]) > 0.94
