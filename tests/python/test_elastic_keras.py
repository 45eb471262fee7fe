# SPDX-License-Identifier: Apache-2.0
"""Horovod's elastic example for Keras with the import replaced: horovod/keras_elastic.py, whose workers die and come."""

import importlib.util
import pathlib
import re

import pytest

import warm
from elastic_jobs import ended

SCRIPT = pathlib.Path(__file__).resolve().parent / "horovod" / "keras_elastic.py"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="no keras here (tools/setup.sh frameworks)")


def test_one_dies_and_one_comes(elastic_job):
    """If this fails, a script written for Horovod's KerasState loses samples, or trains on some twice, when workers die and come, or
    their models part."""
    made = elastic_job(2, python=warm.python("tensorflow"))
    gate = made.directory / "gate"
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    workers = [made.begin(SCRIPT, "--hold", f"9:{gate}", rank=rank, **quiet) for rank in range(2)]
    for worker in workers:
        worker.wait_for_output("holding", 180)
    newcomer = made.begin(SCRIPT, **quiet)
    newcomer.wait_for_output("pid", 120)
    made.kill(workers[0])
    gate.touch()
    done = ended([workers[1], newcomer], 180)
    assert len(set(done)) == 1 and "score 2.0 {'epoch': 2}" in done[0], done
    assert re.search(r"^resets \[.*2\]$", workers[1].output(), re.MULTILINE)
    assert "every sample counted 2 times" in newcomer.output() and workers[1].output().count("pid ") == 1
