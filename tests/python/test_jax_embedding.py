# SPDX-License-Identifier: Apache-2.0
"""Embedding of poseidon.jax: rows that are with the servers."""

import importlib.util

import pytest

from tensorflow_jobs import BIN, HERE, fixture_cache, fixture_call, fixture_job  # noqa: F401

CASES = HERE / "jax_row_cases.py"

pytestmark = [pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built"),
              pytest.mark.skipif(importlib.util.find_spec("optax") is None, reason="no JAX here (tools/setup.sh frameworks)")]


@pytest.mark.parametrize("workers", [1, 2])
def test_equals_one_process_with_all_batches(job, workers):  # noqa: F811
    """If this fails, rows on servers are trained otherwise than those of an array in one process that has the batches of all
    workers: with the whole step in jax.jit, with its gradient there, and with nothing there; with rows that a forward takes
    twice, and read in between, and with rows that were fetched ahead. Or such rows are asked for again, or workers end with
    other bits."""
    done = job(CASES, "equal", workers=workers, framework=None)
    for rank in range(workers):
        found = done.found(rank)
        assert sorted(found) == ["ahead", "eager", "gradient", "program"]
        for way, (apart, moved, steps, anchor, lookups, _) in found.items():
            assert apart < 1e-5 and moved > 0.01 and steps == 10 and anchor == 0, found
            assert lookups == (2 if way == "ahead" else 24), (way, lookups)  # but the first batch's
        assert found == done.found(0)


REFUSED = {"stale": "before the last step", "second": "second derivative", "vmap": "ordered IO callback",
           "remat": "Effects not supported", "floats": "integers, not float64", "cut": "jax_enable_x64",
           "again": "a table e already", "backup": "backup_workers", "unpushed": "1000 backwards without a step"}


def test_what_cannot_work_is_refused_by_name(job):  # noqa: F811
    """If this fails, rows are trained otherwise than the program says, or not at all, in silence."""
    done = job(CASES, "refusals", framework=None)
    for rank in range(2):
        found = done.found(rank)
        refused = found.pop("refused")
        assert sorted(refused) == sorted(REFUSED)
        for what, part in REFUSED.items():
            assert part in refused[what] and "no error" not in refused[what], (what, refused[what])
        assert found == {"rows": [[2, 2], [4, 4], [0, 0]], "steps": 2, "half": [[[6, 6], [6, 6], [3, 3]]], "empty": [0, 3, 2]}


def test_nothing_learnt_is_told(job):  # noqa: F811
    """If this fails, a loop that forgets the step ends as if it had trained its rows."""
    assert "sparse table e has learnt nothing: 1 backwards" in job(CASES, "nothing_learnt", framework=None).out
