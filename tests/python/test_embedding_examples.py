# SPDX-License-Identifier: Apache-2.0
"""The examples of embeddings beside clicks.py: ratings, and vectors of words."""

import pathlib
import re
import subprocess
import sys

import pytest

from plain_jobs import TREE, fixture_job  # noqa: F401

EXAMPLES = TREE / "examples" / "pytorch"
DIRECTORY = pathlib.Path("/usr/share/common-licenses")
LICENCES = ("Apache-2.0", "GFDL-1.3", "GPL-2", "GPL-3", "LGPL-2.1", "MPL-2.0")
PACKAGE = {"PYTHONPATH": str(TREE / "python")}


def trained(job, name, *arguments, workers):  # noqa: F811
    """The number that the example reaches, and a hash of what it learnt: the same on all workers."""
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 150
    done = job(EXAMPLES / f"{name}.py", *arguments, workers=workers, options=("--servers", 2), **PACKAGE)
    assert done.code == 0, done.out + done.err
    found = set(re.findall(r"worker \d: \w+ ([\d.]+), \w+ (\w{64})$", done.out, re.MULTILINE))
    assert len(found) == 1, done.out
    number, bits = found.pop()
    return float(number), bits


@pytest.fixture(name="ratings", scope="module")
def fixture_ratings(tmp_path_factory):
    """A file in MovieLens' format, and the error of the model that it was drawn from."""
    directory = tmp_path_factory.mktemp("ratings")
    done = subprocess.run([sys.executable, EXAMPLES / "ratings_draw.py", directory], capture_output=True, text=True, timeout=300,
                          check=True)
    assert (directory / "ratings.csv").read_text().startswith("userId,movieId,rating,timestamp\n")
    return directory, float(done.stdout.split()[-1])


def test_ratings_are_predicted_as_well_as_they_can_be(job, ratings):  # noqa: F811
    """If this fails, the example of matrix factorization does not learn what is there to learn, or other bits in another run."""
    directory, planted = ratings
    one, two = (trained(job, "ratings", directory, workers=workers) for workers in (1, 2))
    assert all(planted - 0.001 < error < planted + 0.02 for error, _ in (one, two)), (planted, one, two)
    assert trained(job, "ratings", directory, workers=2) == two


def test_words_know_their_neighbours(job):  # noqa: F811
    """If this fails, the example of word vectors learns hardly more than how often words come, or other bits in another run."""
    missing = [name for name in LICENCES if not (DIRECTORY / name).exists()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {DIRECTORY}")
    one, two = (trained(job, "word2vec", workers=workers) for workers in (1, 2))
    assert all(0.68 < right < 0.72 for right, _ in (one, two)), (one, two)
    assert trained(job, "word2vec", workers=2) == two
