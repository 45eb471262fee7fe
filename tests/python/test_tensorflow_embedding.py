# SPDX-License-Identifier: Apache-2.0
"""Embedding of poseidon.tensorflow, and its operations: rows that are with the servers."""

import pytest

from tensorflow_jobs import BIN, HERE, fixture_cache, fixture_call, fixture_job  # noqa: F401

CASES = HERE / "tf_row_cases.py"

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


@pytest.mark.parametrize("workers", [1, 2])
def test_equals_one_process_with_all_batches(job, workers):  # noqa: F811
    """If this fails, rows on servers are trained otherwise than those of keras.layers.Embedding in one process that has the
    batches of all workers: in Model.fit, with several steps in one function, and in loops with a tape, eager and in a
    tf.function; with a layer that is used twice, with evaluation in between, and with rows that were fetched ahead. Or such rows
    are asked for again, or workers end with other bits."""
    done = job(CASES, "equal", workers=workers)
    for rank in range(workers):
        found = done.found(rank)
        assert sorted(found) == ["by_fit", "by_fit_ahead", "by_function", "by_several_steps", "by_tape"]
        for way, (apart, moved, *steps, lookups, _) in found.items():
            assert apart < 1e-5 and moved > 0.01 and steps == [16, 16], found
            assert lookups == 2 if way == "by_fit_ahead" else lookups >= 32, (way, lookups)  # but the first batch's
        assert found == done.found(0)


def test_operations_move_rows(job):  # noqa: F811
    """If this fails, lookup() and push_rows() of a graph read or push other rows than they were given, in another order than
    the program's, or cannot name ids of 64 bits."""
    done = job(CASES, "operations")
    for rank in range(2):
        assert done.found(rank) == {
            "before": [[[0, 0], [0, 0]], [[0, 0], [0, 0]]], "after": [[[-2, -2], [-2, -2]], [[-0.5, -0.5], [-1, -1]]],
            "steps": 2, "shape": [0, 3, 2], "half": [[3, 4]], "empty": [[[0, 0]]]}


REFUSED = {"stale": "before the last step", "second": "second derivative", "accumulated": "gradient_accumulation_steps",
           "scaled": "LossScaleOptimizer", "factor": "loss_scale_factor", "float16": "use mixed_bfloat16",
           "strategy": "MirroredStrategy", "floats": "integers, not float32", "again": "a table e already",
           "copied": "a table e already", "backup": "backup_workers", "compiled": "PyFunc",
           "unpushed": "1000 backwards without a step", "loaded": '"sparse_table": "other"'}


def test_what_cannot_work_is_refused_by_name(job):  # noqa: F811
    """If this fails, rows are trained otherwise than the program says, or not at all, in silence."""
    done = job(CASES, "refusals")
    for rank in range(2):
        found = done.found(rank)
        refused = found.pop("refused")
        assert sorted(refused) == sorted(REFUSED)
        for what, part in REFUSED.items():
            assert part in refused[what] and "no error" not in refused[what], (what, refused[what])
        assert found == {"rows": [[3, 3], [5, 5], [1, 1]], "anchor": 0, "steps": 2, "mask": [[True, True, False]],
                         "half": "bfloat16", "files": [True, True]}


def test_nothing_learnt_is_told(job):  # noqa: F811
    """If this fails, a loop that forgets the optimizer ends as if it had trained its rows."""
    assert "sparse table e has learnt nothing: 1 backwards" in job(CASES, "nothing_learnt").out
